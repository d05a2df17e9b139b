//! Feeds in text, tried line by line.

use super::{TRIED, Trial};
use crate::depth::{self, Update};
use crate::{lobster, tardis};

/// Bytes of a line that are shown in an error.
const SHOWN: usize = 40;

/// Tries each whole line; the last one too if there is no more of the stream.
fn each(head: &[u8], whole: bool, trial: &mut Trial, mut try_line: impl FnMut(&[u8]) -> Option<Result<(), String>>) {
    let mut at = 0;
    while trial.records < TRIED && at < head.len() && !trial.broken {
        let end = head[at..].iter().position(|byte| *byte == b'\n').map(|end| at + end);
        let is_last = end.is_none();
        let line = &head[at..end.unwrap_or(head.len())];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // What the look, or the file, cuts off is for its reader to say, unless it is all there is.
        if is_last && trial.records > 0 {
            return;
        }
        if !line.is_empty() {
            match try_line(line) {
                Some(known) if !is_last || whole || known.is_ok() => trial.walked(at as u64, known),
                _ => trial.stop(at as u64, format!("no such line: '{}'", shown(line))),
            }
        }
        at = end.map_or(head.len(), |end| end + 1);
    }
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).escape_debug().to_string()
}

pub(super) fn lobster(head: &[u8], whole: bool) -> Trial {
    let mut trial = Trial::default();
    each(head, whole, &mut trial, |line| match lobster::Row::parse(line) {
        Ok(_) => Some(Ok(())),
        // Another number of fields is another kind of file; the order-book file has four for each level.
        Err(lobster::row::BadRow::Fields(_)) => None,
        Err(bad) => Some(Err(bad.to_string())),
    });
    if trial.broken && trial.records == 0 && is_book_file(head) {
        trial.misfit =
            Some((0, "these are the rows of an order-book file, which is no feed: give the message file".into()));
    }
    trial
}

fn is_book_file(head: &[u8]) -> bool {
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first = first.strip_suffix(b"\r").unwrap_or(first);
    lobster::book_file::BookRow::parse(first).is_some()
}

pub(super) fn depth(head: &[u8], whole: bool) -> Trial {
    let mut trial = Trial::default();
    // A pipe shows the first bytes only: what an object of this kind can begin with is all there is to tell it by.
    if !whole && !head.contains(&b'\n') {
        let (_, json) = depth::split_stamp(head);
        let begins = |text: &[u8]| json.starts_with(text);
        if [&b"{\"stream\":\""[..], b"{\"e\":\"", b"{\"u\":", b"{\"lastUpdateId\":"].iter().any(|text| begins(text)) {
            (trial.records, trial.fitting) = (1, 1);
            return trial;
        }
    }
    each(head, whole, &mut trial, |line| {
        let (_, json) = depth::split_stamp(line);
        match Update::parse(json) {
            Ok(_) => Some(Ok(())),
            Err(depth::Malformed::Json) => None,
            Err(depth::Malformed::Unknown) => Some(Err("an object of another kind".into())),
            Err(depth::Malformed::Field(_, field)) => {
                Some(Err(format!("the field {field} is missing or cannot be read")))
            }
        }
    });
    trial
}

pub(super) fn tardis(head: &[u8], whole: bool) -> Trial {
    let mut trial = Trial::default();
    let header = tardis::HEADER;
    let shared = head.len().min(header.len());
    if head[..shared] != header[..shared] || shared < header.len() && (whole || shared < b"exchange,symbol,".len()) {
        trial.stop(0, "it does not begin with the header of incremental_book_L2".into());
        return trial;
    }
    let rows = &head[shared..];
    let blank = rows.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    if rows.len() == blank {
        // The header alone.
        (trial.records, trial.fitting) = (1, 1);
        return trial;
    }
    let start = shared + blank;
    each(&head[start..], whole, &mut trial, |line| match tardis::Row::parse(line) {
        Ok(_) => Some(Ok(())),
        Err(tardis::row::BadRow::Fields(_)) => None,
        Err(bad) => Some(Err(bad.to_string())),
    });
    if let Some((offset, _)) = &mut trial.misfit {
        *offset += start as u64;
    }
    trial
}
