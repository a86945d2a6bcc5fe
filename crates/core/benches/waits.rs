//! Queues and deadlocks with 100,000 waiters.

mod bench_grantor;

use bench_grantor::{BenchGrantor, Lease, TURN, granted, names};
use divan::Bencher;
use divan::counter::ItemsCount;
use leasehold_core::command::{Command, LeaseRef, SessionEvent};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Access;

const WAITERS: u32 = 100_000;

fn main() {
    divan::main();
}

/// 100 sessions, enough for 100,000 actors.
fn sessions(bench: &mut BenchGrantor) -> Vec<SessionId> {
    (0..100).map(|n| bench.open_session(&format!("session-{n}"))).collect()
}

fn actors() -> Vec<String> {
    (0..1_000).map(|n| format!("actor-{n}")).collect()
}

/// One actor holds the resource, and all others wait for it.
fn full_queue(access: Access) -> (BenchGrantor, Lease) {
    let mut bench = BenchGrantor::new();
    let sessions = sessions(&mut bench);
    bench.acquire_in(0, sessions[0], "holder", "orders/one", Access::Exclusive);
    bench.turn();
    let holder = granted(&bench.out.replies[0].answer);
    let actors = actors();
    for n in 0..WAITERS as usize {
        bench.acquire_in(n as u64, sessions[n % 100], &actors[n / 100], "orders/one", access);
        if n % TURN == 0 {
            bench.turn();
        }
    }
    bench.turn();
    (bench, holder)
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn enqueue(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(WAITERS)).bench_local(|| full_queue(Access::Exclusive));
}

/// Each release grants the next waiter.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn grant_one_by_one(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(WAITERS))
        .with_inputs(|| {
            let (mut bench, holder) = full_queue(Access::Exclusive);
            bench.finish_work();
            (bench, holder)
        })
        .bench_local_refs(|(bench, holder)| {
            for _ in 0..WAITERS {
                bench.request(u64::MAX, Command::Release(LeaseRef::by_id(holder.id, holder.number)));
                bench.turn();
                *holder = granted(&bench.out.replies.last().expect("the next waiter is granted").answer);
            }
        });
}

/// One release grants all readers.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn grant_all_readers(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(WAITERS))
        .with_inputs(|| {
            let (mut bench, holder) = full_queue(Access::Shared);
            bench.finish_work();
            (bench, holder)
        })
        .bench_local_refs(|(bench, holder)| {
            bench.request(u64::MAX, Command::Release(LeaseRef::by_id(holder.id, holder.number)));
            while bench.grantor.active_count() < WAITERS as usize {
                bench.turn();
            }
        });
}

/// From the wait that closes the cycle to the turn that reports it.
#[divan::bench(args = [1_000, 10_000, 50_000, 100_000], sample_count = 5, sample_size = 1)]
fn close_a_cycle(bencher: Bencher<'_, '_>, length: u32) {
    bencher.counter(ItemsCount::new(length)).with_inputs(|| BenchGrantor::open_cycle(length)).bench_local_refs(
        |(bench, last)| {
            last.start(bench);
            bench.turn();
            while !bench.out.notices.iter().any(|notice| matches!(notice.event, SessionEvent::Deadlock(_))) {
                assert!(bench.has_more_to_do(), "the cycle is found");
                bench.turn();
            }
        },
    );
}

/// Each actor waits for the next one. The waits start at the head or at the tail.
#[divan::bench(args = [1_000, 10_000, 50_000, 100_000], sample_count = 3, sample_size = 1)]
fn build_a_chain_from_its_head(bencher: Bencher<'_, '_>, length: u32) {
    bencher
        .counter(ItemsCount::new(length))
        .with_inputs(BenchGrantor::new)
        .bench_local_refs(|bench| bench.chain(length, false));
}

#[divan::bench(args = [1_000, 10_000, 50_000, 100_000], sample_count = 3, sample_size = 1)]
fn build_a_chain_from_its_tail(bencher: Bencher<'_, '_>, length: u32) {
    bencher
        .counter(ItemsCount::new(length))
        .with_inputs(BenchGrantor::new)
        .bench_local_refs(|bench| bench.chain(length, true));
}

/// The end of a session ends all of its leases in one step; the turn notifies their holders.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn end_a_session_with_100_000_leases(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(WAITERS))
        .with_inputs(|| {
            let mut bench = BenchGrantor::new();
            let session = bench.open_session("one");
            for names in names(0..WAITERS).chunks(TURN) {
                names.iter().for_each(|name| bench.acquire_in(0, session, "", name, Access::Exclusive));
                bench.turn();
            }
            (bench, session)
        })
        .bench_local_refs(|(bench, session)| {
            bench.request(0, Command::CloseSession { session: *session });
            bench.turn();
        });
}
