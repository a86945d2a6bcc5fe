//! The rules as other languages call them: everything that the Rust side checks, the server checks too.

use leasehold_fence::conformance::{Subject, Writer, token};
use redis::RedisError;
use redis::aio::MultiplexedConnection;

use crate::server::{GHOST, Redis, Way};
use crate::support;

async fn call(db: &mut MultiplexedConnection, way: &Way, verb: &str, token: &str) -> Result<String, RedisError> {
    let mut call = redis::cmd("FCALL");
    call.arg(format!("leasehold_{verb}"));
    if verb == "claim" {
        call.arg(1).arg(way.fence.key()).arg(token);
    } else {
        call.arg(2).arg(way.fence.key()).arg(GHOST).arg(token).arg("").arg(["RPUSH", GHOST, "1 by mistake"].as_slice());
    }
    call.query_async(db).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shown_by_mistake_is_refused_by_the_server_itself_with_its_code_and_word() {
    let redis = Redis::start(&[]).await.by(leasehold_fence::redis::Fence::new(support::CLUSTER, support::name(), 0));
    redis.fresh().await;
    let mut way = redis.writer().await;
    way.claim(&support::token(40)).await.expect("claimed");
    let mut db = redis.connect().await;
    for (shown, code, why) in crate::mistakes::mistakes() {
        for verb in ["claim", "write"] {
            let refused = call(&mut db, &way, verb, &shown).await.expect_err(&shown);
            assert_eq!(refused.code(), Some(code), "{verb} {shown}: {refused}");
            let detail = refused.detail().unwrap_or_default();
            assert!(detail.contains(why) || code == "TOKEN_IMPLAUSIBLE" || why == "version", "{shown}: {detail}");
        }
    }
    let stale = call(&mut db, &way, "write", &support::token(39)).await.expect_err("stale");
    assert_eq!(stale.code(), Some("STALE_TOKEN"));
    assert_eq!(stale.detail(), Some("presented=0000000000000000039 mark=0000000000000000040"));
    assert!(redis.applied().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_a_double_cannot_tell_apart_are_told_apart() {
    let redis = Redis::start(&[]).await;
    redis.fresh().await;
    let mut way = redis.writer().await;
    // Above 2^53, and still a number of today.
    let high = 240_000_000_000_000_001_u64;
    assert_eq!(high as f64, (high - 1) as f64, "a double cannot");
    way.claim(&token(high)).await.expect("claimed");
    let refused = way.write(&token(high - 1), "late").await.expect_err("one below");
    assert_eq!(refused.code(), "STALE_TOKEN");
    way.write(&token(high), "current").await.expect("the current one passes");
    assert_eq!(redis.applied().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_fails_leaves_the_mark_raised_and_a_command_on_the_mark_is_refused() {
    let redis = Redis::start(&[]).await;
    redis.fresh().await;
    let mut way = redis.writer().await;
    let (fence, db) = (&way.fence, &mut way.db);
    fence.write::<()>(db, &token(5), &[GHOST], redis::cmd("INCR").arg(GHOST)).await.expect("it counts");
    let failed = fence.write::<()>(db, &token(6), &[GHOST], redis::cmd("RPUSH").arg(GHOST).arg("x")).await;
    assert_eq!(failed.expect_err("a number is no list").code(), "STORAGE_FAILED");
    assert_eq!(fence.mark(db).await.expect("there").map(|mark| mark.get()), Some(6));
    let key = fence.key().to_owned();
    let refused = fence.write::<()>(db, &token(6), &[&key], redis::cmd("DEL").arg(&key)).await;
    assert_eq!(refused.expect_err("only the fence writes there").code(), "INVALID_ARGUMENT");
    assert_eq!(fence.mark(db).await.expect("there").map(|mark| mark.get()), Some(6));
}
