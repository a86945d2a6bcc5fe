//! A stored mark as `list_marks` returns it, and the result of a sequenced write.

use leasehold_core::token::{Cluster, Incarnation};

use crate::{FenceId, Mark};

/// One stored mark. `list_marks` returns it for every fence of a target, and coverage reports show it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MarkInfo {
    /// The cluster whose tokens the fence admits.
    pub cluster: Cluster,
    /// The hash of the resource in hexadecimal, as in a token's text.
    pub resource_hash: String,
    /// The name of the resource, if the target stores it.
    pub name: Option<String>,
    /// Slot of the resource.
    pub slot: u32,
    /// The mark.
    pub mark: Mark,
    /// The incarnation that set the mark, or that an operator adopted.
    pub incarnation: Option<Incarnation>,
    /// Whether the fence rejects other incarnations until they are adopted.
    pub strict: bool,
}

impl MarkInfo {
    /// The mark of a fence that is not strict and follows no incarnation yet, for a target of your own.
    pub fn new(id: &FenceId, mark: Mark) -> Self {
        Self {
            cluster: id.cluster(),
            resource_hash: id.resource_hash(),
            name: Some(id.resource().to_owned()),
            slot: id.slot(),
            mark,
            incarnation: None,
            strict: false,
        }
    }
}

/// The result of a write that carries a sequence. A holder numbers its writes upward, so that each is applied once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOnce {
    /// The write was applied.
    Applied,
    /// The write is a duplicate: it was applied earlier, and changed nothing now.
    AlreadyApplied {
        /// The last sequence applied under this token.
        last: u64,
    },
}
