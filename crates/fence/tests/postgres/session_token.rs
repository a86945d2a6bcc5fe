//! Session tokens: presented once per session, checked by protected tables for each statement (F3).

use crate::protected_tables::{admit, code, protected};
use crate::support::token;

const WRITE: &str = "INSERT INTO written (number) VALUES (20)";

fn set_token(number: u64) -> String {
    format!("CALL leasehold.set_session_token('{}', 'jobs/settle')", token(number))
}

#[tokio::test]
async fn a_session_with_a_token_writes_plain_statements_until_its_successor_claims() {
    let base = protected().await;
    let other = base.connect().await;
    assert_eq!(code(&base.db, &set_token(20)).await, None);
    for write in [WRITE, "UPDATE written SET number = 20", &format!("BEGIN; {WRITE}; {WRITE}; COMMIT")] {
        assert_eq!(code(&base.db, write).await, None, "{write}");
    }
    assert_eq!(code(&other, WRITE).await.as_deref(), Some("LH002"), "another session has no token");
    base.fence.claim(&other, &token(30)).await.expect("claimed");
    assert_eq!(code(&base.db, WRITE).await.as_deref(), Some("LH001"));
    assert_eq!(code(&base.db, &format!("BEGIN ISOLATION LEVEL SERIALIZABLE; {WRITE}")).await.as_deref(), Some("LH001"));
    assert_eq!(base.written().await, [20; 4]);
    assert_eq!(code(&base.db, &set_token(20)).await.as_deref(), Some("LH001"), "a stale token cannot be set");
    assert_eq!(
        code(&base.db, &format!("BEGIN; {}; {WRITE}; COMMIT", admit(30))).await,
        None,
        "admitted with another token"
    );
    assert_eq!(code(&base.db, WRITE).await.as_deref(), Some("LH001"), "the session token is still stale");
}

#[tokio::test]
async fn a_snapshot_older_than_the_claim_is_refused() {
    let base = protected().await;
    let other = base.connect().await;
    for (level, number) in [("READ COMMITTED", 30), ("REPEATABLE READ", 40), ("SERIALIZABLE", 50)] {
        base.db.batch_execute(&set_token(number)).await.expect("set");
        base.db.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT * FROM written")).await.expect("begun");
        base.fence.claim(&other, &token(number + 1)).await.expect("claimed");
        let refused = code(&base.db, WRITE).await;
        assert!(matches!(refused.as_deref(), Some("LH001" | "40001")), "{level}: {refused:?}");
    }
}

#[tokio::test]
async fn a_cleared_or_discarded_token_admits_no_write() {
    let base = protected().await;
    for clear in ["SELECT leasehold.clear_session_token('jobs/settle')", "DISCARD ALL", "RESET ALL"] {
        assert_eq!(code(&base.db, &set_token(20)).await, None);
        assert_eq!(code(&base.db, WRITE).await, None, "{clear}");
        base.db.batch_execute(clear).await.expect("done");
        assert_eq!(code(&base.db, WRITE).await.as_deref(), Some("LH002"), "{clear}");
    }
    assert_eq!(
        code(&base.db, &format!("BEGIN; {}", set_token(20))).await.as_deref(),
        Some("2D000"),
        "not in a transaction"
    );
    assert_eq!(code(&base.db, WRITE).await.as_deref(), Some("LH002"));
}

#[tokio::test]
async fn an_idle_transaction_of_a_session_with_a_token_ends_after_the_remaining_time() {
    let base = protected().await;
    let other = base.connect().await;
    base.fence.set_session_token(&base.db, &token(20), std::time::Duration::from_millis(700)).await.expect("set");
    base.db.batch_execute(&format!("BEGIN; {WRITE}")).await.expect("begun");
    base.fence.claim(&other, &token(30)).await.expect("the server ended the idle transaction within the claim timeout");
    base.db.batch_execute("COMMIT").await.expect_err("ended by the server");
    assert_eq!(base.written().await, [20]);
}

#[tokio::test]
async fn a_role_that_may_only_write_can_set_a_session_token() {
    let base = protected().await;
    let sql = "CREATE ROLE writer; GRANT USAGE ON SCHEMA leasehold TO writer;
      GRANT INSERT ON written TO writer; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO writer; SET ROLE writer";
    base.db.batch_execute(sql).await.expect("a role");
    assert_eq!(code(&base.db, WRITE).await.as_deref(), Some("LH002"));
    assert_eq!(code(&base.db, &set_token(20)).await, None);
    assert_eq!(code(&base.db, WRITE).await, None);
}

#[tokio::test]
async fn setting_a_session_token_caches_it() {
    let base = protected().await;
    let sql = "SELECT pg_sequence_last_value(('leasehold.token_cache_' || (leasehold.lock_key('jobs/settle', 0) & 63))::regclass)";
    let cached = async || base.db.query_one(sql, &[]).await.expect("read").get::<_, i64>(0);
    base.fence.claim(&base.db, &token(30)).await.expect("claimed");
    assert_eq!(cached().await, 0, "the claim cleared the cache");
    assert_eq!(code(&base.db, &set_token(30)).await, None);
    assert_ne!(cached().await, 0);
}
