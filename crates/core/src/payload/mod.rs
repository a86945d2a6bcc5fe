//! What leases are for beyond exclusion: deliveries, small state, and read leases on cached keys, one table each.
//!
//! Each table decides without changing itself, and changes only by `apply`, in service and in replay alike. What time
//! has brought is a fact like any other: nothing ends because a clock was read.

pub mod cache;
pub mod delivery;
mod live;
pub mod state;

use std::fmt;
use std::sync::Arc;

use crate::codec::{Malformed, Reader, Write};
use crate::ids::SessionId;
use crate::lease::Reason;
use crate::limits::{TTL_MAX_EVER, TTL_MIN};
use crate::refusal::{Refusal, number};
use crate::time::Millis;
use crate::token::Number;

/// The turn in which a table decides: its time, and what the next grant is called.
#[derive(Clone, Copy)]
pub struct Moment<'a> {
    /// Grantor time of the turn.
    pub now: Millis,
    /// The number of the next grant; a decision that needs several takes the ones that follow.
    pub next: Number,
    /// The cluster's longest ttl, in milliseconds.
    pub max_ttl: u64,
    /// For how many milliseconds the grantor stalled since a given time.
    pub stalls: &'a dyn Fn(Millis) -> u64,
}

impl fmt::Debug for Moment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moment").field("now", &self.now).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Moment<'_> {
    /// When a span really ends: stalls of the grantor are given back, at most one ttl of them (L12).
    fn end_of(&self, span: Span) -> Millis {
        span.deadline().plus((self.stalls)(span.since).min(span.ttl))
    }

    fn is_over(&self, span: Span) -> bool {
        // The stalls are asked for only when they decide.
        span.deadline() <= self.now && self.end_of(span) <= self.now
    }

    fn remaining(&self, span: Span) -> u64 {
        self.now.until(self.end_of(span))
    }

    /// The next number, or one of those that follow it (T7: none is made up beyond the last).
    fn number(&self, further: u64) -> Result<Number, Refusal> {
        self.next.get().checked_add(further).and_then(Number::new).ok_or(Refusal::TokensExhausted)
    }

    fn span(&self, field: &'static str, ttl: u64) -> Result<Span, Refusal> {
        if (TTL_MIN..=self.max_ttl).contains(&ttl) {
            Ok(Span { since: self.now, ttl })
        } else {
            Err(Refusal::Invalid { field, reason: "from 100 ms to the cluster's longest ttl" })
        }
    }
}

/// What a table makes of a command. The facts go on record before the answer is told, whether it is yes or no: a
/// refusal that says "expired" must survive a crash too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<F, A> {
    /// What is put on record, in this order.
    pub facts: Vec<F>,
    /// What the caller is told.
    pub answer: Result<A, Refusal>,
    /// What others are told.
    pub notices: Vec<Notice>,
}

impl<F, A> Decision<F, A> {
    fn yes(facts: Vec<F>, answer: A) -> Self {
        Self { facts, answer: Ok(answer), notices: Vec::new() }
    }
}

impl<F, A> From<Refused<F>> for Decision<F, A> {
    fn from(refused: Refused<F>) -> Self {
        Self { facts: refused.facts, answer: Err(refused.why), notices: Vec::new() }
    }
}

/// A refusal on its way out, with what it found out.
struct Refused<F> {
    facts: Vec<F>,
    why: Refusal,
}

impl<F> From<Refusal> for Refused<F> {
    fn from(why: Refusal) -> Self {
        Self { facts: Vec::new(), why }
    }
}

/// A word to a session that did not ask. It may get lost: whoever depends on it also has a deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A writer wants to change this key: drop the copy, then say so.
    Invalidate {
        /// The reader's session.
        session: SessionId,
        /// The cached key.
        key: Arc<str>,
        /// The read lease.
        lease: Number,
    },
    /// Nobody reads this key under a lease any more: write, then commit.
    Clear {
        /// The writer's session.
        session: SessionId,
        /// The cached key.
        key: Arc<str>,
        /// The intent.
        intent: Number,
    },
}

/// A time and how long from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    since: Millis,
    ttl: u64,
}

impl Span {
    const fn deadline(self) -> Millis {
        self.since.plus(self.ttl)
    }

    fn encode(self, out: &mut Vec<u8>) {
        out.num(self.since.0);
        out.num(self.ttl);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { since: Millis(from.num()?), ttl: ttl(from)? })
    }
}

/// The last number that was current, and why it is no more: so that a late holder is told the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Past {
    number: Number,
    reason: Reason,
}

impl Past {
    /// What somebody hears who shows `shown` although nothing is current.
    fn refusal(past: Option<Self>, shown: Number) -> Refusal {
        match past {
            Some(past) if shown == past.number => Refusal::Lost(past.reason),
            Some(past) => not_current(shown, past.number),
            None => Refusal::NotCurrent(crate::refusal::NotCurrent::Unknown),
        }
    }

    fn encode(past: Option<Self>, out: &mut Vec<u8>) {
        out.flag(past.is_some());
        if let Some(past) = past {
            out.num(past.number.get());
            out.u8(past.reason.code());
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
        Ok(if from.flag()? { Some(Self { number: number(from)?, reason: reason(from)? }) } else { None })
    }
}

/// Shown another number than the current one: older ones are stale, newer ones were never given out here.
fn not_current(shown: Number, current: Number) -> Refusal {
    if shown < current {
        Refusal::Stale { presented: shown.get(), mark: current.get() }
    } else {
        Refusal::NotCurrent(crate::refusal::NotCurrent::Unknown)
    }
}

fn ttl(from: &mut Reader<'_>) -> Result<u64, Malformed> {
    let ttl = from.num()?;
    if (TTL_MIN..=TTL_MAX_EVER).contains(&ttl) { Ok(ttl) } else { Err(from.wrong("not a ttl")) }
}

fn reason(from: &mut Reader<'_>) -> Result<Reason, Malformed> {
    let code = from.u8()?;
    Reason::from_code(code).ok_or_else(|| from.wrong("no such reason"))
}

/// Text of 1 to `most` bytes.
pub(crate) fn text<'a>(from: &mut Reader<'a>, most: usize) -> Result<&'a str, Malformed> {
    let text = from.text()?;
    if text.is_empty() || text.len() > most { Err(from.wrong("text empty or too long")) } else { Ok(text) }
}

fn put_session(session: Option<SessionId>, out: &mut Vec<u8>) {
    out.flag(session.is_some());
    if let Some(session) = session {
        out.num(u64::from(session.slot));
        out.num(u64::from(session.reuse));
    }
}

fn session(from: &mut Reader<'_>) -> Result<Option<SessionId>, Malformed> {
    Ok(if from.flag()? { Some(SessionId { slot: from.num32()?, reuse: from.num32()? }) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_given_back_but_at_most_one_ttl_of_it() {
        let span = Span { since: Millis(1_000), ttl: 500 };
        for (stalled, ends) in [(0, 1_500), (200, 1_700), (500, 2_000), (60_000, 2_000)] {
            let stalls = |_| stalled;
            let at = |now| Moment { now: Millis(now), next: Number::FIRST, max_ttl: 600_000, stalls: &stalls };
            assert!(!at(ends - 1).is_over(span), "stalled {stalled}: too early");
            assert_eq!(at(ends - 1).remaining(span), 1);
            assert!(at(ends).is_over(span), "stalled {stalled}: too late");
        }
    }

    #[test]
    fn a_ttl_outside_its_bounds_is_refused_with_the_name_of_its_field() {
        let at = Moment { now: Millis(0), next: Number::FIRST, max_ttl: 10_000, stalls: &|_| 0 };
        for bad in [0, 99, 10_001, u64::MAX] {
            let refusal = at.span("visibility", bad).expect_err("out of bounds");
            assert!(matches!(refusal, Refusal::Invalid { field: "visibility", .. }), "{bad}: {refusal:?}");
        }
        assert_eq!(at.span("visibility", 100), Ok(Span { since: Millis(0), ttl: 100 }));
        assert_eq!(at.span("visibility", 10_000), Ok(Span { since: Millis(0), ttl: 10_000 }));
    }

    #[test]
    fn no_number_is_made_up_beyond_the_last() {
        let at = Moment { now: Millis(0), next: Number::MAX, max_ttl: 10_000, stalls: &|_| 0 };
        assert_eq!(at.number(0), Ok(Number::MAX));
        assert_eq!(at.number(1), Err(Refusal::TokensExhausted));
    }
}
