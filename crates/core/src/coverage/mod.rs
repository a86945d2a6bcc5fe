//! Which targets a lease covers, as far as their fences have reported: who checks, and which zombies were refused.
//!
//! That a target reported, and every zombie, is a fact and survives. How often it checked, and when last, is counted in
//! memory only: a check must not cost a commit.

mod fact;
mod holes;

pub use fact::Fact;
pub use holes::{Hole, TargetView, holes};

use std::collections::BTreeMap;

use crate::limits::{TARGET_NAME_BYTES, TARGETS};
use crate::refusal::{Limit, Refusal};
use crate::time::Wall;
use crate::token::Number;

/// How a fence that reports meets writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// The target itself refuses a write that shows no token or a lower one.
    Forced,
    /// The target refuses a lower token, from writers that show theirs.
    Cooperative,
}

impl Mode {
    /// Both, in the order of their stored codes.
    pub const ALL: [Self; 2] = [Self::Forced, Self::Cooperative];

    /// The stable word, as in a charter.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Forced => "forced",
            Self::Cooperative => "cooperative",
        }
    }

    /// The mode that a stable word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }
}

/// What one fence has to tell about one place of a target since its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// The resource that guards it.
    pub resource: &'a str,
    /// The resource's slot.
    pub slot: u32,
    /// What people call the target.
    pub target: &'a str,
    /// How it meets writes.
    pub mode: Mode,
    /// Tokens checked since the last report, refused ones among them.
    pub checks: u64,
    /// How many of them were refused, for whatever reason.
    pub refusals: u64,
    /// How long ago the last check was, in milliseconds.
    pub checked_ago_ms: u64,
    /// The highest number that the fence admitted or keeps as its mark.
    pub highest: Option<Number>,
    /// A holder whose authority is over and who wrote all the same.
    pub zombie: Option<Refused<'a>>,
}

/// A refused zombie, as its fence tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<'a> {
    /// What it showed.
    pub presented: Number,
    /// What stood.
    pub mark: Number,
    /// How often since the last report.
    pub times: u64,
    /// Who, if the fence knows; a grantor that remembers the grant knows better.
    pub holder: &'a str,
}

/// A zombie that some target refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zombie {
    /// The resource.
    pub resource: String,
    /// Its slot.
    pub slot: u32,
    /// The target that refused it.
    pub target: String,
    /// Who; empty if nobody remembers.
    pub holder: String,
    /// What it showed.
    pub presented: Number,
    /// What stood.
    pub mark: Number,
    /// How often, in this report.
    pub times: u64,
}

/// The last zombie that a place of a target refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRefused {
    /// When the grantor heard of it.
    pub at: Wall,
    /// What was shown.
    pub presented: Number,
    /// What stood.
    pub mark: Number,
    /// Who; empty if nobody remembers.
    pub holder: Box<str>,
}

/// What is kept of a target that reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// How it meets writes.
    pub mode: Mode,
    /// When it first reported so.
    pub since: Wall,
    /// How many writes of zombies it refused.
    pub zombies: u64,
    /// The last of them.
    pub last: Option<LastRefused>,
}

/// What is counted of a target since the server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Tokens checked.
    pub checks: u64,
    /// Refused, for whatever reason.
    pub refusals: u64,
    /// When it last checked one.
    pub last: Wall,
}

/// A target and a slot under it.
pub(crate) type Place = (Box<str>, u32);

/// Every target that ever reported, by resource.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    resources: BTreeMap<Box<str>, BTreeMap<Place, Seen>>,
    places: usize,
    zombies: u64,
}

impl Coverage {
    /// How many places of targets have reported.
    pub fn places(&self) -> usize {
        self.places
    }

    /// How many writes of zombies were refused, ever.
    pub fn zombies(&self) -> u64 {
        self.zombies
    }

    /// What is kept of one place.
    pub fn get(&self, resource: &str, target: &str, slot: u32) -> Option<&Seen> {
        self.resources.get(resource)?.get(&(target.into(), slot))
    }

    /// All places under a resource, by target and slot.
    pub fn of(&self, resource: &str) -> impl Iterator<Item = (&str, u32, &Seen)> {
        let places = self.resources.get(resource).into_iter().flatten();
        places.map(|((target, slot), seen)| (&**target, *slot, seen))
    }

    /// Whether so many places more have room.
    pub(crate) fn has_room(&self, more: usize) -> Result<(), Refusal> {
        let got = self.places + more;
        if got <= TARGETS {
            return Ok(());
        }
        Err(Refusal::Exhausted { limit: Limit::Targets, max: TARGETS as u64, got: got as u64 })
    }
}

/// A target's name as it may be: what a charter takes, too.
pub(crate) fn check_target(name: &str) -> Result<(), Refusal> {
    let long = name.is_empty() || name.len() > TARGET_NAME_BYTES;
    if long || name.chars().any(char::is_control) {
        return Err(Refusal::Invalid { field: "target", reason: "1 to 128 bytes without control characters" });
    }
    Ok(())
}
