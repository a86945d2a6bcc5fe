//! Rights on the fence's own objects: neither default privileges nor `pg_write_all_data` open a protected table.

use leasehold_fence::postgres::{Fence, install};
use tokio_postgres::Client;

use crate::database::Database;
use crate::protected_tables::{admit, code, protected};
use crate::server::Server;
use crate::support::token;

/// Privileges that roles other than the owner have on the objects of the schema, one line each. `PUBLIC` is left out.
const GRANTS: &str = "SELECT string_agg(g, E'\\n' ORDER BY g) FROM (
    SELECT concat_ws(' ', c.relname, a.privilege_type) FROM pg_class AS c, aclexplode(c.relacl) AS a
      WHERE c.relnamespace = 'leasehold'::regnamespace AND a.grantee NOT IN (c.relowner, 0)
    UNION ALL SELECT concat_ws(' ', p.proname, a.privilege_type) FROM pg_proc AS p, aclexplode(p.proacl) AS a
      WHERE p.pronamespace = 'leasehold'::regnamespace AND p.proname !~ '^guard_[0-9a-f]+(_row)?$' AND a.grantee NOT IN (p.proowner, 0)
    UNION ALL SELECT concat_ws(' ', n.nspname, a.privilege_type) FROM pg_namespace AS n, aclexplode(n.nspacl) AS a
      WHERE n.nspname = 'leasehold' AND a.grantee NOT IN (n.nspowner, 0)) AS grants(g)";

async fn grants(db: &Client) -> Option<String> {
    db.query_one(GRANTS, &[]).await.expect("read").get(0)
}

/// What is wrong with the guards, one line each.
async fn problems(db: &Client) -> Vec<String> {
    let sql = "SELECT concat_ws(' ', object, guard, problem) FROM leasehold.list_guards() WHERE problem IS NOT NULL";
    db.query(sql, &[]).await.expect("listed").iter().map(|row| row.get(0)).collect()
}

/// A database in which the superuser granted everything on future objects to a role, before the fence was installed. The role may use
/// the schema.
async fn with_default_privileges() -> (Database, String, Client) {
    let role = |database: &str| format!("heir_{database}");
    let server = tokio::task::spawn_blocking(Server::shared).await.expect("a server");
    let base = Database::prepared(server, |name| {
        let heir = role(name);
        format!(
            "CREATE ROLE {heir} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {heir}; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {heir};
             ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {heir}; ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO {heir};
             ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO {heir}; ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO {heir};
             ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC"
        )
    })
    .await;
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    base.fence.protect(&base.db, "written").await.expect("protected");
    assert_eq!(grants(&base.db).await, None);
    let role = role(&base.name);
    base.db.batch_execute(&format!("GRANT USAGE ON SCHEMA leasehold TO {role}")).await.expect("granted");
    let heir = base.server.connect(&role, &base.name).await.expect("connected");
    (base, role, heir)
}

#[tokio::test]
async fn default_privileges_give_no_role_a_right_on_the_fence() {
    let (base, _, heir) = with_default_privileges().await;
    for sql in [
        "DELETE FROM leasehold.protected",
        "UPDATE leasehold.fence SET state = 'lost'",
        "INSERT INTO leasehold.changing_guards VALUES (pg_current_xact_id())",
        "SELECT setval('leasehold.token_cache_0', 1)",
        "SELECT leasehold.rearm('jobs/settle', 100)",
        "SELECT leasehold.declare_lost('jobs/settle')",
        "SELECT leasehold.terminate_blockers('x', 'jobs/settle', 0)",
        "CREATE TABLE leasehold.planted (a int)",
    ] {
        assert_eq!(code(&heir, sql).await.as_deref(), Some("42501"), "{sql}");
    }
    // What application roles need is theirs, although functions are not executable by default in this database.
    assert_eq!(code(&heir, "DELETE FROM written").await.as_deref(), Some("LH002"));
    let write = format!("BEGIN; {}; INSERT INTO written (number) VALUES (20); COMMIT", admit(20));
    heir.batch_execute(&write).await.expect("written with a token");
    base.fence.claim(&heir, &token(21)).await.expect("claimed");
    assert_eq!(problems(&base.db).await, [""; 0]);
}

#[tokio::test]
async fn an_installation_keeps_grants_of_an_operator_and_revokes_writes() {
    let (base, role, _) = with_default_privileges().await;
    let grant = format!(
        "GRANT USAGE ON SCHEMA leasehold TO {role}; GRANT EXECUTE ON FUNCTION leasehold.terminate_blockers, leasehold.list_marks TO {role};
         GRANT SELECT ON leasehold.fence TO {role}"
    );
    base.db.batch_execute(&grant).await.expect("granted");
    let kept = grants(&base.db).await;
    assert!(kept.is_some());
    install(&base.db).await.expect("installed again");
    assert_eq!(grants(&base.db).await, kept);
    assert_eq!(problems(&base.db).await, [""; 0]);
    let grant = format!(
        "GRANT ALL ON leasehold.protected TO {role} WITH GRANT OPTION; GRANT UPDATE (mark) ON leasehold.fence TO {role};
         GRANT UPDATE ON leasehold.token_cache_3 TO PUBLIC; GRANT CREATE ON SCHEMA leasehold TO {role};
         GRANT EXECUTE ON FUNCTION leasehold.rearm TO PUBLIC"
    );
    for repair in ["install", "repair"] {
        base.db.batch_execute(&grant).await.expect("granted");
        let found = problems(&base.db).await;
        for expected in [
            "leasehold.protected grants",
            "leasehold.fence grants",
            "token_cache_3 grants",
            "leasehold grants",
            "rearm",
        ] {
            assert!(found.iter().any(|problem| problem.contains(expected)), "{expected}: {found:?}");
        }
        assert_eq!(found.len(), 5, "{found:?}");
        if repair == "install" {
            install(&base.db).await.expect("installed again");
        } else {
            leasehold_fence::postgres::repair_guards(&base.db).await.expect("repaired");
        }
        assert_eq!(problems(&base.db).await, [""; 0], "{repair}");
        let left = grants(&base.db).await.expect("those that stay");
        assert!(left.contains("fence SELECT") && left.contains("terminate_blockers EXECUTE"), "{repair}: {left}");
    }
}

/// A member of `pg_write_all_data` who may use the schema.
async fn write_all(base: &Database) -> Client {
    let role = format!("etl_{}", base.name);
    let sql = format!(
        "CREATE ROLE {role} LOGIN; GRANT pg_write_all_data TO {role}; GRANT USAGE ON SCHEMA leasehold TO {role};
         GRANT SELECT ON ALL TABLES IN SCHEMA leasehold, public TO {role}"
    );
    base.db.batch_execute(&sql).await.expect("a role");
    base.server.connect(&role, &base.name).await.expect("connected")
}

#[tokio::test]
async fn a_member_of_pg_write_all_data_cannot_write_to_the_tables_of_the_fence() {
    let base = protected().await;
    let etl = write_all(&base).await;
    let tables = base.db.query(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'leasehold'::regnamespace AND relkind = 'r'",
        &[],
    );
    let tables: Vec<String> = tables.await.expect("listed").iter().map(|row| row.get(0)).collect();
    assert!(tables.len() >= 4, "{tables:?}");
    for table in &tables {
        assert_eq!(code(&etl, &format!("DELETE FROM leasehold.{table}")).await.as_deref(), Some("LH009"), "{table}");
        let sql = format!("INSERT INTO leasehold.{table} SELECT * FROM leasehold.{table} WHERE false");
        // Identity columns are refused even earlier.
        assert!(matches!(code(&etl, &sql).await.as_deref(), Some("LH009" | "428C9")), "{table}");
    }
    for sql in [
        "INSERT INTO leasehold.changing_guards VALUES (pg_current_xact_id())",
        "UPDATE leasehold.version SET version = 2",
        "UPDATE leasehold.protected SET definition = NULL",
        "UPDATE leasehold.fence SET mark = mark + 100",
        "UPDATE leasehold.fence SET token_digest = 1",
        "UPDATE leasehold.fence SET protects_tables = false",
    ] {
        assert_eq!(code(&etl, sql).await.as_deref(), Some("LH009"), "{sql}");
    }
    // Marks and claims of others go on.
    let set_token = format!("CALL leasehold.set_session_token('{}', 'jobs/settle')", token(21));
    etl.batch_execute(&set_token).await.expect("a session token");
    etl.batch_execute("DELETE FROM written").await.expect("written with a token");
    assert_eq!(problems(&base.db).await, [""; 0]);
}

#[tokio::test]
async fn a_poisoned_cache_does_not_make_a_token_of_any_text() {
    let base = protected().await;
    let etl = write_all(&base).await;
    let changed = |range: std::ops::Range<usize>, to: &str| {
        let mut text = token(20);
        text.replace_range(range, to);
        text
    };
    // No token at all, then one of another cluster, resource and slot, and one with other characters.
    let texts = [
        "x".repeat(85),
        changed(4..20, "0000000000000001"),
        changed(30..46, "0000000000000001"),
        changed(48..56, "00000001"),
        changed(84..85, "x"),
    ];
    for text in texts {
        let poison = format!(
            "SELECT setval('leasehold.token_cache_' || (leasehold.lock_key('jobs/settle', 0) & 63),
               hashtextextended('{text}', leasehold.lock_key('jobs/settle', 0)));
             SELECT set_config('leasehold.checked_token', hashtextextended('{text}', 0)::text, false)"
        );
        for setting in [format!("'{text}'"), format!("pg_current_xact_id() || ':{text}'")] {
            let write = format!(
                "{poison}; BEGIN; SELECT set_config('leasehold.token_' || to_hex(leasehold.lock_key('jobs/settle', 0)), {setting}, true);
                 UPDATE written SET number = 666; COMMIT"
            );
            assert_eq!(code(&etl, &write).await.as_deref(), Some("LH002"), "{setting}");
        }
        let write = format!(
            "{poison}; BEGIN; SELECT leasehold.admit('{text}', 'jobs/settle'); UPDATE written SET number = 666; COMMIT"
        );
        // `admit` itself trusts the cache if it reads a number in the text; the guard does not.
        let refused = code(&etl, &write).await;
        assert!(matches!(refused.as_deref(), Some("LH002" | "22P02")), "admit {text}: {refused:?}");
    }
    assert_eq!(base.written().await, [20]);
}

#[tokio::test]
async fn a_probe_reports_a_guarded_table_that_is_not_listed() {
    let base = protected().await;
    let sql = "ALTER TABLE leasehold.protected DISABLE TRIGGER USER; DELETE FROM leasehold.protected;
        ALTER TABLE leasehold.protected ENABLE ALWAYS TRIGGER check_owner";
    base.db.batch_execute(sql).await.expect("a superuser empties the list");
    let mut db = base.connect().await;
    let report = base.fence.probe(&mut db, &token(3)).await.expect("probed");
    assert!(report.is_forced());
    let found = report.holes();
    assert!(
        found.iter().any(|hole| hole.contains("list of public.written: has a guard, but is not listed")),
        "{found:?}"
    );
    leasehold_fence::postgres::repair_guards(&base.db).await.expect("repaired");
    assert_eq!(base.fence.probe(&mut db, &token(3)).await.expect("probed").holes(), [""; 0]);
}

#[tokio::test]
async fn a_probe_reports_functions_and_triggers_of_the_fence_that_a_superuser_replaced() {
    let openings = [
        (
            "CREATE OR REPLACE FUNCTION leasehold.check_ddl() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
            "leasehold.check_ddl()",
        ),
        (
            "CREATE OR REPLACE FUNCTION leasehold.check_ddl_start() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
            "check_ddl_start()",
        ),
        ("ALTER FUNCTION leasehold.check_ddl() SECURITY INVOKER", "leasehold.check_ddl()"),
        (
            "ALTER FUNCTION leasehold.lock_key RESET ALL; ALTER FUNCTION leasehold.definition RESET search_path",
            "leasehold.definition",
        ),
        (
            "CREATE OR REPLACE FUNCTION leasehold.check_owner() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "check_owner()",
        ),
        (
            "CREATE FUNCTION leasehold.admit(token varchar, resource text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
            "admit(character varying,text)",
        ),
        ("DROP FUNCTION leasehold.probe_writes", "probe_writes"),
        ("ALTER TABLE leasehold.protected DISABLE TRIGGER check_owner", "leasehold.protected"),
        ("ALTER TABLE leasehold.fence ENABLE TRIGGER check_mark_change", "leasehold.fence"),
        ("DROP TRIGGER check_owner ON leasehold.changing_guards", "leasehold.changing_guards"),
    ];
    for (opening, expected) in openings {
        let base = protected().await;
        base.db.batch_execute(opening).await.expect(opening);
        let found = base.fence.list_guards(&base.db).await.expect("listed");
        let found: Vec<_> = found.iter().filter(|guard| guard.problem.is_some()).collect();
        assert!(found.len() == 1 && found[0].object.contains(expected), "{opening}: {found:?}");
        if opening.contains("varchar") {
            base.db.batch_execute("DROP FUNCTION leasehold.admit(varchar, text)").await.expect("dropped");
        }
        install(&base.db).await.expect("installed again");
        assert_eq!(problems(&base.db).await, [""; 0], "{opening}");
    }
}

#[tokio::test]
async fn errors_of_operator_calls_name_the_cause_and_the_next_step() {
    let base = protected().await;
    let role = format!("plain_{}", base.name);
    base.db
        .batch_execute(&format!("CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA leasehold TO {role}"))
        .await
        .expect("a role");
    let mut plain = base.server.connect(&role, &base.name).await.expect("connected");

    let missing = base.fence.protect(&base.db, "nosuch").await.expect_err("no such table");
    assert_eq!(missing.code(), "NOT_FOUND");
    assert!(missing.to_string().contains("relation \"nosuch\" does not exist"), "{missing}");
    assert_eq!(base.fence.protect(&base.db, "leasehold_x").await.expect_err("no such table").code(), "NOT_FOUND");
    assert_eq!(base.fence.unprotect(&base.db, "\"").await.expect_err("no name").code(), "INVALID_ARGUMENT");
    base.db.batch_execute("CREATE VIEW seen AS SELECT 1").await.expect("a view");
    let view = base.fence.protect(&base.db, "seen").await.expect_err("a view");
    assert!(view.code() == "CONFLICT" && view.to_string().contains("seen is not a table"), "{view}");

    let other = Fence::new(&crate::support::id_of(crate::support::CLUSTER, "jobs/other"));
    other.arm(&base.db).await.expect("armed");
    let taken = other.protect(&base.db, "written").await.expect_err("protected by another");
    assert_eq!(taken.code(), "CONFLICT");
    assert!(taken.to_string().contains("already protected by jobs/settle"), "{taken}");
    assert!(taken.to_string().contains("leasehold.unprotect"), "{taken}");

    let denied = base.fence.probe(&mut plain, &token(3)).await.expect_err("no operator");
    assert_eq!(denied.code(), "PERMISSION_DENIED");
    assert!(denied.to_string().contains("permission denied for function probe_writes"), "{denied}");
    assert!(denied.to_string().contains("owner of schema leasehold"), "{denied}");
    let failed = leasehold_fence::Error::from(base.db.batch_execute("SELECT 1 / 0").await.expect_err("fails"));
    assert_eq!(failed.code(), "STORAGE_FAILED");
    assert!(failed.to_string().contains("division by zero"), "{failed}");
}
