//! Marks over restarts, failovers and settings: what could have been forgotten refuses.

use leasehold_fence::conformance::{CLUSTER, Subject, Writer, name, token};
use leasehold_fence::redis::{Durability, Fence, durability, install};
use leasehold_fence::{Error, Lost, Refusal};

use crate::server::Redis;

fn moved(error: &Error) -> bool {
    matches!(error, Error::Refused(Refusal::Lost(Lost::Moved)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_started_again_refuses_until_it_is_resumed_and_goes_on_at_its_mark() {
    let redis = Redis::durable().await;
    redis.fresh().await;
    redis.writer().await.claim(&token(9)).await.expect("claimed");
    redis.kill_and_start();
    let mut way = redis.writer().await;
    assert!(moved(&way.claim(&token(9)).await.expect_err("nobody said which server this is")));
    assert!(moved(&way.write(&token(10), "later").await.expect_err("nor for a later one")));
    redis.fence.resume(&mut way.db).await.expect("it is the same, on its own disk");
    assert_eq!(way.write(&token(8), "late").await.expect_err("stale").code(), "STALE_TOKEN");
    way.write(&token(9), "current").await.expect("it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_forget_is_told_apart_refused_where_asked_and_never_resumed() {
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "everysec"]).await;
    redis.fresh().await;
    let mut way = redis.writer().await;
    let told = durability(&mut way.db).await.expect("told");
    assert_eq!(told.to_string(), "mark: may be lost (appendfsync is everysec, not always)");
    let careful = Fence::new(CLUSTER, name(), 0).require_durable();
    let refused = careful.claim(&mut way.db, &token(3)).await.expect_err("it may forget");
    assert!(matches!(refused, Error::NotDurable { setting: "appendfsync", .. }), "{refused}");
    way.claim(&token(3)).await.expect("who does not ask gets what there is");
    assert_eq!(redis.fence.resume(&mut way.db).await.expect_err("not here").code(), "CONFIG");

    let redis = Redis::durable().await;
    redis.fresh().await;
    let mut way = redis.writer().await;
    assert_eq!(durability(&mut way.db).await.expect("told"), Durability::Durable);
    careful.claim(&mut way.db, &token(3)).await.expect("it keeps it");
}

#[tokio::test(flavor = "multi_thread")]
async fn installing_again_changes_nothing_and_a_newer_version_is_left_alone() {
    let redis = Redis::start(&[]).await;
    let mut db = redis.connect().await;
    install(&mut db).await.expect("again");
    let newer = "#!lua name=leasehold\nredis.register_function('leasehold_version', function() return 2 end)";
    redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(newer).query_async::<()>(&mut db).await.expect("loaded");
    let refused = install(&mut db).await.expect_err("it is newer");
    assert!(matches!(refused, Error::Version { have: 2, want: 1 }), "{refused}");
}
