//! One guarded place at a target, as a command line names it.

use leasehold::Error;
use leasehold_core::name::{Name, resource_hash};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Cluster, Incarnation, Number, Reach, Token};
use leasehold_fence::Kept;

/// Whose tokens, for which resource and slot.
#[derive(Clone, Debug)]
pub struct Place {
    pub cluster: Cluster,
    pub resource: String,
    pub slot: u32,
}

impl Place {
    /// A place whose name can be.
    pub fn new(cluster: Cluster, resource: &str, slot: u32) -> Result<Self, Error> {
        Name::parse(resource).map_err(|error| Error::from(&Refusal::Name(error)))?;
        Ok(Self { cluster, resource: resource.to_owned(), slot })
    }

    /// The resource, which was checked.
    pub fn name(&self) -> Name<'_> {
        Name::parse(&self.resource).expect("checked when the place was made")
    }

    /// Whether a mark is of this place.
    pub fn is_at(&self, kept: &Kept) -> bool {
        (kept.resource.as_str(), kept.slot) == (hash(&self.resource).as_str(), self.slot)
    }

    /// The text of a token for this place, to be shown to its fence.
    pub fn token(&self, number: Number, incarnation: Incarnation) -> String {
        let (cluster, resource, reach) = (self.cluster, resource_hash(&self.resource), Reach::Slot(self.slot));
        Token { cluster, incarnation, resource, reach, number }.to_string()
    }
}

fn hash(resource: &str) -> String {
    format!("{:016x}", u64::from_be_bytes(resource_hash(resource)))
}

/// What a mark is called: its name, or its hash where the target keeps no name.
pub fn name_of(kept: &Kept) -> &str {
    kept.name.as_deref().unwrap_or(&kept.resource)
}
