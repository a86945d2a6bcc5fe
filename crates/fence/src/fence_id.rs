//! What one fence guards: the cluster, resource and slot whose tokens it admits.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::name::Name;
use leasehold_core::time::WallClock;
use leasehold_core::token::{Cluster, FenceKey, Token, plausible};

use crate::admission::{PresentedToken, SealState};
use crate::{Error, FenceRefusal};

/// Identity of a fence: it admits the tokens of one cluster, for one slot of one resource.
///
/// Several targets that one lease protects share one id. Its text form is `jobs/settle slot 0`, without the cluster.
///
/// ```
/// use leasehold_fence::{Cluster, FenceId};
///
/// // As printed by `leasehold status`.
/// let cluster: Cluster = "00c0ffee00c0ffee".parse()?;
/// let id = FenceId::new(cluster, "jobs/settle")?.with_slot(2);
/// assert_eq!(id.to_string(), "jobs/settle slot 2");
/// assert_eq!(FenceId::new(cluster, "jobs//settle").unwrap_err().code(), "INVALID_ARGUMENT");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FenceId {
    resource: String,
    key: FenceKey,
}

impl FenceId {
    /// Creates the id of an exclusive lease, which has slot 0. Returns [`Error::InvalidName`] if `resource` is not a valid
    /// resource name.
    pub fn new(cluster: Cluster, resource: &str) -> Result<Self, Error> {
        let name = Name::parse(resource).map_err(Error::InvalidName)?;
        Ok(Self { resource: resource.to_owned(), key: FenceKey::new(cluster, name, 0) })
    }

    /// Sets the slot, for a lease on one of several slots of the resource.
    pub fn with_slot(mut self, slot: u32) -> Self {
        self.key.slot = slot;
        self
    }

    /// The cluster whose tokens the fence admits.
    pub const fn cluster(&self) -> Cluster {
        self.key.cluster
    }

    /// Name of the resource.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Slot of the resource; 0 for an exclusive lease.
    pub const fn slot(&self) -> u32 {
        self.key.slot
    }

    /// Hash of the resource name in hexadecimal, as in a token's text and in [`MarkInfo`](crate::MarkInfo).
    pub fn resource_hash(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.key.resource))
    }

    pub(crate) const fn key(&self) -> &FenceKey {
        &self.key
    }

    /// Parses a token and makes all checks that need neither a mark nor keys: cluster, resource and slot (T6, F4), and
    /// plausibility (F5) at the given time. Fences call [`SealCheck`](crate::seal_verifier::SealCheck), which verifies too.
    pub(crate) fn parse_token_at(&self, text: &str, now: WallClock) -> Result<PresentedToken, FenceRefusal> {
        let token = Token::parse(text)?;
        let number = token.for_target(&self.key)?;
        if !plausible(number, now) {
            return Err(FenceRefusal::Implausible { presented: number });
        }
        let seal = if text.starts_with("lh2-") { SealState::Unverified } else { SealState::Plain };
        Ok(PresentedToken { number, incarnation: token.incarnation, seal })
    }
}

impl fmt::Display for FenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slot {}", self.resource, self.key.slot)
    }
}

/// The clock of this machine. A clock before 1970 makes every number implausible, so the fence rejects instead of guessing.
pub(crate) fn wall_clock() -> WallClock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallClock(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
