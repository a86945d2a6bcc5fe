//! A stored mark as `list_marks` returns it.

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
    /// Whether the fence admits only sealed tokens that it verified.
    pub sealed: bool,
}

impl MarkInfo {
    /// The mark of a fence that is neither strict nor sealed and follows no incarnation yet, for a target of your own.
    pub fn new(id: &FenceId, mark: Mark) -> Self {
        Self {
            cluster: id.cluster(),
            resource_hash: id.resource_hash(),
            name: Some(id.resource().to_owned()),
            slot: id.slot(),
            mark,
            incarnation: None,
            strict: false,
            sealed: false,
        }
    }
}
