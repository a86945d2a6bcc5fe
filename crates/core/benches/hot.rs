//! What happens all the time: acquire and release, renew, expire. The table of allocations stays empty for each.

mod world;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use leasehold_core::command::{Acquire, Command};
use world::{Lease, MILLION, TURN, World, names, shuffled};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// Pairs, in turns of 256 commands, each lease under another name, beside so many leases that stay.
#[divan::bench(args = [0, MILLION], sample_count = 20, sample_size = 1)]
fn acquire_and_release(bencher: Bencher<'_, '_>, held: u32) {
    let (mut world, _) = World::holding(held);
    let names = names(MILLION..MILLION + 2 * 65_536);
    let mut leases: Vec<Lease> = Vec::with_capacity(TURN);
    let mut pairs = |world: &mut World| {
        for names in names.chunks(TURN) {
            leases.clear();
            world.acquire_turn(names, &mut leases);
            world.release_turn(&leases);
        }
    };
    // The first round fills what remembers the last ends; from then on the state is steady.
    pairs(&mut world);
    bencher.counter(ItemsCount::new(names.len())).bench_local(|| pairs(&mut world));
}

#[divan::bench(args = ["in order", "in no order"], sample_count = 20, sample_size = 1)]
fn renew_a_million(bencher: Bencher<'_, '_>, order: &str) {
    let (mut world, leases) = World::holding(MILLION);
    let leases = if order == "in order" { leases } else { shuffled(leases) };
    let renew_all = |world: &mut World| {
        for leases in leases.chunks(1_024) {
            leases.iter().for_each(|lease| world.renew(lease));
            world.turn();
        }
        world.later(40);
    };
    renew_all(&mut world);
    bencher.counter(ItemsCount::new(MILLION)).bench_local(|| renew_all(&mut world));
}

/// All end at one time; turns follow until the last is on record.
#[divan::bench(sample_count = 7, sample_size = 1)]
fn expire_a_million(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(MILLION))
        .with_inputs(|| {
            let (mut world, _) = World::holding_for(MILLION, 10_000);
            world.pass_until_end(10_000);
            world
        })
        .bench_local_refs(|world| {
            while world.grantor.active_count() > 0 {
                world.turn();
            }
        });
}

/// The largest memory it took, by a million, is what a lease takes. The driver's own buffers are in it.
#[divan::bench(sample_count = 1, sample_size = 1)]
fn hold_a_million(bencher: Bencher<'_, '_>) {
    let names = names(0..MILLION);
    bencher.counter(ItemsCount::new(MILLION)).bench_local(|| {
        let mut world = World::new();
        for names in names.chunks(TURN) {
            for name in names {
                world.ask(0, Command::Acquire(Acquire::exclusive(name, "worker-1", world::TTL)));
            }
            world.turn();
        }
        world
    });
}
