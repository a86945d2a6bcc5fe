//! Coverage: which targets check tokens, according to the reports of their fences, and which zombies they refused.
//!
//! The reported targets and all zombies are recorded. Check counts and times are kept in memory only, because a check must not
//! cost a commit.

mod hole_counts;
mod holes;
mod record;

pub use hole_counts::HoleCounts;
pub use holes::{Hole, TargetView, target_views};
pub use record::CoverageRecord;

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

use crate::limits::{TARGET_NAME_BYTES, TARGETS};
use crate::refusal::{Limit, Refusal};
use crate::time::WallClock;
use crate::token::Number;
use crate::unicode::is_invisible;

/// How a reporting fence handles writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FenceMode {
    /// The target itself refuses a write with no token or with a lower one.
    Forced,
    /// The target refuses a lower token, but only from writers that present one.
    Cooperative,
}

impl FenceMode {
    /// Both, in the order of their stored codes.
    pub const ALL: [Self; 2] = [Self::Forced, Self::Cooperative];

    /// The stable word, as in a charter.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Forced => "forced",
            Self::Cooperative => "cooperative",
        }
    }

    /// Parses the stable word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }
}

/// The report of one fence about one target slot since its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceReport<'a> {
    /// The resource that guards it.
    pub resource: &'a str,
    /// The resource's slot.
    pub slot: u32,
    /// Name of the target.
    pub target: &'a str,
    /// How it handles writes.
    pub mode: FenceMode,
    /// Tokens checked since the last report, including refused ones.
    pub checks: u64,
    /// Tokens refused for any reason.
    pub refusals: u64,
    /// Milliseconds since the last check.
    pub checked_ago_ms: u64,
    /// The highest number that the fence admitted or stores as its mark.
    pub highest: Option<Number>,
    /// A former holder that still tried to write.
    pub zombie: Option<RefusedZombie<'a>>,
}

/// A zombie as reported by a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedZombie<'a> {
    /// The presented number.
    pub presented: Number,
    /// The mark of the target.
    pub mark: Number,
    /// Refused writes since the last report.
    pub times: u64,
    /// Name of the holder, if the fence knows it. The grantor overrides it if it still knows the grant.
    pub holder: &'a str,
}

/// A zombie that a target refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zombie {
    /// The resource.
    pub resource: String,
    /// Its slot.
    pub slot: u32,
    /// The target that refused it.
    pub target: String,
    /// Name of the holder; empty if unknown.
    pub holder: String,
    /// The presented number.
    pub presented: Number,
    /// The mark of the target.
    pub mark: Number,
    /// Refused writes in this report.
    pub times: u64,
}

/// The last zombie that a target slot refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastZombie {
    /// When the grantor received the report.
    pub at: WallClock,
    /// The presented number.
    pub presented: Number,
    /// The mark of the target.
    pub mark: Number,
    /// Name of the holder; empty if unknown.
    pub holder: Box<str>,
}

/// The recorded status of a target slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetStatus {
    /// How it handles writes.
    pub mode: FenceMode,
    /// When it first reported this mode.
    pub since: WallClock,
    /// Number of refused writes of zombies.
    pub zombies: u64,
    /// The last refused zombie.
    pub last: Option<LastZombie>,
    /// The number of the identity that reported it first.
    pub(crate) owner: u32,
}

/// Check counts of a target slot in this tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckCounts {
    /// Tokens checked.
    pub checks: u64,
    /// Tokens refused for any reason.
    pub refusals: u64,
    /// Time of the last check.
    pub last: WallClock,
}

/// Name of a target, and a slot.
pub(crate) type TargetSlot = (Box<str>, u32);

/// All targets that reported, by resource.
#[derive(Clone, Debug, Default)]
pub struct CoverageTable {
    resources: BTreeMap<Box<str>, BTreeMap<TargetSlot, TargetStatus>>,
    places: usize,
    zombies: u64,
}

impl CoverageTable {
    /// Number of target slots that have reported.
    pub fn places(&self) -> usize {
        self.places
    }

    /// Number of refused writes of zombies.
    pub fn zombies(&self) -> u64 {
        self.zombies
    }

    /// The status of one target slot.
    pub fn get(&self, resource: &str, target: &str, slot: u32) -> Option<&TargetStatus> {
        self.resources.get(resource)?.get(&(target.into(), slot))
    }

    /// All target slots of a resource, by target and slot.
    pub fn targets_of(&self, resource: &str) -> impl Iterator<Item = (&str, u32, &TargetStatus)> {
        let slots = self.resources.get(resource).into_iter().flatten();
        slots.map(|((target, slot), seen)| (&**target, *slot, seen))
    }

    /// The slots of one target of a resource.
    fn slots_of(&self, resource: &str, target: &str) -> impl Iterator<Item = (u32, &TargetStatus)> {
        let bounds: RangeInclusive<TargetSlot> = (target.into(), 0)..=(target.into(), u32::MAX);
        let slots = self.resources.get(resource).map(|slots| slots.range(bounds));
        slots.into_iter().flatten().map(|((_, slot), seen)| (*slot, seen))
    }

    /// The resources below a prefix of whole segments, with their target slots.
    fn below(&self, prefix: &str) -> impl Iterator<Item = (&str, &BTreeMap<TargetSlot, TargetStatus>)> {
        let from = self.resources.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        // Names that begin with the same text are neighbors; not all of them are below it.
        let alike = from.take_while(move |(resource, _)| resource.starts_with(prefix));
        let is_below = move |resource: &str| {
            prefix.is_empty() || resource.len() == prefix.len() || resource.as_bytes()[prefix.len()] == b'/'
        };
        alike.filter(move |(resource, _)| is_below(resource)).map(|(resource, slots)| (&**resource, slots))
    }

    /// Resource, target and mode of every target slot.
    #[cfg(test)]
    fn modes(&self) -> impl Iterator<Item = (&str, &str, FenceMode)> {
        let slots = self.resources.iter().flat_map(|(resource, slots)| slots.iter().map(move |slot| (resource, slot)));
        slots.map(|(resource, ((target, _), status))| (&**resource, &**target, status.mode))
    }

    /// The owner of each target slot, in the order of the snapshot.
    pub(crate) fn owners(&self) -> impl Iterator<Item = u32> {
        self.resources.values().flat_map(BTreeMap::values).map(|status| status.owner)
    }

    /// The same to change.
    pub(crate) fn owners_mut(&mut self) -> impl Iterator<Item = &mut u32> {
        self.resources.values_mut().flat_map(BTreeMap::values_mut).map(|status| &mut status.owner)
    }

    /// Checks that this many new target slots are within the limit.
    pub(crate) fn check_capacity(&self, more: usize) -> Result<(), Refusal> {
        let got = self.places + more;
        if got <= TARGETS {
            return Ok(());
        }
        Err(Refusal::Exhausted { limit: Limit::Targets, max: TARGETS as u64, got: got as u64 })
    }
}

/// Checks a target name, with the same rule as for charters.
pub(crate) fn check_target(name: &str) -> Result<(), Refusal> {
    let long = name.is_empty() || name.len() > TARGET_NAME_BYTES;
    if long || name.chars().any(|c| c.is_control() || is_invisible(c)) {
        let reason = "1 to 128 bytes without control characters and invisible characters";
        return Err(Refusal::Invalid { field: "target", reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_target;

    #[test]
    fn a_target_name_is_visible_text() {
        for name in ["ledger", "postgres://db/ledger", "müller 7"] {
            assert_eq!(check_target(name), Ok(()), "{name:?}");
        }
        for name in ["", "a\nb", "a\u{1b}[31m", "a\u{ad}b", "a\u{202e}b", "a\u{e0041}b", &"n".repeat(129)] {
            assert!(check_target(name).is_err(), "{name:?}");
        }
    }
}
