//! Counts the instructions of each piece under callgrind. Started by the command `costs`, which compares them.

// The library's macros make public modules and functions of what they are given.
#![allow(missing_docs)]

use costs::pieces::*;
use gungraun::prelude::*;

/// A function that is counted for each piece. Setting up and taking down are not counted.
macro_rules! counted {
    ($($function:ident: $piece:ty),* $(,)?) => {
        $(
            #[library_benchmark]
            #[bench::steps(setup = <$piece as Piece>::new, teardown = done)]
            fn $function(piece: $piece) -> $piece {
                run(piece)
            }
        )*

        library_benchmark_group!(name = hot_path, benchmarks = [$($function),*]);
    };
}

/// A count of something that went wrong would mean nothing.
fn done<P: Piece>(piece: P) {
    piece.check(STEPS as u64);
}

counted! {
    line_seal: Seal,
    line_verify: Verify,
    ring_publish: Publish,
    ring_poll_and_deliver: PollAndDeliver,
    ring_poll_idle: PollIdle,
    ring_to_strategy: DeliverToHandler,
    arbiter_in_order: ArbiterInOrder,
    arbiter_two_lanes: ArbiterSecondCopy,
    gap_check: GapCheck,
    gap_declared: GapDeclared,
    book_add: BookAdd,
    book_execute: BookExecute,
    book_delete: BookDelete,
    book_modify: BookModify,
    book_digest: BookDigest,
    itch_decode: ItchDecode,
    itch_normalise: ItchNormalise,
    pipeline_message: PipelineMessage,
}

main!(library_benchmark_groups = hot_path);
