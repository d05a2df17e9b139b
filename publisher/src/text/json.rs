//! A walk through JSON that builds nothing: members of an object, elements of an array, as the bytes they are.
//!
//! Structure is checked (brackets match, strings end, nothing follows the value), what scalars mean is for the caller.

/// The deepest nesting that is walked.
const MAX_DEPTH: u32 = 32;

/// Shows `member` each member of the object that `bytes` are: its key without quotes, and its value as it stands. `None`
/// if they are no object, or not whole.
pub fn object<'a>(bytes: &'a [u8], member: &mut impl FnMut(&'a [u8], &'a [u8])) -> Option<()> {
    let mut at = open(bytes, b'{')?;
    if bytes.get(at) == Some(&b'}') {
        return closed(bytes, at);
    }
    loop {
        let key_end = value_end(bytes, at)?;
        let key = string(&bytes[at..key_end])?;
        at = blank(bytes, key_end);
        if bytes.get(at) != Some(&b':') {
            return None;
        }
        at = blank(bytes, at + 1);
        let end = value_end(bytes, at)?;
        member(key, &bytes[at..end]);
        at = blank(bytes, end);
        match bytes.get(at)? {
            b',' => at = blank(bytes, at + 1),
            b'}' => return closed(bytes, at),
            _ => return None,
        }
    }
}

/// Shows `element` each element of the array that `bytes` are, as it stands. `None` if they are no array, or not whole, or
/// `element` says so.
pub fn array<'a>(bytes: &'a [u8], element: &mut impl FnMut(&'a [u8]) -> Option<()>) -> Option<()> {
    let mut at = open(bytes, b'[')?;
    if bytes.get(at) == Some(&b']') {
        return closed(bytes, at);
    }
    loop {
        let end = value_end(bytes, at)?;
        element(&bytes[at..end])?;
        at = blank(bytes, end);
        match bytes.get(at)? {
            b',' => at = blank(bytes, at + 1),
            b']' => return closed(bytes, at),
            _ => return None,
        }
    }
}

/// The inside of a string without escapes, which names and numbers do not need.
pub fn string(value: &[u8]) -> Option<&[u8]> {
    match value {
        [b'"', inside @ .., b'"'] if !inside.contains(&b'\\') => Some(inside),
        _ => None,
    }
}

/// The text of a number, whether it stands there as such or in quotes.
pub fn number(value: &[u8]) -> Option<&[u8]> {
    match value.first()? {
        b'"' => string(value),
        b'-' | b'0'..=b'9' => Some(value),
        _ => None,
    }
}

fn open(bytes: &[u8], bracket: u8) -> Option<usize> {
    let at = blank(bytes, 0);
    (bytes.get(at) == Some(&bracket)).then(|| blank(bytes, at + 1))
}

/// The closing bracket stands at `at`, and nothing follows it.
fn closed(bytes: &[u8], at: usize) -> Option<()> {
    (blank(bytes, at + 1) == bytes.len()).then_some(())
}

fn blank(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
        at += 1;
    }
    at
}

/// Where the value that begins at `at` ends.
fn value_end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => string_end(bytes, at),
        b'{' | b'[' => container_end(bytes, at),
        first if first.is_ascii_alphanumeric() || *first == b'-' => {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
            Some(at + bytes[at..].iter().take_while(|byte| is_part(byte)).count())
        }
        _ => None,
    }
}

fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut place = at + 1;
    loop {
        match bytes.get(place)? {
            b'"' => return Some(place + 1),
            b'\\' => place += 2,
            _ => place += 1,
        }
    }
}

fn container_end(bytes: &[u8], at: usize) -> Option<usize> {
    // One bit for each open bracket, the innermost lowest: whether it is a brace.
    let (mut open, mut depth) = (0u32, 0u32);
    let mut place = at;
    loop {
        match bytes.get(place)? {
            b'"' => {
                place = string_end(bytes, place)?;
                continue;
            }
            bracket @ (b'{' | b'[') => {
                if depth == MAX_DEPTH {
                    return None;
                }
                (open, depth) = (open << 1 | u32::from(*bracket == b'{'), depth + 1);
            }
            bracket @ (b'}' | b']') => {
                if open & 1 != u32::from(*bracket == b'}') {
                    return None;
                }
                (open, depth) = (open >> 1, depth - 1);
                if depth == 0 {
                    return Some(place + 1);
                }
            }
            _ => {}
        }
        place += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        object(text.as_bytes(), &mut |key, value| found.push((text_of(key), text_of(value))))?;
        Some(found)
    }

    #[test]
    fn members_come_as_they_stand() {
        let found =
            members(r#" {"e":"x","U": 12,"b":[["1","2"],[]],"data":{"a":"}","q":"\""},"m":true} "#).expect("whole");
        let found: Vec<String> = found.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
        assert_eq!(found, ["e:\"x\"", "U:12", "b:[[\"1\",\"2\"],[]]", "data:{\"a\":\"}\",\"q\":\"\\\"\"}", "m:true"]);
        assert_eq!(members("{}"), Some(Vec::new()));
    }

    #[test]
    fn what_is_cut_or_does_not_match_is_no_object() {
        let whole = r#"{"a":[1,{"b":"c\""}],"d":-1.5e3}"#;
        assert!(members(whole).is_some());
        for cut in 0..whole.len() {
            assert!(members(&whole[..cut]).is_none(), "cut at {cut}");
        }
        for broken in [r#"{"a":[1}"#, r#"{"a":1}}"#, r#"{"a" 1}"#, r#"{"a":}"#, "[]", r#"{"a":1 "b":2}"#, r#"{"\x":1}"#]
        {
            assert!(members(broken).is_none(), "{broken}");
        }
        assert!(members(&format!("{{\"a\":{}1{}}}", "[".repeat(40), "]".repeat(40))).is_none(), "nested too deep");
    }

    #[test]
    fn elements_come_as_they_stand_and_numbers_with_or_without_quotes() {
        let mut found = Vec::new();
        let walked = array(br#"["1.5", 2, [3] ]"#, &mut |element| {
            found.push(number(element).map(<[u8]>::to_vec));
            Some(())
        });
        assert_eq!((walked, found), (Some(()), vec![Some(b"1.5".to_vec()), Some(b"2".to_vec()), None]));
        assert_eq!(array(b"[1,2]", &mut |_| None), None);
        assert_eq!(array(b"[1,2", &mut |_| Some(())), None);
    }
}
