//! One run: a world made from a seed, in which some things go wrong, which is then healed and must make progress.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::ask::EXCLUSIVE;
use crate::chance::Chance;
use crate::clock::{At, Clock, MS};
use crate::fault::{Fault, Faults};
use crate::history::{Event, History};
use crate::holder::Holder;
use crate::journal::Journal;
use crate::planted::Planted;
use crate::server::Server;
use crate::stage::{Actor, Due, Mail, SERVERS, Stage};
use crate::target::Target;

/// How long a healed world has to make progress.
const HEALED: At = 19_000 * MS;
/// How long before the end nothing new is asked for.
pub const QUIET: At = 9_000 * MS;

/// What a run is made from. The seed says the rest.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The seed.
    pub seed: u64,
    /// Only these kinds of trouble, if not as the seed draws them.
    pub faults: Option<Faults>,
    /// So many holders, if not as the seed draws it.
    pub holders: Option<usize>,
    /// So long until it is healed, in milliseconds, if not as the seed draws it.
    pub length: Option<u64>,
    /// The fault outside of the core that is planted.
    pub planted: Option<Planted>,
}

impl Setup {
    /// As the seed says.
    pub const fn of(seed: u64) -> Self {
        Self { seed, faults: None, holders: None, length: None, planted: None }
    }
}

/// A world.
pub struct World {
    pub(crate) stage: Stage,
    pub(crate) journal: Journal,
    pub(crate) servers: Vec<Server>,
    pub(crate) holders: Vec<Holder>,
    pub(crate) targets: Vec<Target>,
    heal: At,
    end: At,
}

/// Which kinds of trouble a seed draws, how many holders, and how long it lasts.
pub fn drawn(seed: u64) -> (Faults, usize, u64) {
    let mut chance = Chance::new(seed);
    let shared = chance.one_in(2);
    let faults = Faults::draw(&mut chance, shared);
    (faults, chance.between(2, 6) as usize, chance.between(8_000, 20_000))
}

impl World {
    /// The world of a setup.
    pub fn new(setup: &Setup) -> Self {
        let (faults, holders, length) = drawn(setup.seed);
        let mut chance = Chance::new(setup.seed);
        let shared = chance.one_in(2);
        let faults = setup.faults.unwrap_or(faults);
        // Without a fence everything gets in, made-up tokens first; what is to be seen is the write that comes too late.
        let off = setup.planted == Some(Planted::FenceOff);
        let faults = if off { faults.without(Fault::Misuse) } else { faults };
        let servers = if shared { SERVERS } else { 1 };
        let mut stage = Stage::new(Chance::new(!setup.seed), faults, setup.planted, servers);
        let servers = (0..servers).map(|index| Self::server(&mut stage, index)).collect();
        let holders = (0..setup.holders.unwrap_or(holders)).map(|index| Holder::new(&mut stage, index)).collect();
        let heal = setup.length.unwrap_or(length) * MS;
        Self {
            stage,
            journal: Journal::new(shared),
            servers,
            holders,
            targets: (0..EXCLUSIVE.len()).map(Target::new).collect(),
            heal,
            end: heal + HEALED,
        }
    }

    fn server(stage: &mut Stage, index: usize) -> Server {
        let wild = stage.strikes(Fault::WildServer, 2);
        let rate =
            if wild { stage.chance.between(500_000, 2_000_000) } else { stage.chance.between(990_000, 1_010_000) };
        if wild {
            stage.struck(Fault::WildServer, format!("server {index} at {rate} ppm"));
        }
        let mut clock = Clock::new(stage.chance.below(10_000_000_000), rate);
        if stage.faults.has(Fault::WallSet) {
            clock.step_wall(stage.chance.between(0, 8_000) as i64 - 4_000);
        }
        Server::new(index, clock)
    }

    /// Plays it to the end and tells what happened. What panics is a broken promise, on the history like any other.
    pub fn play(mut self) -> History {
        let played = catch_unwind(AssertUnwindSafe(|| self.play_on()));
        if let Err(panic) = played {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            self.stage.note(Event::Broken { promise: "X1", why: text.unwrap_or_else(|| "a panic".to_owned()) });
        }
        self.stage.history
    }

    fn play_on(&mut self) {
        for index in 0..self.servers.len() {
            self.servers[index].wake_at(&mut self.stage, 0);
        }
        for holder in &mut self.holders {
            let at = self.stage.chance.below(500 * MS);
            self.stage.later(at, Due::Wake(Actor::Holder(holder.index)));
        }
        self.stage.later(300 * MS, Due::Nemesis);
        while let Some(due) = self.stage.take_next() {
            if self.stage.at >= self.end {
                break;
            }
            if !self.stage.healed && self.stage.at >= self.heal {
                self.heal_all();
            }
            let quiet = self.stage.at + QUIET >= self.end;
            self.take(due, quiet);
        }
        self.stage.at = self.end;
        let served = self.servers.iter().find_map(Server::grantor).map(|grantor| grantor.time());
        if let Some(leader) = self.servers.iter().find(|server| server.serving) {
            leader.show(&mut self.stage);
        }
        self.stage.note(Event::Over { served });
    }

    fn take(&mut self, due: Due, quiet: bool) {
        match due {
            Due::Deliver(Actor::Server(i), Mail::Ask(letter)) => self.servers[i].receive(&mut self.stage, *letter),
            Due::Deliver(Actor::Target(i), Mail::Write { id, from, token, sequence, value }) => {
                self.stage.note(Event::Reached { target: i as u32, id });
                let asks = self.stage.is_planted(Planted::AsksTheGrantor);
                if asks && !self.servers.iter().any(|server| server.serving) {
                    let (mail, at) = (Mail::Write { id, from, token, sequence, value }, self.stage.at + 200 * MS);
                    return self.stage.later(at, Due::Deliver(Actor::Target(i), mail));
                }
                self.targets[i].receive(&mut self.stage, id, from, &token, sequence, value);
            }
            Due::Deliver(Actor::Holder(i), mail) => self.holders[i].receive(&mut self.stage, mail),
            Due::Deliver(Actor::Operator, Mail::Reply { op, answer, .. }) => {
                let who = Actor::Operator.place() as u32;
                self.stage.note(Event::Answered { op, who, answer });
            }
            Due::Deliver(..) => {}
            Due::Wake(Actor::Server(i)) => {
                if self.servers[i].is_due(self.stage.at) {
                    self.wake_server(i);
                }
            }
            Due::Wake(Actor::Holder(i)) => {
                self.holders[i].quiet = quiet;
                if self.holders[i].is_due(self.stage.at) {
                    self.holders[i].look(&mut self.stage);
                }
            }
            Due::Wake(_) => {}
            Due::Journal { server, life, ticket, step } => {
                let lives = self.servers[server].up && self.servers[server].life == life;
                self.journal.happen(&mut self.stage, server, life, ticket, step, lives);
            }
            Due::Kept { server, life, ticket, kept } => {
                if self.servers[server].up
                    && self.servers[server].life == life
                    && self.servers[server].kept(&mut self.stage, &mut self.journal, ticket, kept)
                {
                    self.kill(server);
                }
            }
            Due::Flush { target, life } => self.targets[target].flush(&mut self.stage, life),
            Due::Apply { target, id, from, shown, value } => {
                self.targets[target].apply_late(&mut self.stage, id, from, shown, value);
            }
            Due::Nemesis => self.nemesis(),
        }
    }

    fn wake_server(&mut self, i: usize) {
        let at = self.stage.at;
        if !self.servers[i].up {
            if at < self.servers[i].back {
                let back = self.servers[i].back;
                return self.servers[i].wake_at(&mut self.stage, back);
            }
            self.servers[i].start();
        }
        let idle = !self.servers[i].serving && !self.servers[i].is_opening();
        if !idle {
            if self.servers[i].look(&mut self.stage, &mut self.journal) {
                self.kill(i);
            }
            return;
        }
        if at < self.servers[i].stalled {
            let until = self.servers[i].stalled;
            return self.servers[i].wake_at(&mut self.stage, until);
        }
        // A standby takes over from nobody, or from one that has been silent for long.
        let reigns = |server: &Server| (server.serving && at < server.turned + 1_500 * MS) || server.is_opening();
        if !self.journal.shared || !self.servers.iter().any(reigns) {
            self.servers[i].open(&mut self.stage, &mut self.journal);
        } else {
            let later = at + self.stage.chance.between(150 * MS, 600 * MS);
            self.servers[i].wake_at(&mut self.stage, later);
        }
    }

    /// A server's process ends; it starts again after a while.
    pub(crate) fn kill(&mut self, i: usize) {
        if !self.servers[i].up {
            return;
        }
        let mut back = self.stage.at + self.stage.chance.between(20 * MS, 2_000 * MS);
        if self.stage.is_planted(Planted::StaysDown) {
            back = self.end;
        }
        self.servers[i].stop(&mut self.stage, back);
        self.journal.crash(&mut self.stage);
    }

    /// Everything works again from now on.
    fn heal_all(&mut self) {
        self.stage.healed = true;
        self.stage.mend();
        self.journal.full = false;
        self.journal.lies = false;
        self.journal.repair();
        let at = self.stage.at;
        for server in &mut self.servers {
            server.stalled = 0;
            server.clock.go(at);
            server.wake_at(&mut self.stage, at + 1);
        }
        for i in 0..self.holders.len() {
            self.holders[i].paused = at;
            self.holders[i].clock.go(at);
            self.stage.later(at + 1, Due::Wake(Actor::Holder(i)));
        }
        self.stage.note(Event::Healed);
        self.stage.later(at + 2_000 * MS, Due::Nemesis);
    }
}
