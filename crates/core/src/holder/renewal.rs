//! When a holder asks to renew, and what each answer means for its work.

use super::{Belief, Deadline, Granted, Loss, Renewed, Standing, Timing, TimingError, gap_in, jittered};
use crate::lease::Reason;
use crate::time::Instant;
use crate::token::Number;

/// One request to renew.
///
/// A caller that sends the same request once more keeps its attempt: the answer may have been decided at the first
/// sending, and must be counted from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    id: u64,
    token: Number,
    sent: Instant,
}

impl Attempt {
    /// Which request of this holder's it is.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The token to show.
    pub const fn token(&self) -> Number {
        self.token
    }

    /// The moment before it is sent.
    pub const fn sent(&self) -> Instant {
        self.sent
    }
}

/// What came back for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The lease goes on.
    Renewed(Renewed),
    /// The lease is over.
    Ended(Reason),
    /// The token shown is not current.
    NotCurrent,
    /// Nobody decided, or nobody knows what was decided. It proves nothing.
    Unavailable,
}

/// What a holder does next. Each is said in the order in which it must be done, so a caller asks until told to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stop all work now: the local deadline has passed.
    Suspend,
    /// Work may go on, under this token.
    Resume(Number),
    /// The token was raised: write under this one from now on.
    Rotated(Number),
    /// A successor was granted: begin nothing new, finish the open writes before then, and say drained.
    Drain {
        /// When work stops, finished or not.
        until: Instant,
    },
    /// Send this request.
    Send(Attempt),
    /// Nothing to do before then, unless an answer or a notice comes.
    Wait(Instant),
    /// Over, by the grantor's word. Nothing follows.
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
    /// Where tokens are raised, the request that may have raised it: a new one would show a token that is gone.
    unanswered: Option<Attempt>,
    rotates: bool,
    /// What the caller was last told.
    working: bool,
    told_token: Number,
    told_drain: Option<Instant>,
    /// The deadline passed and a renewal came before the caller could be told.
    missed: bool,
}

impl Renewal {
    /// The renewal of what was granted. Refused if the drain period leaves no room to renew in.
    pub fn new(timing: Timing, granted: Granted) -> Result<Self, TimingError> {
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
            told_token: granted.token,
            told_drain: None,
            missed: false,
            belief,
        })
    }

    /// The next thing to do. `chance` is a fresh random number; holders with the same one ask at the same time.
    pub fn poll(&mut self, now: Instant, chance: u64) -> Action {
        let standing = self.belief.look(now);
        if let Standing::Lost(loss) = standing {
            self.working = false;
            return Action::Lost(loss);
        }
        if let Some(change) = self.change(standing) {
            return change;
        }
        let due = *self.due.get_or_insert_with(|| next_renewal(&self.timing, &self.belief, self.last_sent, chance));
        if now >= due {
            return Action::Send(self.attempt(now, standing, chance));
        }
        match standing {
            Standing::Held { until } => Action::Wait(due.min(until)),
            Standing::Suspended | Standing::Lost(_) => Action::Wait(due),
        }
    }

    /// Takes in what came back for an attempt; what follows from it is polled.
    pub fn answered(&mut self, attempt: Attempt, now: Instant, answer: Answer) {
        self.missed |= self.working && self.belief.look(now) == Standing::Suspended;
        if answer != Answer::Unavailable && self.unanswered == Some(attempt) {
            self.unanswered = None;
        }
        match answer {
            Answer::Renewed(told) => {
                if self.belief.renewed(attempt.sent, now, told) {
                    self.due = None;
                }
            }
            Answer::Ended(reason) => self.belief.lose(Loss::Ended(reason)),
            // The token may have been raised since this attempt showed it.
            Answer::NotCurrent if attempt.token == self.belief.token() => self.belief.lose(Loss::NotCurrent),
            // The retry was due before this came: an attempt without an answer says as little.
            Answer::NotCurrent | Answer::Unavailable => {}
        }
    }

    /// The grantor's word, unasked, that the lease is over. An end is final, so one that is told late is as true.
    pub fn ended(&mut self, reason: Reason) {
        self.belief.lose(Loss::Ended(reason));
    }

    /// A reason to ask now: a pushed notice, or a connection that is back. A notice may be late, so it moves no
    /// deadline; only the answer does.
    pub fn ask_now(&mut self, now: Instant) {
        let soonest = not_before_gap(now, &self.belief, self.last_sent);
        self.due = Some(self.due.map_or(soonest, |due| due.min(soonest)));
    }

    /// Leave to say that this predecessor has drained, given how many of its writes are without an answer. A write
    /// whose outcome is unknown has no answer. After this nothing more may be written.
    pub fn drained(&mut self, writes_open: u64) -> Result<Drained, NotDrained> {
        if self.belief.drain_until().is_none() {
            return Err(NotDrained::NotDraining);
        }
        if writes_open > 0 {
            return Err(NotDrained::WritesOpen(writes_open));
        }
        self.belief.stop_for_good();
        Ok(Drained { token: self.belief.token() })
    }

    /// Whether work may go on now. False from the local deadline on, polled or not, until [`Action::Resume`] was said.
    pub fn may_act(&self, now: Instant) -> bool {
        self.working && !self.missed && self.belief.holds(now)
    }

    /// The token under which the lease is held.
    pub const fn token(&self) -> Number {
        self.belief.token()
    }

    /// What the holder may think now.
    pub fn standing(&self, now: Instant) -> Standing {
        self.belief.standing(now)
    }

    /// The earliest and the latest end.
    pub fn deadline(&self) -> Deadline {
        self.belief.deadline()
    }

    /// What the caller must be told before anything else, stopping first.
    fn change(&mut self, standing: Standing) -> Option<Action> {
        let held = matches!(standing, Standing::Held { .. });
        if self.working && (self.missed || !held) {
            self.working = false;
            self.missed = false;
            return Some(Action::Suspend);
        }
        if held && !self.working {
            self.working = true;
            self.told_token = self.belief.token();
            return Some(Action::Resume(self.told_token));
        }
        if held && self.told_token != self.belief.token() {
            self.told_token = self.belief.token();
            return Some(Action::Rotated(self.told_token));
        }
        let until = self.belief.drain_until().filter(|_| self.told_drain != self.belief.drain_until())?;
        self.told_drain = Some(until);
        Some(Action::Drain { until })
    }

    /// A request, and with it the time of the next should no answer come.
    fn attempt(&mut self, now: Instant, standing: Standing, chance: u64) -> Attempt {
        let span = self.belief.span_ms();
        let wait = match standing {
            // A third of what is left each time: at least two more fit, and they come closer as it gets urgent.
            Standing::Held { until } => gap_in(span).max(until.millis_since(now) / 3),
            // The grantor gives what it kept a full ttl when it is back, so there is no hurry that would help.
            Standing::Suspended | Standing::Lost(_) => gap_in(span).max(self.timing.interval_in(span) / 3),
        };
        self.due = Some(not_before_gap(now.plus_millis(jittered(wait, chance)), &self.belief, Some(now)));
        self.last_sent = Some(now);
        if let Some(same) = self.unanswered {
            return same;
        }
        self.attempts += 1;
        let attempt = Attempt { id: self.attempts, token: self.belief.token(), sent: now };
        self.unanswered = self.rotates.then_some(attempt);
        attempt
    }
}

/// When to renew what the last answer gave.
fn next_renewal(timing: &Timing, belief: &Belief, last_sent: Option<Instant>, chance: u64) -> Instant {
    let wait = jittered(timing.interval_in(belief.span_ms()), chance);
    not_before_gap(belief.asked().plus_millis(wait), belief, last_sent)
}

/// However urgent, a grantor in trouble is not asked without a pause.
fn not_before_gap(due: Instant, belief: &Belief, last_sent: Option<Instant>) -> Instant {
    last_sent.map_or(due, |sent| due.max(sent.plus_millis(gap_in(belief.span_ms()))))
}

/// A predecessor's word that every write of its was answered. Only [`Renewal::drained`] gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    token: Number,
}

impl Drained {
    /// The token that will write no more.
    pub const fn token(&self) -> Number {
        self.token
    }
}

/// Why a holder may not say that it has drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDrained {
    /// Nobody told it to drain; to give the lease back, it releases.
    NotDraining,
    /// So many writes are without an answer.
    WritesOpen(u64),
}

impl std::fmt::Display for NotDrained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotDraining => f.write_str("not told to drain; release instead"),
            Self::WritesOpen(open) => write!(f, "{open} writes are without an answer; wait for them"),
        }
    }
}

impl std::error::Error for NotDrained {}

#[cfg(test)]
mod tests;
