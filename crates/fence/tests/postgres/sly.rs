//! Sly ways: locks that a failed cursor lets go, names that shadow the server's own, and another place's token.

use std::time::Duration;

use leasehold_core::name::{Name, resource_hash};
use leasehold_fence::postgres::Fence;

use crate::database::LONG;
use crate::forced::{admit, code, protected};
use crate::support::{CLUSTER, parts, token};

/// A function that writes under what it was admitted with or holds, and fails the second time.
const WRITER: &str = "CREATE FUNCTION write_one(n bigint) RETURNS bigint LANGUAGE plpgsql AS $$
  BEGIN IF n = 2 THEN RAISE EXCEPTION 'the second time'; END IF;
  INSERT INTO written (number) VALUES (20); RETURN n; END $$;
  CREATE FUNCTION admit_and_write(n bigint, token text) RETURNS bigint LANGUAGE plpgsql AS $$
  BEGIN IF n = 2 THEN RAISE EXCEPTION 'the second time'; END IF;
  PERFORM leasehold.admit(token, 'jobs/settle', 0, NULL);
  INSERT INTO written (number) VALUES (20); RETURN n; END $$";

#[tokio::test]
async fn a_cursor_that_fails_in_a_savepoint_does_not_let_the_place_go() {
    let base = protected().await;
    base.db.batch_execute(WRITER).await.expect("functions");
    let other = base.connect().await;
    let held = format!("CALL leasehold.hold('{}', 'jobs/settle', remaining => NULL)", token(20));
    let fetched = "FETCH late; SAVEPOINT s";
    for (before, writes) in [
        (held.as_str(), "SELECT write_one(i) FROM generate_series(1, 2) AS i".to_owned()),
        ("DISCARD ALL", format!("SELECT admit_and_write(i, '{}') FROM generate_series(1, 2) AS i", token(20))),
    ] {
        base.db.batch_execute(before).await.expect("done");
        base.db.batch_execute(&format!("BEGIN; DECLARE late CURSOR FOR {writes}; {fetched}")).await.expect("it wrote");
        base.db.batch_execute("FETCH late").await.expect_err("the second time");
        base.db.batch_execute("ROLLBACK TO s").await.expect("and the first stays");
        let claim = base.fence.clone().patience(Duration::from_millis(50)).claim(&other, &token(30)).await;
        assert_eq!(claim.expect_err("somebody is inside").code(), "UNAVAILABLE", "{writes}");
        base.db.batch_execute("COMMIT").await.expect("nobody came after it");
    }
    assert_eq!(base.written().await, [20; 3]);
    base.fence.claim(&other, &token(30)).await.expect("nobody is inside any more");
    assert_eq!(code(&base.db, &format!("BEGIN; {}", admit(20))).await.as_deref(), Some("LH001"));
}

#[tokio::test]
async fn a_mark_that_is_raised_by_a_cursor_that_fails_stays_alone_until_it_lands() {
    let base = protected().await;
    base.db.batch_execute(WRITER).await.expect("functions");
    let other = base.connect().await;
    let writes = format!("SELECT admit_and_write(i, '{}') FROM generate_series(1, 2) AS i", token(30));
    base.db
        .batch_execute(&format!("BEGIN; DECLARE late CURSOR FOR {writes}; FETCH late; SAVEPOINT s"))
        .await
        .expect("raised");
    base.db.batch_execute("FETCH late").await.expect_err("the second time");
    base.db.batch_execute("ROLLBACK TO s").await.expect("and the first stays");
    other.batch_execute("SET lock_timeout = '50ms'").await.expect("set");
    let hold = format!("CALL leasehold.hold('{}', 'jobs/settle')", token(20));
    assert_eq!(code(&other, &hold).await.as_deref(), Some("55P03"), "it waits for who raises");
    base.db.batch_execute("COMMIT").await.expect("raised");
    assert_eq!(code(&other, &hold).await.as_deref(), Some("LH001"));
}

#[tokio::test]
async fn what_shadows_the_servers_own_names_is_not_called_by_who_owns_the_fence() {
    let base = protected().await;
    // A session that has called nothing yet: what a function's names mean is looked up when it is first called.
    let db = base.connect().await;
    let sly = "CREATE ROLE sly; GRANT USAGE ON SCHEMA leasehold TO sly; GRANT INSERT ON written TO sly;
      GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO sly; SET ROLE sly;
      CREATE FUNCTION pg_temp.seen(x anyelement) RETURNS boolean LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'called by %', current_user; END $$;
      CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (pg_temp.seen(VALUE));
      CREATE DOMAIN pg_temp.int8 AS pg_catalog.int8 CHECK (pg_temp.seen(VALUE))";
    db.batch_execute(sly).await.expect("a role that may make temporary things");
    for (sql, answer) in [
        ("INSERT INTO written (number) VALUES (1)".to_owned(), Some("LH002")),
        (format!("BEGIN; {}; ROLLBACK", admit(20)), None),
        (format!("BEGIN; {}; ROLLBACK", admit(19)), Some("LH001")),
        (format!("CALL leasehold.hold('{}', 'jobs/settle')", token(20)), None),
        ("INSERT INTO written (number) VALUES (20)".to_owned(), None),
        ("SELECT leasehold.let_go('jobs/settle')".to_owned(), None),
    ] {
        assert_eq!(code(&db, &sql).await.as_deref(), answer, "{sql}");
    }
}

#[tokio::test]
async fn the_token_of_a_place_that_shares_the_badge_is_refused_all_the_same() {
    let base = protected().await;
    let sql = "SELECT 'jobs/' || n FROM generate_series(1, 10000) AS n
      WHERE (leasehold.lock_of('jobs/' || n, 0) # leasehold.lock_of('jobs/settle', 0)) & 63 = 0 LIMIT 1";
    let twin: String = base.db.query_one(sql, &[]).await.expect("a name").get(0);
    let fence = Fence::new(CLUSTER, Name::parse(&twin).expect("a name"), 0);
    let mut twins = parts(40);
    twins.resource = resource_hash(&twin);
    let twins = twins.to_string();
    fence.arm(&base.db).await.expect("armed");
    fence.claim(&base.db, &twins).await.expect("claimed");
    let mut db = base.connect().await;
    for _ in 0..600 {
        let tx = db.transaction().await.expect("a transaction");
        fence.admit(&tx, &twins, LONG).await.expect("its own place");
        tx.commit().await.expect("committed");
    }
    for sql in ["SELECT leasehold.admit($1, 'jobs/settle')", "SELECT leasehold.folded($1, 'jobs/settle', 0)"] {
        let refused = db.query(sql, &[&twins]).await.expect_err("of another resource");
        assert_eq!(refused.code().map(|code| code.code()), Some("LH002"), "{sql}");
    }
}

#[tokio::test]
async fn bounds_of_a_hold_follow_the_next_and_end_with_it() {
    let base = protected().await;
    let bounds = async || {
        let sql = "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')";
        let row = base.db.query_one(sql, &[]).await.expect("read");
        (row.get::<_, String>(0), row.get::<_, String>(1))
    };
    let told = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    base.db.batch_execute("SET statement_timeout = '900ms'").await.expect("its own");
    base.fence.hold(&base.db, &token(20), Duration::from_secs(2)).await.expect("held");
    assert_eq!(bounds().await, told("900ms", "2s"), "never later than its own");
    base.fence.hold(&base.db, &token(20), Duration::from_secs(10)).await.expect("held");
    assert_eq!(bounds().await, told("900ms", "10s"));
    base.db.batch_execute("SELECT leasehold.let_go('jobs/settle')").await.expect("let go");
    assert_eq!(bounds().await, told("900ms", "0"));
    let over = format!("CALL leasehold.hold('{}', 'jobs/settle', remaining => '0')", token(20));
    assert_eq!(code(&base.db, &over).await.as_deref(), Some("22023"));
    assert_eq!(bounds().await, told("900ms", "0"));
}
