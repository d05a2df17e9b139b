use super::*;

#[test]
fn each_kind_is_told_with_or_without_its_stream() {
    let depth =
        r#"{"e":"depthUpdate","E":1723161255208,"T":1,"s":"BTCUSDT","U":10,"u":12,"pu":9,"b":[["1.5","2"]],"a":[]}"#;
    let wrapped = format!(r#"{{"stream":"btcusdt@depth@100ms","data":{depth}}}"#);
    for text in [depth, &wrapped] {
        let Ok(Update::Depth(found)) = Update::parse(text.as_bytes()) else { panic!("{text}") };
        assert_eq!((found.symbol, found.first, found.last, found.previous), (&b"BTCUSDT"[..], 10, 12, Some(9)));
        assert_eq!(found.time, Some(1_723_161_255_208_000_000));
    }
    // The same in microseconds.
    let micros = depth.replace("1723161255208", "1723161255208000");
    assert_eq!(Update::parse(micros.as_bytes()).map(|update| update.time()), Ok(Some(1_723_161_255_208_000_000)));
    let ticker = r#"{"u":5,"s":"BTCUSDT","b":"1.5","B":"3","a":"1.6","A":"4"}"#;
    let Ok(Update::Ticker(found)) = Update::parse(ticker.as_bytes()) else { panic!("a ticker") };
    assert_eq!((found.time, found.bid, found.ask), (None, (&b"1.5"[..], &b"3"[..]), (&b"1.6"[..], &b"4"[..])));
    let trade = r#"{"e":"trade","E":1723161255343,"s":"X","t":7,"p":"1","q":"2","T":1723161255342,"m":true,"M":true}"#;
    let Ok(Update::Trade(found)) = Update::parse(trade.as_bytes()) else { panic!("a trade") };
    assert_eq!((found.id, found.time, found.buyer_is_maker), (7, Some(1_723_161_255_342_000_000), true));
    let trade = trade.replace("\"trade\"", "\"aggTrade\"").replace("\"t\":", "\"a\":");
    assert_eq!(Update::parse(trade.as_bytes()).map(|update| update.letter()), Ok(letter::AGGREGATE));
    let snapshot = r#"{"lastUpdateId":9,"bids":[["1","2"]],"asks":[["3","4",[]]]}"#;
    for (text, symbol, is_partial) in [
        (snapshot.to_owned(), None, false),
        (format!(r#"{{"stream":"btcusdt@depth","data":{snapshot}}}"#), Some(&b"btcusdt"[..]), false),
        (format!(r#"{{"stream":"btcusdt@depth20@100ms","data":{snapshot}}}"#), Some(&b"btcusdt"[..]), true),
    ] {
        let Ok(Update::Snapshot(found)) = Update::parse(text.as_bytes()) else { panic!("{text}") };
        assert_eq!((found.symbol, found.is_partial, found.last), (symbol, is_partial, 9));
    }
}

#[test]
fn what_is_none_of_them_says_why() {
    let field = |name| Err(Malformed::Field(letter::DEPTH, name));
    for (text, expected) in [
        ("", Err(Malformed::Json)),
        ("[]", Err(Malformed::Json)),
        (r#"{"e":"depthUpdate""#, Err(Malformed::Json)),
        (r#"{"result":null,"id":1}"#, Err(Malformed::Unknown)),
        (r#"{"e":"markPriceUpdate","s":"X"}"#, Err(Malformed::Unknown)),
        (r#"{"e":"depthUpdate","U":1,"u":2,"b":[],"a":[]}"#, field("s")),
        (r#"{"e":"depthUpdate","s":"X","U":"x","u":2,"b":[],"a":[]}"#, field("U")),
        (r#"{"e":"depthUpdate","s":"X","U":3,"u":2,"b":[],"a":[]}"#, field("U")),
        (r#"{"e":"depthUpdate","s":"X","U":1,"u":2,"b":[["1"]],"a":[]}"#, field("b")),
        (r#"{"e":"depthUpdate","s":"X","U":1,"u":2,"b":[],"a":[["1","NaN"]]}"#, field("a")),
    ] {
        assert_eq!(Update::parse(text.as_bytes()).map(|_| ()), expected, "{text}");
    }
}

#[test]
fn a_line_cut_anywhere_is_refused_and_never_read_by_half() {
    let whole =
        r#"{"stream":"x@depth","data":{"e":"depthUpdate","s":"X","U":1,"u":2,"b":[["1","2"]],"a":[["3","4"]]}}"#;
    assert!(Update::parse(whole.as_bytes()).is_ok());
    for cut in 0..whole.len() {
        assert!(Update::parse(&whole.as_bytes()[..cut]).is_err(), "cut at {cut}");
    }
}
