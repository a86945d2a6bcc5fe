//! The suite that every fence passes, in a real server; and what it finds where expecting a sequence is all there is.

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use leasehold_core::token::Number;
use leasehold_fence::Error;
use leasehold_fence::conformance::{
    Applied, DURABLE, RACE, SEQUENCES, STRICT, SURVEY, Subject, Writer, check, crashes, number, race,
};
use leasehold_fence::nats::{Durability, durability};

use crate::daemon::depth;
use crate::server::{Nats, SUBJECT, knows_sync_interval};

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite() {
    let held = check(&Nats::start().await).await.unwrap_or_else(|broken| panic!("{broken}"));
    for wanted in [DURABLE, RACE, SEQUENCES, STRICT, SURVEY] {
        assert!(held.contains(&wanted), "{wanted} is not in {held:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn among_ten_thousand_operations_of_racing_holders_no_token_falls() {
    let raced = race(&Nats::start().await, 8, 10_000, 1).await.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(raced.operations >= 10_000 && raced.refused > 0, "{raced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_at_random_moments_keeps_mark_and_effect_together() {
    let nats = Nats::start().await;
    let told = crashes(&nats, depth(2, 10, 100), 7).await.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(told > 0, "nothing was written between the kills");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_tells_its_system_account_whether_it_syncs_what_it_acknowledges() {
    let nats = Nats::start().await;
    let told = durability(&nats.system().await).await.expect("told");
    if knows_sync_interval() {
        assert_eq!(told, Durability::Durable);
    } else {
        assert!(matches!(told, Durability::MayBeLost { .. }), "{told}");
        assert_eq!(told.required().expect_err("it may forget").code(), "CONFIG");
    }
}

/// Compare-and-swap without a fence: after a conflict the sequence it was told is simply tried again.
struct Swapping(Nats);

struct Open(Context);

impl Writer for Open {
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

impl Subject for Swapping {
    type Writer = Open;

    async fn fresh(&self) {
        self.0.unarmed().await;
    }

    async fn writer(&self) -> Open {
        Open(self.0.jetstream().await)
    }

    async fn applied(&self) -> Vec<Applied> {
        let mut all = Vec::new();
        for message in self.0.records().await {
            let shown = message.headers.get("Number").expect("its number").as_str().parse().expect("digits");
            let value = String::from_utf8(message.payload.to_vec()).expect("text");
            all.push(Applied { number: number(shown), value });
        }
        all
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        Ok(Some(Number::MAX))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_race_without_the_fence_corrupts() {
    let broken = race(&Swapping(Nats::start().await), 8, 1_000, 1).await.expect_err("nothing held them back");
    assert_eq!(broken.obligation, RACE);
}
