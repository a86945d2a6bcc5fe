//! Renewal of one lease as a state machine: when to send a renewal, and what each reply means for the work.

use super::{
    Belief, BeliefState, Deadline, Loss, ReceivedGrant, ReceivedRenewal, Timing, TimingError, gap_in, jittered,
};
use crate::lease::EndReason;
use crate::time::Instant;
use crate::token::Number;

/// One renewal request.
///
/// A caller that resends the same request keeps its attempt: the reply may have been decided at the first sending, and
/// counts from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalAttempt {
    id: u64,
    token: Number,
    sent: Instant,
}

impl RenewalAttempt {
    /// The number of this request, from 1.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The token to present.
    pub const fn token(&self) -> Number {
        self.token
    }

    /// The time before it was first sent.
    pub const fn sent(&self) -> Instant {
        self.sent
    }
}

/// The reply to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalAnswer {
    /// The lease was renewed.
    Renewed(ReceivedRenewal),
    /// The lease ended.
    Ended(EndReason),
    /// The presented token is not current.
    NotCurrent,
    /// No decision, or its outcome is unknown. It proves nothing.
    Unavailable,
}

/// The next action of a holder. Actions come in the order in which they must happen; poll until [`RenewalAction::Wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalAction {
    /// Stop all work now: the local deadline has passed.
    Suspend,
    /// Work may continue under this token.
    Resume(Number),
    /// The lease has a new token: write under this one from now on.
    Rotated(Number),
    /// A successor was granted: start nothing new, finish the open writes, then report the drain as finished.
    Drain {
        /// When work stops, finished or not.
        until: Instant,
    },
    /// Send this request.
    Send(RenewalAttempt),
    /// Nothing to do until this time, unless a reply or a notice arrives.
    Wait(Instant),
    /// The grantor ended the lease. No further action follows.
    Lost(Loss),
}

/// The renewal of one lease.
#[derive(Clone, Debug)]
pub struct Renewal {
    timing: Timing,
    belief: Belief,
    attempts: u64,
    last_sent: Option<Instant>,
    due: Option<Instant>,
    /// Where renewals rotate the token: the request that may have rotated it. A new request would present an old token.
    unanswered: Option<RenewalAttempt>,
    rotates: bool,
    /// Whether the caller works, according to the last reported action.
    working: bool,
    reported_token: Number,
    reported_drain: Option<Instant>,
    /// The deadline passed and a renewal arrived before the caller was suspended.
    missed_deadline: bool,
}

impl Renewal {
    /// The renewal of a granted lease. Fails if the drain period leaves no time to renew.
    pub fn new(timing: Timing, granted: ReceivedGrant) -> Result<Self, TimingError> {
        if let Some(drain_ms) = granted.drain_ms {
            Timing::check_drain(drain_ms)?;
        }
        let belief = Belief::new(&timing, &granted);
        Ok(Self {
            timing,
            attempts: 0,
            last_sent: None,
            due: None,
            unanswered: None,
            rotates: granted.rotates,
            working: belief.holds(granted.received),
            reported_token: granted.token,
            reported_drain: None,
            missed_deadline: false,
            belief,
        })
    }

    /// The next action. `random` is a fresh random number for the jitter.
    pub fn poll(&mut self, now: Instant, random: u64) -> RenewalAction {
        let state = self.belief.observe(now);
        if let BeliefState::Lost(loss) = state {
            self.working = false;
            return RenewalAction::Lost(loss);
        }
        if let Some(report_change) = self.report_change(state) {
            return report_change;
        }
        let due = *self.due.get_or_insert_with(|| next_renewal(&self.timing, &self.belief, self.last_sent, random));
        if now >= due {
            return RenewalAction::Send(self.attempt(now, state, random));
        }
        match state {
            BeliefState::Held { until } => RenewalAction::Wait(due.min(until)),
            BeliefState::Suspended | BeliefState::Lost(_) => RenewalAction::Wait(due),
        }
    }

    /// Processes the reply to an attempt; poll afterwards.
    pub fn handle_answer(&mut self, attempt: RenewalAttempt, now: Instant, answer: RenewalAnswer) {
        self.missed_deadline |= self.working && self.belief.observe(now) == BeliefState::Suspended;
        if answer != RenewalAnswer::Unavailable && self.unanswered == Some(attempt) {
            self.unanswered = None;
        }
        match answer {
            RenewalAnswer::Renewed(reply) => {
                if self.belief.apply_renewal(attempt.sent, now, reply) {
                    self.due = None;
                }
            }
            RenewalAnswer::Ended(reason) => self.belief.lose(Loss::Ended(reason)),
            // The token may have been rotated since this attempt presented it.
            RenewalAnswer::NotCurrent if attempt.token == self.belief.token() => self.belief.lose(Loss::NotCurrent),
            // The retry is already scheduled: this reply proves no more than none.
            RenewalAnswer::NotCurrent | RenewalAnswer::Unavailable => {}
        }
    }

    /// Processes a notice that the lease ended. An end is final, so a late notice is as valid.
    pub fn handle_end(&mut self, reason: EndReason) {
        self.belief.lose(Loss::Ended(reason));
    }

    /// Schedules a renewal now, after a notice or a reconnect. A notice may be late, so it moves no deadline; only the
    /// reply does.
    pub fn renew_now(&mut self, now: Instant) {
        let soonest = not_before_gap(now, &self.belief, self.last_sent);
        self.due = Some(self.due.map_or(soonest, |due| due.min(soonest)));
    }

    /// Finishes the drain, if no write is open. A write with an unknown outcome counts as open. After this the holder must
    /// not write.
    pub fn finish_drain(&mut self, writes_open: u64) -> Result<DrainProof, DrainError> {
        if self.belief.drain_until().is_none() {
            return Err(DrainError::NotDraining);
        }
        if writes_open > 0 {
            return Err(DrainError::WritesOpen(writes_open));
        }
        self.belief.stop_permanently();
        Ok(DrainProof { token: self.belief.token() })
    }

    /// Whether work may continue now. False from the local deadline on, polled or not, until [`RenewalAction::Resume`].
    pub fn may_act(&self, now: Instant) -> bool {
        self.working && !self.missed_deadline && self.belief.holds(now)
    }

    /// The token under which the lease is held.
    pub const fn token(&self) -> Number {
        self.belief.token()
    }

    /// The local state at this moment.
    pub fn state(&self, now: Instant) -> BeliefState {
        self.belief.state(now)
    }

    /// The earliest and latest deadline.
    pub fn deadline(&self) -> Deadline {
        self.belief.deadline()
    }

    /// When the lease ends even if it is renewed; `None` if a renewal moves its end.
    pub fn fixed_end(&self) -> Option<Instant> {
        self.belief.fixed_end()
    }

    /// The next change that the caller must learn, suspension first.
    fn report_change(&mut self, state: BeliefState) -> Option<RenewalAction> {
        let held = matches!(state, BeliefState::Held { .. });
        if self.working && (self.missed_deadline || !held) {
            self.working = false;
            self.missed_deadline = false;
            return Some(RenewalAction::Suspend);
        }
        if held && !self.working {
            self.working = true;
            self.reported_token = self.belief.token();
            return Some(RenewalAction::Resume(self.reported_token));
        }
        if held && self.reported_token != self.belief.token() {
            self.reported_token = self.belief.token();
            return Some(RenewalAction::Rotated(self.reported_token));
        }
        let until = self.belief.drain_until().filter(|_| self.reported_drain != self.belief.drain_until())?;
        self.reported_drain = Some(until);
        Some(RenewalAction::Drain { until })
    }

    /// Creates a request and schedules the retry in case no reply arrives.
    fn attempt(&mut self, now: Instant, state: BeliefState, random: u64) -> RenewalAttempt {
        let span = self.belief.span_ms();
        let wait = match state {
            // A third of the remaining time: at least two more attempts fit, and they get closer towards the deadline.
            BeliefState::Held { until } => gap_in(span).max(until.millis_since(now) / 3),
            // After an outage the grantor gives a full ttl to the leases it kept, so faster retries do not help.
            BeliefState::Suspended | BeliefState::Lost(_) => gap_in(span).max(self.timing.interval_in(span) / 3),
        };
        self.due = Some(not_before_gap(now.plus_millis(jittered(wait, random)), &self.belief, Some(now)));
        self.last_sent = Some(now);
        if let Some(same) = self.unanswered {
            return same;
        }
        self.attempts += 1;
        let attempt = RenewalAttempt { id: self.attempts, token: self.belief.token(), sent: now };
        self.unanswered = self.rotates.then_some(attempt);
        attempt
    }
}

/// When to renew after the last reply.
fn next_renewal(timing: &Timing, belief: &Belief, last_sent: Option<Instant>, random: u64) -> Instant {
    let wait = jittered(timing.interval_in(belief.span_ms()), random);
    not_before_gap(belief.last_answered_sent().plus_millis(wait), belief, last_sent)
}

/// Keeps the shortest pause between requests, so that a struggling grantor is not flooded.
fn not_before_gap(due: Instant, belief: &Belief, last_sent: Option<Instant>) -> Instant {
    last_sent.map_or(due, |sent| due.max(sent.plus_millis(gap_in(belief.span_ms()))))
}

/// Proof that every write of a predecessor was answered. Only [`Renewal::finish_drain`] creates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainProof {
    token: Number,
}

impl DrainProof {
    /// The token of the predecessor.
    pub const fn token(&self) -> Number {
        self.token
    }
}

/// Why a holder cannot finish its drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainError {
    /// The lease is not draining; release it instead.
    NotDraining,
    /// This number of writes have no reply yet.
    WritesOpen(u64),
}

impl std::fmt::Display for DrainError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotDraining => f.write_str("the lease is not draining; release it instead"),
            Self::WritesOpen(open) => write!(f, "{open} writes have no reply yet; wait for them"),
        }
    }
}

impl std::error::Error for DrainError {}

#[cfg(test)]
mod tests;
