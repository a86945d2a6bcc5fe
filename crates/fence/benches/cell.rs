//! Cost of a fenced write, compared with a mutex.

use std::hint::black_box;
use std::sync::Mutex;

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};
use leasehold_fence::FenceId;
use leasehold_fence::cell::FencedCell;

const CLUSTER: Cluster = Cluster(*b"benching");

fn main() {
    // `cargo test` only checks that the benchmark starts.
    if std::env::args().any(|arg| arg == "--bench") {
        divan::main();
    }
}

fn cell() -> (FencedCell<u64>, String) {
    let id = FenceId::new(CLUSTER, "jobs/settle").expect("a name");
    let resource = resource_hash(id.resource());
    let (incarnation, scope, number) = (Incarnation(1), TokenScope::Slot(0), Number::FIRST);
    let token = Token { cluster: CLUSTER, incarnation, resource, scope, number };
    (FencedCell::new(&id, 0), token.to_string())
}

#[divan::bench]
fn mutex(bencher: divan::Bencher<'_, '_>) {
    let value = Mutex::new(0_u64);
    bencher.bench_local(|| *value.lock().expect("not poisoned") += black_box(1));
}

#[divan::bench]
fn fenced_write_with_verified_token(bencher: divan::Bencher<'_, '_>) {
    let (cell, token) = cell();
    let token = cell.verify(&token).expect("a token");
    bencher.bench_local(|| cell.write(black_box(&token), |value| *value += black_box(1)).expect("current"));
}

#[divan::bench]
fn fenced_write_with_token_text(bencher: divan::Bencher<'_, '_>) {
    let (cell, token) = cell();
    bencher.bench_local(|| cell.write(black_box(&token), |value| *value += black_box(1)).expect("current"));
}
