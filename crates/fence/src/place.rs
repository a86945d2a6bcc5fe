//! What a fence stands before, and what a token must pass before its number is compared with any mark.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::name::Name;
use leasehold_core::time::Wall;
use leasehold_core::token::{Cluster, Guarded, Incarnation, Number, Token, plausible};

use leasehold_core::fence::{Follow, Sequenced, admit_sequenced, follow};

use crate::kept::Once;
use crate::{Error, Lost, Mark, Refusal, Verdict, admit};

/// One guarded place of a target: whose tokens, for which resource and slot.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) guarded: Guarded,
}

impl Place {
    pub(crate) fn new(cluster: Cluster, resource: Name<'_>, slot: u32) -> Self {
        Self { name: resource.as_str().to_owned(), guarded: Guarded::new(cluster, resource, slot) }
    }

    /// The resource's hash as targets keep it, in the spelling of a token's text.
    pub(crate) fn resource(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.guarded.resource))
    }

    /// Reads a token's text and checks all that needs no mark: whose it is, what it is for (T6, F4), and whether the clock
    /// believes it (F5).
    pub(crate) fn read(&self, text: &str) -> Result<Shown, Refusal> {
        self.read_at(text, wall())
    }

    /// The same, believed by a clock that showed this.
    pub(crate) fn read_at(&self, text: &str, wall: Wall) -> Result<Shown, Refusal> {
        let token = Token::parse(text)?;
        let number = token.for_target(&self.guarded)?;
        if !plausible(number, wall) {
            return Err(Refusal::Implausible { presented: number });
        }
        Ok(Shown { number, incarnation: token.incarnation })
    }
}

/// A token that is for this place and believable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) number: Number,
    pub(crate) incarnation: Incarnation,
}

impl Shown {
    /// Asks the shared rule, under whatever lock makes it one step with the write (F1). `lost` says how, if the mark is.
    pub(crate) fn against(self, mark: Mark, lost: crate::Lost) -> Result<Number, Error> {
        match admit(mark, self.number) {
            Verdict::Admitted { mark } => Ok(mark),
            Verdict::Stale { presented, mark } => Err(Refusal::Stale { presented, mark }.into()),
            Verdict::Lost => Err(Refusal::Lost(lost).into()),
        }
    }
}

impl Shown {
    /// The whole question, for a fence that knows incarnations and numbers its writes where asked: number first, then
    /// whose, then whether it is a late duplicate. Under the same lock as the write.
    pub(crate) fn pass(self, standing: &Standing, sequence: Option<u64>) -> Result<(Passed, Once), Error> {
        let number = self.against(standing.mark, standing.lost)?;
        let left = match follow(standing.incarnation, standing.strict, self.incarnation) {
            Follow::Known => None,
            Follow::Changed { from } => Some(from),
            Follow::NotAdopted => {
                return Err(Refusal::NotAdopted { presented: self.number, incarnation: self.incarnation }.into());
            }
        };
        let once = match sequence.map(|sequence| admit_sequenced(standing.mark, standing.last, self.number, sequence)) {
            Some(Sequenced::AlreadyApplied { last }) => Once::AlreadyApplied { last },
            _ => Once::Applied,
        };
        Ok((Passed { number, left }, once))
    }
}

/// What a target keeps of one place, as the rule needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) mark: Mark,
    /// How the mark is lost, if it is.
    pub(crate) lost: Lost,
    /// Whose token set the mark, or whom an operator adopted.
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) strict: bool,
    /// The last sequence applied under the mark.
    pub(crate) last: Option<u64>,
}

/// A token that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) number: Number,
    /// The incarnation that was followed before, if this token is of another one.
    pub(crate) left: Option<Incarnation>,
}

/// The target's clock. One that is before 1970 believes no number, which refuses rather than guesses.
fn wall() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
