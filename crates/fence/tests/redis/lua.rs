//! The Lua functions as called from other languages: the server checks everything that the Rust code checks.

use leasehold_fence::conformance::{FenceWriter, Subject, token};
use redis::RedisError;
use redis::aio::MultiplexedConnection;

use crate::server::{GHOST, Redis, RedisWriter};
use crate::support;

async fn call(
    db: &mut MultiplexedConnection,
    writer: &RedisWriter,
    operation: &str,
    token: &str,
) -> Result<String, RedisError> {
    let mut call = redis::cmd("FCALL");
    call.arg(format!("leasehold_{operation}"));
    if operation == "claim" {
        call.arg(1).arg(writer.fence.key()).arg(token);
    } else {
        call.arg(2).arg(writer.fence.key()).arg(GHOST).arg(token).arg("").arg(["RPUSH", GHOST, "1 invalid"].as_slice());
    }
    call.query_async(db).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_refuses_invalid_tokens_with_code_and_reason() {
    let redis = Redis::start(&[]).await.with_fence(leasehold_fence::redis::Fence::new(&support::fence_id()));
    redis.fresh().await;
    let mut writer = redis.writer().await;
    writer.claim(&support::token(40)).await.expect("claimed");
    let mut db = redis.connect().await;
    for (token, code, reason) in crate::invalid_tokens::mistakes() {
        for operation in ["claim", "write"] {
            let refused = call(&mut db, &writer, operation, &token).await.expect_err(&token);
            assert_eq!(refused.code(), Some(code), "{operation} {token}: {refused}");
            let detail = refused.detail().unwrap_or_default();
            assert!(detail.contains(reason) || code == "TOKEN_IMPLAUSIBLE" || reason == "version", "{token}: {detail}");
        }
    }
    let stale = call(&mut db, &writer, "write", &support::token(39)).await.expect_err("stale");
    assert_eq!(stale.code(), Some("STALE_TOKEN"));
    assert_eq!(
        stale.detail(),
        Some("presented=0000000000000000039 mark=0000000000000000040 (a later holder has claimed; stop)")
    );
    assert!(redis.applied().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_above_the_precision_of_a_double_are_compared_exactly() {
    let redis = Redis::start(&[]).await;
    redis.fresh().await;
    let mut writer = redis.writer().await;
    // Above 2^53, and plausible today.
    let high = 240_000_000_000_000_001_u64;
    assert_eq!(high as f64, (high - 1) as f64, "equal as doubles");
    writer.claim(&token(high)).await.expect("claimed");
    let refused = writer.write(&token(high - 1), "late").await.expect_err("one below");
    assert_eq!(refused.code(), "STALE_TOKEN");
    writer.write(&token(high), "current").await.expect("admitted");
    assert_eq!(redis.applied().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_command_leaves_the_mark_raised_and_a_command_on_the_mark_is_refused() {
    let redis = Redis::start(&[]).await;
    redis.fresh().await;
    let mut writer = redis.writer().await;
    let (fence, db) = (&writer.fence, &mut writer.db);
    fence.write::<()>(db, &token(5), &[GHOST], redis::cmd("INCR").arg(GHOST)).await.expect("incremented");
    let failed = fence.write::<()>(db, &token(6), &[GHOST], redis::cmd("RPUSH").arg(GHOST).arg("x")).await;
    assert_eq!(failed.expect_err("not a list").code(), "STORAGE_FAILED");
    assert_eq!(fence.mark(db).await.expect("read").map(|mark| mark.get()), Some(6));
    let key = fence.key().to_owned();
    let refused = fence.write::<()>(db, &token(6), &[&key], redis::cmd("DEL").arg(&key)).await;
    assert_eq!(refused.expect_err("only the fence may write the mark").code(), "INVALID_ARGUMENT");
    assert_eq!(fence.mark(db).await.expect("read").map(|mark| mark.get()), Some(6));
}
