//! Fault injection, and the operator: revokes, handoffs, resizes, and re-arming of lost marks.

use leasehold_core::token::Number;

use crate::clock::MS;
use crate::fault::Fault;
use crate::history::HistoryEvent;
use crate::message::{Envelope, Message, SimActor};
use crate::request::SimRequest;
use crate::run_constants::{EXCLUSIVE, SLOTS, UNITS};
use crate::scheduler::ScheduledEvent;
use crate::server::SimServer;
use crate::world::World;

/// Faults that the nemesis injects; the others are injected where they occur.
const EXTERNAL_FAULTS: [Fault; 21] = [
    Fault::Partition,
    Fault::ServerKill,
    Fault::ServerStall,
    Fault::ServerSleep,
    Fault::Failover,
    Fault::WallClockStep,
    Fault::LyingSync,
    Fault::DiskFull,
    Fault::Rollback,
    Fault::Restore,
    Fault::HolderPause,
    Fault::HolderSleep,
    Fault::HolderRestart,
    Fault::TargetKill,
    Fault::MarkLost,
    Fault::Revoke,
    Fault::Handoff,
    Fault::Resize,
    Fault::TornTail,
    Fault::CorruptTail,
    Fault::BitRot,
];

impl World {
    pub(crate) fn nemesis(&mut self) {
        self.rearm_lost_targets();
        self.report_refusals();
        if self.journal.is_marked() && (self.scheduler.healed || self.scheduler.rng.one_in(3)) {
            self.scheduler.record_fault(Fault::Rollback, "an operator accepts it");
            self.journal.accept_rollback();
        }
        if self.scheduler.rng.one_in(8) {
            self.send_operator_request(SimRequest::SetCharter);
        }
        let next_at = self.scheduler.now + self.scheduler.rng.between(80 * MS, 1_200 * MS);
        self.scheduler.schedule(next_at, ScheduledEvent::Nemesis);
        if self.scheduler.healed {
            return;
        }
        let existing: Vec<Fault> =
            EXTERNAL_FAULTS.into_iter().filter(|fault| self.scheduler.faults.has(*fault)).collect();
        if existing.is_empty() {
            return;
        }
        let fault = *self.scheduler.rng.pick(&existing);
        self.inject(fault);
    }

    fn inject(&mut self, fault: Fault) {
        let at = self.scheduler.now;
        let server = self.scheduler.rng.below(self.servers.len() as u64) as usize;
        let holder = self.scheduler.rng.below(self.holders.len() as u64) as usize;
        let target = self.scheduler.rng.below(self.targets.len() as u64) as usize;
        let span = self.scheduler.rng.between(120, 4_000) * MS;
        match fault {
            Fault::Partition => self.partition(),
            Fault::ServerKill | Fault::TornTail | Fault::CorruptTail => {
                self.scheduler.record_fault(Fault::ServerKill, format!("server {server}"));
                self.kill(server);
            }
            Fault::BitRot => {
                if self.scheduler.rng.one_in(2) {
                    self.journal.corrupt(&mut self.scheduler);
                    self.kill(server);
                } else {
                    self.journal.repair();
                }
            }
            Fault::ServerStall => {
                self.scheduler.record_fault(fault, format!("server {server} for {} ms", span / MS));
                self.servers[server].stalled_until = at + span;
            }
            Fault::ServerSleep => {
                self.scheduler.record_fault(fault, format!("server {server} for {} ms", span / MS));
                self.servers[server].stalled_until = at + span;
                self.servers[server].clock.pause(at, at + span);
            }
            Fault::Failover => {
                if let Some(standby) = self.servers.iter().position(|s| s.up && !s.serving && !s.is_opening()) {
                    self.scheduler.record_fault(fault, format!("server {standby} takes over"));
                    self.servers[standby].open_journal(&mut self.scheduler, &mut self.journal);
                }
            }
            Fault::WallClockStep => {
                let by = self.scheduler.rng.between(0, 8_000) as i64 - 4_000;
                self.scheduler.record_fault(fault, format!("server {server} by {by} ms"));
                self.servers[server].clock.step_wall(by);
            }
            Fault::LyingSync => {
                self.journal.lying_sync = !self.journal.lying_sync;
                self.scheduler.record_fault(fault, if self.journal.lying_sync { "begins" } else { "ends" });
            }
            Fault::DiskFull => {
                self.journal.full = !self.journal.full;
                self.scheduler.record_fault(fault, if self.journal.full { "begins" } else { "ends" });
            }
            Fault::Rollback if !self.journal.is_empty() && self.scheduler.rng.one_in(3) => {
                (0..self.servers.len()).for_each(|i| self.kill(i));
                let witnessed = self.has_high_water_marks();
                if witnessed {
                    self.scheduler.record(HistoryEvent::StoreRestored);
                    // One of them may have lost its directory, and has seen nothing.
                    self.servers[server].seen = None;
                    self.scheduler.record(HistoryEvent::HighWaterLost { server: server as u32 });
                }
                if !witnessed {
                    self.servers.iter_mut().for_each(|server| server.seen = None);
                }
                self.journal.roll_back(&mut self.scheduler);
                // The clock may be rolled back together with the machine; then only a presented token reveals the rollback. A
                // restore requires a correct clock, and re-arming a lost mark requires a floor from a grantor with one.
                let right = witnessed
                    || self.scheduler.hides_tokens
                    || self.scheduler.faults.has(Fault::MarkLost)
                    || self.scheduler.faults.has(Fault::Restore);
                if !right && self.scheduler.rng.one_in(2) {
                    self.scheduler.record_fault(Fault::WallClockStep, "every server, together with its journal");
                    self.servers.iter_mut().for_each(|server| server.clock.step_wall(-40_000));
                }
            }
            Fault::Restore if self.scheduler.rng.one_in(3) => {
                (0..self.servers.len()).for_each(|i| self.kill(i));
                self.journal.restore(&mut self.scheduler);
            }
            Fault::Restore => self.journal.back_up(),
            Fault::HolderPause | Fault::HolderSleep => {
                self.scheduler.record_fault(fault, format!("holder {holder} for {} ms", span / MS));
                self.holders[holder].pause(&mut self.scheduler, at + span, fault == Fault::HolderSleep);
            }
            Fault::HolderRestart => {
                self.scheduler.record_fault(fault, format!("holder {holder}"));
                self.holders[holder].restart();
            }
            Fault::TargetKill => {
                self.scheduler.record_fault(fault, format!("target {target}"));
                self.targets[target].kill(&mut self.scheduler);
            }
            Fault::MarkLost => {
                self.scheduler.record_fault(fault, format!("target {target}"));
                self.targets[target].lose_mark(&mut self.scheduler);
            }
            Fault::Revoke => {
                let (resource, grace) = (self.pick_held_resource(), self.scheduler.rng.below(3) * 300);
                self.record_operator_request(fault, SimRequest::Revoke { resource, grace });
            }
            Fault::Handoff => {
                let (resource, overlap) = (self.pick_held_resource(), self.scheduler.rng.one_in(2));
                let drain = *self.scheduler.rng.pick(&[100, 200, 1_500]);
                self.record_operator_request(fault, SimRequest::Handoff { resource, overlap, drain });
            }
            Fault::Resize => {
                let slots = self.scheduler.rng.one_in(2);
                let units = self.scheduler.rng.between(1, if slots { 3 } else { 12 }) as u32;
                self.record_operator_request(
                    fault,
                    SimRequest::SetCapacity { resource: if slots { SLOTS } else { UNITS }, units },
                );
            }
            _ => {}
        }
    }

    /// Whether the servers of this run keep high-water marks of a shared journal. In the others a rollback is silent.
    fn has_high_water_marks(&self) -> bool {
        self.journal.shared && self.scheduler.faults.has(Fault::Failover)
    }

    fn record_operator_request(&mut self, fault: Fault, request: SimRequest) {
        self.scheduler.record_fault(fault, format!("operator request: {}", request.kind()));
        self.send_operator_request(request);
    }

    /// A held resource, if there is one.
    fn pick_held_resource(&mut self) -> &'static str {
        let grantor = self.servers.iter().find_map(SimServer::grantor);
        let held = |name: &&&str| {
            grantor.and_then(|grantor| grantor.show(name)).is_some_and(|presented| !presented.leases.is_empty())
        };
        let held: Vec<&'static str> = EXCLUSIVE.iter().filter(held).copied().collect();
        let from: &[&'static str] = if held.is_empty() { &EXCLUSIVE } else { &held };
        let index = self.scheduler.rng.below(from.len() as u64) as usize;
        from[index]
    }

    /// Reports refusals of the fences to the grantor, as monitoring would.
    fn report_refusals(&mut self) {
        for target in 0..self.targets.len() {
            if let Some((presented, mark)) =
                self.targets[target].refused.take().filter(|_| !self.scheduler.hides_tokens)
            {
                self.send_operator_request(SimRequest::Report { target, presented, mark });
            }
        }
    }

    /// Sends a request of the operator, once.
    fn send_operator_request(&mut self, request: SimRequest) {
        let (op, from) = (self.scheduler.next_op(), SimActor::Operator);
        self.scheduler.record(HistoryEvent::Requested { op, actor: from.index() as u32, request: request.clone() });
        let serving = self.servers.iter().filter(|server| server.serving);
        let to = serving.max_by_key(|server| server.generation()).map_or(0, |server| server.index);
        let envelope = Envelope { op, tries: 0, from, request, id: None, presented: None };
        self.scheduler.send(from, SimActor::Server(to), Message::Request(Box::new(envelope)));
    }

    /// Creates a partition (two halves, one isolated actor, or one direction only), or removes all.
    fn partition(&mut self) {
        if self.scheduler.rng.one_in(3) {
            self.scheduler.record_fault(Fault::Partition, "removed");
            return self.scheduler.unblock_all();
        }
        let places = 8 + self.holders.len();
        let one_way = self.scheduler.rng.one_in(3);
        let alone = self.scheduler.rng.one_in(2).then(|| self.scheduler.rng.below(places as u64) as usize);
        let halves = self.scheduler.rng.draw();
        let side = |place: usize| alone.map_or(halves >> place & 1 == 1, |alone| alone == place);
        for from in 0..places {
            for to in 0..places {
                if side(from) && !side(to) {
                    self.scheduler.set_blocked(from, to, true);
                    if !one_way {
                        self.scheduler.set_blocked(to, from, true);
                    }
                }
            }
        }
        let shape = alone.map_or("halves".to_owned(), |place| format!("actor {place} isolated"));
        self.scheduler.record_fault(Fault::Partition, format!("{shape}{}", if one_way { ", one way" } else { "" }));
    }

    /// Re-arms lost marks from the floor of the leading grantor. A server reports a floor only after the journal has confirmed
    /// its leadership: a deposed server would report an old one.
    fn rearm_lost_targets(&mut self) {
        let mut confirmed = self.servers.iter().filter(|server| self.journal.is_led_by(server.generation()));
        let Some(grantor) = confirmed.find_map(SimServer::grantor) else { return };
        let Some(floor) = Number::new(grantor.status().counter) else { return };
        let incarnation = grantor.status().incarnation;
        for target in &mut self.targets {
            if target.is_lost() && (self.scheduler.healed || self.scheduler.rng.one_in(3)) {
                target.rearm(&mut self.scheduler, floor);
            }
            target.adopt(&mut self.scheduler, incarnation);
        }
    }
}
