//! Renewable deadlines in grantor time, with credit for stalls and extension across tenures.

use std::collections::VecDeque;

use crate::codec::{DecodeError, Reader, Write};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::time::GrantorTime;

/// The renewable part of a lease, a session or a progress window.
///
/// `renewed` moves with every renewal and is not recorded. Replay depends only on `alive`: the epoch in which the grant or
/// the first renewal of a tenure was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RenewableDeadline {
    /// Milliseconds that a renewal adds.
    pub ttl: u32,
    /// The low 32 bits of the time of the last renewal.
    renewed: u32,
    /// The epoch of the last recorded renewal or grant.
    pub alive: u32,
    /// Stall credit used before the tenure in which `alive` is set next.
    pub credit: u32,
}

impl RenewableDeadline {
    /// A deadline that starts now with a record.
    pub fn started(ttl: u32, at: GrantorTime, epoch: u32) -> Self {
        Self { ttl, renewed: at.0 as u32, alive: epoch, credit: 0 }
    }

    /// The time of the last renewal. A live entry was renewed less than 2^32 ms ago (asserted in `limits.rs`), so the low
    /// 32 bits suffice.
    #[inline]
    pub fn renewed(&self, now: GrantorTime) -> GrantorTime {
        GrantorTime(now.0.saturating_sub(u64::from((now.0 as u32).wrapping_sub(self.renewed))))
    }

    /// Moves the deadline, in memory or by a record.
    pub fn renew(&mut self, at: GrantorTime) {
        self.renewed = at.0 as u32;
        self.credit = 0;
    }

    /// When it ends unless renewed (L2, L12).
    #[inline]
    pub fn deadline(&self, now: GrantorTime, clock: &StallClock) -> GrantorTime {
        let renewed = self.renewed(now);
        let ttl = u64::from(self.ttl);
        let left = ttl - u64::from(self.credit).min(ttl);
        let credit = clock.stalled_since(renewed);
        let credit = if mutants::on(Mutant::CreditUnbounded) { credit } else { credit.min(left) };
        renewed.plus(ttl + credit)
    }

    /// Whether a renewal or the grant was recorded in the current tenure.
    pub const fn alive_in_tenure(&self, clock: &StallClock) -> bool {
        self.alive >= clock.tenure_epoch
    }

    /// Extends the deadline when a tenure begins at `at`: an entry that was alive in the previous tenure gets a full ttl and
    /// keeps its used credit (L2, L9).
    pub fn carry_over(&mut self, before: &StallClock, at: GrantorTime) {
        if self.alive_in_tenure(before) || mutants::on(Mutant::EveryOpeningExtends) {
            let used = before.total_stalled - before.stalled_by(self.alive);
            self.renewed = at.0 as u32;
            self.credit = used.min(u64::from(self.ttl)) as u32;
        }
    }

    pub fn encode(&self, clock: &StallClock, now: GrantorTime, out: &mut Vec<u8>) {
        out.num(u64::from(self.ttl));
        out.num(u64::from(self.alive));
        // A renewal in this tenure moved it in memory, and the next tenure resets it, so it is not part of the state.
        if !self.alive_in_tenure(clock) || mutants::on(Mutant::RenewalChangesState) {
            out.num(self.renewed(now).0);
            out.num(u64::from(self.credit));
        }
    }

    pub fn decode(clock: &StallClock, now: GrantorTime, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ttl = from.num32()?;
        let alive = from.num32()?;
        let mut renewal = Self { ttl, renewed: now.0 as u32, alive, credit: 0 };
        if !renewal.alive_in_tenure(clock) || mutants::on(Mutant::RenewalChangesState) {
            let renewed = from.num()?;
            if renewed > now.0 {
                return Err(from.wrong("renewed after its own time"));
            }
            renewal.renewed = renewed as u32;
            renewal.credit = from.num32()?;
        }
        Ok(renewal)
    }
}

/// Epochs and stalls, from which deadlines are computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StallClock {
    /// Rises with every tenure and every stall.
    pub epoch: u32,
    /// The epoch in which the current tenure began.
    pub tenure_epoch: u32,
    /// Number of tenures so far.
    pub tenure: u32,
    /// Milliseconds stalled in all tenures.
    pub total_stalled: u64,
    stalls: VecDeque<Stall>,
    /// Time of the last stall.
    stalled_at: GrantorTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stall {
    epoch: u32,
    at: GrantorTime,
    /// Total stalled milliseconds up to and including this stall.
    total: u64,
}

impl StallClock {
    pub fn tenure_begins(&mut self) {
        self.epoch += 1;
        self.tenure += 1;
        self.tenure_epoch = self.epoch;
    }

    pub fn stalled(&mut self, at: GrantorTime, ms: u64) {
        self.epoch += 1;
        self.total_stalled = self.total_stalled.saturating_add(ms);
        self.stalled_at = at;
        self.stalls.push_back(Stall { epoch: self.epoch, at, total: self.total_stalled });
        if self.stalls.len() > limits::STALLS {
            self.stalls.pop_front();
        }
    }

    /// Milliseconds stalled after a time. Stalls that are no longer stored are not credited.
    #[inline]
    pub fn stalled_since(&self, since: GrantorTime) -> u64 {
        if self.stalled_at <= since { 0 } else { self.credited_since(since) }
    }

    fn credited_since(&self, since: GrantorTime) -> u64 {
        let first = self.stalls.partition_point(|stall| stall.at <= since);
        let before = match first.checked_sub(1) {
            Some(i) => self.stalls[i].total,
            None => self.stalled_before_first(),
        };
        self.total_stalled - before
    }

    /// Total stalled milliseconds up to an epoch; zero for an epoch that is no longer stored, so that all later stalls count
    /// as used.
    fn stalled_by(&self, epoch: u32) -> u64 {
        let after = self.stalls.partition_point(|stall| stall.epoch <= epoch);
        match after.checked_sub(1) {
            Some(i) => self.stalls[i].total,
            None if self.stalls.len() < limits::STALLS => self.stalled_before_first(),
            None => 0,
        }
    }

    /// Total stalled milliseconds before the first stored stall.
    fn stalled_before_first(&self) -> u64 {
        match (self.stalls.front(), self.stalls.len()) {
            (Some(first), len) if len >= limits::STALLS => first.total,
            _ => 0,
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        for value in [self.epoch, self.tenure_epoch, self.tenure] {
            out.num(u64::from(value));
        }
        out.num(self.total_stalled);
        out.num(self.stalls.len() as u64);
        for stall in &self.stalls {
            out.num(u64::from(stall.epoch));
            out.num(stall.at.0);
            out.num(stall.total);
        }
    }

    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut clock = Self {
            epoch: from.num32()?,
            tenure_epoch: from.num32()?,
            tenure: from.num32()?,
            total_stalled: from.num()?,
            stalls: VecDeque::new(),
            stalled_at: GrantorTime(0),
        };
        let count = from.num()?;
        if count > limits::STALLS as u64 {
            return Err(from.wrong("too many stalls"));
        }
        for _ in 0..count {
            let stall = Stall { epoch: from.num32()?, at: GrantorTime(from.num()?), total: from.num()? };
            let rises = clock.stalls.back().is_none_or(|last| last.epoch < stall.epoch && last.total <= stall.total);
            if !rises || stall.total > clock.total_stalled {
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
        let mut clock = StallClock::default();
        clock.tenure_begins();
        let renewal = RenewableDeadline::started(1_000, GrantorTime(500), clock.epoch);
        assert_eq!(renewal.deadline(GrantorTime(600), &clock), GrantorTime(1_500));
        clock.stalled(GrantorTime(900), 300);
        assert_eq!(renewal.deadline(GrantorTime(900), &clock), GrantorTime(1_800));
        clock.stalled(GrantorTime(5_000), 4_000);
        assert_eq!(renewal.deadline(GrantorTime(5_000), &clock), GrantorTime(2_500));
    }

    #[test]
    fn a_failover_gives_a_full_ttl_once_and_keeps_the_used_credit() {
        let mut clock = StallClock::default();
        clock.tenure_begins();
        let mut renewal = RenewableDeadline::started(1_000, GrantorTime(0), clock.epoch);
        clock.stalled(GrantorTime(700), 600);
        renewal.carry_over(&clock.clone(), GrantorTime(700));
        clock.tenure_begins();
        assert_eq!(renewal.deadline(GrantorTime(700), &clock), GrantorTime(1_700));
        clock.stalled(GrantorTime(1_600), 900);
        assert_eq!(renewal.deadline(GrantorTime(1_600), &clock), GrantorTime(2_100), "only 400 ms of credit are left");
        let before = clock.clone();
        renewal.carry_over(&before, GrantorTime(1_700));
        clock.tenure_begins();
        assert_eq!(
            renewal.deadline(GrantorTime(1_700), &clock),
            GrantorTime(2_100),
            "not alive in the tenure before: kept"
        );
    }

    #[test]
    fn the_low_32_bits_identify_a_renewal_after_a_wrap() {
        let clock = StallClock::default();
        let late = GrantorTime((3u64 << 32) + 5);
        let mut renewal = RenewableDeadline::started(1_000, GrantorTime((3u64 << 32) - 10), 0);
        assert_eq!(renewal.deadline(late, &clock), GrantorTime((3u64 << 32) + 990));
        renewal.renew(late);
        assert_eq!(renewal.renewed(late.plus(7)), late);
    }
}
