//! Time to make and to verify secrets of leases and sessions.
//!
//! `cargo bench -p leasehold-server --bench secrets`

use std::hint::black_box;
use std::time::{Duration, Instant};

use leasehold_core::secret::{SecretDigest, SessionSecret};
use leasehold_core::token::{Cluster, Incarnation, Number};
use leasehold_server::keys::ClusterKey;
use leasehold_wire::TokenIssuer;

const EACH: Duration = Duration::from_millis(500);
const ROUNDS: usize = 3;

fn main() {
    // `cargo test` only starts the binary.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let key = ClusterKey::random();
    let issuer = TokenIssuer { cluster: Cluster(*b"cluster1"), incarnation: Incarnation(1) };
    let number = Number::new(1 << 40).expect("a number");
    let long = "segment/".repeat(30) + "end";
    for name in ["jobs/settle", &long] {
        let secret = key.lease_secret(&issuer, number, name);
        report(&format!("make a lease secret, name of {} bytes", name.len()), || {
            black_box(key.lease_secret(black_box(&issuer), number, black_box(name)));
        });
        report(&format!("verify a lease secret, name of {} bytes", name.len()), || {
            assert!(black_box(key.verify_lease(black_box(&secret), &issuer, number, black_box(name))));
        });
    }
    let secret = SessionSecret::new([7; 32]);
    let stored = SecretDigest::stored(secret.digest().bytes());
    report("digest and compare a session secret", || {
        assert!(black_box(&secret).digest() == black_box(stored));
    });
    let hex = secret.expose_hex();
    report("parse a session secret", || {
        black_box(SessionSecret::parse_hex(black_box(&hex)));
    });
}

/// Prints the mean of the best of several rounds: machines are noisy.
fn report(what: &str, work: impl Fn()) {
    let best = (0..ROUNDS).map(|_| mean(&work)).fold(f64::INFINITY, f64::min);
    println!("{best:>8.0} ns  {what}");
}

fn mean(work: &impl Fn()) -> f64 {
    let (started, mut done) = (Instant::now(), 0_u32);
    while started.elapsed() < EACH {
        (0..1_000).for_each(|_| work());
        done += 1_000;
    }
    started.elapsed().as_nanos() as f64 / f64::from(done)
}
