//! Payloads: message queues, state stored under leases, and cache invalidation, with one table each.
//!
//! Each table decides a command without changing itself, and changes only by `apply`, both in service and in replay.
//! Expiry is a record like any other: nothing ends merely because a clock was read.

pub mod cache;
pub mod delivery;
mod expiry_index;
mod owner_usage;
pub mod state;

use std::fmt;
use std::sync::Arc;

use crate::access::decode_owner;
use crate::codec::{DecodeError, Reader, Write};
use crate::ids::SessionId;
use crate::lease::EndReason;
use crate::limits::{TTL_MAX_EVER, TTL_MIN};
use crate::refusal::{Refusal, number};
use crate::time::GrantorTime;
use crate::token::Number;

/// The turn in which a table decides: its time and the next token number.
#[derive(Clone, Copy)]
pub struct TurnContext<'a> {
    /// Grantor time of the turn.
    pub now: GrantorTime,
    /// The number of the next grant; a decision that needs several uses the following ones too.
    pub next: Number,
    /// The cluster's longest ttl, in milliseconds.
    pub max_ttl: u64,
    /// Milliseconds that the grantor stalled since a given time.
    pub stalls: &'a dyn Fn(GrantorTime) -> u64,
    /// The identity that owns what the command is granted; `None` for `local`.
    pub owner: Option<&'a str>,
}

impl fmt::Debug for TurnContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moment").field("now", &self.now).field("next", &self.next).finish_non_exhaustive()
    }
}

impl TurnContext<'_> {
    /// The end of a span, with stalls of the grantor credited up to one ttl (L12).
    fn end_of(&self, span: Span) -> GrantorTime {
        span.deadline().plus((self.stalls)(span.since).min(span.ttl))
    }

    fn is_over(&self, span: Span) -> bool {
        // Stalls are computed only if they matter.
        span.deadline() <= self.now && self.end_of(span) <= self.now
    }

    fn remaining(&self, span: Span) -> u64 {
        self.now.until(self.end_of(span))
    }

    /// The next number, or a later one; never one beyond the last (T7).
    fn number(&self, further: u64) -> Result<Number, Refusal> {
        self.next.get().checked_add(further).and_then(Number::new).ok_or(Refusal::TokensExhausted)
    }

    fn span(&self, field: &'static str, ttl: u64) -> Result<Span, Refusal> {
        if (TTL_MIN..=self.max_ttl).contains(&ttl) {
            Ok(Span { since: self.now, ttl })
        } else {
            Err(Refusal::OutOfRange { field, requested: ttl, min: TTL_MIN, max: self.max_ttl, by_charter: false })
        }
    }
}

/// Who was granted a receipt or a cached key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadOwner {
    /// The number of the identity among the owners.
    pub owner: u32,
    /// The session that carries it.
    pub session: Option<SessionId>,
}

/// The decision about a command. The records are durable before the answer is sent, also for a refusal: a refusal that
/// reports an expiry must survive a crash too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<F, A> {
    /// Records to write, in this order.
    pub records: Vec<F>,
    /// The answer to the caller.
    pub answer: Result<A, Refusal>,
    /// Notices to other sessions.
    pub notices: Vec<PayloadNotice>,
}

impl<F, A> Decision<F, A> {
    fn accept(records: Vec<F>, answer: A) -> Self {
        Self { records, answer: Ok(answer), notices: Vec::new() }
    }
}

impl<F, A> From<RefusedDecision<F>> for Decision<F, A> {
    fn from(refused: RefusedDecision<F>) -> Self {
        Self { records: refused.records, answer: Err(refused.refusal), notices: Vec::new() }
    }
}

/// A refusal with the records that it depends on.
struct RefusedDecision<F> {
    records: Vec<F>,
    refusal: Refusal,
}

impl<F> From<Refusal> for RefusedDecision<F> {
    fn from(refusal: Refusal) -> Self {
        Self { records: Vec::new(), refusal }
    }
}

/// An unsolicited message to a session. It may get lost; anything that depends on it also has a deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayloadNotice {
    /// A writer intends to change this key: drop the copy, then confirm.
    Invalidate {
        /// The reader's session.
        session: SessionId,
        /// The cached key.
        key: Arc<str>,
        /// The read lease.
        lease: Number,
    },
    /// No read lease on this key is left: write, then commit.
    Clear {
        /// The writer's session.
        session: SessionId,
        /// The cached key.
        key: Arc<str>,
        /// The intent.
        intent: Number,
    },
}

/// An interval of grantor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    since: GrantorTime,
    ttl: u64,
}

impl Span {
    const fn deadline(self) -> GrantorTime {
        self.since.plus(self.ttl)
    }

    fn encode(self, out: &mut Vec<u8>) {
        out.num(self.since.0);
        out.num(self.ttl);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { since: GrantorTime(from.num()?), ttl: ttl(from)? })
    }
}

/// The last token number of an entry and its end reason, with which a late holder is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PastGrant {
    number: Number,
    reason: EndReason,
}

impl PastGrant {
    /// The refusal for a presented number when no grant is current.
    fn refusal(past: Option<Self>, presented: Number) -> Refusal {
        match past {
            Some(past) if presented == past.number => Refusal::Lost(past.reason),
            Some(past) => not_current(presented, past.number),
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

    fn decode(from: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        Ok(if from.flag()? { Some(Self { number: number(from)?, reason: reason(from)? }) } else { None })
    }
}

/// The refusal for a number other than the current one: lower ones are stale, higher ones were never issued here.
fn not_current(presented: Number, current: Number) -> Refusal {
    if presented < current {
        Refusal::Stale { presented: presented.get(), mark: current.get() }
    } else {
        Refusal::NotCurrent(crate::refusal::NotCurrent::Unknown)
    }
}

fn ttl(from: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let ttl = from.num()?;
    if (TTL_MIN..=TTL_MAX_EVER).contains(&ttl) { Ok(ttl) } else { Err(from.wrong("not a ttl")) }
}

fn reason(from: &mut Reader<'_>) -> Result<EndReason, DecodeError> {
    let code = from.u8()?;
    EndReason::from_code(code).ok_or_else(|| from.wrong("no such reason"))
}

/// Text of 1 to `limit` bytes.
pub(crate) fn text<'a>(from: &mut Reader<'a>, limit: usize) -> Result<&'a str, DecodeError> {
    let text = from.text()?;
    if text.is_empty() || text.len() > limit { Err(from.wrong("text empty or too long")) } else { Ok(text) }
}

/// Appends an owner that is recorded.
fn put_owner(owner: &Option<Box<str>>, out: &mut Vec<u8>) {
    owner.iter().for_each(|owner| out.text(owner));
}

/// A recorded owner, if this form of the record has one.
fn owner(present: bool, from: &mut Reader<'_>) -> Result<Option<Box<str>>, DecodeError> {
    Ok(if present { Some(decode_owner(from)?.into()) } else { None })
}

fn put_session(session: Option<SessionId>, out: &mut Vec<u8>) {
    out.flag(session.is_some());
    if let Some(session) = session {
        out.num(u64::from(session.slot));
        out.num(u64::from(session.reuse));
    }
}

fn session(from: &mut Reader<'_>) -> Result<Option<SessionId>, DecodeError> {
    Ok(if from.flag()? { Some(SessionId { slot: from.num32()?, reuse: from.num32()? }) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_credited_up_to_one_ttl() {
        let span = Span { since: GrantorTime(1_000), ttl: 500 };
        for (stalled, ends) in [(0, 1_500), (200, 1_700), (500, 2_000), (60_000, 2_000)] {
            let stalls = |_| stalled;
            let at = |now| TurnContext {
                now: GrantorTime(now),
                next: Number::FIRST,
                max_ttl: 600_000,
                stalls: &stalls,
                owner: None,
            };
            assert!(!at(ends - 1).is_over(span), "stalled {stalled}: too early");
            assert_eq!(at(ends - 1).remaining(span), 1);
            assert!(at(ends).is_over(span), "stalled {stalled}: too late");
        }
    }

    #[test]
    fn a_ttl_outside_its_limits_is_refused_with_the_name_of_its_field() {
        let at = TurnContext { now: GrantorTime(0), next: Number::FIRST, max_ttl: 10_000, stalls: &|_| 0, owner: None };
        for bad in [0, 99, 10_001, u64::MAX] {
            let refusal = at.span("visibility", bad).expect_err("out of bounds");
            assert!(matches!(refusal, Refusal::OutOfRange { field: "visibility", .. }), "{bad}: {refusal:?}");
        }
        assert_eq!(at.span("visibility", 100), Ok(Span { since: GrantorTime(0), ttl: 100 }));
        assert_eq!(at.span("visibility", 10_000), Ok(Span { since: GrantorTime(0), ttl: 10_000 }));
    }

    #[test]
    fn no_number_beyond_the_last_is_issued() {
        let at = TurnContext { now: GrantorTime(0), next: Number::MAX, max_ttl: 10_000, stalls: &|_| 0, owner: None };
        assert_eq!(at.number(0), Ok(Number::MAX));
        assert_eq!(at.number(1), Err(Refusal::TokensExhausted));
    }
}
