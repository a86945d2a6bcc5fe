//! The suite that every fence passes, in a real server, by functions and by scripts; and what it finds without a fence.

use leasehold_core::token::Number;
use leasehold_fence::Error;
use leasehold_fence::conformance::{
    Applied, CLUSTER, DURABLE, RACE, SEQUENCES, STRICT, SURVEY, Subject, Writer, check, crashes, name, number, race,
};
use leasehold_fence::redis::Fence;
use redis::aio::MultiplexedConnection;

use crate::daemon::depth;
use crate::server::{Redis, digits, put};

#[tokio::test(flavor = "multi_thread")]
async fn the_functions_pass_the_suite() {
    let held = check(&Redis::durable().await).await.unwrap_or_else(|broken| panic!("{broken}"));
    for wanted in [DURABLE, RACE, SEQUENCES, STRICT, SURVEY] {
        assert!(held.contains(&wanted), "{wanted} is not in {held:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_for_old_servers_passes_the_suite() {
    let scripted = Redis::durable().await.by(Fence::new(CLUSTER, name(), 0).scripted());
    let held = check(&scripted).await.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(held.contains(&DURABLE) && held.contains(&SEQUENCES), "{held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn among_ten_thousand_operations_of_racing_holders_no_token_falls() {
    let redis = Redis::start(&[]).await;
    let raced = race(&redis, 8, 10_000, 1).await.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(raced.operations >= 10_000 && raced.refused > 0, "{raced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_at_random_moments_keeps_mark_and_effect_together() {
    let redis = Redis::durable().await;
    let told = crashes(&redis, depth(2, 10, 100), 7).await.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(told > 0, "nothing was written between the kills");
}

/// The same target with its fence removed: claims are told and raise nothing, writes are not checked.
struct Unfenced(Redis);

struct Open(MultiplexedConnection);

impl Writer for Open {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        Ok(number(digits(token).parse().expect("digits")))
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        Ok(put(digits(token), value).query_async(&mut self.0).await?)
    }
}

impl Subject for Unfenced {
    type Writer = Open;

    async fn fresh(&self) {
        self.0.fresh().await;
    }

    async fn writer(&self) -> Open {
        Open(self.0.connect().await)
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
    let broken = race(&Unfenced(Redis::start(&[]).await), 8, 2_000, 1).await.expect_err("nothing held them back");
    assert_eq!(broken.obligation, RACE);
}
