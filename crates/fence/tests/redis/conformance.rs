//! The conformance suite against a real server, with functions and with scripts, and a race without a fence.

use leasehold_core::token::Number;
use leasehold_fence::Error;
use leasehold_fence::conformance::{
    AppliedEntry, DURABLE, FenceWriter, LIST_MARKS, RACE, SEAL_STAYS, SEALED, SEALED_TEXTS, SEQUENCES, STRICT, Subject,
    check, crashes, fence_id, number, race,
};
use leasehold_fence::redis::Fence;
use leasehold_testkit::depth::depth;
use redis::aio::MultiplexedConnection;

use crate::server::{Redis, digits, put};

#[tokio::test(flavor = "multi_thread")]
async fn the_functions_conform() {
    let satisfied = check(&Redis::durable().await).await.unwrap_or_else(|violation| panic!("{violation}"));
    for obligation in [SEALED_TEXTS, SEALED, SEAL_STAYS, DURABLE, RACE, SEQUENCES, STRICT, LIST_MARKS] {
        assert!(satisfied.contains(&obligation), "{obligation} is not in {satisfied:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_conforms() {
    let target = Redis::durable().await.with_fence(Fence::new(&fence_id()).use_script());
    let satisfied = check(&target).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(satisfied.contains(&DURABLE) && satisfied.contains(&SEQUENCES), "{satisfied:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn applied_tokens_never_fall_in_a_race_of_ten_thousand_operations() {
    let redis = Redis::start(&[]).await;
    let raced = race(&redis, 8, 10_000, 1).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(raced.operations >= 10_000 && raced.refused > 0, "{raced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mark_and_write_survive_kill_9_of_the_server_together() {
    let redis = Redis::durable().await;
    let acknowledged = crashes(&redis, depth(2, 10, 100), 7).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(acknowledged > 0, "nothing was written between the kills");
}

/// The same target without its fence: claims do not raise a mark and writes are not checked.
struct Unfenced(Redis);

struct UnfencedWriter(MultiplexedConnection);

impl FenceWriter for UnfencedWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        Ok(number(digits(token).parse().expect("digits")))
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        Ok(put(digits(token), value).query_async(&mut self.0).await?)
    }
}

impl Subject for Unfenced {
    type Writer = UnfencedWriter;

    async fn fresh(&self) {
        self.0.fresh().await;
    }

    async fn writer(&self) -> UnfencedWriter {
        UnfencedWriter(self.0.connect().await)
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        self.0.applied().await
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        Ok(Some(Number::MAX))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn applied_tokens_fall_in_a_race_without_the_fence() {
    let violation = race(&Unfenced(Redis::start(&[]).await), 8, 2_000, 1).await.expect_err("stale writes are applied");
    assert_eq!(violation.obligation, RACE);
}
