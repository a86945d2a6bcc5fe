//! Who may be inside one place: the gate's decisions, without a clock, a file or a wait of their own.
//!
//! All that is inside shows the number that is the mark. A higher one raises the mark, and does so only when nothing is
//! inside and no outcome is unknown: then nothing lower can still change the target after it (F1).

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::fence::{Sequenced, admit_sequenced};
use leasehold_core::token::{Incarnation, Number};
use tokio::time::Instant;

use super::marks::Look;
use crate::place::Shown;
use crate::{Lost, Mark, Refusal, Verdict, admit};

/// What a place knows.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) mark: Mark,
    /// How the mark is lost, if it is.
    pub(super) lost: Lost,
    /// Whose token of the mark's number the file has let pass. It alone knows whom it follows.
    pub(super) followed: Option<Incarnation>,
    /// The mark file as it was when the mark was read from it.
    pub(super) look: Look,
    /// The file is being asked or written, by one who was told to.
    pub(super) busy: bool,
    /// The file says that requests may be on their way.
    pub(super) begun: bool,
    /// Who is inside, and by when its outcome is known or given up.
    inside: BTreeMap<u64, Instant>,
    /// Until when an outcome is unknown.
    unknown_until: Option<Instant>,
    /// Who waits to raise the mark.
    raising: BTreeMap<u64, Number>,
    sequence: Option<Passed>,
    next: u64,
    longest: Duration,
    settle: Duration,
}

/// A sequence that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    number: Number,
    sequence: u64,
    fate: Fate,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is on its way.
    Passing,
    /// The target answered that it did it.
    Applied,
    /// The target answered that it did not, or never heard of it.
    NotApplied,
    /// Nobody knows.
    Unknown,
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// To raise the mark and nothing else.
    Claim,
    /// To be inside until its outcome is known.
    Write { sequence: Option<u64> },
}

impl Want {
    /// The sequence it carries.
    pub(super) const fn sequence(self) -> Option<u64> {
        match self {
            Self::Write { sequence } => sequence,
            Self::Claim => None,
        }
    }
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is inside, under this id.
    Inside(u64),
    /// The mark stands; a claim has nothing more to do.
    Claimed,
    /// Refused.
    No(Refusal),
    /// A late duplicate.
    AlreadyApplied { last: u64 },
    /// It was let through before, and nobody knows what became of it.
    Unknown,
    /// The mark file must do this first. The gate is busy until it is told what came of it.
    Store(Store),
    /// Somebody else must leave first; at this time at the latest something is different, if nobody leaves.
    Wait(Option<Instant>),
}

/// What the mark file must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// Read the mark again: somebody else has written there.
    Read,
    Raise,
    Begin,
    Pass(u64),
}

impl Standing {
    pub(super) const fn new(longest: Duration, settle: Duration) -> Self {
        Self {
            mark: Mark::Lost,
            lost: Lost::Unreadable,
            followed: None,
            look: Look::NOTHING,
            busy: false,
            begun: false,
            inside: BTreeMap::new(),
            unknown_until: None,
            raising: BTreeMap::new(),
            sequence: None,
            next: 0,
            longest,
            settle,
        }
    }

    /// One who asks, for the first time or again. `waits` is its id among those who wait to raise the mark.
    pub(super) fn ask(&mut self, seen: Look, now: Instant, shown: Shown, want: Want, waits: &mut Option<u64>) -> Step {
        if self.busy {
            return Step::Wait(None);
        }
        if seen != self.look {
            return self.stores(Store::Read);
        }
        let number = shown.number;
        let raises = match admit(self.mark, number) {
            Verdict::Stale { presented, mark } => return Step::No(Refusal::Stale { presented, mark }),
            Verdict::Lost => return Step::No(Refusal::Lost(self.lost)),
            Verdict::Admitted { .. } => self.mark != Mark::Armed(number),
        };
        if !raises && self.followed != Some(shown.incarnation) {
            return self.stores(Store::Raise);
        }
        if !raises && want == Want::Claim {
            return Step::Claimed;
        }
        if raises && waits.is_none() {
            self.next += 1;
            self.raising.insert(self.next, number);
            *waits = Some(self.next);
        }
        if self.raising.values().any(|other| *other > number) {
            // A later holder waits for those inside: who goes in now would make it wait for ever.
            return Step::Wait(None);
        }
        if raises {
            return match self.free_at(now) {
                None => self.stores(Store::Raise),
                Some(at) => Step::Wait(Some(at)),
            };
        }
        let Want::Write { sequence } = want else { unreachable!("a claim of the mark itself was answered above") };
        match sequence {
            None if self.begun => Step::Inside(self.enters(now)),
            None => self.stores(Store::Begin),
            Some(sequence) => self.passes(now, number, sequence),
        }
    }

    fn passes(&mut self, now: Instant, number: Number, sequence: u64) -> Step {
        let last = self.sequence.filter(|last| last.number == number);
        match (admit_sequenced(self.mark, last.map(|last| last.sequence), number, sequence), last) {
            (Sequenced::AlreadyApplied { last }, Some(kept)) if kept.sequence == sequence => match kept.fate {
                Fate::Applied => Step::AlreadyApplied { last },
                Fate::Unknown => Step::Unknown,
                Fate::Passing => Step::Wait(None),
                Fate::NotApplied => {
                    self.sequence = Some(Passed { fate: Fate::Passing, ..kept });
                    Step::Inside(self.enters(now))
                }
            },
            (Sequenced::AlreadyApplied { last }, _) => Step::AlreadyApplied { last },
            (Sequenced::Admitted { .. }, _) => self.stores(Store::Pass(sequence)),
            (Sequenced::Stale { presented, mark }, _) => Step::No(Refusal::Stale { presented, mark }),
            (Sequenced::Lost, _) => Step::No(Refusal::Lost(self.lost)),
        }
    }

    fn enters(&mut self, now: Instant) -> u64 {
        self.next += 1;
        self.inside.insert(self.next, now + self.longest);
        self.next
    }

    const fn stores(&mut self, what: Store) -> Step {
        self.busy = true;
        Step::Store(what)
    }

    /// When nothing lower can act any more, if nobody leaves; `None` if that is now.
    fn free_at(&mut self, now: Instant) -> Option<Instant> {
        // One that is still there after its time and the bound for unknown outcomes is given up: it was cut off long ago.
        self.inside.retain(|_, until| *until + self.settle > now);
        self.unknown_until = self.unknown_until.filter(|until| *until > now);
        let last = self.inside.values().max().map(|until| *until + self.settle);
        last.max(self.unknown_until)
    }

    /// The file let a sequence through: it is inside from now on, under this id.
    pub(super) fn passed(&mut self, now: Instant, number: Number, sequence: u64) -> u64 {
        self.begun = true;
        self.sequence = Some(Passed { number, sequence, fate: Fate::Passing });
        self.enters(now)
    }

    /// The file remembers a sequence of the process before.
    pub(super) const fn remembers(&mut self, number: Number, sequence: u64, fate: Fate) {
        self.sequence = Some(Passed { number, sequence, fate });
    }

    /// One leaves.
    pub(super) fn leaves(&mut self, now: Instant, id: u64, fate: Fate, sequence: Option<(Number, u64)>) {
        if self.inside.remove(&id).is_some() && fate == Fate::Unknown {
            self.is_unknown(now);
        }
        if let (Some((number, sequence)), Some(last)) = (sequence, &mut self.sequence)
            && (last.number, last.sequence) == (number, sequence)
        {
            last.fate = fate;
        }
    }

    /// From now on an outcome is unknown, for as long as is stated.
    pub(super) fn is_unknown(&mut self, now: Instant) {
        self.unknown_until = self.unknown_until.max(Some(now + self.settle));
    }

    /// One gives up waiting.
    pub(super) fn gives_up(&mut self, id: u64) {
        self.raising.remove(&id);
    }

    /// How many are inside, and for how long an outcome is still unknown.
    pub(super) fn crowd(&self, now: Instant) -> (usize, Duration) {
        (self.inside.len(), self.unknown_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now)))
    }
}
