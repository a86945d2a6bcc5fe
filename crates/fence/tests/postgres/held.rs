//! A token that a session shows once: protected tables check each of its statements, and none carries a token (F3).

use crate::forced::{admit, code, protected};
use crate::support::token;

const WRITE: &str = "INSERT INTO written (number) VALUES (20)";

fn hold(number: u64) -> String {
    format!("CALL leasehold.hold('{}', 'jobs/settle')", token(number))
}

#[tokio::test]
async fn a_session_that_holds_writes_plain_statements_until_its_successor_claims() {
    let base = protected().await;
    let other = base.connect().await;
    assert_eq!(code(&base.db, &hold(20)).await, None);
    for write in [WRITE, "UPDATE written SET number = 20", &format!("BEGIN; {WRITE}; {WRITE}; COMMIT")] {
        assert_eq!(code(&base.db, write).await, None, "{write}");
    }
    assert_eq!(code(&other, WRITE).await.as_deref(), Some("LH002"), "what one session holds is nothing to another");
    base.fence.claim(&other, &token(30)).await.expect("claimed");
    assert_eq!(code(&base.db, WRITE).await.as_deref(), Some("LH001"));
    assert_eq!(code(&base.db, &format!("BEGIN ISOLATION LEVEL SERIALIZABLE; {WRITE}")).await.as_deref(), Some("LH001"));
    assert_eq!(base.written().await, [20; 4]);
    assert_eq!(code(&base.db, &hold(20)).await.as_deref(), Some("LH001"), "and it cannot hold again");
    assert_eq!(
        code(&base.db, &format!("BEGIN; {}; {WRITE}; COMMIT", admit(30))).await,
        None,
        "one transaction of another's"
    );
    assert_eq!(code(&base.db, WRITE).await.as_deref(), Some("LH001"), "is no hold");
}

#[tokio::test]
async fn a_snapshot_of_before_the_claim_is_refused_too() {
    let base = protected().await;
    let other = base.connect().await;
    for (level, number) in [("READ COMMITTED", 30), ("REPEATABLE READ", 40), ("SERIALIZABLE", 50)] {
        base.db.batch_execute(&hold(number)).await.expect("held");
        base.db.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT * FROM written")).await.expect("begun");
        base.fence.claim(&other, &token(number + 1)).await.expect("claimed");
        let refused = code(&base.db, WRITE).await;
        assert!(matches!(refused.as_deref(), Some("LH001" | "40001")), "{level}: {refused:?}");
    }
}

#[tokio::test]
async fn what_is_let_go_or_discarded_or_rolled_back_is_not_held() {
    let base = protected().await;
    for ends in ["SELECT leasehold.let_go('jobs/settle')", "DISCARD ALL", "RESET ALL"] {
        assert_eq!(code(&base.db, &hold(20)).await, None);
        assert_eq!(code(&base.db, WRITE).await, None, "{ends}");
        base.db.batch_execute(ends).await.expect("done");
        assert_eq!(code(&base.db, WRITE).await.as_deref(), Some("LH002"), "{ends}");
    }
    assert_eq!(code(&base.db, &format!("BEGIN; {}", hold(20))).await.as_deref(), Some("2D000"), "not in a transaction");
    assert_eq!(code(&base.db, WRITE).await.as_deref(), Some("LH002"));
}

#[tokio::test]
async fn a_transaction_of_who_holds_stands_still_no_longer_than_was_said() {
    let base = protected().await;
    let other = base.connect().await;
    base.fence.hold(&base.db, &token(20), std::time::Duration::from_millis(700)).await.expect("held");
    base.db.batch_execute(&format!("BEGIN; {WRITE}")).await.expect("inside");
    base.fence.claim(&other, &token(30)).await.expect("within its patience: the server ended who stood still");
    base.db.batch_execute("COMMIT").await.expect_err("too late");
    assert_eq!(base.written().await, [20]);
}

#[tokio::test]
async fn a_user_who_may_only_write_can_hold() {
    let base = protected().await;
    let sql = "CREATE ROLE writer; GRANT USAGE ON SCHEMA leasehold TO writer;
      GRANT INSERT ON written TO writer; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO writer; SET ROLE writer";
    base.db.batch_execute(sql).await.expect("a role");
    assert_eq!(code(&base.db, WRITE).await.as_deref(), Some("LH002"));
    assert_eq!(code(&base.db, &hold(20)).await, None);
    assert_eq!(code(&base.db, WRITE).await, None);
}

#[tokio::test]
async fn who_holds_puts_the_badge_on_so_that_its_statements_are_checked_the_short_way() {
    let base = protected().await;
    let badge =
        "SELECT pg_sequence_last_value(('leasehold.badge_' || (leasehold.lock_of('jobs/settle', 0) & 63))::regclass)";
    let worn = async || base.db.query_one(badge, &[]).await.expect("read").get::<_, i64>(0);
    base.fence.claim(&base.db, &token(30)).await.expect("claimed");
    assert_eq!(worn().await, 0, "whoever stood there before");
    assert_eq!(code(&base.db, &hold(30)).await, None);
    assert_ne!(worn().await, 0);
}
