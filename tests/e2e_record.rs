//! A DBN file through publisher and recorder, in processes of their own: what is recorded live is what is recorded from the
//! file.

#![forbid(unsafe_code)]

use std::fs;
use std::time::{Duration, Instant};

use bookcast_tests::dbn::{Mbo, NO_PRICE, flags, mbo_file, status};
use bookcast_tests::programs::{Running, output, printed, unique};

/// The longest any step here may take, ten times what is stated for it and more: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn what_is_recorded_live_is_what_is_recorded_from_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = unique("record");
    let clear = Mbo { action: b'R', side: b'N', order: 0, price: NO_PRICE, size: 0, ..Mbo::default() };
    let mut bytes = mbo_file(3, &[clear]);
    for order in 1..=2_000u64 {
        let (side, price) = if order % 2 == 0 { (b'B', 1_000 - order as i64) } else { (b'A', 1_000 + order as i64) };
        let flags = if order % 5 == 0 { flags::LAST } else { 0 };
        bytes.extend(Mbo { order, side, price, flags, at: order * 20_000, ..Mbo::default() }.bytes());
    }
    bytes.extend(status(7, 7, 50_000_000));
    let source = folder.path().join("source.dbn");
    fs::write(&source, bytes).expect("writes");
    let (live, copy) = (folder.path().join("live.dbn.zst"), folder.path().join("copy.dbn.zst"));
    let config = folder.path().join("channel.toml");
    let text = format!(
        "[channel]\nname = \"{name}\"\n[feed]\npath = \"{}\"\npace = {{ speed = 1.0 }}\n[run]\nyield_when_idle = true\nlinger_ms = 200\nstate_dir = \"{}\"\n",
        source.display(),
        folder.path().display()
    );
    fs::write(&config, text).expect("writes");
    let arguments = ["record", "--live", &name, "-o", live.to_str().expect("ours"), "--json"];
    let recorder = Running::start("feeds-replay", &arguments, &[]);
    // It listens once its file is there.
    let until = Instant::now() + PATIENCE;
    while fs::read_dir(folder.path()).expect("reads").count() < 3 {
        assert!(Instant::now() < until, "the recorder did not begin within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let publisher = Running::start("publisher", &["run", config.to_str().expect("ours")], &[]);
    let published = publisher.finish(PATIENCE);
    assert!(published.status.success(), "{}", printed(&published));
    let recorded = recorder.finish(PATIENCE);
    assert!(recorded.status.success(), "{}", printed(&recorded));
    let found: serde_json::Value = serde_json::from_slice(&recorded.stdout).expect("JSON");
    assert_eq!((found["records"]["mbo"].as_u64(), found["records"]["status"].as_u64()), (Some(2_001), Some(1)));
    assert!(found["left_out"]["BookDigest"].as_u64() > Some(0), "{found}");
    let direct =
        output("feeds-replay", &["record", source.to_str().expect("ours"), "-o", copy.to_str().expect("ours")]);
    assert!(direct.status.success(), "{}", printed(&direct));
    assert!(fs::read(&live).expect("reads") == fs::read(&copy).expect("reads"), "the two recordings differ");
}
