//! What a fenced write costs the threads of one process, beside a bare mutex.

use std::hint::black_box;
use std::sync::Mutex;

use leasehold_core::name::{Name, resource_hash};
use leasehold_core::token::{Cluster, Incarnation, Number, Reach, Token};
use leasehold_fence::cell::Fenced;

const CLUSTER: Cluster = Cluster(*b"benching");

fn main() {
    // Under `cargo test` a bench binary is only asked whether it starts.
    if std::env::args().any(|arg| arg == "--bench") {
        divan::main();
    }
}

fn cell() -> (Fenced<u64>, String) {
    let name = Name::parse("jobs/settle").expect("a name");
    let resource = resource_hash(name.as_str());
    let (incarnation, reach, number) = (Incarnation(1), Reach::Slot(0), Number::FIRST);
    let token = Token { cluster: CLUSTER, incarnation, resource, reach, number };
    (Fenced::new(CLUSTER, name, 0, 0), token.to_string())
}

#[divan::bench]
fn a_bare_mutex(bencher: divan::Bencher<'_, '_>) {
    let value = Mutex::new(0_u64);
    bencher.bench_local(|| *value.lock().expect("nobody panics here") += black_box(1));
}

#[divan::bench]
fn a_fenced_write_with_a_checked_token(bencher: divan::Bencher<'_, '_>) {
    let (cell, token) = cell();
    let token = cell.check(&token).expect("a token");
    bencher.bench_local(|| cell.write(black_box(&token), |value| *value += black_box(1)).expect("current"));
}

#[divan::bench]
fn a_fenced_write_with_the_tokens_text(bencher: divan::Bencher<'_, '_>) {
    let (cell, token) = cell();
    bencher.bench_local(|| cell.write(black_box(&token), |value| *value += black_box(1)).expect("current"));
}
