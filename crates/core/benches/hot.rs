//! The hot path: acquire and release, renew, expire. None of them allocates in a steady state.

mod bench_grantor;

use bench_grantor::{BenchGrantor, Lease, MILLION, TURN, names, shuffled};
use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use leasehold_core::command::{Acquire, Command};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// Pairs of acquire and release in turns of 256 commands, each with another name, next to `held` other leases.
#[divan::bench(args = [0, MILLION], sample_count = 20, sample_size = 1)]
fn acquire_and_release(bencher: Bencher<'_, '_>, held: u32) {
    let (mut bench, _) = BenchGrantor::holding(held);
    let names = names(MILLION..MILLION + 2 * 65_536);
    let mut leases: Vec<Lease> = Vec::with_capacity(TURN);
    let mut pairs = |bench: &mut BenchGrantor| {
        for names in names.chunks(TURN) {
            leases.clear();
            bench.acquire_turn(names, &mut leases);
            bench.release_turn(&leases);
        }
    };
    // The first round fills the ring of ended leases; after that the state is steady.
    pairs(&mut bench);
    bencher.counter(ItemsCount::new(names.len())).bench_local(|| pairs(&mut bench));
}

#[divan::bench(args = ["in order", "shuffled"], sample_count = 20, sample_size = 1)]
fn renew_a_million(bencher: Bencher<'_, '_>, order: &str) {
    renew_all_of(bencher, BenchGrantor::holding(MILLION), order);
}

fn renew_all_of(bencher: Bencher<'_, '_>, (mut bench, leases): (BenchGrantor, Vec<Lease>), order: &str) {
    let leases = if order == "in order" { leases } else { shuffled(leases) };
    let renew_all = |bench: &mut BenchGrantor| {
        for leases in leases.chunks(1_024) {
            leases.iter().for_each(|lease| bench.renew(lease));
            bench.turn();
        }
        bench.advance(40);
    };
    renew_all(&mut bench);
    bench.assert_renewed(leases.chunks(1_024).last().map_or(0, <[Lease]>::len));
    bencher.counter(ItemsCount::new(MILLION)).bench_local(|| renew_all(&mut bench));
}

/// The same over the streams of sessions, still without access rules: each renewal compares the session (L5).
#[divan::bench(args = ["in order", "shuffled"], sample_count = 20, sample_size = 1)]
fn renew_a_million_over_streams(bencher: Bencher<'_, '_>, order: &str) {
    renew_all_of(bencher, BenchGrantor::holding_over_streams(MILLION), order);
}

/// The same under access rules: each renewal compares the identity, the owner and the epoch of the rules.
#[divan::bench(args = ["in order", "shuffled"], sample_count = 20, sample_size = 1)]
fn renew_a_million_as_an_identity(bencher: Bencher<'_, '_>, order: &str) {
    renew_all_of(bencher, BenchGrantor::holding_as_identity(MILLION), order);
}

/// The same when the rules changed before: every renewal compares the prefixes.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn renew_a_million_after_access_changed(bencher: Bencher<'_, '_>) {
    let (mut bench, leases) = BenchGrantor::holding_as_identity(MILLION);
    bencher.counter(ItemsCount::new(MILLION)).bench_local(|| {
        bench.change_access();
        for leases in leases.chunks(1_024) {
            leases.iter().for_each(|lease| bench.renew(lease));
            bench.turn();
        }
        bench.advance(40);
    });
}

/// All expire at one time; turns follow until the last end is recorded.
#[divan::bench(sample_count = 7, sample_size = 1)]
fn expire_a_million(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(MILLION))
        .with_inputs(|| {
            let (mut bench, _) = BenchGrantor::holding_for(MILLION, 10_000);
            bench.advance_to_deadline(10_000);
            bench
        })
        .bench_local_refs(|bench| {
            while bench.grantor.active_count() > 0 {
                bench.turn();
            }
        });
}

/// The peak memory divided by a million is the memory per lease, including the driver's buffers.
#[divan::bench(sample_count = 1, sample_size = 1)]
fn hold_a_million(bencher: Bencher<'_, '_>) {
    let names = names(0..MILLION);
    bencher.counter(ItemsCount::new(MILLION)).bench_local(|| {
        let mut bench = BenchGrantor::new();
        for names in names.chunks(TURN) {
            for name in names {
                bench.request(0, Command::Acquire(Acquire::exclusive(name, "worker-1", bench_grantor::TTL)));
            }
            bench.turn();
        }
        bench
    });
}
