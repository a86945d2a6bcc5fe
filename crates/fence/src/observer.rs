//! Who is told what a fence answered: counters always, and an observer where one was set.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::token::{Incarnation, Number, TokenError};

use crate::place::Passed;
use crate::{Error, Refusal};

/// What was asked of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// To raise the mark before reading.
    Claim,
    /// To admit a write.
    Write,
}

/// One answer of a fence. It carries numbers and never a token's text, so that it can be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The resource that guards the target.
    pub resource: &'a str,
    /// Its slot.
    pub slot: u32,
    /// What was asked.
    pub act: Act,
    /// The number admitted or shown, where one could be read.
    pub number: Option<Number>,
    /// The no, if it was one.
    pub refusal: Option<Refusal>,
    /// The incarnation that was followed before, if the token admitted is of another one: the cluster was restored.
    pub left: Option<Incarnation>,
}

/// Told every answer. It is called on the writer's way, inside its transaction: it must not wait (F9).
pub trait Observer: Send + Sync {
    /// One answer was given.
    fn told(&self, event: &Event<'_>);
}

/// How often a fence answered what, since it was made.
#[derive(Debug, Default)]
pub struct Counters {
    claims: AtomicU64,
    admitted: AtomicU64,
    stale: AtomicU64,
    invalid: AtomicU64,
    foreign: AtomicU64,
    implausible: AtomicU64,
    lost: AtomicU64,
    not_adopted: AtomicU64,
    restored: AtomicU64,
}

/// The counters as they stood at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Claims admitted.
    pub claims: u64,
    /// Writes admitted, also those whose transaction was given up later.
    pub admitted: u64,
    /// Refused as stale: the zombies.
    pub stale: u64,
    /// Refused as no token, or one for something else.
    pub invalid: u64,
    /// Refused as another cluster's.
    pub foreign: u64,
    /// Refused as implausible.
    pub implausible: u64,
    /// Refused because the mark is lost.
    pub lost: u64,
    /// Refused as of an incarnation that a strict fence does not follow.
    pub not_adopted: u64,
    /// Admitted, and of another incarnation than the one before.
    pub restored: u64,
}

impl Counters {
    /// What was counted up to now.
    pub fn read(&self) -> Counted {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            claims: read(&self.claims),
            admitted: read(&self.admitted),
            stale: read(&self.stale),
            invalid: read(&self.invalid),
            foreign: read(&self.foreign),
            implausible: read(&self.implausible),
            lost: read(&self.lost),
            not_adopted: read(&self.not_adopted),
            restored: read(&self.restored),
        }
    }

    fn counter(&self, act: Act, refusal: Option<Refusal>) -> &AtomicU64 {
        match (refusal, act) {
            (None, Act::Claim) => &self.claims,
            (None, Act::Write) => &self.admitted,
            (Some(Refusal::Stale { .. }), _) => &self.stale,
            (Some(Refusal::Token(TokenError::WrongCluster) | Refusal::ForeignMark), _) => &self.foreign,
            (Some(Refusal::Implausible { .. } | Refusal::Token(TokenError::Implausible)), _) => &self.implausible,
            (Some(Refusal::Token(_)), _) => &self.invalid,
            (Some(Refusal::Lost(_)), _) => &self.lost,
            (Some(Refusal::NotAdopted { .. }), _) => &self.not_adopted,
        }
    }
}

/// Counts every answer and passes it on.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    pub(crate) counters: Arc<Counters>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl Watch {
    /// Counts and tells an answer. What is no answer (the target failed, or is blocked) passes untold.
    pub(crate) fn told(&self, resource: &str, slot: u32, act: Act, answer: Result<&Passed, &Error>) {
        let (number, refusal, left) = match answer {
            Ok(passed) => (Some(passed.number), None, passed.left),
            Err(Error::Refused(refusal)) => (refusal.presented(), Some(*refusal), None),
            Err(_) => return,
        };
        self.counters.counter(act, refusal).fetch_add(1, Ordering::Relaxed);
        if left.is_some() {
            self.counters.restored.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(observer) = &self.observer {
            observer.told(&Event { resource, slot, act, number, refusal, left });
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("counted", &self.counters.read()).finish_non_exhaustive()
    }
}
