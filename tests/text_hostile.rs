//! Hostile text: bytes changed, cut, doubled at random. Nothing panics, every line is counted once, and what is wrong with the
//! stream is said at an offset inside it.

#![forbid(unsafe_code)]

use std::io::Cursor;
use std::path::Path;

use protocol::book::{BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::line::Epoch;
use protocol::time::Nanos;
use publisher::capture::window::Window;
use publisher::date::SessionDate;
use publisher::input::Packing;
use publisher::pipeline::PipelineError;
use publisher::text::{Layout, LineFile};
use publisher::venue::{AnyVenue, Venue};
use publisher::{Pipeline, depth, lobster, tardis};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const LOBSTER: &str = "34200.004241176,1,16113575,18,5853300,1\n34200.1,2,16113575,8,5853300,1\n34200.2,4,16113575,6,5853300,1\n\
    34200.3,3,16113575,4,5853300,1\n34200.4,5,0,50,5853400,-1\n34200.5,6,-1,900,5853500,-1\n34200.6,7,0,0,-1,-1\n";
const DEPTH: &str = r#"1723161254206652067 {"lastUpdateId":9,"bids":[["1.5","2"],["1.4","3"]],"asks":[["1.6","1"]]}
1723161254206652068 {"stream":"x@depth","data":{"e":"depthUpdate","E":1723161255208,"s":"X","U":10,"u":12,"pu":9,"b":[["1.5","0"]],"a":[]}}
1723161254206652069 {"stream":"x@bookTicker","data":{"u":13,"s":"X","b":"1.4","B":"3","a":"1.6","A":"4"}}
{"e":"trade","E":1723161255343,"s":"X","t":7,"p":"1.6","q":"2","T":1723161255342,"m":true,"M":true}
{"e":"aggTrade","E":1723161255343,"s":"X","a":7,"p":"1.6","q":"2","T":1723161255342,"m":false}
{"stream":"x@depth5","data":{"lastUpdateId":14,"bids":[["1.5","2"]],"asks":[]}}
"#;
const TARDIS: &str = "exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount\n\
    d,X,1585699200245000,1585699200250000,true,bid,6420.5,0.25\nd,X,1585699200245000,1585699200250000,true,ask,6421,1\n\
    d,X,1585699200246000,1585699200251000,false,bid,6420.5,0\nd,Y,1585699200246000,1585699200251000,false,ask,7,1e-3\n";

fn venue(layout: Layout) -> AnyVenue {
    match layout {
        Layout::Lobster => AnyVenue::Lobster(lobster::Normaliser::new("X", SessionDate::NONE)),
        Layout::Depth => AnyVenue::Depth(depth::Normaliser::new(SessionDate::NONE)),
        Layout::Tardis => AnyVenue::Tardis(tardis::Normaliser::new(SessionDate::NONE)),
    }
}

/// Changes a byte, puts in or takes out some, or turns a number into one at the edge of what there is.
fn spoil(text: &mut Vec<u8>, random: &mut Pcg64Mcg) {
    let at = random.random_range(0..text.len());
    match random.random_range(0..6) {
        0 => text[at] = random.random(),
        1 => text.truncate(at + 1),
        2 => text.insert(at, *b"\n\r,\"{}[]-.e09 "[..].get(random.random_range(0..14)).expect("in it")),
        3 => {
            let end = (at + random.random_range(1..20)).min(text.len());
            let piece = text[at..end].to_vec();
            text.splice(at..at, piece);
        }
        4 => {
            let edges: [&[u8]; 5] = [
                b"18446744073709551615",
                b"9223372036854775807",
                b"-9223372036854775808",
                b"1e64",
                b"0.0000000000000000001",
            ];
            let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            text.splice(at..at + digits, edges[random.random_range(0..edges.len())].iter().copied());
        }
        _ => {
            text.remove(at);
            if text.is_empty() {
                text.push(b'\n');
            }
        }
    }
}

#[test]
fn spoilt_text_is_counted_and_never_panics() {
    let config = ChannelConfig {
        books: BooksConfig { instruments: 8, orders: 64, levels: 64 },
        start: Start::Natural,
        digest_every: 3,
    };
    for (layout, sample) in [(Layout::Lobster, LOBSTER), (Layout::Depth, DEPTH), (Layout::Tardis, TARDIS)] {
        for seed in 0..2_000 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let mut text = sample.repeat(2).into_bytes();
            for _ in 0..random.random_range(1..8) {
                spoil(&mut text, &mut random);
            }
            let len = text.len() as u64;
            let window = Window::new(Cursor::new(text), Path::new("x"), Packing::Plain);
            let source = LineFile::from_window(window, layout, false);
            let mut pipeline = Pipeline::new(source, venue(layout), Epoch(1), config);
            let outcome = loop {
                match pipeline.step(Nanos(1), &mut |_| ()) {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            if let Err(PipelineError::Feed(error)) = &outcome {
                assert!(error.offset() <= len && error.is_early_end(), "{layout:?}, seed {seed}: {error}");
            }
            assert!(!matches!(outcome, Err(PipelineError::Exhausted(_))), "{layout:?}, seed {seed}");
            let counted = pipeline.venue().counters().messages();
            assert_eq!(counted, pipeline.messages(), "{layout:?}, seed {seed}");
        }
    }
}
