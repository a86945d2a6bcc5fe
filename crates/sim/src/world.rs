//! One run: a world created from a seed, run with faults, then healed, and required to make progress.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::clock::{MS, SimClock, SimTime};
use crate::fault::{Fault, FaultSet};
use crate::fenced_target::SimTarget;
use crate::history::{History, HistoryEvent};
use crate::holder::SimHolder;
use crate::impostor::Impostors;
use crate::journal::SimJournal;
use crate::message::{Message, SERVERS, SimActor};
use crate::mutants::PlantedFault;
use crate::operators::Operators;
use crate::rng::SimRng;
use crate::run_constants::EXCLUSIVE;
use crate::scheduler::{ScheduledEvent, Scheduler};
use crate::server::SimServer;

/// Time that a healed world has to make progress.
const HEALED_TIME: SimTime = 19_000 * MS;
/// Time before the end in which no new requests are sent.
pub const QUIET: SimTime = 9_000 * MS;

/// Parameters of a run. The seed determines the rest.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The seed.
    pub seed: u64,
    /// Kinds of faults; chosen by the seed if `None`.
    pub faults: Option<FaultSet>,
    /// Number of holders; chosen by the seed if `None`.
    pub holders: Option<usize>,
    /// Time until healing in milliseconds; chosen by the seed if `None`.
    pub length: Option<u64>,
    /// The fault planted outside of the core.
    pub planted: Option<PlantedFault>,
}

impl Setup {
    /// A setup determined by the seed.
    pub const fn new(seed: u64) -> Self {
        Self { seed, faults: None, holders: None, length: None, planted: None }
    }
}

/// A simulated world.
pub struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) journal: SimJournal,
    pub(crate) servers: Vec<SimServer>,
    pub(crate) holders: Vec<SimHolder>,
    pub(crate) targets: Vec<SimTarget>,
    heal_at: SimTime,
    end_at: SimTime,
}

/// Kinds of faults, number of holders and time until healing that a seed chooses.
pub fn draw_setup(seed: u64) -> (FaultSet, usize, u64) {
    let mut rng = SimRng::new(seed);
    let shared = rng.one_in(2);
    let faults = FaultSet::draw(&mut rng, shared);
    (faults, rng.between(2, 6) as usize, rng.between(8_000, 20_000))
}

impl World {
    /// Creates the world of a setup.
    pub fn new(setup: &Setup) -> Self {
        let (faults, holders, length) = draw_setup(setup.seed);
        let mut rng = SimRng::new(setup.seed);
        let shared = rng.one_in(2);
        let faults = setup.faults.unwrap_or(faults);
        // Without a fence every token is accepted, forged ones too; the late write is what such a run should show.
        let off = setup.planted == Some(PlantedFault::FenceOff);
        let faults = if off { faults.without(Fault::Misuse) } else { faults };
        let servers = if shared { SERVERS } else { 1 };
        let mut scheduler = Scheduler::new(SimRng::new(!setup.seed), faults, setup.planted, servers);
        scheduler.impostors = Impostors::of_seed(setup.seed);
        scheduler.operators = Operators::of_seed(setup.seed);
        let servers = (0..servers).map(|index| Self::server(&mut scheduler, index)).collect();
        let holders =
            (0..setup.holders.unwrap_or(holders)).map(|index| SimHolder::new(&mut scheduler, index)).collect();
        let heal_at = setup.length.unwrap_or(length) * MS;
        Self {
            scheduler,
            journal: SimJournal::new(shared),
            servers,
            holders,
            targets: (0..EXCLUSIVE.len()).map(SimTarget::new).collect(),
            heal_at,
            end_at: heal_at + HEALED_TIME,
        }
    }

    fn server(scheduler: &mut Scheduler, index: usize) -> SimServer {
        let wild = scheduler.should_inject(Fault::ServerDrift, 2);
        let rate =
            if wild { scheduler.rng.between(500_000, 2_000_000) } else { scheduler.rng.between(990_000, 1_010_000) };
        if wild {
            scheduler.record_fault(Fault::ServerDrift, format!("server {index} at {rate} ppm"));
        }
        let mut clock = SimClock::new(scheduler.rng.below(10_000_000_000), rate);
        if scheduler.faults.has(Fault::WallClockStep) {
            clock.step_wall(scheduler.rng.between(0, 8_000) as i64 - 4_000);
        }
        SimServer::new(index, clock)
    }

    /// Runs to the end and returns the history. A panic is recorded as a broken promise.
    pub fn run(mut self) -> History {
        let result = catch_unwind(AssertUnwindSafe(|| self.run_events()));
        if let Err(panic) = result {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            self.scheduler.record(HistoryEvent::InvariantBroken {
                promise: "X1",
                detail: text.unwrap_or_else(|| "a panic".to_owned()),
            });
        }
        self.scheduler.history
    }

    fn run_events(&mut self) {
        for index in 0..self.servers.len() {
            self.servers[index].wake_at(&mut self.scheduler, 0);
        }
        for holder in &mut self.holders {
            let at = self.scheduler.rng.below(500 * MS);
            self.scheduler.schedule(at, ScheduledEvent::Wake(SimActor::Holder(holder.index)));
        }
        self.scheduler.schedule(300 * MS, ScheduledEvent::Nemesis);
        while let Some(event) = self.scheduler.next_event() {
            if self.scheduler.now >= self.end_at {
                break;
            }
            if !self.scheduler.healed && self.scheduler.now >= self.heal_at {
                self.heal_everything();
            }
            let quiet = self.scheduler.now + QUIET >= self.end_at;
            self.dispatch(event, quiet);
        }
        self.scheduler.now = self.end_at;
        let served = self.servers.iter().find_map(SimServer::grantor).map(|grantor| grantor.time());
        if let Some(leader) = self.servers.iter_mut().find(|server| server.serving) {
            leader.report_state(&mut self.scheduler);
            leader.approve_late(&mut self.scheduler);
        }
        self.scheduler.record(HistoryEvent::RunEnded { served });
    }

    fn dispatch(&mut self, event: ScheduledEvent, quiet: bool) {
        match event {
            ScheduledEvent::Deliver(SimActor::Server(i), Message::Request(envelope)) => {
                self.servers[i].receive(&mut self.scheduler, *envelope)
            }
            ScheduledEvent::Deliver(SimActor::Target(i), Message::Write { id, from, token, sequence, value }) => {
                self.scheduler.record(HistoryEvent::WriteArrived { target: i as u32, id });
                let queries = self.scheduler.is_planted(PlantedFault::FenceQueriesGrantor);
                if queries && !self.servers.iter().any(|server| server.serving) {
                    let (message, at) =
                        (Message::Write { id, from, token, sequence, value }, self.scheduler.now + 200 * MS);
                    return self.scheduler.schedule(at, ScheduledEvent::Deliver(SimActor::Target(i), message));
                }
                self.targets[i].receive(&mut self.scheduler, id, from, &token, sequence, value);
            }
            ScheduledEvent::Deliver(SimActor::Holder(i), message) => {
                self.holders[i].receive(&mut self.scheduler, message)
            }
            ScheduledEvent::Deliver(SimActor::Operator, Message::Reply { op, answer, .. }) => {
                let actor = SimActor::Operator.index() as u32;
                self.scheduler.record(HistoryEvent::ReplyReceived { op, actor, answer });
            }
            ScheduledEvent::Deliver(..) => {}
            ScheduledEvent::Wake(SimActor::Server(i)) => {
                if self.servers[i].is_due(self.scheduler.now) {
                    self.wake_server(i);
                }
            }
            ScheduledEvent::Wake(SimActor::Holder(i)) => {
                self.holders[i].quiet = quiet;
                if self.holders[i].is_due(self.scheduler.now) {
                    self.holders[i].poll(&mut self.scheduler);
                }
            }
            ScheduledEvent::Wake(_) => {}
            ScheduledEvent::Journal { server, boot, ticket, step } => {
                let is_alive = self.servers[server].up && self.servers[server].boot == boot;
                self.journal.execute(&mut self.scheduler, server, boot, ticket, step, is_alive);
            }
            ScheduledEvent::JournalDone { server, boot, ticket, outcome } => {
                if self.servers[server].up
                    && self.servers[server].boot == boot
                    && self.servers[server].on_journal_outcome(&mut self.scheduler, &mut self.journal, ticket, outcome)
                {
                    self.kill(server);
                }
            }
            ScheduledEvent::Flush { target, boot } => self.targets[target].flush(&mut self.scheduler, boot),
            ScheduledEvent::Apply { target, id, from, presented, value } => {
                self.targets[target].apply_late(&mut self.scheduler, id, from, presented, value);
            }
            ScheduledEvent::Nemesis => self.nemesis(),
        }
    }

    fn wake_server(&mut self, i: usize) {
        let at = self.scheduler.now;
        if !self.servers[i].up {
            if at < self.servers[i].restart_at {
                let restart_at = self.servers[i].restart_at;
                return self.servers[i].wake_at(&mut self.scheduler, restart_at);
            }
            self.servers[i].start();
        }
        let idle = !self.servers[i].serving && !self.servers[i].is_opening();
        if !idle {
            if self.servers[i].poll(&mut self.scheduler, &mut self.journal) {
                self.kill(i);
            }
            return;
        }
        if at < self.servers[i].stalled_until {
            let until = self.servers[i].stalled_until;
            return self.servers[i].wake_at(&mut self.scheduler, until);
        }
        // A standby takes over if no server leads, or if the leader has been silent for long.
        let is_leading =
            |server: &SimServer| (server.serving && at < server.last_turn_at + 1_500 * MS) || server.is_opening();
        if !self.journal.shared || !self.servers.iter().any(is_leading) {
            self.servers[i].open_journal(&mut self.scheduler, &mut self.journal);
        } else {
            let later = at + self.scheduler.rng.between(150 * MS, 600 * MS);
            self.servers[i].wake_at(&mut self.scheduler, later);
        }
    }

    /// Kills a server's process; it restarts after a while.
    pub(crate) fn kill(&mut self, i: usize) {
        if !self.servers[i].up {
            return;
        }
        let mut restart_at = self.scheduler.now + self.scheduler.rng.between(20 * MS, 2_000 * MS);
        if self.scheduler.is_planted(PlantedFault::StaysDown) {
            restart_at = self.end_at;
        }
        self.servers[i].stop(&mut self.scheduler, restart_at);
        self.journal.crash(&mut self.scheduler);
    }

    /// Repairs all faults.
    fn heal_everything(&mut self) {
        self.scheduler.healed = true;
        self.scheduler.unblock_all();
        self.journal.full = false;
        self.journal.lying_sync = false;
        self.journal.repair();
        let at = self.scheduler.now;
        for server in &mut self.servers {
            server.stalled_until = 0;
            server.clock.resume(at);
            server.wake_at(&mut self.scheduler, at + 1);
        }
        for i in 0..self.holders.len() {
            self.holders[i].paused_until = at;
            self.holders[i].clock.resume(at);
            self.scheduler.schedule(at + 1, ScheduledEvent::Wake(SimActor::Holder(i)));
        }
        self.scheduler.record(HistoryEvent::Healed);
        self.scheduler.schedule(at + 2_000 * MS, ScheduledEvent::Nemesis);
    }
}
