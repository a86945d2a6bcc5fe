//! Marks across restarts, and the durability settings of the server.

use leasehold_fence::conformance::{FenceWriter, Subject, fence_id, number, token};
use leasehold_fence::redis::{Fence, RedisDurability, durability, install};
use leasehold_fence::{Cluster, Error, FenceId, FenceRefusal, Incarnation, MarkLoss};

use crate::server::{GHOST, Redis};

fn is_moved(error: &Error) -> bool {
    matches!(error, Error::Refused(FenceRefusal::MarkLost(MarkLoss::Moved)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_refuses_every_token_until_it_is_resumed() {
    let redis = Redis::durable().await;
    redis.fresh().await;
    redis.writer().await.claim(&token(9)).await.expect("claimed");
    redis.kill_and_start();
    let mut writer = redis.writer().await;
    assert!(is_moved(&writer.claim(&token(9)).await.expect_err("the restarted server is not confirmed")));
    assert!(is_moved(&writer.write(&token(10), "later").await.expect_err("a higher token is refused too")));
    redis.fence.resume(&mut writer.db).await.expect("resumed");
    assert_eq!(writer.write(&token(8), "late").await.expect_err("stale").code(), "STALE_TOKEN");
    writer.write(&token(9), "current").await.expect("admitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_durable_is_detected_and_cannot_be_resumed() {
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "everysec"]).await;
    redis.fresh().await;
    let mut writer = redis.writer().await;
    let durability_now = durability(&mut writer.db).await.expect("read");
    assert_eq!(durability_now.to_string(), "mark: may be lost (appendfsync is everysec, not always)");
    let strict_durability = Fence::new(&fence_id()).require_durable();
    let refused = strict_durability.claim(&mut writer.db, &token(3)).await.expect_err("not durable");
    assert!(matches!(refused, Error::NotDurable { setting: "appendfsync", .. }), "{refused}");
    writer.claim(&token(3)).await.expect("claimed without the requirement");
    assert_eq!(redis.fence.resume(&mut writer.db).await.expect_err("not durable").code(), "CONFIG");

    let redis = Redis::durable().await;
    redis.fresh().await;
    let mut writer = redis.writer().await;
    assert_eq!(durability(&mut writer.db).await.expect("read"), RedisDurability::Durable);
    strict_durability.claim(&mut writer.db, &token(3)).await.expect("durable");
}

#[tokio::test(flavor = "multi_thread")]
async fn install_is_idempotent_and_leaves_a_newer_version_unchanged() {
    let redis = Redis::start(&[]).await;
    let mut db = redis.connect().await;
    install(&mut db).await.expect("again");
    let newer = "#!lua name=leasehold\nredis.register_function('leasehold_version', function() return 4 end)";
    redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(newer).query_async::<()>(&mut db).await.expect("loaded");
    let refused = install(&mut db).await.expect_err("a newer version");
    assert!(matches!(refused, Error::Version { found: 4, supported: 3 }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_of_another_cluster_does_not_change_a_mark() {
    let redis = Redis::durable().await;
    redis.fresh().await;
    let mut writer = redis.writer().await;
    writer.claim(&token(20)).await.expect("claimed");
    let other = FenceId::new(Cluster(*b"another!"), fence_id().resource()).expect("a name");
    let other = Fence::new(&other);
    let db = &mut writer.db;
    for refused in [
        other.arm(db).await,
        other.rearm(db, number(30)).await,
        other.declare_lost(db).await,
        other.strict(db, true).await,
        other.adopt(db, Incarnation(8)).await,
        other.resume(db).await,
        other.seal(db).await,
    ] {
        assert_eq!(refused.expect_err("the mark of another cluster").code(), "WRONG_CLUSTER");
    }
    assert_eq!(redis.mark().await.expect("stored"), Some(number(20)));
    writer.write(&token(20), "current").await.expect("neither lost, strict nor sealed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_with_too_many_words_is_refused_and_changes_nothing() {
    let redis = Redis::durable().await;
    redis.fresh().await;
    let mut writer = redis.writer().await;
    writer.claim(&token(20)).await.expect("claimed");
    let push = |count: usize| {
        let mut push = redis::cmd("RPUSH");
        push.arg(GHOST).arg(vec!["20 x"; count]);
        push
    };
    for count in [7_900, 8_000, 100_000] {
        let refused = redis.fence.write::<()>(&mut writer.db, token(21), &[GHOST], &push(count)).await;
        assert_eq!(refused.expect_err("too many").code(), "INVALID_ARGUMENT", "{count}");
    }
    assert_eq!(redis.mark().await.expect("stored"), Some(number(20)));
    redis
        .fence
        .write::<()>(&mut writer.db, token(20), &[GHOST], &push(7_898))
        .await
        .expect("the most that are allowed");
    assert_eq!(redis.applied().await.len(), 7_898);
}
