//! Counters of a fence's decisions, and an optional observer that receives each decision.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::token::{Incarnation, Number, TokenError};

use crate::admission::Admission;
use crate::{Error, FenceId, FenceRefusal};

/// What a holder requested of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Raise the mark, before reading.
    Claim,
    /// Write to the target.
    Write,
}

/// One decision of a fence. It contains numbers and never the text of a token, so it can be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceEvent<'a> {
    /// Name of the resource.
    pub resource: &'a str,
    /// Slot of the resource.
    pub slot: u32,
    /// What the holder requested.
    pub operation: Operation,
    /// The number of the token, if its text could be parsed.
    pub number: Option<Number>,
    /// Why the token was rejected; `None` if it was admitted.
    pub refusal: Option<FenceRefusal>,
    /// The incarnation that the fence followed before, if it admitted a token of another one: the cluster was restored.
    pub previous_incarnation: Option<Incarnation>,
}

/// Receives every decision of a fence. The fence calls it on the write path, inside the transaction: it must not block (F9).
pub trait Observer: Send + Sync {
    /// Called once for each decision.
    fn on_event(&self, event: &FenceEvent<'_>);
}

/// Counts the decisions of a fence since it was created.
#[derive(Debug, Default)]
pub struct Counters {
    claims: AtomicU64,
    admitted: AtomicU64,
    stale: AtomicU64,
    invalid: AtomicU64,
    foreign: AtomicU64,
    implausible: AtomicU64,
    lost: AtomicU64,
    unverified: AtomicU64,
    not_adopted: AtomicU64,
    restored: AtomicU64,
}

/// The values of [`Counters`] at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Claims admitted.
    pub claims: u64,
    /// Writes admitted, including those whose transaction was rolled back later.
    pub admitted: u64,
    /// Stale tokens rejected: writes of zombies.
    pub stale: u64,
    /// Rejected because the text is not a token, or the token is for another resource or slot.
    pub invalid: u64,
    /// Rejected because the token or the mark belongs to another cluster.
    pub foreign: u64,
    /// Implausible tokens rejected.
    pub implausible: u64,
    /// Rejected because the mark is lost.
    pub lost: u64,
    /// Rejected by a sealed fence, because the token is not sealed, or its seal or stamp does not verify.
    pub unverified: u64,
    /// Rejected by a strict fence, because it does not follow the token's incarnation.
    pub not_adopted: u64,
    /// Admitted tokens of another incarnation than the one before.
    pub restored: u64,
}

impl Counters {
    /// The current values.
    pub fn snapshot(&self) -> CounterSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CounterSnapshot {
            claims: read(&self.claims),
            admitted: read(&self.admitted),
            stale: read(&self.stale),
            invalid: read(&self.invalid),
            foreign: read(&self.foreign),
            implausible: read(&self.implausible),
            lost: read(&self.lost),
            unverified: read(&self.unverified),
            not_adopted: read(&self.not_adopted),
            restored: read(&self.restored),
        }
    }

    fn counter(&self, operation: Operation, refusal: Option<FenceRefusal>) -> &AtomicU64 {
        match (refusal, operation) {
            (None, Operation::Claim) => &self.claims,
            (None, Operation::Write) => &self.admitted,
            (Some(FenceRefusal::Stale { .. }), _) => &self.stale,
            (Some(FenceRefusal::Token(TokenError::WrongCluster) | FenceRefusal::ForeignMark), _) => &self.foreign,
            (Some(FenceRefusal::Implausible { .. } | FenceRefusal::Token(TokenError::Implausible)), _) => {
                &self.implausible
            }
            (Some(FenceRefusal::Token(_)), _) => &self.invalid,
            (Some(FenceRefusal::MarkLost(_)), _) => &self.lost,
            (Some(FenceRefusal::NotAdopted { .. }), _) => &self.not_adopted,
            (
                Some(
                    FenceRefusal::Seal(_) | FenceRefusal::NoSealKeys | FenceRefusal::NotVerified | FenceRefusal::Stamp,
                ),
                _,
            ) => &self.unverified,
        }
    }
}

/// Counts every decision and passes it to the observer, if there is one. Clones share their counters.
#[derive(Clone, Default)]
pub(crate) struct EventSink {
    pub(crate) counters: Arc<Counters>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl EventSink {
    /// Records a decision. A fault (the target failed, or is blocked) is not a decision and is ignored.
    pub(crate) fn record(&self, id: &FenceId, operation: Operation, decision: Result<&Admission, &Error>) {
        let (number, refusal, previous_incarnation) = match decision {
            Ok(admission) => (Some(admission.number), None, admission.previous_incarnation),
            Err(Error::Refused(refusal)) => (refusal.presented(), Some(*refusal), None),
            Err(_) => return,
        };
        self.counters.counter(operation, refusal).fetch_add(1, Ordering::Relaxed);
        if previous_incarnation.is_some() {
            self.counters.restored.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(observer) = &self.observer {
            let (resource, slot) = (id.resource(), id.slot());
            observer.on_event(&FenceEvent { resource, slot, operation, number, refusal, previous_incarnation });
        }
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSink").field("counters", &self.counters.snapshot()).finish_non_exhaustive()
    }
}
