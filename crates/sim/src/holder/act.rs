//! What a holder does by itself: take, write, give back, misuse.

use leasehold_core::lease::Access;
use leasehold_core::time::Instant;
use leasehold_core::token::{Cluster, Number, Token};

use super::{Holder, Late, Mode};
use crate::ask::{Ask, EXCLUSIVE, How, READ, RUSH, SLOTS, UNITS, WORK};
use crate::clock::MS;
use crate::fault::Fault;
use crate::history::Event;
use crate::stage::{Actor, Mail, Stage};

impl Holder {
    pub(super) fn act(&mut self, stage: &mut Stage, now: Instant) {
        if self.mode != Mode::Plain && self.session.is_none() {
            if !self.pending.values().any(|pending| matches!(pending.ask, Ask::Open { .. })) {
                let waits_only = self.mode == Mode::Waits;
                self.ask(stage, Ask::Open { ttl: self.ttl, waits_only, secret: self.secret() });
            }
            return;
        }
        // Who must go writes down where it is, as long as it may.
        if stage.chance.one_in(3)
            && let Some(hold) = self.holds.iter().find(|hold| hold.draining && hold.target().is_some())
        {
            let held = hold.known;
            let value = stage.op();
            return self.ask(stage, Ask::Put { held, value });
        }
        match stage.chance.below(100) {
            0..=29 => self.write(stage, now),
            30..=33 => self.units(stage),
            34..=55 => self.acquire(stage),
            56..=65 => self.give_back(stage),
            66..=69 => self.with_hold(stage, |held, stage| Ask::Put { held, value: stage.op() }),
            70..=71 => self.with_hold(stage, |held, _| Ask::Confirm { held }),
            72 => self.with_hold(stage, |held, _| Ask::Rotate { held }),
            73..=80 => self.queue(stage),
            81..=83 => self.read_together(stage),
            84..=87 => self.cache(stage),
            88 => self.come_back(stage),
            89 => self.cancel(stage),
            90 => {
                if let Some(session) = self.session {
                    self.ask(stage, Ask::Close { session });
                }
            }
            91..=93 => self.units(stage),
            _ if stage.faults.has(Fault::Misuse) => self.misuse(stage),
            _ => self.write(stage, now),
        }
    }

    fn with_hold(&mut self, stage: &mut Stage, make: impl FnOnce(crate::ask::Known, &mut Stage) -> Ask) {
        if self.holds.is_empty() {
            return;
        }
        let place = stage.chance.below(self.holds.len() as u64) as usize;
        if self.holds[place].target().is_none() {
            return;
        }
        let ask = make(self.holds[place].known, stage);
        self.ask(stage, ask);
    }

    fn acquire(&mut self, stage: &mut Stage) {
        let waits = self.pending.values();
        let busy = waits.filter(|p| matches!(p.ask, Ask::Acquire { .. } | Ask::AcquireAll { .. })).count();
        if self.holds.len() + busy >= 3 {
            return;
        }
        let session = self.session;
        let ttl = (self.mode != Mode::Rides).then_some(self.ttl);
        let ttl = if stage.strikes(Fault::Misuse, 30) { Some(*stage.chance.pick(&[0, u64::MAX])) } else { ttl };
        let may_wait = session.is_some() && stage.chance.below(10) < 8;
        let wait = if may_wait { stage.chance.between(300, 4_000) } else { 0 };
        let max_hold = stage.chance.one_in(10).then_some(2 * self.ttl);
        let priority = *stage.chance.pick(&[100, 100, 100, 50, 150, 200]);
        let how = How { ttl, wait, max_hold, priority: 100, again: false };
        match stage.chance.below(16) {
            0 | 9 => self.ask(stage, Ask::Acquire { resource: SLOTS, session, access: Access::Slot, how }),
            1 => {
                let how = How { max_hold: stage.chance.one_in(2).then_some(self.ttl), ..how };
                let access = Access::Units(stage.chance.between(1, 4) as u32);
                self.ask(stage, Ask::Acquire { resource: UNITS, session, access, how });
            }
            3 | 4 => {
                let access = if stage.chance.one_in(3) { Access::Exclusive } else { Access::Shared };
                self.ask(stage, Ask::Acquire { resource: READ, session, access, how });
            }
            5 | 6 => {
                let how = How { priority, ..how };
                self.ask(stage, Ask::Acquire { resource: RUSH, session, access: Access::Exclusive, how });
            }
            7 => self.ask(stage, Ask::Acquire { resource: WORK, session, access: Access::Exclusive, how }),
            8 if self.mode == Mode::Rides => {
                let Some(hold) = self.holds.iter().find(|hold| hold.target().is_some()) else { return };
                let (resource, how) = (hold.resource, How { again: true, ..how });
                self.ask(stage, Ask::Acquire { resource, session, access: Access::Exclusive, how });
            }
            2 if session.is_some() => {
                let first = stage.chance.below(4) as usize;
                let resources = vec![EXCLUSIVE[first], EXCLUSIVE[(first + 1) % 4]];
                let session = session.expect("just seen");
                self.ask(stage, Ask::AcquireAll { resources, session, ttl, wait });
            }
            _ => {
                let resource = stage.chance.pick(&EXCLUSIVE);
                self.ask(stage, Ask::Acquire { resource, session, access: Access::Exclusive, how });
            }
        }
    }

    /// Claims, or writes. Between the check and the act anything may come, for any time.
    fn write(&mut self, stage: &mut Stage, now: Instant) {
        let who = self.actor().place() as u32;
        let Some((target, hold)) = self.holds.iter_mut().find_map(|hold| Some((hold.target()?, hold))) else { return };
        let believes = hold.renewal.may_act(now);
        if self.careful && !believes {
            return;
        }
        if believes {
            let honest = self.honest;
            stage.note(Event::Acts { who, number: hold.known.number, honest });
        }
        let value = if hold.claimed { Some(stage.op()) } else { None };
        hold.claimed = true;
        hold.sequence += 1;
        let (text, sequence) = (hold.token.to_string(), hold.sequence);
        if stage.strikes(Fault::Pause, 12) || stage.strikes(Fault::Dream, 25) {
            let dreams = stage.faults.has(Fault::Dream) && stage.chance.one_in(2);
            let length = stage.chance.between(50, 10 * self.ttl) * MS;
            let fault = if dreams { Fault::Dream } else { Fault::Pause };
            stage.struck(
                fault,
                format!("holder {} for {} ms, between its check and its write", self.index, length / MS),
            );
            let until = stage.at + length;
            self.late.push(Late { at: until, target, text, sequence, value });
            return self.pause(stage, until, dreams);
        }
        let (id, from) = (stage.op(), self.actor());
        stage.send(from, Actor::Target(target), Mail::Write { id, from, token: text, sequence, value });
    }

    fn give_back(&mut self, stage: &mut Stage) {
        if self.holds.is_empty() {
            return;
        }
        let place = stage.chance.below(self.holds.len() as u64) as usize;
        let held = self.holds[place].known;
        if stage.chance.one_in(8) {
            // It vanishes from its own books; only time ends it.
            let hold = self.holds.remove(place);
            return self.linger(stage, &hold);
        }
        if self.holds[place].draining && self.holds[place].renewal.drained(0).is_ok() {
            self.drained.insert(held.number);
            return self.ask(stage, Ask::Drained { held });
        }
        self.ask(stage, Ask::Release { held });
        // What was entered twice is left twice, and is its own until then; not until the answers come, which may be lost.
        self.holds[place].depth -= 1;
        if self.holds[place].depth > 0 {
            return;
        }
        let hold = self.holds.remove(place);
        self.linger(stage, &hold);
    }

    fn queue(&mut self, stage: &mut Stage) {
        let receipt = (!self.receipts.is_empty())
            .then(|| stage.chance.below(self.receipts.len() as u64) as usize)
            .map(|place| self.receipts[place]);
        match (stage.chance.below(10), receipt) {
            (0..=2, _) => {
                let body = stage.op();
                self.ask(stage, Ask::Enqueue { body, attempts: 3 });
            }
            (3..=5, _) => {
                let visibility = stage.chance.between(200, 2_000);
                let session = self.session.filter(|_| self.mode == Mode::Rides);
                self.ask(stage, Ask::Receive { session, visibility, most: 2 });
            }
            // Old receipts stay on the list: they are shown again, and must change nothing.
            (6..=7, Some((item, receipt))) => self.ask(stage, Ask::Ack { item, receipt }),
            (8, Some((item, receipt))) => self.ask(stage, Ask::Nack { item, receipt }),
            (9, Some((item, receipt))) => {
                let visibility = stage.chance.between(200, 2_000);
                self.ask(stage, Ask::Extend { item, receipt, visibility });
            }
            _ => {}
        }
    }

    fn cancel(&mut self, stage: &mut Stage) {
        let waits = self.pending.values().filter(|p| matches!(p.ask, Ask::Acquire { how, .. } if how.wait > 0));
        if let Some(id) = waits.filter_map(|pending| pending.id).next() {
            self.ask(stage, Ask::Cancel { session: id.session, sequence: id.sequence });
        }
    }

    fn units(&mut self, stage: &mut Stage) {
        let Some(hold) = self.holds.iter().find(|hold| matches!(hold.access, Access::Units(_))) else { return };
        let held = hold.known;
        if stage.chance.one_in(3) {
            self.ask(stage, Ask::ConfirmHold { held });
        } else {
            let units = stage.chance.between(1, 5) as u32;
            self.ask(stage, Ask::ResizeHold { held, units });
        }
    }

    /// Shows what it must not: another's token, one for elsewhere, one from the far future.
    fn misuse(&mut self, stage: &mut Stage) {
        let Some(seen) = self.seen else { return };
        let target = stage.chance.below(EXCLUSIVE.len() as u64) as usize;
        let far = Number::new((1 << 62) + stage.chance.below(1 << 40)).expect("below 2^63");
        let token = match stage.chance.below(3) {
            0 => Token { cluster: Cluster(*b"stranger"), ..seen },
            1 => Token { number: far, ..seen },
            _ => seen,
        };
        stage.struck(Fault::Misuse, format!("holder {} shows {} at target {target}", self.index, token.number));
        let (id, from, value) = (stage.op(), self.actor(), Some(stage.op()));
        let token = token.to_string();
        stage.send(from, Actor::Target(target), Mail::Write { id, from, token, sequence: u64::MAX, value });
        if let Some(hold) = self.holds.first() {
            let held = hold.known;
            if let Some(session) = held.session {
                let session = Some(stage.another_session(session));
                self.ask(stage, Ask::Confirm { held: crate::ask::Known { session, ..held } });
            }
            let lower = Number::new(held.number.get() - 1).unwrap_or(Number::FIRST);
            self.ask(stage, Ask::Renew { held: crate::ask::Known { number: lower, ..held }, progress: None });
        }
    }
}
