//! Fence ids of the command line: from arguments, of listed marks, and the tokens with which a probe presents them.

use leasehold::{Code, Error};
use leasehold_core::name::resource_hash;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};
use leasehold_fence::{FenceId, MarkInfo};

/// The fence id that arguments name.
pub fn fence_id(cluster: Cluster, resource: &str, slot: u32) -> Result<FenceId, Error> {
    match FenceId::new(cluster, resource) {
        Ok(id) => Ok(id.with_slot(slot)),
        Err(leasehold_fence::Error::InvalidName(error)) => Err(Error::from(&Refusal::Name(error))),
        Err(error) => Err(Error::new(Code::InvalidArgument, error.to_string())),
    }
}

/// Whether a mark belongs to this fence.
pub fn is_mark_of(info: &MarkInfo, fence_id: &FenceId) -> bool {
    (&info.resource_hash, info.slot) == (&fence_id.resource_hash(), fence_id.slot())
}

/// Text of a token for this fence.
pub fn token(fence_id: &FenceId, number: Number, incarnation: Incarnation) -> String {
    let (resource, scope) = (resource_hash(fence_id.resource()), TokenScope::Slot(fence_id.slot()));
    Token { cluster: fence_id.cluster(), incarnation, resource, scope, number }.to_string()
}

/// The resource name of a mark, or its hash if the target stores no name.
pub fn display_name(info: &MarkInfo) -> &str {
    info.name.as_deref().unwrap_or(&info.resource_hash)
}
