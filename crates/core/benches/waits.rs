//! Queues and cycles of 100,000: whoever waits is served in turn, and a deadlock is found however long it is.

mod world;

use divan::Bencher;
use divan::counter::ItemsCount;
use leasehold_core::command::{Command, Event, Held};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Access;
use world::{Lease, TURN, World, granted, names};

const CROWD: u32 = 100_000;

fn main() {
    divan::main();
}

/// 100 sessions, enough for 100,000 actors.
fn sessions(world: &mut World) -> Vec<SessionId> {
    (0..100).map(|n| world.open_session(&format!("session-{n}"))).collect()
}

fn actors() -> Vec<String> {
    (0..1_000).map(|n| format!("actor-{n}")).collect()
}

/// Somebody holds the resource and everybody else queues for it.
fn queue_up(access: Access) -> (World, Lease) {
    let mut world = World::new();
    let sessions = sessions(&mut world);
    world.ask_in(0, sessions[0], "holder", "orders/one", Access::Exclusive);
    world.turn();
    let holder = granted(&world.out.replies[0].answer);
    let actors = actors();
    for n in 0..CROWD as usize {
        world.ask_in(n as u64, sessions[n % 100], &actors[n / 100], "orders/one", access);
        if n % TURN == 0 {
            world.turn();
        }
    }
    world.turn();
    (world, holder)
}

fn settle(world: &mut World) {
    while world.grantor.next_deadline() == Some(world.grantor.last_turn()) {
        world.turn();
    }
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn enqueue(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(CROWD)).bench_local(|| queue_up(Access::Exclusive));
}

/// Each release lets the next one in.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn grant_one_by_one(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(CROWD))
        .with_inputs(|| {
            let (mut world, holder) = queue_up(Access::Exclusive);
            settle(&mut world);
            (world, holder)
        })
        .bench_local_refs(|(world, holder)| {
            for _ in 0..CROWD {
                world.ask(u64::MAX, Command::Release(Held::by_id(holder.id, holder.number)));
                world.turn();
                *holder = granted(&world.out.replies.last().expect("the next one is let in").answer);
            }
        });
}

/// One release lets all readers in.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn grant_all_readers(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(CROWD))
        .with_inputs(|| {
            let (mut world, holder) = queue_up(Access::Shared);
            settle(&mut world);
            (world, holder)
        })
        .bench_local_refs(|(world, holder)| {
            world.ask(u64::MAX, Command::Release(Held::by_id(holder.id, holder.number)));
            while world.grantor.active_count() < CROWD as usize {
                world.turn();
            }
        });
}

/// Each of so many actors holds one resource and waits for the next one's; only the last wait is missing.
fn chain(length: usize, backwards: bool) -> (World, Vec<SessionId>, Vec<String>) {
    let mut world = World::new();
    let sessions = sessions(&mut world);
    let actors = actors();
    let names = names(0..length as u32);
    for (n, name) in names.iter().enumerate() {
        world.ask_in(0, sessions[n % 100], &actors[n / 100], name, Access::Exclusive);
        if n % TURN == 0 {
            world.turn();
        }
    }
    world.turn();
    for n in 0..length - 1 {
        let n = if backwards { length - 2 - n } else { n };
        world.ask_in(0, sessions[n % 100], &actors[n / 100], &names[n + 1], Access::Exclusive);
        if n % TURN == 0 {
            world.turn();
        }
    }
    settle(&mut world);
    (world, sessions, actors)
}

/// From the wait that closes the cycle to the turn that reports it.
#[divan::bench(args = [1_000, 10_000, 50_000, 100_000], sample_count = 5, sample_size = 1)]
fn close_a_cycle(bencher: Bencher<'_, '_>, length: usize) {
    bencher.counter(ItemsCount::new(length)).with_inputs(|| chain(length, false)).bench_local_refs(
        |(world, sessions, actors)| {
            let last = length - 1;
            let first = &names(0..1)[0];
            world.ask_in(0, sessions[last % 100], &actors[last / 100], first, Access::Exclusive);
            world.turn();
            while !world.out.notices.iter().any(|notice| matches!(notice.event, Event::Deadlock(_))) {
                assert!(world.grantor.next_deadline() == Some(world.grantor.last_turn()), "a cycle is found");
                world.turn();
            }
        },
    );
}

#[divan::bench(args = [1_000, 10_000, 50_000, 100_000], sample_count = 3, sample_size = 1)]
fn build_a_chain_from_its_head(bencher: Bencher<'_, '_>, length: usize) {
    bencher.counter(ItemsCount::new(length)).bench_local(|| chain(length, false));
}

#[divan::bench(args = [1_000, 10_000, 50_000, 100_000], sample_count = 3, sample_size = 1)]
fn build_a_chain_from_its_tail(bencher: Bencher<'_, '_>, length: usize) {
    bencher.counter(ItemsCount::new(length)).bench_local(|| chain(length, true));
}
