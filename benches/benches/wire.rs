//! What a line costs in itself: hash, seal, verify; and a packet of 22 of them.

#![forbid(unsafe_code)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use protocol::hash::h64;
use protocol::line::{Epoch, LINE_LEN, Line, SequenceNumber, Stamp};
use protocol::packet::{HEADER_LEN, PacketHeader, decode};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::time::Nanos;
use zerocopy::IntoBytes;

/// Lines in a packet at the MTU of Ethernet.
const LINES: usize = 22;
const FIRST: Stamp = Stamp::new(Epoch(1), SequenceNumber(100));

fn record() -> Record {
    let mut record = Record::new(Kind::ADD, InstrumentId(7));
    record.order_id.set(123_456_789);
    record.price.set(1_234_500_000_000);
    record.size.set(300);
    record
}

fn lines(c: &mut Criterion) {
    let mut group = c.benchmark_group("line");
    let words = record().words();
    group.bench_function("h64", |b| b.iter(|| h64(black_box(&words))));
    let record = record();
    group.bench_function("seal", |b| b.iter(|| Line::seal(black_box(record), black_box(FIRST))));
    let line = Line::seal(record, FIRST);
    group.bench_function("verify", |b| b.iter(|| black_box(&line).verifies(black_box(FIRST))));
    group.finish();
}

/// A header in the second half of a line, then lines, as the decoder wants them.
fn packet() -> Vec<Line> {
    let mut packet = vec![Line::ZERO; 1 + LINES];
    for (i, line) in packet[1..].iter_mut().enumerate() {
        *line = Line::seal(record(), FIRST.plus(i as u64));
    }
    encode(&mut packet);
    packet
}

/// What sending adds to lines that are in the ring already: a header.
fn encode(packet: &mut [Line]) {
    let next = FIRST.plus(LINES as u64);
    let header = PacketHeader::new(ChannelId::new(1), Lane::new(0), next, Nanos(77), false);
    packet[0].as_mut_bytes()[LINE_LEN - HEADER_LEN..].copy_from_slice(header.as_bytes());
}

fn packets(c: &mut Criterion) {
    let mut group = c.benchmark_group("packet of 22 lines");
    group.throughput(Throughput::Elements(LINES as u64));
    let source = packet();
    let mut to = vec![Line::ZERO; 1 + LINES];
    group.bench_function("encode: header, and lines copied", |b| {
        b.iter(|| {
            to[1..].copy_from_slice(black_box(&source[1..]));
            encode(&mut to);
            black_box(&mut to);
        });
    });
    let bytes = &source.as_bytes()[LINE_LEN - HEADER_LEN..];
    decode(bytes, ChannelId::new(1)).expect("what is measured is a packet that decodes");
    group.bench_function("decode: header and every line verified", |b| {
        b.iter(|| decode(black_box(bytes), ChannelId::new(1)).is_ok());
    });
    group.finish();
}

criterion_group!(benches, lines, packets);
criterion_main!(benches);
