//! Time to sign and to verify one sealed token.

use divan::{Bencher, black_box};
use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Incarnation, Number, TokenScope};
use leasehold_seal::{SealKey, SealKeys, SealedToken, Token, verify_at};

fn main() {
    divan::main();
}

const NAME: &str = "db/orders";

fn token() -> Token {
    Token {
        cluster: Cluster([7; 8]),
        incarnation: Incarnation(1),
        resource: resource_hash(NAME),
        scope: TokenScope::Slot(0),
        number: Number::FIRST,
    }
}

/// Signs a token and prints its text: what a server does for a grant.
#[divan::bench]
fn sign_and_print(bencher: Bencher<'_, '_>) {
    let (key, token) = (SealKey::generate(0).expect("a key"), token());
    bencher.bench_local(|| key.seal(black_box(&token), NAME).to_string());
}

/// Parses a text and verifies it: what a fence does with a token that it has not seen.
#[divan::bench]
fn parse_and_verify(bencher: Bencher<'_, '_>) {
    let key = SealKey::generate(0).expect("a key");
    let (keys, text) = (SealKeys::new([key.public()]).expect("a set"), key.seal(&token(), NAME).to_string());
    bencher.bench_local(|| verify_at(&keys, black_box(&text), NAME, 1).expect("it verifies"));
}

/// Parses a text without verifying it.
#[divan::bench]
fn parse_only(bencher: Bencher<'_, '_>) {
    let text = SealKey::generate(0).expect("a key").seal(&token(), NAME).to_string();
    bencher.bench_local(|| SealedToken::parse(black_box(&text)).expect("it parses"));
}
