use super::*;

fn message(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

/// A system event: 12 bytes.
const EVENT: &[u8] = b"S\0\0\0\0\0\x09\xd2\x87\x40\xa8O";

fn kind(bytes: &[u8]) -> Result<FeedKind, DetectError> {
    stream_kind(Path::new("x"), bytes, true)
}

fn mold(count: u16, blocks: &[u8]) -> Vec<u8> {
    [b"0000100001", &7u64.to_be_bytes()[..], &count.to_be_bytes(), blocks].concat()
}

#[test]
fn each_kind_is_told_by_its_content() {
    assert_eq!(kind(&message(EVENT)), Ok(FeedKind::Itch));
    assert_eq!(kind(&mold(1, &message(EVENT))), Ok(FeedKind::Mold));
    let prelude = [&b"DBN\x03"[..], &4u32.to_le_bytes(), &[0; 4]].concat();
    assert_eq!(kind(&prelude), Ok(FeedKind::Dbn), "metadata alone");
    let mut record = vec![14, 0xA0];
    record.resize(56, 0);
    assert_eq!(kind(&[&prelude[..], &record].concat()), Ok(FeedKind::Dbn));
}

#[test]
fn one_of_a_hundred_records_may_be_unknown_and_two_may_not() {
    let sound: Vec<u8> = (0..99).flat_map(|_| message(EVENT)).collect();
    let unknown = message(b"?123");
    assert_eq!(kind(&[&sound[..], &unknown].concat()), Ok(FeedKind::Itch));
    let error = kind(&[&sound[..], &unknown, &unknown].concat()).expect_err("two of 101");
    let text = error.to_string();
    assert!(text.contains("offset 1386 (99 of 101 records fit): unknown message type 0x3F, 4 bytes"), "{text}");
    assert_eq!(error.offset(), 1386);
}

#[test]
fn what_fits_nothing_names_every_kind_and_where_it_first_did_not_fit_and_the_option() {
    let text = kind(&[0; 100]).expect_err("nothing").to_string();
    for expected in ["(itch)", "(mold)", "(dbn)", "offset 0", "--feed", "the length prefix is zero"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = kind(b"time,price,size\n1,2,3\n").expect_err("nothing").to_string();
    assert!(text.contains("inside its first message"), "{text}");
}

#[test]
fn what_fits_two_kinds_names_both() {
    let error = DetectError::Several { path: "x".into(), kinds: vec![FeedKind::Itch, FeedKind::Mold] };
    let text = error.to_string();
    assert!(
        text.contains("BinaryFILE (itch) and as ITCH 5.0 in MoldUDP64 (mold)") && text.contains("--feed"),
        "{text}"
    );
}

#[test]
fn a_file_that_is_cut_off_is_still_what_it_is() {
    let whole: Vec<u8> = (0..3).flat_map(|_| message(EVENT)).collect();
    for cut in 14..whole.len() {
        assert_eq!(kind(&whole[..cut]), Ok(FeedKind::Itch), "cut at {cut}");
    }
    let datagrams = [mold(1, &message(EVENT)), mold(2, &[message(EVENT), message(EVENT)].concat())].concat();
    for cut in 34..datagrams.len() {
        assert_eq!(kind(&datagrams[..cut]), Ok(FeedKind::Mold), "cut at {cut}");
    }
}

#[test]
fn a_fault_among_the_first_thousand_is_no_feed_and_one_beyond_is_not_looked_at() {
    let many: Vec<u8> = (0..1000).flat_map(|_| message(EVENT)).collect();
    assert_eq!(kind(&[&many[..], &[0; 10]].concat()), Ok(FeedKind::Itch));
    assert!(kind(&[&many[14..], &[0; 10]].concat()).is_err());
}

#[test]
fn names_are_read_as_they_are_printed() {
    for kind in FeedKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    assert!("pitch".parse::<FeedKind>().expect_err("unknown").contains("itch, mold, dbn"));
}
