//! The hot path in pieces: each set up once, then run as often as one likes.

mod arbiter;
mod book;
mod feed;
mod ring;
mod wire;

pub use arbiter::{ArbiterInOrder, ArbiterSecondCopy, GapCheck, GapDeclared};
pub use book::{BookAdd, BookDelete, BookDigest, BookExecute, BookModify};
pub use feed::{ItchDecode, ItchNormalise, PipelineMessage};
pub use ring::{DeliverToHandler, PollAndDeliver, PollIdle, Publish};
pub use wire::{Seal, Verify};

/// Steps that one run of a piece consists of. Every piece has room for as many after [`Piece::new`], and no more.
pub const STEPS: usize = 1000;

/// A piece of the hot path.
pub trait Piece {
    /// What it is called in limits and reports.
    const NAME: &'static str;

    /// Everything that comes before the first step: memory, books, lines. Nobody counts this.
    fn new() -> Self;

    /// One operation.
    fn step(&mut self);

    /// That `steps` operations did what they are said to do.
    ///
    /// # Panics
    /// If they did not.
    fn check(&self, steps: u64);
}

/// [`STEPS`] steps, and whether they did what they should: what a count is taken of is [`run`] alone.
#[inline(always)]
pub fn run<P: Piece>(mut piece: P) -> P {
    for _ in 0..STEPS {
        piece.step();
    }
    piece
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole<P: Piece>() {
        P::new().check(0);
        run(P::new()).check(STEPS as u64);
    }

    #[test]
    fn every_piece_does_what_it_is_said_to_do() {
        whole::<Seal>();
        whole::<Verify>();
        whole::<Publish>();
        whole::<PollAndDeliver>();
        whole::<PollIdle>();
        whole::<DeliverToHandler>();
        whole::<ArbiterInOrder>();
        whole::<ArbiterSecondCopy>();
        whole::<GapCheck>();
        whole::<GapDeclared>();
        whole::<BookAdd>();
        whole::<BookExecute>();
        whole::<BookDelete>();
        whole::<BookModify>();
        whole::<BookDigest>();
        whole::<ItchDecode>();
        whole::<ItchNormalise>();
        whole::<PipelineMessage>();
    }
}
