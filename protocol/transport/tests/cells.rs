//! Cells in real memory: a writer and readers that run against each other, and the file between processes.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::conflation::{CONTENT_WORDS, Content};
use protocol::line::{Epoch, SequenceNumber, Stamp};
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use transport::RingWriter;
use transport::cells::core::Look;
use transport::cells::{CELL_LEN, CellsReader, CellsWriter, MAX_CELLS, Pulse};
use transport::shm::{BadFile, RingOptions, SetupError};

const CHANNEL: ChannelId = ChannelId::new(1);
const LANE: Lane = Lane::new(0);

/// What the writing with this number puts into a cell: every word depends on cell and number.
fn content(cell: usize, times: u64) -> Content {
    std::array::from_fn(|i| (times << 16 | cell as u64).wrapping_mul(2 * i as u64 + 1).rotate_left(i as u32))
}

fn anonymous(cells: usize) -> CellsWriter {
    let ring = RingWriter::anonymous(CHANNEL, LANE, Epoch(1), 16).expect("a ring");
    CellsWriter::beside(&ring, cells).expect("cells")
}

fn named(dir: &std::path::Path, epoch: u16, cells: usize) -> (RingWriter, CellsWriter) {
    let options = RingOptions {
        dir: Some(dir.to_owned()),
        huge_pages: false,
        ..RingOptions::new("name.with.dots", CHANNEL, LANE, Epoch(epoch), 16)
    };
    let ring = RingWriter::create(&options).expect("a ring");
    let cells = CellsWriter::beside(&ring, cells).expect("cells");
    (ring, cells)
}

#[test]
fn nobody_ever_reads_half_of_a_cell_and_versions_never_go_back() {
    const CELLS: usize = 3;
    const WRITINGS: u64 = 200_000;
    let mut writer = anonymous(CELLS);
    let over = AtomicBool::new(false);
    let (mut taken, mut busy) = (0, 0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let reader = writer.reader();
                let over = &over;
                scope.spawn(move || {
                    let (mut taken, mut busy, mut newest) = (0u64, 0u64, [0; CELLS]);
                    let mut found = [0; CONTENT_WORDS];
                    while !over.load(Ordering::Relaxed) {
                        for (cell, newest) in newest.iter_mut().enumerate() {
                            match reader.read(cell, &mut found) {
                                Look::Version(version) => {
                                    assert!(version >= *newest, "cell {cell}: {version} after {newest}");
                                    assert_eq!(found, content(cell, version / 2), "cell {cell}, version {version}");
                                    *newest = version;
                                    taken += 1;
                                }
                                Look::InWriting => busy += 1,
                                Look::Never => assert_eq!(*newest, 0),
                            }
                        }
                    }
                    (taken, busy)
                })
            })
            .collect();
        // On one core the readers have their turn when the system gives it to them: for a while at least.
        let until = Instant::now() + Duration::from_millis(300);
        let mut times = [0; CELLS];
        let mut writings = 0;
        while writings < WRITINGS || Instant::now() < until {
            let cell = (writings % CELLS as u64) as usize;
            times[cell] += 1;
            writer.write(cell, &content(cell, times[cell]));
            writings += 1;
        }
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            let (some, others) = reader.join().expect("no reader found anything wrong");
            taken += some;
            busy += others;
        }
    });
    println!("{taken} cells were taken, {busy} times one was busy for a thousand looks");
    assert!(taken > 0);
}

#[test]
fn a_file_of_cells_is_read_by_whoever_finds_it_beside_its_ring() {
    let dir = tempfile::tempdir().expect("a folder");
    let (ring, mut writer) = named(dir.path(), 3, 5);
    let reader = CellsReader::open(Some(dir.path()), "name.with.dots", LANE).expect("opens");
    assert_eq!((reader.cells(), reader.epoch(), reader.channel()), (5, Epoch(3), CHANNEL));
    assert_eq!((reader.pid(), reader.pulse(), reader.round()), (std::process::id(), None, 0));
    let mut found = [0; CONTENT_WORDS];
    assert_eq!((reader.read(4, &mut found), reader.version(4)), (Look::Never, 0));
    writer.set_round(2);
    writer.write(4, &content(4, 1));
    let next = Stamp::new(Epoch(3), SequenceNumber(9));
    writer.beat(Pulse { beat: 0, next, clock: Nanos(77), behind: 1, ended: true });
    assert_eq!((reader.read(4, &mut found), found), (Look::Version(2), content(4, 1)));
    let pulse = reader.pulse().expect("it beat");
    assert_eq!(pulse, Pulse { beat: 1, next, clock: Nanos(77), behind: 1, ended: true });
    assert_eq!((reader.round(), reader.version(4), reader.read(3, &mut found)), (2, 2, Look::Never));
    // Beyond the last there is nothing to be read, and no harm in asking.
    assert_eq!((reader.read(5, &mut found), reader.version(usize::MAX)), (Look::Never, 0));
    let path = writer.path().expect("it has a file").to_owned();
    assert_eq!(path.file_name().and_then(|name| name.to_str()), Some("bookcast-name.with.dots-0.cells"));
    assert!(!reader.is_replaced());
    drop(writer);
    assert!(!path.exists(), "whoever ends in good order removes the name");
    drop(ring);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0, "nothing is left");
    // The reader has what it has mapped.
    assert_eq!(reader.read(4, &mut found), Look::Version(2));
}

#[test]
fn a_dead_publishers_cells_are_replaced_or_removed_by_the_next() {
    let dir = tempfile::tempdir().expect("a folder");
    let (ring, writer) = named(dir.path(), 1, 5);
    let (path, ring_path) = (writer.path().expect("a file").to_owned(), ring.path().expect("a file").to_owned());
    // As a publisher that was killed leaves them: unlocked files under their names.
    let left = [(path.clone(), std::fs::read(&path)), (ring_path.clone(), std::fs::read(&ring_path))];
    drop((ring, writer));
    let leave = || {
        for (path, bytes) in &left {
            std::fs::write(path, bytes.as_ref().expect("was read")).expect("writes");
        }
    };
    leave();
    let old = CellsReader::open(Some(dir.path()), "name.with.dots", LANE).expect("opens");
    let (ring, writer) = named(dir.path(), 2, 9);
    assert!(old.is_replaced());
    let new = CellsReader::open(Some(dir.path()), "name.with.dots", LANE).expect("opens");
    assert_eq!((new.epoch(), new.cells()), (Epoch(2), 9));
    drop((ring, writer));
    // One that publishes without cells leaves nobody to read old ones.
    leave();
    let options = RingOptions {
        dir: Some(dir.path().to_owned()),
        ..RingOptions::new("name.with.dots", CHANNEL, LANE, Epoch(3), 16)
    };
    let _ring = RingWriter::create(&options).expect("a ring");
    assert!(!path.exists());
    let error = CellsReader::open(Some(dir.path()), "name.with.dots", LANE).err().expect("nothing there");
    assert!(error.is_not_there(), "{error}");
}

#[test]
fn what_is_no_file_of_cells_is_refused_and_said_why() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_ring, writer) = named(dir.path(), 1, 5);
    let path = writer.path().expect("a file").to_owned();
    let sound = std::fs::read(&path).expect("reads");
    assert_eq!(sound.len(), 8192 + 5 * CELL_LEN);
    let open = |bytes: &[u8]| {
        std::fs::remove_file(&path).expect("removes");
        std::fs::write(&path, bytes).expect("writes");
        CellsReader::open(Some(dir.path()), "name.with.dots", LANE).err()
    };
    let changed = |offset: usize, value: u8| {
        let mut bytes = sound.clone();
        bytes[offset] = value;
        bytes
    };
    assert!(open(&sound).is_none());
    let cause = |bytes: &[u8]| match open(bytes) {
        Some(SetupError::BadFile { cause, .. }) => cause,
        other => panic!("{other:?}"),
    };
    assert_eq!(cause(&changed(0, b'?')), BadFile::Magic);
    assert_eq!(cause(&changed(8, 9)), BadFile::Version { found: 9 });
    for (offset, field) in
        [(13, "header length"), (25, "cell length"), (23, "number of cells"), (30, "lane"), (16, "total length")]
    {
        assert_eq!(cause(&changed(offset, 77)), BadFile::Header { field });
    }
    let needed = sound.len() as u64;
    assert_eq!(cause(&sound[..sound.len() - 1]), BadFile::Truncated { needed, actual: needed - 1 });
    assert_eq!(cause(&sound[..100]), BadFile::Truncated { needed: 4096, actual: 100 });
    let ring = RingWriter::anonymous(CHANNEL, LANE, Epoch(1), 16).expect("a ring");
    assert!(matches!(CellsWriter::beside(&ring, MAX_CELLS + 1), Err(SetupError::Cells { .. })));
}

#[test]
#[should_panic(expected = "cell 5 of 5")]
fn a_cell_that_there_is_not_is_not_written() {
    anonymous(5).write(5, &content(5, 1));
}
