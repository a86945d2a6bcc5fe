//! Queues and cycles of 100,000: whoever waits is served in turn, and a deadlock is found however long it is.

mod world;

use divan::Bencher;
use divan::counter::ItemsCount;
use leasehold_core::command::{Command, LeaseRef, SessionEvent};
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
            world.settle();
            (world, holder)
        })
        .bench_local_refs(|(world, holder)| {
            for _ in 0..CROWD {
                world.ask(u64::MAX, Command::Release(LeaseRef::by_id(holder.id, holder.number)));
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
            world.settle();
            (world, holder)
        })
        .bench_local_refs(|(world, holder)| {
            world.ask(u64::MAX, Command::Release(LeaseRef::by_id(holder.id, holder.number)));
            while world.grantor.active_count() < CROWD as usize {
                world.turn();
            }
        });
}

/// From the wait that closes the cycle to the turn that reports it.
#[divan::bench(args = [1_000, 10_000, 50_000, 100_000], sample_count = 5, sample_size = 1)]
fn close_a_cycle(bencher: Bencher<'_, '_>, length: u32) {
    bencher.counter(ItemsCount::new(length)).with_inputs(|| World::ring(length)).bench_local_refs(|(world, last)| {
        last.ask(world);
        world.turn();
        while !world.out.notices.iter().any(|notice| matches!(notice.event, SessionEvent::Deadlock(_))) {
            assert!(world.has_more_to_do(), "a cycle is found");
            world.turn();
        }
    });
}

/// Each waits for the one that comes next, begun at the head or at the tail.
#[divan::bench(args = [1_000, 10_000, 50_000, 100_000], sample_count = 3, sample_size = 1)]
fn build_a_chain_from_its_head(bencher: Bencher<'_, '_>, length: u32) {
    bencher
        .counter(ItemsCount::new(length))
        .with_inputs(World::new)
        .bench_local_refs(|world| world.chain(length, false));
}

#[divan::bench(args = [1_000, 10_000, 50_000, 100_000], sample_count = 3, sample_size = 1)]
fn build_a_chain_from_its_tail(bencher: Bencher<'_, '_>, length: u32) {
    bencher
        .counter(ItemsCount::new(length))
        .with_inputs(World::new)
        .bench_local_refs(|world| world.chain(length, true));
}

/// A session ends with all it carries, in one step; the turn tells the ends.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn end_a_session_with_100_000_leases(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(CROWD))
        .with_inputs(|| {
            let mut world = World::new();
            let session = world.open_session("one");
            for names in names(0..CROWD).chunks(TURN) {
                names.iter().for_each(|name| world.ask_in(0, session, "", name, Access::Exclusive));
                world.turn();
            }
            (world, session)
        })
        .bench_local_refs(|(world, session)| {
            world.ask(0, Command::CloseSession { session: *session });
            world.turn();
        });
}
