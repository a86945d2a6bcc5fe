//! Sealed fences: a role that may write the tables cannot forge a token, and no one but the owner reads the keys (A8).

use leasehold_fence::postgres::{StampKey, install, list_marks, stamp};
use leasehold_fence::{Error, SealKeys, SealVerifier};
use leasehold_seal::SealKey;
use tokio_postgres::Client;

use crate::database::{Database, LONG, put};
use crate::protected_tables::{code, protected};
use crate::support::{CLUSTER, RESOURCE, fence_id, number, parts, token};

/// A protected and sealed table, and what makes stamps for it.
struct Sealed {
    base: Database,
    key: SealKey,
    verifier: SealVerifier,
    stamp_key: StampKey,
}

impl Sealed {
    async fn new() -> Self {
        let (base, key) = (protected().await, SealKey::generate(0).expect("a key"));
        let verifier = SealVerifier::new(SealKeys::new([key.public()]).expect("one key"));
        let stamp_key = StampKey::from_hex(&"5a".repeat(32)).expect("a key");
        assert_eq!(base.fence.seal(&base.db, &stamp_key).await.expect("sealed"), stamp_key.id().to_string());
        Self { base, key, verifier, stamp_key }
    }

    fn sealed_text(&self, number: u64) -> String {
        self.key.seal(&parts(number), RESOURCE).to_string()
    }

    fn stamped(&self, number: u64) -> String {
        stamp(&self.stamp_key, &self.verifier, &fence_id(), self.sealed_text(number)).expect("stamped")
    }

    /// A role with all rights on the table, and those of a member of `pg_write_all_data` and `pg_read_all_data`.
    async fn attacker(&self) -> Client {
        let role = format!("mallory_{}", self.base.name);
        let sql = format!(
            "CREATE ROLE {role} LOGIN; GRANT pg_write_all_data, pg_read_all_data TO {role};
             GRANT USAGE ON SCHEMA leasehold TO {role}; GRANT ALL ON written TO {role};
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}"
        );
        self.base.db.batch_execute(&sql).await.expect("a role");
        self.base.server.connect(&role, &self.base.name).await.expect("connected")
    }
}

/// What a holder sends with a token: a claim, an admission, a session token, an inline check.
fn attempts(token: &str) -> [String; 4] {
    [
        format!("CALL leasehold.claim('{token}', '{RESOURCE}')"),
        format!(
            "BEGIN; SELECT leasehold.admit('{token}', '{RESOURCE}'); INSERT INTO written (number) VALUES (50); COMMIT"
        ),
        format!("CALL leasehold.set_session_token('{token}', '{RESOURCE}')"),
        format!("DELETE FROM written WHERE (SELECT leasehold.admit_inline('{token}', '{RESOURCE}', 0)) > 0"),
    ]
}

async fn detail(db: &Client, sql: &str) -> Option<(String, String)> {
    let error = db.batch_execute(sql).await.err()?;
    db.batch_execute("ROLLBACK").await.expect("rolled back");
    let error = error.as_db_error().expect("of the server").clone();
    Some((error.code().code().to_owned(), error.detail().unwrap_or_default().to_owned()))
}

#[tokio::test]
async fn a_role_with_all_rights_on_the_table_cannot_forge_a_token() {
    let sealed = Sealed::new().await;
    let mallory = sealed.attacker().await;
    let mark = sealed.base.mark().await;
    let stamp_of_another = sealed.stamped(49)[172..].to_owned();
    let other_key = StampKey::from_hex(&"00".repeat(32)).expect("a key");
    for (what, forged, reason) in [
        ("a plain token", token(50), "unsealed"),
        ("a sealed token without a stamp", sealed.sealed_text(50), "stamp"),
        ("a stamp of zeros", format!("{}.{}", sealed.sealed_text(50), "0".repeat(64)), "stamp"),
        ("the stamp of a lower token", format!("{}{stamp_of_another}", sealed.sealed_text(50)), "stamp"),
        (
            "a stamp of another database",
            stamp(&other_key, &sealed.verifier, &fence_id(), sealed.sealed_text(50)).expect("stamped"),
            "stamp",
        ),
        ("a plain token at the mark", token(20), "unsealed"),
        ("a truncated stamp", sealed.stamped(50)[..236].to_owned(), "shape"),
        ("a stamp in capitals", sealed.stamped(50).to_uppercase(), "shape"),
    ] {
        for sql in attempts(&forged) {
            let expected = Some(("LH002".to_owned(), format!("reason={reason}")));
            assert_eq!(detail(&mallory, &sql).await, expected, "{what}: {sql}");
        }
    }
    assert_eq!((sealed.base.written().await, sealed.base.mark().await), (vec![20], mark));
    let refused = sealed.base.fence.claim(&mallory, token(50)).await.expect_err("plain");
    assert_eq!(refused.refusal().expect("refused").reason(), "unsealed");
    let refused = sealed.base.fence.claim(&mallory, sealed.sealed_text(50)).await.expect_err("no stamp");
    assert_eq!(refused.refusal().expect("refused").reason(), "stamp");
}

#[tokio::test]
async fn a_stamped_token_is_admitted_in_every_way_and_becomes_stale() {
    let sealed = Sealed::new().await;
    let mut holder = sealed.attacker().await;
    assert_eq!(sealed.base.fence.claim(&holder, sealed.stamped(50)).await.expect("claimed"), number(50));
    for _ in 0..3 {
        let tx = holder.transaction().await.expect("a transaction");
        sealed.base.fence.admit(&tx, sealed.stamped(50), LONG).await.expect("admitted");
        put(&tx, 50).await.expect("written");
        tx.commit().await.expect("committed");
    }
    sealed.base.fence.set_session_token(&holder, sealed.stamped(50), LONG).await.expect("a session token");
    holder.batch_execute("INSERT INTO written (number) VALUES (50)").await.expect("written with the session's token");
    let statement =
        format!("UPDATE written SET number = number WHERE {}", leasehold_fence::postgres::Fence::inline_check(1));
    let statement = holder.prepare(&statement).await.expect("prepared");
    assert_eq!(sealed.base.fence.write(&holder, sealed.stamped(50), &statement, &[]).await.expect("updated"), 5);
    let successor = sealed.base.connect().await;
    sealed.base.fence.claim(&successor, sealed.stamped(51)).await.expect("claimed");
    let stale = code(&holder, "INSERT INTO written (number) VALUES (50)").await;
    assert_eq!(stale.as_deref(), Some("LH001"), "the session's token is stale");
    assert_eq!(sealed.base.written().await, [20, 50, 50, 50, 50]);
}

#[tokio::test]
async fn neither_the_cache_nor_a_forged_setting_nor_an_equal_64_bit_digest_replaces_a_stamp() {
    let sealed = Sealed::new().await;
    let mallory = sealed.attacker().await;
    let genuine = sealed.base.connect().await;
    sealed.base.fence.claim(&genuine, sealed.stamped(50)).await.expect("claimed");
    let forged = token(50);
    let key = format!("leasehold.lock_key('{RESOURCE}', 0)");
    let present = format!(
        "BEGIN; SELECT set_config('leasehold.checked_token', hashtextextended('{forged}', 0)::text, false),
           set_config('leasehold.token_' || to_hex({key}), pg_current_xact_id()::text || ':{forged}', true)"
    );
    let write = "INSERT INTO written (number) VALUES (50)";
    let refused = Some(("LH002".to_owned(), "reason=unsealed".to_owned()));
    assert_eq!(detail(&mallory, &format!("{present}; {write}; COMMIT")).await, refused, "a forged setting");
    // A member of pg_write_all_data can set the value of a sequence.
    for tables in [0, 1] {
        let poison = format!(
            "SELECT setval(('leasehold.token_cache_' || ({key} & 63))::regclass, (hashtextextended('{forged}', {key}) & -2) | {tables})"
        );
        mallory.batch_execute(&poison).await.expect("poisoned");
        assert_eq!(detail(&mallory, &format!("{present}; {write}; COMMIT")).await, refused, "a poisoned cache");
    }
    // A text with the digest of the genuine one: only the owner can store this digest, a forger would search for the text.
    let same_digest = format!("UPDATE leasehold.fence SET token_digest = hashtextextended('{forged}', 1)");
    sealed.base.db.batch_execute(&same_digest).await.expect("the owner may");
    assert_eq!(detail(&mallory, &format!("{present}; {write}; COMMIT")).await, refused, "an equal 64-bit digest");
    let session = format!(
        "SELECT set_config('leasehold.checked_token', hashtextextended('{forged}', 0)::text, false),
           set_config('leasehold.token_' || to_hex({key}), '{forged}', false); {write}"
    );
    assert_eq!(detail(&mallory, &session).await, refused, "a forged session token");
    assert_eq!(sealed.base.written().await, [20]);
}

#[tokio::test]
async fn no_one_but_the_owner_reads_or_changes_the_keys_or_asks_for_a_stamp() {
    let sealed = Sealed::new().await;
    let mallory = sealed.attacker().await;
    let rows = mallory.query("SELECT * FROM leasehold.stamp_key", &[]).await.expect("a member of pg_read_all_data");
    assert!(rows.is_empty(), "row security hides the keys");
    for sql in [
        "INSERT INTO leasehold.stamp_key VALUES (1, '00000000', '\\x00', '\\x00')".to_owned(),
        "DELETE FROM leasehold.stamp_key".to_owned(),
        "UPDATE leasehold.stamp_key SET key_id = '00000000'".to_owned(),
        "UPDATE leasehold.fence SET is_sealed = false".to_owned(),
        format!("SELECT leasehold.seal('{RESOURCE}', '\\x{}')", "00".repeat(32)),
        format!("SELECT leasehold.retire_stamp_key('{RESOURCE}', '{}')", sealed.stamp_key.id()),
        format!("SELECT leasehold.list_stamp_keys('{RESOURCE}')"),
        format!("SELECT leasehold.is_stamped(1, '{}')", sealed.stamped(50)),
        "SELECT * FROM leasehold.parse_for('x', NULL, NULL)".to_owned(),
    ] {
        let refused = code(&mallory, &sql).await;
        assert!(matches!(refused.as_deref(), Some("42501" | "LH009" | "LH002")), "{sql}: {refused:?}");
    }
    let keys = sealed.base.db.query("SELECT * FROM leasehold.stamp_key", &[]).await.expect("the owner reads them");
    assert_eq!(keys.len(), 1);
}

#[tokio::test]
async fn a_sealed_fence_stays_sealed_through_every_operators_action_and_installation() {
    let sealed = Sealed::new().await;
    let base = &sealed.base;
    let unsealed = base.db.batch_execute("UPDATE leasehold.fence SET is_sealed = false").await.expect_err("one way");
    assert_eq!(unsealed.code().map(|code| code.code()), Some("LH009"));
    base.fence.strict(&base.db, true).await.expect("strict");
    base.fence.strict(&base.db, false).await.expect("lenient");
    base.fence.declare_lost(&base.db).await.expect("lost");
    base.fence.rearm(&base.db, number(30)).await.expect("re-armed");
    base.fence.unprotect(&base.db, "written").await.expect("unprotected");
    base.fence.protect(&base.db, "written").await.expect("protected again");
    install(&base.db).await.expect("installed again");
    leasehold_fence::postgres::repair_guards(&base.db).await.expect("repaired");
    assert!(list_marks(&base.db).await.expect("listed")[0].sealed);
    let db = base.connect().await;
    for sql in attempts(&token(50)) {
        assert_eq!(detail(&db, &sql).await.map(|(code, _)| code).as_deref(), Some("LH002"), "{sql}");
    }
    let problems =
        "SELECT concat_ws(' ', object, guard, problem) FROM leasehold.list_guards() WHERE problem IS NOT NULL";
    assert!(base.db.query(problems, &[]).await.expect("listed").is_empty());
    base.fence.claim(&db, sealed.stamped(50)).await.expect("claimed with a stamp");
}

#[tokio::test]
async fn stamp_keys_are_replaced_without_a_gap_and_a_retired_one_is_refused_at_once() {
    let sealed = Sealed::new().await;
    let base = &sealed.base;
    let next = StampKey::from_hex(&"7e".repeat(32)).expect("a key");
    let mut holder = base.connect().await;
    let old = sealed.stamped(50);
    base.fence.claim(&holder, &old).await.expect("claimed");
    let last =
        base.fence.retire_stamp_key(&base.db, &sealed.stamp_key.id().to_string()).await.expect_err("the last key");
    assert_eq!(last.code(), "CONFLICT");
    base.fence.seal(&base.db, &next).await.expect("a second key");
    let new = stamp(&next, &sealed.verifier, &fence_id(), sealed.sealed_text(50)).expect("stamped");
    for token in [&old, &new, &old] {
        let tx = holder.transaction().await.expect("a transaction");
        base.fence.admit(&tx, token, LONG).await.expect("both keys count");
        put(&tx, 50).await.expect("written");
        tx.commit().await.expect("committed");
    }
    base.fence.retire_stamp_key(&base.db, &sealed.stamp_key.id().to_string()).await.expect("retired");
    let tx = holder.transaction().await.expect("a transaction");
    let refused = base.fence.admit(&tx, &old, LONG).await.expect_err("its key is gone");
    assert_eq!(refused.refusal().expect("refused").reason(), "stamp");
    tx.rollback().await.expect("rolled back");
    let tx = holder.transaction().await.expect("a transaction");
    base.fence.admit(&tx, &new, LONG).await.expect("the new key");
    tx.commit().await.expect("committed");
}

#[tokio::test]
async fn only_a_token_that_a_seal_key_signed_for_the_resource_gets_a_stamp() {
    let sealed = Sealed::new().await;
    let stamp = |text: String| stamp(&sealed.stamp_key, &sealed.verifier, &fence_id(), text);
    let reason = |error: Error| error.refusal().expect("refused").reason();
    assert_eq!(reason(stamp(token(50)).expect_err("plain")), "unsealed");
    let twin = sealed.key.seal(&parts(50), "jobs/twin").to_string();
    assert_eq!(reason(stamp(twin).expect_err("a name with the same hash")), "signature");
    let unknown = SealKey::generate(0).expect("a key").seal(&parts(50), RESOURCE).to_string();
    assert_eq!(reason(stamp(unknown).expect_err("an unknown key")), "unknown_key");
}

#[tokio::test]
async fn version_3_is_upgraded_with_its_marks_and_then_sealed() {
    let base = Database::new().await;
    let name = format!("old_{}", base.name);
    base.db.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
    let old = base.server.connect("leasehold", &name).await.expect("connected");
    old.batch_execute(include_str!("version3.sql")).await.expect("version 3 installed");
    let setup = format!(
        "CREATE TABLE public.written (place bigserial PRIMARY KEY, number bigint NOT NULL);
         SELECT leasehold.arm('{RESOURCE}', '{CLUSTER}'); SELECT leasehold.protect('written', '{RESOURCE}');
         CALL leasehold.claim('{}', '{RESOURCE}')",
        token(20)
    );
    for statement in setup.split(';') {
        old.batch_execute(statement).await.expect("set up by version 3");
    }
    assert!(!list_marks(&old).await.expect("version 3 is listed")[0].sealed);
    install(&old).await.expect("upgraded");
    assert_eq!(base.fence.mark(&old).await.expect("preserved"), Some(number(20)));
    let mut writer = base.server.connect("leasehold", &name).await.expect("connected");
    base.write(&mut writer, 20).await.expect("the holder continues");
    let key = StampKey::from_hex(&"5a".repeat(32)).expect("a key");
    base.fence.seal(&old, &key).await.expect("sealed");
    let refused = base.write(&mut writer, 20).await.expect_err("not sealed");
    assert_eq!(refused.refusal().expect("refused").reason(), "unsealed");
}
