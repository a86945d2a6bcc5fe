//! Conformance suite with a real NATS server, with the fence and with compare-and-swap only.

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use leasehold_core::token::Number;
use leasehold_fence::Error;
use leasehold_fence::conformance::{
    AppliedEntry, DURABLE, FenceWriter, LIST_MARKS, RACE, SEAL_STAYS, SEALED, SEALED_TEXTS, SEQUENCES, STRICT, Subject,
    check, crashes, number, race,
};
use leasehold_fence::nats::{Durability, durability};
use leasehold_testkit::depth::depth;

use crate::server::{NatsServer, SUBJECT, knows_sync_interval};

#[tokio::test(flavor = "multi_thread")]
async fn the_fence_passes_the_conformance_suite() {
    let obligations = check(&NatsServer::start().await).await.unwrap_or_else(|error| panic!("{error}"));
    for obligation in [SEALED_TEXTS, SEALED, SEAL_STAYS, DURABLE, RACE, SEQUENCES, STRICT, LIST_MARKS] {
        assert!(obligations.contains(&obligation), "{obligation} is not in {obligations:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_numbers_never_decrease_in_ten_thousand_concurrent_operations() {
    let report = race(&NatsServer::start().await, 8, 10_000, 1).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.operations >= 10_000 && report.refused > 0, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mark_and_effect_survive_random_kills_of_the_server_together() {
    let nats = NatsServer::start().await;
    let acked = crashes(&nats, depth(2, 10, 100), 7).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(acked > 0, "no write between the kills");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_system_account_can_query_whether_records_are_durable() {
    let nats = NatsServer::start().await;
    let reported = durability(&nats.system().await).await.expect("a reply");
    if knows_sync_interval() {
        assert_eq!(reported, Durability::Durable);
    } else {
        assert!(matches!(reported, Durability::MayBeLost { .. }), "{reported}");
        assert_eq!(reported.require_durable().expect_err("not durable").code(), "CONFIG");
    }
}

/// Compare-and-swap without a fence: after a conflict the writer retries with the new sequence.
struct UnfencedNats(NatsServer);

struct UnfencedWriter(Context);

impl FenceWriter for UnfencedWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        Ok(number(token[57..76].parse().expect("digits")))
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        let mut headers = HeaderMap::new();
        headers.insert("Number", &token[57..76]);
        let sent = self.0.publish_with_headers(SUBJECT, headers, value.to_owned().into()).await;
        sent.expect("sent").await.expect("acknowledged");
        Ok(())
    }
}

impl Subject for UnfencedNats {
    type Writer = UnfencedWriter;

    async fn fresh(&self) {
        self.0.unarmed().await;
    }

    async fn writer(&self) -> UnfencedWriter {
        UnfencedWriter(self.0.jetstream().await)
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        let mut all = Vec::new();
        for message in self.0.records().await {
            let digits = message.headers.get("Number").expect("its number").as_str().parse().expect("digits");
            let value = String::from_utf8(message.payload.to_vec()).expect("text");
            all.push(AppliedEntry { number: number(digits), value });
        }
        all
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        Ok(Some(Number::MAX))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_fence_the_race_breaks_the_order() {
    let error = race(&UnfencedNats(NatsServer::start().await), 8, 1_000, 1).await.expect_err("there is no fence");
    assert_eq!(error.obligation, RACE);
}
