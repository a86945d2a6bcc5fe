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
            leases: Vec::new(),
            sessions: Vec::new(),
            waits: Vec::new(),
            waits_ever: 0,
            places: BTreeMap::new(),
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
                session.over = true;
            }
            for i in self.live() {
                self.end_lease(i, EndReason::Restored);
            }
            self.places.retain(|_, place| place.has_settings());
            self.quarantine = Some((self.now + self.max_ttl, false));
        }
        self.counter = self.next_number() - 1;
        let (now, tenure, stalls) = (self.now, self.tenure, self.stalls.clone());
        let carry = |term: &mut Lifetime| {
            if term.tenure == tenure {
                let since: u64 = stalls[term.stalls..].iter().map(|(_, ms)| ms).sum();
                term.used = since.min(term.ttl);
                term.renewed = now;
            }
        };
        for lease in &mut self.leases {
            carry(&mut lease.term);
            if let Some(progress) = &mut lease.progress {
                carry(&mut progress.term);
                progress.seen = progress.on_record;
            }
        }
        for session in &mut self.sessions {
            carry(&mut session.term);
        }
        for wait in &mut self.waits {
            wait.tag = None;
            wait.passes = false;
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
        let quiet = self.live().is_empty() && self.sessions.iter().all(|session| session.over);
        if self.late && !quiet {
            self.stalls.push((self.now, stall));
        }
    }

    pub fn next_number(&self) -> u64 {
        (self.counter + 1).max(self.wall << 22)
    }

    pub fn term(&self, ttl: u64) -> Lifetime {
        Lifetime { ttl, renewed: self.now, tenure: self.tenure, stalls: self.stalls.len(), used: 0 }
    }

    /// A renewal. The first one of a tenure is recorded.
    pub fn renewed(&self, term: Lifetime) -> Lifetime {
        let on_record = if term.tenure == self.tenure { term.stalls } else { self.stalls.len() };
        Lifetime { renewed: self.now, tenure: self.tenure, stalls: on_record, used: 0, ..term }
    }

    /// A full ttl from the last renewal, plus the stalls since then, limited to one ttl.
    pub fn deadline(&self, term: &Lifetime) -> u64 {
        let stalled: u64 = self.stalls.iter().filter(|(at, _)| *at > term.renewed).map(|(_, ms)| ms).sum();
        term.renewed + term.ttl + stalled.min(term.ttl - term.used)
    }

    /// Deadline of a lease and the reason of that end. A lease of a session ends with the session.
    pub fn lease_deadline(&self, lease: &Lease) -> (u64, EndReason) {
        let own = if lease.rides { u64::MAX } else { self.deadline(&lease.term).max(lease.veto.unwrap_or(0)) };
        let mut ends = vec![(own, EndReason::Ttl)];
        ends.extend(lease.progress.map(|progress| (self.deadline(&progress.term), EndReason::Stalled)));
        ends.extend(lease.max_hold.map(|most| (lease.granted + most, EndReason::MaxHold)));
        ends.extend(lease.drain.map(|drain| (drain.until, drain.cause.reason())));
        // Of two simultaneous ends, the first in this list is reported.
        *ends.iter().min_by_key(|(at, _)| at).expect("there is one")
    }

    /// Remaining lifetime unless the deadline changes.
    pub fn remaining(&self, lease: &Lease) -> u64 {
        let own = self.lease_deadline(lease).0;
        let end = match lease.actor.session {
            Some(session) if lease.rides => own.min(self.deadline(&self.sessions[session as usize].term)),
            _ => own,
        };
        end.saturating_sub(self.now)
    }
}
