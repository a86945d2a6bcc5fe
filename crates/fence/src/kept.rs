//! What a target keeps of one guarded place, as a survey tells it, and what a numbered write is answered.

use leasehold_core::token::{Cluster, Incarnation};

use crate::Mark;

/// One mark as a target keeps it: what a survey reads, and what a coverage report shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Whose tokens.
    pub cluster: Cluster,
    /// The resource's hash, in the spelling of a token's text.
    pub resource: String,
    /// Its name, where the target keeps that too.
    pub name: Option<String>,
    /// Its slot.
    pub slot: u32,
    /// The mark.
    pub mark: Mark,
    /// Whose token set the mark, or whom an operator adopted.
    pub incarnation: Option<Incarnation>,
    /// Whether another incarnation is refused until it is adopted.
    pub strict: bool,
}

/// What became of a write that carries its sequence inside the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once {
    /// It was applied.
    Applied,
    /// It is a late duplicate: it was applied before, and changed nothing now.
    AlreadyApplied {
        /// The last sequence applied under this token.
        last: u64,
    },
}
