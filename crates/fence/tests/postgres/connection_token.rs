//! Tokens of a connection: the setting `leasehold.token` in the connection string, for programs that know nothing of the fence (F3).

use std::process::Command;

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, TokenScope};
use leasehold_fence::postgres::{Fence, StampKey, install, stamp};
use leasehold_fence::{SealKeys, SealVerifier};
use leasehold_seal::SealKey;
use tokio_postgres::Client;

use crate::database::Database;
use crate::protected_tables::{admit, code, protected};
use crate::support::{CLUSTER, RESOURCE, fence_id, id_of, number, parts, token};

const WRITE: &str = "INSERT INTO written (number) VALUES (20)";
const OTHER: &str = "jobs/other";

/// Token text of another resource.
fn other_token(number: u64) -> String {
    let mut token = parts(number);
    token.resource = resource_hash(OTHER);
    token.to_string()
}

/// SQLSTATE and message of a statement that fails.
async fn refusal(db: &Client, sql: &str) -> (String, String) {
    let error = db.batch_execute(sql).await.expect_err(sql);
    db.batch_execute("ROLLBACK").await.expect("rolled back");
    let error = error.as_db_error().expect("of the server");
    (error.code().code().to_owned(), format!("{}; {}", error.message(), error.detail().unwrap_or_default()))
}

async fn is_cached(base: &Database, number: u64) -> bool {
    let sql = "SELECT coalesce(pg_sequence_last_value(('leasehold.token_cache_' || (leasehold.lock_key($1, 0) & 63))::regclass), 0)
        & -2 = hashtextextended($2, leasehold.lock_key($1, 0)) & -2";
    base.db.query_one(sql, &[&RESOURCE, &token(number)]).await.expect("read").get(0)
}

#[tokio::test]
async fn a_connection_with_a_token_writes_plain_statements_until_the_successor_claims() {
    let base = protected().await;
    let holder = base.connect_with_tokens(&token(20)).await;
    assert_eq!(code(&base.db, WRITE).await.as_deref(), Some("LH002"), "another connection has no token");
    let block = format!("BEGIN; {WRITE}; {WRITE}; COMMIT");
    for write in [WRITE, &block, "UPDATE written SET number = 20", "ALTER TABLE written ADD COLUMN note text"] {
        for reset in ["", "DISCARD ALL", "RESET ALL"] {
            holder.batch_execute(reset).await.expect("done");
            if !write.starts_with("ALTER") || reset.is_empty() {
                assert_eq!(code(&holder, write).await, None, "{write} after {reset}");
            }
        }
    }
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        assert_eq!(code(&holder, &format!("BEGIN ISOLATION LEVEL {level}; {WRITE}; COMMIT")).await, None, "{level}");
    }
    base.fence.claim(&base.db, &token(30)).await.expect("claimed");
    let written = base.written().await;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let late = format!("BEGIN ISOLATION LEVEL {level}; {WRITE}; COMMIT");
        assert_eq!(code(&holder, &late).await.as_deref(), Some("LH001"), "{level}");
    }
    let late = base.connect_with_tokens(&token(20)).await;
    assert_eq!(code(&late, WRITE).await.as_deref(), Some("LH001"), "a new connection of the old holder");
    assert_eq!(base.written().await, written);
}

#[tokio::test]
async fn a_list_has_the_tokens_of_several_resources() {
    let base = protected().await;
    let other = Fence::new(&id_of(CLUSTER, OTHER));
    base.db.batch_execute("CREATE TABLE sold (number bigint)").await.expect("a table");
    other.arm(&base.db).await.expect("armed");
    other.protect(&base.db, "sold").await.expect("protected");
    let both = format!("{WRITE}; INSERT INTO sold VALUES (1)");
    for list in [
        format!("{} {}", token(20), other_token(40)),
        format!("{} {}", other_token(40), token(20)),
        format!("  {}   {} ", other_token(40), token(20)),
    ] {
        let holder = base.connect_with_tokens(&list).await;
        for _ in 0..3 {
            assert_eq!(code(&holder, &both).await, None, "{list}");
        }
    }
    let one = base.connect_with_tokens(&other_token(40)).await;
    let (sqlstate, message) = refusal(&one, WRITE).await;
    assert_eq!(sqlstate, "LH002");
    assert!(message.contains("no token in setting leasehold.token is for this resource"), "{message}");
    assert_eq!(code(&one, "INSERT INTO sold VALUES (1)").await, None);
    other.claim(&base.db, &other_token(41)).await.expect("claimed");
    let holder = base.connect_with_tokens(&format!("{} {}", token(20), other_token(40))).await;
    assert_eq!(code(&holder, WRITE).await, None, "the token of the other resource is ignored");
    assert_eq!(code(&holder, "INSERT INTO sold VALUES (1)").await.as_deref(), Some("LH001"));
}

#[tokio::test]
async fn an_entry_that_is_not_a_token_is_refused_with_its_place_whether_or_not_the_token_is_cached() {
    let base = protected().await;
    let holder = base.connect_with_tokens(&token(20)).await;
    for _ in 0..3 {
        assert_eq!(code(&holder, WRITE).await, None);
    }
    assert!(is_cached(&base, 20).await);
    let good = token(20);
    let mut damaged = other_token(40);
    damaged.replace_range(84.., if damaged.ends_with('0') { "1" } else { "0" });
    for (list, place, sqlstate, reason) in [
        (format!("{good} junk"), 2, "LH002", "reason=shape"),
        (format!("junk {good}"), 1, "LH002", "reason=shape"),
        (format!("{good},{}", other_token(40)), 1, "LH002", "reason=shape"),
        (format!("{good}\t{}", other_token(40)), 1, "LH002", "reason=shape"),
        (format!("x{good}"), 1, "LH002", "reason=shape"),
        (format!("{good} {damaged}"), 2, "LH002", "reason=checksum"),
        (format!("{good} lh9-1"), 2, "LH008", "reason=version"),
        (format!("{good} {} {}", other_token(40), token(21)), 3, "LH002", "reason=shape"),
        (format!("{good} {good}"), 2, "LH002", "reason=shape"),
    ] {
        let client = base.connect_with_tokens(&list).await;
        for _ in 0..2 {
            let (code, message) = refusal(&client, WRITE).await;
            assert_eq!(code, sqlstate, "{list}: {message}");
            assert!(message.contains(&format!("entry {place} of setting leasehold.token")), "{list}: {message}");
            assert!(message.contains(reason) && message.contains(&format!("entry={place}")), "{list}: {message}");
            assert!(!message.contains("junk") && !message.contains("lh1-"), "the text is not repeated: {message}");
        }
        // The same error is typed in Rust.
        let error = leasehold_fence::Error::from(client.batch_execute(WRITE).await.expect_err("refused"));
        assert!(error.refusal().is_some(), "{error}");
    }
}

#[tokio::test]
async fn a_token_that_the_fence_does_not_accept_is_refused_as_by_admit() {
    let base = protected().await;
    let with = |change: &dyn Fn(&mut leasehold_core::token::Token)| {
        let mut token = parts(20);
        change(&mut token);
        token.to_string()
    };
    for (presented, sqlstate, reason) in [
        (with(&|token| token.scope = TokenScope::Shared), "LH002", "reason=shared"),
        (with(&|token| token.scope = TokenScope::Slot(3)), "LH002", "reason=slot"),
        (with(&|token| token.cluster = Cluster(*b"another!")), "LH004", "reason=cluster"),
        (with(&|token| token.number = number(u64::MAX >> 1)), "LH003", "reason=implausible"),
        (token(19), "LH001", "presented=19 mark=20"),
    ] {
        let admitted =
            refusal(&base.db, &format!("BEGIN; SELECT leasehold.admit('{presented}', '{RESOURCE}', 0)")).await;
        let client = base.connect_with_tokens(&presented).await;
        let refused = refusal(&client, WRITE).await;
        assert_eq!(refused, admitted);
        assert!(refused.0 == sqlstate && refused.1.contains(reason), "{refused:?}");
    }
    let [foreign, other_slot] =
        [with(&|token| token.cluster = Cluster(*b"another!")), with(&|token| token.scope = TokenScope::Slot(3))];
    let holder = base.connect_with_tokens(&format!("{foreign} {other_slot} {}", token(20))).await;
    for _ in 0..3 {
        assert_eq!(code(&holder, WRITE).await, None, "the token of this fence is preferred");
    }
    base.db.batch_execute(&format!("SELECT leasehold.declare_lost('{RESOURCE}')")).await.expect("lost");
    assert_eq!(code(&holder, WRITE).await.as_deref(), Some("LH005"));
}

#[tokio::test]
async fn a_token_of_the_transaction_overrides_that_of_the_session_and_both_override_the_connections() {
    let base = protected().await;
    base.fence.claim(&base.db, &token(30)).await.expect("claimed");
    let holder = base.connect_with_tokens(&token(20)).await;
    assert_eq!(code(&holder, WRITE).await.as_deref(), Some("LH001"));
    assert_eq!(code(&holder, &format!("BEGIN; {}; {WRITE}; COMMIT", admit(30))).await, None);
    assert_eq!(code(&holder, WRITE).await.as_deref(), Some("LH001"), "the admission ended with its transaction");
    let set = format!("CALL leasehold.set_session_token('{}', '{RESOURCE}')", token(30));
    assert_eq!(code(&holder, &set).await, None);
    assert_eq!(code(&holder, WRITE).await, None);
    base.fence.claim(&base.db, &token(40)).await.expect("claimed");
    holder.batch_execute(&format!("SET leasehold.token = '{}'", token(40))).await.expect("set");
    assert_eq!(code(&holder, WRITE).await.as_deref(), Some("LH001"), "the session has a stale one");
    holder.batch_execute(&format!("SELECT leasehold.clear_session_token('{RESOURCE}')")).await.expect("cleared");
    assert_eq!(code(&holder, WRITE).await, None);
    holder.batch_execute("SET leasehold.token = ''").await.expect("set");
    assert_eq!(code(&holder, WRITE).await.as_deref(), Some("LH002"));
}

#[tokio::test]
async fn a_snapshot_older_than_the_claim_is_refused_although_the_token_is_current_and_cached() {
    let base = protected().await;
    for (level, mark) in [("REPEATABLE READ", 40), ("SERIALIZABLE", 50)] {
        let holder = base.connect_with_tokens(&token(mark)).await;
        let sibling = base.connect_with_tokens(&token(mark)).await;
        // Its list counts as checked, so that only the isolation level can keep it from the token cache.
        let checked = "SELECT set_config('leasehold.checked_tokens', hashtextextended(current_setting('leasehold.token'), 0)::text, false)";
        holder.batch_execute(checked).await.expect("set");
        let early = format!("BEGIN ISOLATION LEVEL {level}; SELECT * FROM written");
        holder.batch_execute(&early).await.expect("a snapshot before the claim");
        base.fence.claim(&base.db, &token(mark)).await.expect("claimed");
        for _ in 0..3 {
            assert_eq!(code(&sibling, WRITE).await, None);
        }
        assert!(is_cached(&base, mark).await);
        assert_eq!(code(&holder, WRITE).await.as_deref(), Some("40001"), "{level}");
        assert_eq!(code(&holder, WRITE).await, None, "a new snapshot");
    }
}

#[tokio::test]
async fn writes_cache_the_connections_token_and_one_that_raises_the_mark_without_a_commit_does_not() {
    let base = protected().await;
    base.fence.claim(&base.db, &token(30)).await.expect("claimed");
    assert!(!is_cached(&base, 30).await);
    let holder = base.connect_with_tokens(&token(30)).await;
    for _ in 0..2 {
        assert_eq!(code(&holder, WRITE).await, None);
    }
    assert!(is_cached(&base, 30).await, "the second write found a checked text and a committed row");
    let successor = base.connect_with_tokens(&token(31)).await;
    successor
        .batch_execute(&format!("BEGIN; {WRITE}; SAVEPOINT s; {WRITE}; {WRITE}"))
        .await
        .expect("it raises the mark");
    assert!(!is_cached(&base, 31).await);
    successor.batch_execute("ROLLBACK").await.expect("rolled back");
    assert!(!is_cached(&base, 31).await);
    assert_eq!(code(&holder, WRITE).await, None, "the mark was not raised");
    assert_eq!(code(&successor, &format!("BEGIN; SAVEPOINT s; {WRITE}; RELEASE s; {WRITE}; COMMIT")).await, None);
    assert_eq!((base.mark().await, code(&holder, WRITE).await.as_deref()), (Some(31), Some("LH001")));
    for _ in 0..2 {
        assert_eq!(code(&successor, WRITE).await, None);
    }
    assert!(is_cached(&base, 31).await);
}

#[tokio::test]
async fn a_commit_is_durable_although_the_connection_asked_for_none() {
    let base = protected().await;
    let holder = base.connect_with_tokens(&token(20)).await;
    for _ in 0..3 {
        assert_eq!(code(&holder, WRITE).await, None);
    }
    holder.batch_execute(&format!("SET synchronous_commit = off; BEGIN; {WRITE}")).await.expect("written");
    let setting = holder.query_one("SHOW synchronous_commit", &[]).await.expect("shown");
    assert_eq!(setting.get::<_, &str>(0), "on");
    holder.batch_execute("COMMIT").await.expect("committed");
}

#[tokio::test]
async fn settings_that_a_client_forges_admit_no_stale_token() {
    let base = protected().await;
    let sql = "CREATE ROLE connection_writer LOGIN; GRANT USAGE ON SCHEMA leasehold TO connection_writer;
      GRANT ALL ON written TO connection_writer; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO connection_writer";
    base.db.batch_execute(sql).await.expect("a role");
    let writer = base.server.connect("connection_writer", &base.name).await.expect("connected");
    writer.batch_execute(&format!("SET leasehold.token = '{}'", token(20))).await.expect("set");
    for _ in 0..3 {
        assert_eq!(code(&writer, WRITE).await, None, "a role that may only write");
    }
    base.fence.claim(&base.db, &token(30)).await.expect("claimed");
    let holder = base.connect_with_tokens(&token(30)).await;
    for _ in 0..3 {
        assert_eq!(code(&holder, WRITE).await, None);
    }
    for stale in [token(20), token(29), format!("junk{}", token(29)), format!("{} junk", token(29))] {
        let forge = format!(
            "SET leasehold.token = '{stale}'; SELECT set_config('leasehold.checked_tokens', hashtextextended('{stale}', 0)::text, false),
               set_config('leasehold.checked_token', hashtextextended('{stale}', 0)::text, false)"
        );
        writer.batch_execute(&forge).await.expect("any role can set them");
        let refused = code(&writer, WRITE).await;
        assert!(matches!(refused.as_deref(), Some("LH001" | "LH002")), "{stale}: {refused:?}");
    }
    base.db.batch_execute("DROP OWNED BY connection_writer").await.expect("dropped");
}

#[tokio::test]
async fn a_sealed_fence_needs_the_stamp_in_the_setting() {
    let base = protected().await;
    let key = SealKey::generate(0).expect("a key");
    let verifier = SealVerifier::new(SealKeys::new([key.public()]).expect("one key"));
    let [first, second] = ["5a", "5b"].map(|byte| StampKey::from_hex(&byte.repeat(32)).expect("a key"));
    base.fence.seal(&base.db, &first).await.expect("sealed");
    let sealed = key.seal(&parts(50), RESOURCE).to_string();
    let stamped = |key: &StampKey| stamp(key, &verifier, &fence_id(), &sealed).expect("stamped");
    for (presented, reason) in
        [(token(50), "reason=unsealed"), (sealed.clone(), "reason=stamp"), (stamped(&second), "reason=stamp")]
    {
        let client = base.connect_with_tokens(&presented).await;
        for _ in 0..2 {
            let (sqlstate, message) = refusal(&client, WRITE).await;
            assert!(sqlstate == "LH002" && message.contains(reason), "{sqlstate}: {message}");
        }
    }
    let holder = base.connect_with_tokens(&format!("{} {}", other_token(1), stamped(&first))).await;
    for _ in 0..3 {
        assert_eq!(code(&holder, WRITE).await, None);
    }
    let next = base.fence.seal(&base.db, &second).await.expect("a second key");
    base.fence.retire_stamp_key(&base.db, &first.id().to_string()).await.expect("retired");
    assert_eq!(code(&holder, WRITE).await.as_deref(), Some("LH002"), "its key is retired; {next} remains");
    let renewed = base.connect_with_tokens(&stamped(&second)).await;
    assert_eq!(code(&renewed, WRITE).await, None);
}

#[tokio::test]
async fn a_probe_is_refused_although_its_connection_has_a_token() {
    let base = protected().await;
    let client = base.connect_with_tokens(&token(20)).await;
    let row = client.query_one("SELECT refused FROM leasehold.probe_writes('jobs/settle')", &[]).await.expect("probed");
    assert!(row.get::<_, bool>(0));
    assert_eq!(code(&client, WRITE).await, None, "the connection keeps its token");
}

#[tokio::test]
async fn version_4_is_upgraded_and_its_protected_tables_accept_the_connections_token() {
    let base = Database::new().await;
    let name = format!("old_{}", base.name);
    base.db.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
    let old = base.server.connect("leasehold", &name).await.expect("connected");
    old.batch_execute(include_str!("version4.sql")).await.expect("version 4 installed");
    for statement in [
        "CREATE TABLE public.written (place bigserial PRIMARY KEY, number bigint NOT NULL)",
        &format!("SELECT leasehold.arm('{RESOURCE}', '{CLUSTER}')"),
        &format!("SELECT leasehold.protect('written', '{RESOURCE}')"),
        &format!("CALL leasehold.claim('{}', '{RESOURCE}')", token(20)),
        &format!("SET leasehold.token = '{}'", token(20)),
    ] {
        old.batch_execute(statement).await.expect(statement);
    }
    assert_eq!(code(&old, WRITE).await.as_deref(), Some("LH002"), "version 4 does not read the setting");
    for _ in 0..2 {
        install(&old).await.expect("upgraded");
        assert_eq!(base.fence.mark(&old).await.expect("preserved"), Some(number(20)));
        assert_eq!(code(&old, WRITE).await, None);
    }
    let problems = "SELECT count(*) FROM leasehold.list_guards() WHERE problem IS NOT NULL";
    assert_eq!(old.query_one(problems, &[]).await.expect("read").get::<_, i64>(0), 0);
}

#[tokio::test]
async fn psql_writes_with_pgoptions_alone() {
    let base = protected().await;
    let psql = |number: u64| {
        let output = Command::new("psql")
            .args(["-X", "-v", "VERBOSITY=verbose", "-h"])
            .arg(base.server.socket())
            .args(["-U", "leasehold", "-c", WRITE, &base.name])
            .env("PGOPTIONS", format!("-c leasehold.token={}", token(number)))
            .output()
            .expect("psql can be started; ./test installs it");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(psql(20), (true, String::new()));
    base.fence.claim(&base.db, &token(30)).await.expect("claimed");
    let (succeeded, stderr) = psql(20);
    assert!(!succeeded && stderr.contains("LH001"), "{stderr}");
}
