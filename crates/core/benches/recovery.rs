//! Recovery of a million leases: from a snapshot, from records, and the opening of the next tenure.

mod bench_grantor;

use bench_grantor::{BenchGrantor, MILLION, TURN, at, names, opening};
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use leasehold_core::command::{Acquire, Command};
use leasehold_core::grantor::{RecoveredGrantor, recover};
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::Access;
use leasehold_core::record::{GrantRecord, Record};
use leasehold_core::token::Number;

const SEED: u64 = 7;

fn main() {
    divan::main();
}

#[divan::bench(sample_count = 7, sample_size = 1)]
fn from_a_snapshot(bencher: Bencher<'_, '_>) {
    let snapshot = BenchGrantor::holding(MILLION).0.grantor.snapshot();
    bencher
        .counter(ItemsCount::new(MILLION))
        .counter(BytesCount::new(snapshot.len()))
        .bench_local(|| recover(SEED, Some(&snapshot), []).expect("its own snapshot"));
}

/// A journal without a snapshot: a million grants in batches of 256.
fn batches() -> Vec<Vec<u8>> {
    let mut grantor = RecoveredGrantor::empty(SEED).open(at(0), &opening(1)).expect("a new cluster opens");
    let mut out = Default::default();
    grantor.take_output(&mut out);
    let mut batches = vec![out.batch.clone()];
    grantor.serve(at(0));
    let names = names(0..MILLION);
    for names in names.chunks(TURN) {
        for name in names {
            let acquire = Command::Acquire(Acquire::exclusive(name, "worker-1", bench_grantor::TTL));
            grantor.step(
                at(0),
                &leasehold_core::command::Input::Request(leasehold_core::command::Request::tagged(0), acquire),
            );
        }
        grantor.step(at(0), &leasehold_core::command::Input::Tick);
        grantor.take_output(&mut out);
        batches.push(out.batch.clone());
    }
    batches
}

#[divan::bench(sample_count = 7, sample_size = 1)]
fn from_records(bencher: Bencher<'_, '_>) {
    let batches = batches();
    bencher
        .counter(ItemsCount::new(MILLION))
        .counter(BytesCount::new(batches.iter().map(Vec::len).sum::<usize>()))
        .bench_local(|| recover(SEED, None, batches.iter().map(Vec::as_slice)).expect("its own records"));
}

#[divan::bench(sample_count = 7, sample_size = 1)]
fn take_a_snapshot(bencher: Bencher<'_, '_>) {
    let (bench, _) = BenchGrantor::holding(MILLION);
    bencher.counter(ItemsCount::new(MILLION)).bench_local(|| bench.grantor.snapshot());
}

/// Opens the next tenure: every lease that was renewed in the previous tenure gets a full ttl.
#[divan::bench(sample_count = 7, sample_size = 1)]
fn open_the_next_tenure(bencher: Bencher<'_, '_>) {
    let snapshot = BenchGrantor::holding(MILLION).0.grantor.snapshot();
    bencher
        .counter(ItemsCount::new(MILLION))
        .with_inputs(|| recover(SEED, Some(&snapshot), []).expect("its own snapshot"))
        .bench_local_values(|recovered| recovered.open(at(0), &opening(2)).expect("the same cluster"));
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn encode_grants(bencher: Bencher<'_, '_>) {
    let names = names(0..MILLION);
    let mut batch = Vec::with_capacity(128 << 20);
    bencher.counter(ItemsCount::new(MILLION)).bench_local(|| {
        batch.clear();
        for (slot, name) in names.iter().enumerate() {
            let record = Record::Granted(GrantRecord {
                lease: LeaseId { slot: slot as u32, reuse: 0 },
                number: Number::new(1 << 60 | slot as u64).expect("a number"),
                resource: name,
                session: None,
                owner: None,
                holder: "worker-1",
                access: Access::Exclusive,
                slot: 0,
                ttl: 10_000,
                priority: 100,
                waiter: None,
                overlaps: None,
                max_hold: None,
                progress: None,
                metadata: &[],
            });
            record.encode(divan::black_box(&mut batch));
        }
    });
}
