//! Cost of a fenced write, compared with a mutex.

use std::hint::black_box;
use std::sync::Mutex;

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};
use leasehold_fence::cell::FencedCell;
use leasehold_fence::{FenceId, SealKeys, SealVerifier};
use leasehold_seal::SealKey;

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

fn sealed_cell() -> (FencedCell<u64>, Vec<String>) {
    let (id, key) = (FenceId::new(CLUSTER, "jobs/settle").expect("a name"), SealKey::generate(0).expect("a key"));
    let (resource, incarnation, scope) = (resource_hash(id.resource()), Incarnation(1), TokenScope::Slot(0));
    let token = |number| {
        let number = Number::new(number).expect("a number");
        key.seal(&Token { cluster: CLUSTER, incarnation, resource, scope, number }, id.resource()).to_string()
    };
    let verifier = SealVerifier::new(SealKeys::new([key.public()]).expect("one key"));
    // More texts than a verifier remembers.
    (FencedCell::new(&id, 0).with_seal_verifier(&verifier), (1..=64).map(token).collect())
}

/// Every text is new to the verifier: the cost of one Ed25519 verification.
#[divan::bench]
fn sealed_token_seen_for_the_first_time(bencher: divan::Bencher<'_, '_>) {
    let (cell, texts) = sealed_cell();
    let mut next = texts.iter().cycle();
    bencher.bench_local(|| cell.verify(black_box(next.next().expect("a cycle"))).expect("sealed"));
}

#[divan::bench]
fn sealed_write_with_token_text_seen_before(bencher: divan::Bencher<'_, '_>) {
    let (cell, texts) = sealed_cell();
    bencher.bench_local(|| cell.write(black_box(&texts[0]), |value| *value += black_box(1)).expect("current"));
}

#[divan::bench]
fn sealed_write_with_verified_token(bencher: divan::Bencher<'_, '_>) {
    let (cell, texts) = sealed_cell();
    let token = cell.verify(&texts[0]).expect("sealed");
    bencher.bench_local(|| cell.write(black_box(&token), |value| *value += black_box(1)).expect("current"));
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
