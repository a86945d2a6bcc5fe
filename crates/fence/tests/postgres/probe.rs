//! The probe of a fence finds every way in which a protected table is open (COV1).

use leasehold_fence::postgres::repair_guards;

use crate::database::Database;
use crate::protected_tables::{code, protected};
use crate::support::token;

/// What the probe finds open, with a stale token.
async fn holes(base: &Database) -> Vec<String> {
    let mut db = base.connect().await;
    base.fence.probe(&mut db, &token(3)).await.expect("probed").holes()
}

#[tokio::test]
async fn a_probe_of_intact_guards_finds_nothing_and_changes_nothing() {
    let base = protected().await;
    base.db
        .batch_execute(
            "CREATE TABLE public.child () INHERITS (written); 
             CREATE TABLE public.strict (id bigint GENERATED ALWAYS AS IDENTITY, v int NOT NULL CHECK (v > 0));
             SELECT leasehold.protect('strict', 'jobs/settle')",
        )
        .await
        .expect("made");
    let mut db = base.connect().await;
    let report = base.fence.probe(&mut db, &token(3)).await.expect("probed");
    assert_eq!(report.holes(), [""; 0]);
    assert!(report.is_forced());
    let tables: Vec<_> = report.writes.iter().map(|write| (write.table.as_str(), write.sqlstate.as_str())).collect();
    assert_eq!(tables, [("public.child", "LH002"), ("public.strict", "LH002"), ("public.written", "LH002")]);
    assert_eq!(base.written().await, [20]);
    // A session token of the connection does not help the probe's write.
    base.fence.set_session_token(&db, &token(20), crate::database::LONG).await.expect("set");
    assert_eq!(base.fence.probe(&mut db, &token(3)).await.expect("probed").holes(), [""; 0]);
    assert_eq!(code(&db, "INSERT INTO written (number) VALUES (20)").await, None, "the session token remains");
}

#[tokio::test]
async fn a_probe_reports_what_a_superuser_opened_until_it_is_repaired() {
    // Each with a part of what the probe reports.
    let openings = [
        ("ALTER TABLE written DISABLE TRIGGER leasehold_guard", "accepted a write without a token"),
        ("ALTER TABLE written DISABLE TRIGGER leasehold_guard", "statement trigger of public.written: disabled"),
        ("ALTER TABLE written DISABLE TRIGGER leasehold_guard_row", "row trigger of public.written: disabled"),
        ("ALTER TABLE written ENABLE TRIGGER leasehold_guard", "enabled for other sessions"),
        ("DROP TRIGGER leasehold_guard ON written", "statement trigger of public.written: missing"),
        ("DROP TRIGGER leasehold_guard_row ON written", "row trigger of public.written: missing"),
        ("ALTER TABLE written ADD COLUMN more int", "definition of public.written: changed without a check"),
        ("CREATE TABLE public.child () INHERITS (written)", "list of public.child: is not protected"),
        ("CREATE TABLE public.child () INHERITS (written)", "table public.child accepted a write without a token"),
        (
            "DO $$ BEGIN EXECUTE format('CREATE OR REPLACE FUNCTION leasehold.%s() RETURNS trigger LANGUAGE plpgsql AS %L',
               leasehold.guard_name('jobs/settle', 0), 'BEGIN RETURN NULL; END'); END $$",
            "function of leasehold.guard_",
        ),
    ];
    for (opening, expected) in openings {
        let base = protected().await;
        let sql = format!(
            "ALTER EVENT TRIGGER leasehold_check_ddl DISABLE; ALTER EVENT TRIGGER leasehold_check_drop DISABLE; {opening};
             ALTER EVENT TRIGGER leasehold_check_ddl ENABLE ALWAYS; ALTER EVENT TRIGGER leasehold_check_drop ENABLE ALWAYS"
        );
        base.db.batch_execute(&sql).await.expect(opening);
        let found = holes(&base).await;
        assert!(found.iter().any(|hole| hole.contains(expected)), "{opening}: {found:?}");
        repair_guards(&base.db).await.expect("repaired");
        assert_eq!(holes(&base).await, [""; 0], "{opening}");
        assert_eq!(code(&base.db, "DELETE FROM written").await.as_deref(), Some("LH002"), "{opening}");
    }
}

#[tokio::test]
async fn a_probe_reports_event_triggers_that_are_missing_or_disabled() {
    let base = protected().await;
    for name in ["leasehold_check_ddl", "leasehold_check_drop", "leasehold_check_rewrite", "leasehold_check_start"] {
        for change in ["DISABLE", "ENABLE", "ENABLE REPLICA"] {
            base.db.batch_execute(&format!("ALTER EVENT TRIGGER {name} {change}")).await.expect("changed");
            let found = holes(&base).await;
            assert!(found.len() == 1 && found[0].contains(name), "{name} {change}: {found:?}");
            base.db.batch_execute(&format!("ALTER EVENT TRIGGER {name} ENABLE ALWAYS")).await.expect("changed");
        }
        base.db.batch_execute(&format!("DROP EVENT TRIGGER {name}")).await.expect("dropped");
        assert!(holes(&base).await.iter().any(|hole| hole.contains("missing; install as a superuser")), "{name}");
        leasehold_fence::postgres::install(&base.db).await.expect("installed again");
        assert_eq!(holes(&base).await, [""; 0], "{name}");
    }
}

#[tokio::test]
async fn a_probe_after_unprotect_finds_no_forced_table() {
    let base = protected().await;
    base.fence.unprotect(&base.db, "written").await.expect("unprotected");
    let mut db = base.connect().await;
    let report = base.fence.probe(&mut db, &token(3)).await.expect("probed");
    assert!(!report.is_forced() && report.writes.is_empty());
    assert_eq!(report.holes(), [""; 0], "what remains is the check of writers that call admit");
    let admitted = base.fence.probe(&mut db, &token(20)).await.expect("probed");
    assert_eq!(admitted.holes(), ["a stale token was admitted"]);
}

#[tokio::test]
async fn a_probe_by_a_role_that_may_not_delete_proves_nothing_and_says_so() {
    let base = protected().await;
    let role = format!("reader_{}", base.name);
    let sql = format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA leasehold TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA leasehold TO {role};
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA leasehold TO {role}"
    );
    base.db.batch_execute(&sql).await.expect("a role");
    let mut db = base.server.connect(&role, &base.name).await.expect("connected");
    let found = base.fence.probe(&mut db, &token(3)).await.expect("probed").holes();
    assert!(found.iter().any(|hole| hole.contains("proves nothing: 42501")), "{found:?}");
}
