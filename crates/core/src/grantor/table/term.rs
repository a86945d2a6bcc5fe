//! How long a renewal lasts on grantor time, over stalls and over tenures.

use std::collections::VecDeque;

use crate::codec::{Malformed, Reader, Write};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::time::Millis;

/// The renewable part of a lease, a session or a progress window.
///
/// `renewed` moves with every renewal and is not on record; everything that replay depends on is `alive`: in which epoch
/// the first renewal, or the grant, was put on record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Term {
    /// Milliseconds a renewal lasts.
    pub ttl: u32,
    /// The low half of the time of the last renewal.
    renewed: u32,
    /// The epoch of the last renewal or grant on record.
    pub alive: u32,
    /// Stall credit used up before the tenure in which `alive` will next be set.
    pub credit: u32,
}

impl Term {
    /// A term that begins now, on record.
    pub fn begun(ttl: u32, at: Millis, epoch: u32) -> Self {
        Self { ttl, renewed: at.0 as u32, alive: epoch, credit: 0 }
    }

    /// The last renewal. A live term was renewed less than 2^32 ms ago (`limits.rs` asserts it), so half a stamp tells.
    #[inline]
    pub fn renewed(&self, now: Millis) -> Millis {
        Millis(now.0.saturating_sub(u64::from((now.0 as u32).wrapping_sub(self.renewed))))
    }

    /// Moves the deadline: in memory, or because a record says so.
    pub fn renew(&mut self, at: Millis) {
        self.renewed = at.0 as u32;
        self.credit = 0;
    }

    /// When it ends unless renewed (L2, L12).
    #[inline]
    pub fn deadline(&self, now: Millis, clock: &Clock) -> Millis {
        let renewed = self.renewed(now);
        let ttl = u64::from(self.ttl);
        let left = ttl - u64::from(self.credit).min(ttl);
        let credit = clock.stalled_since(renewed);
        let credit = if mutants::on(Mutant::CreditUnbounded) { credit } else { credit.min(left) };
        renewed.plus(ttl + credit)
    }

    /// Whether a renewal or the grant is on record in the tenure that now serves.
    pub const fn alive_in_tenure(&self, clock: &Clock) -> bool {
        self.alive >= clock.tenure_epoch
    }

    /// A tenure begins at `at`: what was alive in the one before gets a full ttl, and keeps its used credit (L2, L9).
    pub fn carried_over(&mut self, before: &Clock, at: Millis) {
        if self.alive_in_tenure(before) || mutants::on(Mutant::EveryOpeningExtends) {
            let used = before.stall_total - before.stalled_by(self.alive);
            self.renewed = at.0 as u32;
            self.credit = used.min(u64::from(self.ttl)) as u32;
        }
    }

    pub fn encode(&self, clock: &Clock, now: Millis, out: &mut Vec<u8>) {
        out.num(u64::from(self.ttl));
        out.num(u64::from(self.alive));
        // What was renewed in this tenure has moved in memory; the next tenure sets it anew, so it is not part of the state.
        if !self.alive_in_tenure(clock) || mutants::on(Mutant::RenewalInState) {
            out.num(self.renewed(now).0);
            out.num(u64::from(self.credit));
        }
    }

    pub fn decode(clock: &Clock, now: Millis, from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let ttl = from.num32()?;
        let alive = from.num32()?;
        let mut term = Self { ttl, renewed: now.0 as u32, alive, credit: 0 };
        if !term.alive_in_tenure(clock) || mutants::on(Mutant::RenewalInState) {
            let renewed = from.num()?;
            if renewed > now.0 {
                return Err(from.wrong("renewed after its own time"));
            }
            term.renewed = renewed as u32;
            term.credit = from.num32()?;
        }
        Ok(term)
    }
}

/// Epochs and stalls: what a deadline needs to know besides the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Rises with every tenure and every stall.
    pub epoch: u32,
    /// The epoch in which the serving tenure began.
    pub tenure_epoch: u32,
    /// How many tenures there were.
    pub tenure: u32,
    /// Milliseconds stalled, ever.
    pub stall_total: u64,
    stalls: VecDeque<Stall>,
    /// When the last stall was noticed.
    stalled_at: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stall {
    epoch: u32,
    at: Millis,
    /// Everything stalled up to and including this one.
    total: u64,
}

impl Clock {
    pub fn tenure_begins(&mut self) {
        self.epoch += 1;
        self.tenure += 1;
        self.tenure_epoch = self.epoch;
    }

    pub fn stalled(&mut self, at: Millis, ms: u64) {
        self.epoch += 1;
        self.stall_total = self.stall_total.saturating_add(ms);
        self.stalled_at = at;
        self.stalls.push_back(Stall { epoch: self.epoch, at, total: self.stall_total });
        if self.stalls.len() > limits::STALLS_KEPT {
            self.stalls.pop_front();
        }
    }

    /// Milliseconds stalled after a time. What is no longer remembered is not credited.
    #[inline]
    pub fn stalled_since(&self, since: Millis) -> u64 {
        if self.stalled_at <= since { 0 } else { self.credited_since(since) }
    }

    fn credited_since(&self, since: Millis) -> u64 {
        let first = self.stalls.partition_point(|stall| stall.at <= since);
        let before = match first.checked_sub(1) {
            Some(i) => self.stalls[i].total,
            None => self.forgotten(),
        };
        self.stall_total - before
    }

    /// Everything stalled up to an epoch; for one that is no longer remembered nothing, so that all later ones count as used.
    fn stalled_by(&self, epoch: u32) -> u64 {
        let after = self.stalls.partition_point(|stall| stall.epoch <= epoch);
        match after.checked_sub(1) {
            Some(i) => self.stalls[i].total,
            None if self.stalls.len() < limits::STALLS_KEPT => self.forgotten(),
            None => 0,
        }
    }

    /// What was stalled before the first stall that is still remembered.
    fn forgotten(&self) -> u64 {
        match (self.stalls.front(), self.stalls.len()) {
            (Some(first), len) if len >= limits::STALLS_KEPT => first.total,
            _ => 0,
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        for value in [self.epoch, self.tenure_epoch, self.tenure] {
            out.num(u64::from(value));
        }
        out.num(self.stall_total);
        out.num(self.stalls.len() as u64);
        for stall in &self.stalls {
            out.num(u64::from(stall.epoch));
            out.num(stall.at.0);
            out.num(stall.total);
        }
    }

    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut clock = Self {
            epoch: from.num32()?,
            tenure_epoch: from.num32()?,
            tenure: from.num32()?,
            stall_total: from.num()?,
            stalls: VecDeque::new(),
            stalled_at: Millis(0),
        };
        let count = from.num()?;
        if count > limits::STALLS_KEPT as u64 {
            return Err(from.wrong("too many stalls"));
        }
        for _ in 0..count {
            let stall = Stall { epoch: from.num32()?, at: Millis(from.num()?), total: from.num()? };
            let rises = clock.stalls.back().is_none_or(|last| last.epoch < stall.epoch && last.total <= stall.total);
            if !rises || stall.total > clock.stall_total {
                return Err(from.wrong("stalls out of order"));
            }
            clock.stalled_at = stall.at;
            clock.stalls.push_back(stall);
        }
        Ok(clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_credited_once_and_at_most_one_ttl() {
        let mut clock = Clock::default();
        clock.tenure_begins();
        let term = Term::begun(1_000, Millis(500), clock.epoch);
        assert_eq!(term.deadline(Millis(600), &clock), Millis(1_500));
        clock.stalled(Millis(900), 300);
        assert_eq!(term.deadline(Millis(900), &clock), Millis(1_800));
        clock.stalled(Millis(5_000), 4_000);
        assert_eq!(term.deadline(Millis(5_000), &clock), Millis(2_500));
    }

    #[test]
    fn a_failover_gives_a_full_ttl_once_and_keeps_the_used_credit() {
        let mut clock = Clock::default();
        clock.tenure_begins();
        let mut term = Term::begun(1_000, Millis(0), clock.epoch);
        clock.stalled(Millis(700), 600);
        term.carried_over(&clock.clone(), Millis(700));
        clock.tenure_begins();
        assert_eq!(term.deadline(Millis(700), &clock), Millis(1_700));
        clock.stalled(Millis(1_600), 900);
        assert_eq!(term.deadline(Millis(1_600), &clock), Millis(2_100), "only 400 ms of credit are left");
        let before = clock.clone();
        term.carried_over(&before, Millis(1_700));
        clock.tenure_begins();
        assert_eq!(term.deadline(Millis(1_700), &clock), Millis(2_100), "not alive in the tenure before: kept");
    }

    #[test]
    fn half_a_stamp_tells_a_renewal_after_the_counter_wrapped() {
        let clock = Clock::default();
        let late = Millis((3u64 << 32) + 5);
        let mut term = Term::begun(1_000, Millis((3u64 << 32) - 10), 0);
        assert_eq!(term.deadline(late, &clock), Millis((3u64 << 32) + 990));
        term.renew(late);
        assert_eq!(term.renewed(late.plus(7)), late);
    }
}
