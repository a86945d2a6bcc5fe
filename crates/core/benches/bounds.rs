//! Every step does bounded work: the longest single step of what is largest, and what a lease takes of memory.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench reads the clock; the core does not")]
#![allow(clippy::disallowed_macros, reason = "a bench tells what it found")]

mod world;

use std::time::{Duration, Instant};

use leasehold_core::command::{Command, LeaseRef, OpenSession, SessionEvent};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Access;
use leasehold_core::limits;
use world::{Lease, MILLION, TTL, TURN, World, granted, names};

fn main() {
    // Under `cargo test` a bench binary is only asked whether it starts.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!("{:<52} {:>9} {:>12} {:>12}", "", "steps", "in all", "longest");
    a_million_leases();
    many_sessions_end();
    readers_let_in();
    a_cycle_closes();
}

/// The steps of one case.
#[derive(Default)]
struct Steps {
    count: u32,
    all: Duration,
    longest: Duration,
}

impl Steps {
    fn time<R>(&mut self, step: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = step();
        let took = start.elapsed();
        self.count += 1;
        self.all += took;
        self.longest = self.longest.max(took);
        result
    }

    /// Turns until nothing is left to do.
    fn settle(&mut self, world: &mut World) {
        while world.has_more_to_do() {
            self.time(|| world.tick());
            world.take();
        }
    }

    fn tell(&self, case: &str) {
        let ms = |took: Duration| format!("{:.3} ms", took.as_secs_f64() * 1e3);
        println!("{case:<52} {:>9} {:>12} {:>12}", self.count, ms(self.all), ms(self.longest));
    }
}

fn a_million_leases() {
    let before = resident();
    let (mut world, _) = World::holding(MILLION);
    println!("{:<52} {:>9.1} bytes", "resident memory of one lease among a million", (resident() - before) / 1e6);
    world.pass_until_end(TTL);
    let mut steps = Steps::default();
    while world.grantor.active_count() > 0 {
        steps.time(|| world.tick());
        world.take();
    }
    steps.tell("a million leases end at once");
}

/// One session that carries as many leases as it may, and one whose end comes by its ttl among others.
fn many_sessions_end() {
    let mut world = World::new();
    let session = world.open_session("one");
    carry(&mut world, session, 0..limits::LEASES_PER_SESSION);
    let mut steps = Steps::default();
    steps.time(|| world.ask(0, Command::CloseSession { session }));
    steps.settle(&mut world);
    steps.tell(&format!("a session with {} leases is closed", limits::LEASES_PER_SESSION));

    let mut world = World::new();
    for n in 0..10 {
        let open = OpenSession { holder: "one of ten", ttl_ms: TTL, secret: [7; 32].into(), waits_only: false };
        let session = world.opened_session(open);
        carry(&mut world, session, n * 100_000..(n + 1) * 100_000);
    }
    world.pass_until_end(TTL);
    let mut steps = Steps::default();
    while world.grantor.active_count() > 0 {
        steps.time(|| world.tick());
        world.take();
    }
    steps.tell("ten sessions with 100,000 leases each end at once");
}

fn carry(world: &mut World, session: SessionId, numbers: std::ops::Range<u32>) {
    for names in names(numbers).chunks(TURN) {
        names.iter().for_each(|name| world.ask_in(0, session, "", name, Access::Exclusive));
        world.turn();
    }
}

/// A million readers wait behind ten writers, which go in one turn.
fn readers_let_in() {
    let mut world = World::new();
    let sessions: Vec<SessionId> = (0..1_000).map(|n| world.open_session(&format!("session-{n}"))).collect();
    let resources = names(0..10);
    let mut writers: Vec<Lease> = Vec::new();
    for resource in &resources {
        world.ask_in(0, sessions[0], "writer", resource, Access::Exclusive);
        world.turn();
        writers.push(granted(&world.out.replies[0].answer));
    }
    for n in 0..100_000 {
        let (session, actor) = (sessions[n % 1_000], format!("reader-{}", n / 1_000));
        for resource in &resources {
            world.ask_in(0, session, &actor, resource, Access::Shared);
        }
        if n % 32 == 0 {
            world.turn();
        }
    }
    let mut steps = Steps::default();
    steps.settle(&mut world);
    steps.tell("a million readers wait: what is left to look at");
    let mut steps = Steps::default();
    for writer in &writers {
        steps.time(|| world.ask(0, Command::Release(LeaseRef::by_id(writer.id, writer.number))));
    }
    steps.time(|| world.tick());
    world.take();
    steps.settle(&mut world);
    assert_eq!(world.grantor.active_count(), MILLION as usize);
    steps.tell("a million readers are let in at once");
}

/// 100,000 actors in a ring. In the second ring something else goes on, so that it is looked at twice.
fn a_cycle_closes() {
    for busy in [false, true] {
        let (mut world, last) = World::ring(100_000);
        let other = world.open_session("another");
        let mut steps = Steps::default();
        steps.time(|| last.ask(&mut world));
        let mut n = 0;
        while !world.out.notices.iter().any(|notice| matches!(notice.event, SessionEvent::Deadlock(_))) {
            if busy {
                world.ask_in(0, other, "", &format!("elsewhere/{n}"), Access::Exclusive);
                n += 1;
            }
            steps.time(|| world.tick());
            world.take();
        }
        steps.tell(if busy { "a ring of 100,000 closes while others come" } else { "a ring of 100,000 closes" });
    }
}

/// Bytes of memory that this process has in use.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages: f64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("in pages");
    pages * 4_096.0
}
