//! Conformance suite with a real etcd server, with and without the fence.

use leasehold_core::token::Number;
use leasehold_fence::Error;
use leasehold_fence::conformance::{
    AppliedEntry, DURABLE, FenceWriter, LIST_MARKS, RACE, SEAL_STAYS, SEALED, SEALED_TEXTS, SEQUENCES, STRICT, Subject,
    check, crashes, number, race, token,
};
use leasehold_fence::etcd::Fence;
use leasehold_testkit::depth::depth;

use crate::server::{EtcdServer, put};

#[tokio::test(flavor = "multi_thread")]
async fn the_fence_passes_the_conformance_suite() {
    let obligations = check(&EtcdServer::start().await).await.unwrap_or_else(|error| panic!("{error}"));
    for obligation in [SEALED_TEXTS, SEALED, SEAL_STAYS, DURABLE, RACE, SEQUENCES, STRICT, LIST_MARKS] {
        assert!(obligations.contains(&obligation), "{obligation} is not in {obligations:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_numbers_never_decrease_in_ten_thousand_concurrent_operations() {
    let report = race(&EtcdServer::start().await, 8, 10_000, 1).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.operations >= 10_000 && report.refused > 0, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mark_and_effect_survive_random_kills_of_the_server_together() {
    let etcd = EtcdServer::start().await;
    let acked = crashes(&etcd, depth(2, 10, 100), 7).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(acked > 0, "no write between the kills");
}

/// The same target without its fence: all writes present the same token.
struct UnfencedEtcd(EtcdServer);

struct UnfencedWriter(Fence);

impl FenceWriter for UnfencedWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        Ok(number(token[57..76].parse().expect("digits")))
    }

    async fn write(&mut self, token_text: &str, value: &str) -> Result<(), Error> {
        self.0.write(&token(1), &[put(token_text, value)]).await.map(|_| ())
    }
}

impl Subject for UnfencedEtcd {
    type Writer = UnfencedWriter;

    async fn fresh(&self) {
        self.0.fresh().await;
    }

    async fn writer(&self) -> UnfencedWriter {
        UnfencedWriter(self.0.fence())
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        self.0.applied().await
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        Ok(Some(Number::MAX))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_fence_the_race_breaks_the_order() {
    let error = race(&UnfencedEtcd(EtcdServer::start().await), 8, 1_000, 1).await.expect_err("there is no fence");
    assert_eq!(error.obligation, RACE);
}
