//! The Lua functions as called from other languages: the server checks everything that the Rust code checks.

use leasehold_fence::ApplyOnce;
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
    for command in [redis::cmd("FLUSHALL"), redis::cmd("flushdb"), redis::cmd("SwapDB").arg(0).arg(1).clone()] {
        let refused = fence.write::<()>(db, &token(6), &[GHOST], &command).await;
        assert_eq!(refused.expect_err("it would remove the mark").code(), "INVALID_ARGUMENT");
    }
    assert_eq!(fence.mark(db).await.expect("read").map(|mark| mark.get()), Some(6));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sequence_of_a_failed_command_is_not_used_and_a_retry_is_applied_once() {
    let redis = Redis::start(&[]).await;
    redis.fresh().await;
    for use_script in [false, true] {
        let fence = if use_script { redis.fence.clone().use_script() } else { redis.fence.clone() };
        let db = &mut redis.connect().await;
        let number = if use_script { 6 } else { 5 };
        let key = "{conformance/target}:queue";
        redis::cmd("SET").arg(key).arg("not a list").query_async::<()>(db).await.expect("set");
        let push = redis::cmd("RPUSH").arg(key).arg("paid").clone();
        for _ in 0..2 {
            let failed = fence.write_once(db, &token(number), 17, &[key], &push).await;
            assert_eq!(failed.expect_err("not a list").code(), "STORAGE_FAILED");
        }
        redis::cmd("DEL").arg(key).query_async::<()>(db).await.expect("deleted");
        let applied = fence.write_once(db, &token(number), 17, &[key], &push).await;
        assert_eq!(applied.expect("applied"), ApplyOnce::Applied);
        let again = fence.write_once(db, &token(number), 17, &[key], &push).await;
        assert_eq!(again.expect("a duplicate"), ApplyOnce::AlreadyApplied { last: 17 });
        let length: u64 = redis::cmd("LLEN").arg(key).query_async(db).await.expect("read");
        assert_eq!(length, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_arguments_are_refused_and_leave_the_mark_unchanged() {
    let redis = Redis::start(&[]).await;
    redis.fresh().await;
    let mut writer = redis.writer().await;
    writer.write_once(&token(5), 7, "first").await.expect("applied");
    let (key, db, token) = (redis.fence.key().to_owned(), &mut redis.connect().await, token(5));
    let mark: String = redis::cmd("GET").arg(&key).query_async(db).await.expect("read");
    let push = ["RPUSH", GHOST, "5 invalid"];
    let long = "9".repeat(21);
    for sequence in [
        "8",
        "abc",
        "0000000000000000008 ",
        " 0000000000000000008",
        "-0000000000000000008",
        "18446744073709551616",
        &long,
    ] {
        let mut call = redis::cmd("FCALL");
        call.arg("leasehold_write").arg(2).arg(&key).arg(GHOST).arg(&token).arg(sequence).arg(push.as_slice());
        let refused = call.query_async::<redis::Value>(db).await.expect_err(sequence);
        assert_eq!(refused.code(), Some("INVALID_ARGUMENT"), "{refused}");
        assert!(refused.detail().is_some_and(|detail| detail.contains("field=sequence")), "{refused}");
    }
    let calls: [(&str, &[&str]); 12] = [
        ("write", &[&token]),
        ("write", &[&token, ""]),
        ("rearm", &[]),
        ("rearm", &["6"]),
        ("rearm", &["0000000000000000000"]),
        ("rearm", &["9999999999999999999"]),
        ("rearm", &["00000000000000000x9"]),
        ("update", &[]),
        ("update", &["other"]),
        ("update", &["adopt"]),
        ("update", &["adopt", "1"]),
        ("arm", &["x", "y", "z", "name", "0"]),
    ];
    for (operation, arguments) in calls {
        let mut call = redis::cmd("FCALL");
        call.arg(format!("leasehold_{operation}")).arg(1).arg(&key).arg(arguments);
        let refused = call.query_async::<redis::Value>(db).await.expect_err(operation);
        assert_eq!(refused.code(), Some("INVALID_ARGUMENT"), "{operation} {arguments:?}: {refused}");
    }
    for operation in ["write", "claim"] {
        let mut call = redis::cmd("FCALL");
        call.arg(format!("leasehold_{operation}")).arg(0).arg(&token).arg("").arg(push.as_slice());
        let refused = call.query_async::<redis::Value>(db).await.expect_err(operation);
        assert_eq!(refused.code(), Some("INVALID_ARGUMENT"), "{operation} without a key: {refused}");
    }
    assert_eq!(redis::cmd("GET").arg(&key).query_async::<String>(db).await.expect("read"), mark);
    assert_eq!(redis.applied().await.len(), 1);
}
