//! The suite that every fence passes, in a real server; and what it finds without a fence.

use leasehold_core::token::Number;
use leasehold_fence::Error;
use leasehold_fence::conformance::{
    Applied, DURABLE, RACE, SEQUENCES, STRICT, SURVEY, Subject, Writer, check, crashes, number, race, token,
};
use leasehold_fence::etcd::Fence;

use crate::daemon::depth;
use crate::server::{Etcd, put};

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite() {
    let held = check(&Etcd::start().await).await.unwrap_or_else(|broken| panic!("{broken}"));
    for wanted in [DURABLE, RACE, SEQUENCES, STRICT, SURVEY] {
        assert!(held.contains(&wanted), "{wanted} is not in {held:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn among_ten_thousand_operations_of_racing_holders_no_token_falls() {
    let raced = race(&Etcd::start().await, 8, 10_000, 1).await.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(raced.operations >= 10_000 && raced.refused > 0, "{raced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_at_random_moments_keeps_mark_and_effect_together() {
    let etcd = Etcd::start().await;
    let told = crashes(&etcd, depth(2, 10, 100), 7).await.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(told > 0, "nothing was written between the kills");
}

/// The same target with its fence removed: every write goes under a mark of its own.
struct Unfenced(Etcd);

struct Open(Fence);

impl Writer for Open {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        Ok(number(token[57..76].parse().expect("digits")))
    }

    async fn write(&mut self, shown: &str, value: &str) -> Result<(), Error> {
        self.0.write(&token(1), &[put(shown, value)]).await.map(|_| ())
    }
}

impl Subject for Unfenced {
    type Writer = Open;

    async fn fresh(&self) {
        self.0.fresh().await;
    }

    async fn writer(&self) -> Open {
        Open(self.0.fence())
    }

    async fn applied(&self) -> Vec<Applied> {
        self.0.applied().await
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        Ok(Some(Number::MAX))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_race_without_the_fence_corrupts() {
    let broken = race(&Unfenced(Etcd::start().await), 8, 1_000, 1).await.expect_err("nothing held them back");
    assert_eq!(broken.obligation, RACE);
}
