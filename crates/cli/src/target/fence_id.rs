//! Identity of a fence in a target: cluster, resource name and slot.

use leasehold::Error;
use leasehold_core::name::{Name, resource_hash};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};
use leasehold_fence::MarkInfo;

/// Identity of a fence, as a command line names it.
#[derive(Clone, Debug)]
pub struct FenceId {
    pub cluster: Cluster,
    pub resource: String,
    pub slot: u32,
}

impl FenceId {
    /// Validates the resource name.
    pub fn new(cluster: Cluster, resource: &str, slot: u32) -> Result<Self, Error> {
        Name::parse(resource).map_err(|error| Error::from(&Refusal::Name(error)))?;
        Ok(Self { cluster, resource: resource.to_owned(), slot })
    }

    pub fn name(&self) -> Name<'_> {
        Name::parse(&self.resource).expect("validated in `new`")
    }

    /// Whether a mark belongs to this fence.
    pub fn matches(&self, info: &MarkInfo) -> bool {
        (info.resource_hash.as_str(), info.slot) == (hash(&self.resource).as_str(), self.slot)
    }

    /// Text of a token for this fence.
    pub fn token(&self, number: Number, incarnation: Incarnation) -> String {
        let (cluster, resource, scope) = (self.cluster, resource_hash(&self.resource), TokenScope::Slot(self.slot));
        Token { cluster, incarnation, resource, scope, number }.to_string()
    }
}

fn hash(resource: &str) -> String {
    format!("{:016x}", u64::from_be_bytes(resource_hash(resource)))
}

/// The resource name of a mark, or its hash if the target stores no name.
pub fn display_name(info: &MarkInfo) -> &str {
    info.name.as_deref().unwrap_or(&info.resource_hash)
}
