//! A target with a durable fence, and an unfenced twin for comparison.

use leasehold_core::fence::{Mark, Sequenced, Verdict, admit, admit_sequenced};
use leasehold_core::name::Name;
use leasehold_core::time::WallClock;
use leasehold_core::token::{FenceKey, Number, Token, TokenError, plausible};

use super::commands::CLUSTER;

/// A target that holders write to.
pub struct Target {
    key: FenceKey,
    mark: Mark,
    last: Option<u64>,
    holds: String,
    unfenced_holds: String,
    applied: Vec<Number>,
}

impl Target {
    pub fn new(resource: &str, slot: u32) -> Result<Self, String> {
        let name = Name::parse(resource).map_err(|error| error.to_string())?;
        let key = FenceKey::new(CLUSTER, name, slot);
        let (holds, unfenced_holds) = (String::new(), String::new());
        Ok(Self { key, mark: Mark::Fresh, last: None, holds, unfenced_holds, applied: Vec::new() })
    }

    /// A write with or without a token. The unfenced twin always applies it.
    pub fn write(&mut self, token: Option<&Token>, value: &str, sequence: Option<u64>, wall: WallClock) -> String {
        value.clone_into(&mut self.unfenced_holds);
        let number = match self.check_token(token, wall) {
            Ok(number) => number,
            Err(refusal) => return refusal,
        };
        let outcome = match sequence {
            Some(sequence) => match admit_sequenced(self.mark, self.last, number, sequence) {
                Sequenced::Admitted { mark, last } => {
                    (self.mark, self.last) = (Mark::Armed(mark), Some(last));
                    "admitted"
                }
                Sequenced::AlreadyApplied { .. } => return "already applied".to_owned(),
                Sequenced::Stale { .. } => return "stale".to_owned(),
                Sequenced::Lost => return "mark lost".to_owned(),
            },
            None => match self.admit(number) {
                "admitted" => "admitted",
                refusal => return refusal.to_owned(),
            },
        };
        value.clone_into(&mut self.holds);
        self.applied.push(number);
        outcome.to_owned()
    }

    /// The first step of a new holder: claim before reading.
    pub fn claim(&mut self, token: &Token, wall: WallClock) -> String {
        match self.check_token(Some(token), wall) {
            Ok(number) => self.admit(number).to_owned(),
            Err(refusal) => refusal,
        }
    }

    fn admit(&mut self, number: Number) -> &'static str {
        match admit(self.mark, number) {
            Verdict::Admitted { mark } => {
                if self.mark != Mark::Armed(mark) {
                    self.last = None;
                }
                self.mark = Mark::Armed(mark);
                "admitted"
            }
            Verdict::Stale { .. } => "stale",
            Verdict::Lost => "mark lost",
        }
    }

    fn check_token(&self, token: Option<&Token>, wall: WallClock) -> Result<Number, String> {
        let refusal = |error: TokenError| format!("{} {}", error.code(), error.reason());
        let token = token.ok_or_else(|| refusal(TokenError::Absent))?;
        let number = token.for_target(&self.key).map_err(refusal)?;
        if plausible(number, wall) { Ok(number) } else { Err(refusal(TokenError::Implausible)) }
    }

    /// Restarts the target. The mark is durable, so nothing changes.
    pub fn restart(&mut self) -> Result<(), String> {
        let written = self.applied.last().copied();
        match (self.mark, written) {
            (Mark::Armed(mark), Some(written)) if mark < written => Err("the mark was lost".to_owned()),
            _ => Ok(()),
        }
    }

    pub fn lose_mark(&mut self) {
        self.mark = Mark::Lost;
    }

    /// Re-arms the mark from the grantor's floor.
    pub fn arm(&mut self, floor: Number) {
        self.mark = Mark::Armed(floor);
        self.last = None;
    }

    pub fn holds(&self) -> &str {
        &self.holds
    }

    pub fn unfenced_holds(&self) -> &str {
        &self.unfenced_holds
    }

    /// F1: the token numbers of applied writes never decrease.
    pub fn check(&self) -> Result<(), String> {
        if self.applied.is_sorted() {
            Ok(())
        } else {
            Err(format!("F1: tokens of applied writes decrease: {:?}", self.applied))
        }
    }
}
