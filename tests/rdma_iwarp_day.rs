//! A day over soft-iWARP, which has connections and no datagrams: publisher and subscriber run on writes alone, and say so.
//! Runs in the virtual machine that has such devices.

#![forbid(unsafe_code)]

use bookcast_tests::day::{Publishing, Watching, number};
use bookcast_tests::programs::{output, printed};
use bookcast_tests::wire::THERE;

#[test]
fn a_subscriber_runs_on_writes_alone_and_says_so() {
    if std::env::var("BOOKCAST_RDMA").as_deref() != Ok("siw") {
        println!("not on this fabric");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let publishing = Publishing::start(folder.path(), 20_000, 2_500, 10_000);
    let watching = ["rc", "both"].map(|lanes| publishing.watch(lanes));
    watching.iter().for_each(Watching::hears);
    // Who insists on datagrams is told that there are none.
    let control = publishing.control.to_string();
    let mut arguments = vec!["watch", &publishing.name, "--rdma", THERE, "--control", &control, "--rdma-lanes", "ud"];
    arguments.extend(["--token", bookcast_tests::day::TOKEN, "--json"]);
    let refused = output("subscriber", &arguments);
    let text = printed(&refused);
    println!("{}", text.trim());
    assert!(!refused.status.success() && text.contains("is iWARP, which has none"), "{text}");

    let said = publishing.said();
    assert!(said.contains("is iWARP, which has no datagrams"), "{said}");
    let report = publishing.finish();
    println!("{report}");
    let (lines, digests) = (number(&report, "published"), number(&report, "digests"));
    let [rc, both] = watching.map(Watching::finish);
    rc.is_whole(lines, digests);
    both.is_whole(lines, digests);
    assert!(both.said.contains("running on writes into the ring alone"), "{}", both.said);
    assert_eq!((both.won("RDMA RC"), both.won("RDMA UD")), (lines, 0));
}
