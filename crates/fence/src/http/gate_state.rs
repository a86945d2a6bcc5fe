//! The decisions of a gate, as a state machine without clock, file or waiting.
//!
//! All requests in flight have the token number that is the mark. A higher token raises the mark only when no request is in
//! flight and no outcome is unknown: then no lower token can change the target after it (F1).

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::fence::{Sequenced, admit_sequenced};
use leasehold_core::token::{Incarnation, Number};
use tokio::time::Instant;

use super::mark_log::FileStamp;
use crate::admission::PresentedToken;
use crate::{FenceRefusal, Mark, MarkLoss, Verdict, admit};

/// The state of one gate.
#[derive(Debug)]
pub(super) struct GateState {
    pub(super) mark: Mark,
    /// How the mark was lost. Meaningful only if `mark` is lost.
    pub(super) loss: MarkLoss,
    /// The mark file is sealed: only verified tokens are admitted.
    pub(super) sealed: bool,
    /// The incarnation whose token the mark file has admitted at the current mark. Only the file knows which one it follows.
    pub(super) followed_incarnation: Option<Incarnation>,
    /// The mark file when the mark was read from it.
    pub(super) stamp: FileStamp,
    /// A caller is executing a [`MarkLogOp`].
    pub(super) busy: bool,
    /// The mark file states that requests may be in flight.
    pub(super) begun: bool,
    /// Requests in flight by id, each with the time at which it is aborted.
    in_flight: BTreeMap<u64, Instant>,
    /// An outcome is unknown until this time.
    unknown_until: Option<Instant>,
    /// Requests that wait to raise the mark, by id.
    raise_waiters: BTreeMap<u64, Number>,
    sequence: Option<SequenceRecord>,
    next_id: u64,
    max_request_time: Duration,
    settle_time: Duration,
}

/// The last sequence that was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SequenceRecord {
    number: Number,
    sequence: u64,
    outcome: RequestOutcome,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    /// No outcome yet.
    InFlight,
    /// The target replied that it applied the request.
    Applied,
    /// The target replied that it did not apply the request, or the request was not sent.
    NotApplied,
    /// The request may have been applied, or may still be.
    Unknown,
}

/// What a request needs from the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateRequest {
    /// Raise the mark, without any other effect.
    Claim,
    /// Be in flight until the outcome is known.
    Write { sequence: Option<u64> },
}

impl GateRequest {
    /// The sequence of the request.
    pub(super) const fn sequence(self) -> Option<u64> {
        match self {
            Self::Write { sequence } => sequence,
            Self::Claim => None,
        }
    }
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateStep {
    /// The request is in flight, under this id.
    Admitted(u64),
    /// The claim is complete: the mark is at this token.
    Claimed,
    /// The fence rejects the token.
    Refused(FenceRefusal),
    /// The request is a duplicate.
    AlreadyApplied { last: u64 },
    /// A request with this sequence was forwarded earlier, and its outcome is unknown.
    Unknown,
    /// The caller must execute this operation first. The gate is busy until then.
    Execute(MarkLogOp),
    /// Wait until another request leaves the gate, at most until this time. Then poll again.
    Wait(Option<Instant>),
}

/// An operation on the mark file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkLogOp {
    /// Read the mark again: another process changed the file.
    Read,
    /// Raise the mark to the presented token.
    Raise,
    /// Record that requests may be in flight.
    Begin,
    /// Record that a request with this sequence is forwarded.
    Forward(u64),
}

impl GateState {
    pub(super) const fn new(max_request_time: Duration, settle_time: Duration) -> Self {
        Self {
            mark: Mark::Lost,
            loss: MarkLoss::Unreadable,
            sealed: false,
            followed_incarnation: None,
            stamp: FileStamp::NONE,
            busy: false,
            begun: false,
            in_flight: BTreeMap::new(),
            unknown_until: None,
            raise_waiters: BTreeMap::new(),
            sequence: None,
            next_id: 0,
            max_request_time,
            settle_time,
        }
    }

    /// Decides about a request, at its first poll and at later ones. `raise_id` is its id among the waiters that raise the mark.
    pub(super) fn poll(
        &mut self,
        current: FileStamp,
        now: Instant,
        presented: PresentedToken,
        request: GateRequest,
        raise_id: &mut Option<u64>,
    ) -> GateStep {
        if self.busy {
            return GateStep::Wait(None);
        }
        if current != self.stamp {
            return self.start_mark_log_op(MarkLogOp::Read);
        }
        if let Err(refusal) = presented.check_seal(self.sealed) {
            return GateStep::Refused(refusal);
        }
        let number = presented.number;
        let raises = match admit(self.mark, number) {
            Verdict::Stale { presented, mark } => return GateStep::Refused(FenceRefusal::Stale { presented, mark }),
            Verdict::Lost => return GateStep::Refused(FenceRefusal::MarkLost(self.loss)),
            Verdict::Admitted { .. } => self.mark != Mark::Armed(number),
        };
        if !raises && self.followed_incarnation != Some(presented.incarnation) {
            return self.start_mark_log_op(MarkLogOp::Raise);
        }
        if !raises && request == GateRequest::Claim {
            return GateStep::Claimed;
        }
        if raises && raise_id.is_none() {
            self.next_id += 1;
            self.raise_waiters.insert(self.next_id, number);
            *raise_id = Some(self.next_id);
        }
        if self.raise_waiters.values().any(|other| *other > number) {
            // A later holder waits for requests in flight. Admitting more of them could block it indefinitely.
            return GateStep::Wait(None);
        }
        if raises {
            return match self.drained_at(now) {
                None => self.start_mark_log_op(MarkLogOp::Raise),
                Some(at) => GateStep::Wait(Some(at)),
            };
        }
        let GateRequest::Write { sequence } = request else {
            unreachable!("a claim at the mark is complete, see above")
        };
        match sequence {
            None if self.begun => GateStep::Admitted(self.admit(now)),
            None => self.start_mark_log_op(MarkLogOp::Begin),
            Some(sequence) => self.poll_sequenced(now, number, sequence),
        }
    }

    fn poll_sequenced(&mut self, now: Instant, number: Number, sequence: u64) -> GateStep {
        let last = self.sequence.filter(|last| last.number == number);
        match (admit_sequenced(self.mark, last.map(|last| last.sequence), number, sequence), last) {
            (Sequenced::AlreadyApplied { last }, Some(recorded)) if recorded.sequence == sequence => {
                match recorded.outcome {
                    RequestOutcome::Applied => GateStep::AlreadyApplied { last },
                    RequestOutcome::Unknown => GateStep::Unknown,
                    RequestOutcome::InFlight => GateStep::Wait(None),
                    RequestOutcome::NotApplied => {
                        self.sequence = Some(SequenceRecord { outcome: RequestOutcome::InFlight, ..recorded });
                        GateStep::Admitted(self.admit(now))
                    }
                }
            }
            (Sequenced::AlreadyApplied { last }, _) => GateStep::AlreadyApplied { last },
            (Sequenced::Admitted { .. }, _) => self.start_mark_log_op(MarkLogOp::Forward(sequence)),
            (Sequenced::Stale { presented, mark }, _) => GateStep::Refused(FenceRefusal::Stale { presented, mark }),
            (Sequenced::Lost, _) => GateStep::Refused(FenceRefusal::MarkLost(self.loss)),
        }
    }

    fn admit(&mut self, now: Instant) -> u64 {
        self.next_id += 1;
        self.in_flight.insert(self.next_id, now + self.max_request_time);
        self.next_id
    }

    const fn start_mark_log_op(&mut self, op: MarkLogOp) -> GateStep {
        self.busy = true;
        GateStep::Execute(op)
    }

    /// The time after which no lower token can act, if no request leaves earlier; `None` if that is now.
    fn drained_at(&mut self, now: Instant) -> Option<Instant> {
        // A request past its maximum time plus the settle time was aborted long ago: forget it.
        self.in_flight.retain(|_, until| *until + self.settle_time > now);
        self.unknown_until = self.unknown_until.filter(|until| *until > now);
        let last = self.in_flight.values().max().map(|until| *until + self.settle_time);
        last.max(self.unknown_until)
    }

    /// The mark file recorded the sequence: the request is in flight from now on, under this id.
    pub(super) fn forwarded(&mut self, now: Instant, number: Number, sequence: u64) -> u64 {
        self.begun = true;
        self.sequence = Some(SequenceRecord { number, sequence, outcome: RequestOutcome::InFlight });
        self.admit(now)
    }

    /// Restores the last sequence of an earlier process.
    pub(super) const fn restore_sequence(&mut self, number: Number, sequence: u64, outcome: RequestOutcome) {
        self.sequence = Some(SequenceRecord { number, sequence, outcome });
    }

    /// A request leaves the gate.
    pub(super) fn leave(&mut self, now: Instant, id: u64, outcome: RequestOutcome, sequence: Option<(Number, u64)>) {
        if self.in_flight.remove(&id).is_some() && outcome == RequestOutcome::Unknown {
            self.note_unknown_outcome(now);
        }
        if let (Some((number, sequence)), Some(last)) = (sequence, &mut self.sequence)
            && (last.number, last.sequence) == (number, sequence)
        {
            last.outcome = outcome;
        }
    }

    /// Blocks higher tokens for the settle time, because an outcome is unknown.
    pub(super) fn note_unknown_outcome(&mut self, now: Instant) {
        self.unknown_until = self.unknown_until.max(Some(now + self.settle_time));
    }

    /// A request stops waiting to raise the mark.
    pub(super) fn cancel_raise(&mut self, id: u64) {
        self.raise_waiters.remove(&id);
    }

    /// Number of requests in flight, and how long an unknown outcome still blocks higher tokens.
    pub(super) fn status(&self, now: Instant) -> (usize, Duration) {
        (self.in_flight.len(), self.unknown_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now)))
    }
}
