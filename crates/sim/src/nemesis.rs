//! Who makes things go wrong, and the operator who takes leases away, hands them over, and arms what lost its mark.

use leasehold_core::token::Number;

use crate::ask::{Ask, EXCLUSIVE, SLOTS, UNITS};
use crate::clock::MS;
use crate::fault::Fault;
use crate::history::Event;
use crate::server::Server;
use crate::stage::{Actor, Due, Letter, Mail};
use crate::world::World;

/// Trouble that comes from outside; the rest strikes where something is done.
const STRIKES: [Fault; 21] = [
    Fault::Partition,
    Fault::Kill,
    Fault::Stall,
    Fault::Sleep,
    Fault::Failover,
    Fault::WallSet,
    Fault::LyingSync,
    Fault::Full,
    Fault::Rollback,
    Fault::Restore,
    Fault::Pause,
    Fault::Dream,
    Fault::Restart,
    Fault::TargetKill,
    Fault::MarkLost,
    Fault::Revoke,
    Fault::HandOff,
    Fault::Resize,
    Fault::Torn,
    Fault::Rotten,
    Fault::Rot,
];

impl World {
    pub(crate) fn nemesis(&mut self) {
        self.arm_what_is_lost();
        self.report();
        if self.stage.chance.one_in(8) {
            self.ask(Ask::SetCharter);
        }
        let again = self.stage.at + self.stage.chance.between(80 * MS, 1_200 * MS);
        self.stage.later(again, Due::Nemesis);
        if self.stage.healed {
            return;
        }
        let existing: Vec<Fault> = STRIKES.into_iter().filter(|fault| self.stage.faults.has(*fault)).collect();
        if existing.is_empty() {
            return;
        }
        let fault = *self.stage.chance.pick(&existing);
        self.strike(fault);
    }

    fn strike(&mut self, fault: Fault) {
        let at = self.stage.at;
        let server = self.stage.chance.below(self.servers.len() as u64) as usize;
        let holder = self.stage.chance.below(self.holders.len() as u64) as usize;
        let target = self.stage.chance.below(self.targets.len() as u64) as usize;
        let span = self.stage.chance.between(120, 4_000) * MS;
        match fault {
            Fault::Partition => self.partition(),
            Fault::Kill | Fault::Torn | Fault::Rotten => {
                self.stage.struck(Fault::Kill, format!("server {server}"));
                self.kill(server);
            }
            Fault::Rot => {
                if self.stage.chance.one_in(2) {
                    self.journal.rot(&mut self.stage);
                    self.kill(server);
                } else {
                    self.journal.repair();
                }
            }
            Fault::Stall => {
                self.stage.struck(fault, format!("server {server} for {} ms", span / MS));
                self.servers[server].stalled = at + span;
            }
            Fault::Sleep => {
                self.stage.struck(fault, format!("server {server} for {} ms", span / MS));
                self.servers[server].stalled = at + span;
                self.servers[server].clock.stand_still(at, at + span);
            }
            Fault::Failover => {
                if let Some(standby) = self.servers.iter().position(|s| s.up && !s.serving && !s.is_opening()) {
                    self.stage.struck(fault, format!("server {standby} takes over"));
                    self.servers[standby].open(&mut self.stage, &mut self.journal);
                }
            }
            Fault::WallSet => {
                let by = self.stage.chance.between(0, 8_000) as i64 - 4_000;
                self.stage.struck(fault, format!("server {server} by {by} ms"));
                self.servers[server].clock.step_wall(by);
            }
            Fault::LyingSync => {
                self.journal.lies = !self.journal.lies;
                self.stage.struck(fault, if self.journal.lies { "begins" } else { "ends" });
            }
            Fault::Full => {
                self.journal.full = !self.journal.full;
                self.stage.struck(fault, if self.journal.full { "begins" } else { "ends" });
            }
            Fault::Rollback if !self.journal.is_empty() && self.stage.chance.one_in(3) => {
                (0..self.servers.len()).for_each(|i| self.kill(i));
                self.journal.roll_back(&mut self.stage);
                // With the machine its clock may be back; then only what somebody shows can tell. A restore asks for a right
                // clock, and a target that lost its mark for a floor from a grantor that has one.
                let right =
                    self.stage.shy || self.stage.faults.has(Fault::MarkLost) || self.stage.faults.has(Fault::Restore);
                if !right && self.stage.chance.one_in(2) {
                    self.stage.struck(Fault::WallSet, "every server back, with its journal");
                    self.servers.iter_mut().for_each(|server| server.clock.step_wall(-40_000));
                }
            }
            Fault::Restore if self.stage.chance.one_in(3) => {
                (0..self.servers.len()).for_each(|i| self.kill(i));
                self.journal.restore(&mut self.stage);
            }
            Fault::Restore => self.journal.back_up(),
            Fault::Pause | Fault::Dream => {
                self.stage.struck(fault, format!("holder {holder} for {} ms", span / MS));
                self.holders[holder].pause(&mut self.stage, at + span, fault == Fault::Dream);
            }
            Fault::Restart => {
                self.stage.struck(fault, format!("holder {holder}"));
                self.holders[holder].restart();
            }
            Fault::TargetKill => {
                self.stage.struck(fault, format!("target {target}"));
                self.targets[target].kill(&mut self.stage);
            }
            Fault::MarkLost => {
                self.stage.struck(fault, format!("target {target}"));
                self.targets[target].lose_mark(&mut self.stage);
            }
            Fault::Revoke => {
                let (resource, grace) = (self.held_one(), self.stage.chance.below(3) * 300);
                self.operate(fault, Ask::Revoke { resource, grace });
            }
            Fault::HandOff => {
                let (resource, overlap) = (self.held_one(), self.stage.chance.one_in(2));
                let drain = *self.stage.chance.pick(&[100, 200, 1_500]);
                self.operate(fault, Ask::HandOff { resource, overlap, drain });
            }
            Fault::Resize => {
                let slots = self.stage.chance.one_in(2);
                let units = self.stage.chance.between(1, if slots { 3 } else { 12 }) as u32;
                self.operate(fault, Ask::SetCapacity { resource: if slots { SLOTS } else { UNITS }, units });
            }
            _ => {}
        }
    }

    fn operate(&mut self, fault: Fault, ask: Ask) {
        self.stage.struck(fault, format!("the operator asks: {}", ask.kind()));
        self.ask(ask);
    }

    /// A resource that is held, if the operator finds one.
    fn held_one(&mut self) -> &'static str {
        let grantor = self.servers.iter().find_map(Server::grantor);
        let held =
            |name: &&&str| grantor.and_then(|grantor| grantor.show(name)).is_some_and(|shown| !shown.leases.is_empty());
        let held: Vec<&'static str> = EXCLUSIVE.iter().filter(held).copied().collect();
        let from: &[&'static str] = if held.is_empty() { &EXCLUSIVE } else { &held };
        let place = self.stage.chance.below(from.len() as u64) as usize;
        from[place]
    }

    /// Fences tell what they refused, when somebody comes by to ask them.
    fn report(&mut self) {
        for target in 0..self.targets.len() {
            if let Some((presented, mark)) = self.targets[target].refused.take().filter(|_| !self.stage.shy) {
                self.ask(Ask::Report { target, presented, mark });
            }
        }
    }

    /// The operator asks, once.
    fn ask(&mut self, ask: Ask) {
        let (op, from) = (self.stage.op(), Actor::Operator);
        self.stage.note(Event::Asked { op, who: from.place() as u32, ask: ask.clone() });
        let serving = self.servers.iter().filter(|server| server.serving);
        let to = serving.max_by_key(|server| server.generation()).map_or(0, |server| server.index);
        let letter = Letter { op, tries: 0, from, ask, id: None, shown: None };
        self.stage.send(from, Actor::Server(to), Mail::Ask(Box::new(letter)));
    }

    /// A cut of any shape: two halves, one place alone, one direction only; or the mending of all.
    fn partition(&mut self) {
        if self.stage.chance.one_in(3) {
            self.stage.struck(Fault::Partition, "mended");
            return self.stage.mend();
        }
        let places = 8 + self.holders.len();
        let one_way = self.stage.chance.one_in(3);
        let alone = self.stage.chance.one_in(2).then(|| self.stage.chance.below(places as u64) as usize);
        let halves = self.stage.chance.draw();
        let side = |place: usize| alone.map_or(halves >> place & 1 == 1, |alone| alone == place);
        for from in 0..places {
            for to in 0..places {
                if side(from) && !side(to) {
                    self.stage.cut(from, to, true);
                    if !one_way {
                        self.stage.cut(to, from, true);
                    }
                }
            }
        }
        let shape = alone.map_or("halves".to_owned(), |place| format!("place {place} alone"));
        self.stage.struck(Fault::Partition, format!("{shape}{}", if one_way { ", one way" } else { "" }));
    }

    /// The operator arms what lost its mark, from the floor of the grantor that leads: a server tells nobody a floor before
    /// the journal has confirmed that it is still its own, and one that was deposed in its sleep knows an old one.
    fn arm_what_is_lost(&mut self) {
        let mut confirmed = self.servers.iter().filter(|server| self.journal.is_of(server.generation()));
        let Some(grantor) = confirmed.find_map(Server::grantor) else { return };
        let Some(floor) = Number::new(grantor.status().counter) else { return };
        let incarnation = grantor.status().incarnation;
        for target in &mut self.targets {
            if target.is_lost() && (self.stage.healed || self.stage.chance.one_in(3)) {
                target.rearm(&mut self.stage, floor);
            }
            target.adopt(&mut self.stage, incarnation);
        }
    }
}
