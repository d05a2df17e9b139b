//! The pieces whose instructions the crate `costs` counts, timed: a thousand steps of each, set up anew every time.

#![forbid(unsafe_code)]

use costs::pieces::*;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

fn piece<P: Piece>(c: &mut Criterion) {
    let mut group = c.benchmark_group("pieces");
    group.throughput(Throughput::Elements(STEPS as u64)).sample_size(20);
    group.bench_function(P::NAME, |b| b.iter_batched(P::new, run, BatchSize::LargeInput));
    group.finish();
}

criterion_group!(
    pieces,
    piece::<Seal>,
    piece::<Verify>,
    piece::<Publish>,
    piece::<PollAndDeliver>,
    piece::<PollIdle>,
    piece::<DeliverToHandler>,
    piece::<ArbiterInOrder>,
    piece::<ArbiterSecondCopy>,
    piece::<GapCheck>,
    piece::<GapDeclared>,
    piece::<BookAdd>,
    piece::<BookExecute>,
    piece::<BookDelete>,
    piece::<BookModify>,
    piece::<BookDigest>,
    piece::<ItchDecode>,
    piece::<ItchNormalise>,
    piece::<PipelineMessage>,
);
criterion_main!(pieces);
