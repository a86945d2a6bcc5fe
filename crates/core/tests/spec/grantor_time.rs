//! Grantor time: tenures, stalls, deadlines, and the clock's lower bound for token numbers.

use std::collections::BTreeMap;

use leasehold_core::lease::EndReason;
use leasehold_core::limits;

use super::model::{Lease, Lifetime, Spec, Turn, Units};

impl Spec {
    pub fn new(max_ttl: u64) -> Self {
        Self {
            max_ttl,
            incarnation: 1,
            now: 0,
            wall: 0,
            counter: 0,
            tenure: 0,
            stalls: Vec::new(),
            quarantine: None,
            waived_until: 0,
            openings: Vec::new(),
            leases: Vec::new(),
            sessions: Vec::new(),
            waits: Vec::new(),
            wait_count: 0,
            settings: BTreeMap::new(),
            deadlocks: 0,
            targets: BTreeMap::new(),
            units: Units::default(),
            anchor: (0, 0),
            last_turn: 0,
            late: false,
            turn: Turn::default(),
        }
    }

    /// Starts a tenure. What was granted or renewed in the previous tenure gets a full ttl; everything else keeps its
    /// deadline.
    pub fn open(&mut self, wall: u64, restore: Option<(u32, Option<u64>)>) {
        self.wall = wall;
        if let Some((incarnation, floor)) = restore {
            self.incarnation = incarnation;
            self.counter = self.counter.max(floor.unwrap_or(0));
            self.counter = self.next_number() - 1;
            self.waits.clear();
            for session in &mut self.sessions {
                session.ended = true;
            }
            for i in self.live() {
                self.end_lease(i, EndReason::Restored);
            }
            self.settings.retain(|_, settings| settings.has_settings());
            self.quarantine = Some((self.now + self.max_ttl, false));
            self.openings.clear();
        }
        self.waived_until = 0;
        if self.tenure > 0 {
            self.openings.push((self.counter, None));
        }
        self.counter = self.next_number() - 1;
        let (now, tenure, stalls) = (self.now, self.tenure, self.stalls.clone());
        let carry = |lifetime: &mut Lifetime| {
            if lifetime.tenure == tenure {
                let since: u64 = stalls[lifetime.stalls..].iter().map(|(_, ms)| ms).sum();
                lifetime.used = since.min(lifetime.ttl);
                lifetime.renewed = now;
            }
        };
        for lease in &mut self.leases {
            carry(&mut lease.lifetime);
            if let Some(progress) = &mut lease.progress {
                carry(&mut progress.lifetime);
                progress.seen = progress.recorded;
            }
        }
        for session in &mut self.sessions {
            carry(&mut session.lifetime);
        }
        for wait in &mut self.waits {
            wait.tag = None;
            wait.may_pass = false;
        }
        self.tenure += 1;
        self.turn = Turn::default();
    }

    /// Starts grantor time.
    pub fn serve(&mut self, instant: u64) {
        self.anchor = (instant, self.now);
        self.last_turn = instant;
    }

    pub fn begin_turn(&mut self, instant: u64, wall: u64) {
        let stall = (instant - self.last_turn).saturating_sub(limits::TURN_NORMAL);
        self.turn = Turn::default();
        self.late = stall > 0;
        self.last_turn = instant;
        self.now = self.anchor.1 + (instant - self.anchor.0);
        self.wall = wall;
        let quiet = self.live().is_empty() && self.sessions.iter().all(|session| session.ended);
        if self.late && !quiet {
            self.stalls.push((self.now, stall));
        }
    }

    pub fn next_number(&self) -> u64 {
        (self.counter + 1).max(self.wall << 22)
    }

    /// Issues the next number.
    pub fn issue(&mut self) -> u64 {
        self.counter = self.next_number();
        for (_, first) in &mut self.openings {
            first.get_or_insert(self.counter);
        }
        self.turn.granted.push(self.counter);
        self.counter
    }

    /// Whether a number is between the last one before an opening and the first one after it.
    pub fn was_never_issued(&self, number: u64) -> bool {
        self.openings.iter().any(|(last, first)| *last < number && number < first.unwrap_or(self.counter + 1))
    }

    pub fn lifetime(&self, ttl: u64) -> Lifetime {
        Lifetime { ttl, renewed: self.now, tenure: self.tenure, stalls: self.stalls.len(), used: 0 }
    }

    /// A renewal. The first one of a tenure is recorded.
    pub fn renewed(&self, lifetime: Lifetime) -> Lifetime {
        let recorded = if lifetime.tenure == self.tenure { lifetime.stalls } else { self.stalls.len() };
        Lifetime { renewed: self.now, tenure: self.tenure, stalls: recorded, used: 0, ..lifetime }
    }

    /// A full ttl from the last renewal, plus the stalls since then, limited to one ttl.
    pub fn deadline(&self, lifetime: &Lifetime) -> u64 {
        let stalled: u64 = self.stalls.iter().filter(|(at, _)| *at > lifetime.renewed).map(|(_, ms)| ms).sum();
        lifetime.renewed + lifetime.ttl + stalled.min(lifetime.ttl - lifetime.used)
    }

    /// Deadline of a lease and the reason of that end. A lease of a session ends with the session.
    pub fn lease_deadline(&self, lease: &Lease) -> (u64, EndReason) {
        let own =
            if lease.follows_session { u64::MAX } else { self.deadline(&lease.lifetime).max(lease.veto.unwrap_or(0)) };
        let mut ends = vec![(own, EndReason::Ttl)];
        ends.extend(lease.progress.map(|progress| (self.deadline(&progress.lifetime), EndReason::Stalled)));
        ends.extend(lease.max_hold.map(|limit| (lease.granted + limit, EndReason::MaxHold)));
        ends.extend(lease.drain.map(|drain| (drain.until, drain.cause.reason())));
        // Of two simultaneous ends, the first in this list is reported.
        *ends.iter().min_by_key(|(at, _)| at).expect("there is one")
    }

    /// Remaining lifetime unless the deadline changes.
    pub fn remaining(&self, lease: &Lease) -> u64 {
        let own = self.lease_deadline(lease).0;
        let end = match lease.actor.session {
            Some(session) if lease.follows_session => own.min(self.deadline(&self.sessions[session as usize].lifetime)),
            _ => own,
        };
        end.saturating_sub(self.now)
    }
}
