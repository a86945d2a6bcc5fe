//! Matrix of attacks on a protected table: paths × statements × roles × layouts, and DDL × roles × layouts (F3). Every cell is attacked
//! in a real server. `LEASEHOLD_BLESS=1` writes the outcome to `docs/how-to/fence/postgres-forced-mode.md`.

mod ddl;
pub mod layout;
mod page;
mod writes;

use std::path::Path;
use std::sync::Arc;

use tokio_postgres::Client;

use crate::database::Database;
use crate::protected_tables::admit;
use crate::server::Server;
use crate::support::token;
use layout::{AttackedDatabase, Attacker, TableLayout};
use page::{DdlRow, WriteRow};
use writes::{WritePath, WriteStatement};

/// What happened to an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The fence refused it; with a current token it is allowed.
    NeedsToken,
    /// The fence refused it, also with a current token.
    AlwaysRefused,
    /// The role has no right to do it.
    NoRight,
    /// The server does not support it for this layout.
    NotSupported,
    /// It was allowed without a token, and changed neither rows nor definition nor guards.
    Harmless,
}

/// SQLSTATE of a statement; `None` if it succeeds.
async fn sqlstate(db: &Client, sql: &str) -> Option<String> {
    let outcome = db.batch_execute(sql).await;
    db.batch_execute("ROLLBACK").await.expect("ended");
    outcome.err().map(|error| error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()))
}

/// Sets the token of the connection, for one transaction.
fn connection_token(number: u64) -> String {
    format!("SET LOCAL leasehold.token = '{}'", token(number))
}

/// Attacks with one role: without a token, with a stale one and with a current one, presented by `admit` and by the connection's setting.
/// What must not happen is added to `failures`.
async fn attack(
    target: &AttackedDatabase,
    attacker: Attacker,
    sql: &str,
    undo: &str,
    failures: &mut Vec<String>,
) -> Outcome {
    let db = target.client(attacker);
    let in_block = sql.starts_with("DECLARE") || sql.starts_with("SET LOCAL");
    let plain = if in_block { format!("BEGIN; {sql}; COMMIT") } else { sql.to_owned() };
    let code = sqlstate(db, &plain).await;
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            failures.push(format!("{:?}, {attacker:?}, {code:?}: {sql}: {what}", target.layout));
        }
    };
    match code.as_deref() {
        Some("LH002") => {
            let stale = sqlstate(db, &format!("BEGIN; {}; {sql}; COMMIT", admit(19))).await;
            expect(stale.as_deref() == Some("LH001"), "accepted with a stale token");
            let stale = sqlstate(db, &format!("BEGIN; {}; {sql}; COMMIT", connection_token(19))).await;
            expect(stale.as_deref() == Some("LH001"), "accepted with a stale token of the connection");
            let current = sqlstate(db, &format!("BEGIN; {}; {sql}; ROLLBACK", admit(20))).await;
            let connections = sqlstate(db, &format!("BEGIN; {}; {sql}; ROLLBACK", connection_token(20))).await;
            expect(connections == current, &format!("with the connection's current token: {connections:?}"));
            if current.as_deref() == Some("LH009") {
                Outcome::AlwaysRefused
            } else {
                expect(current.is_none(), &format!("refused with a current token: {current:?}"));
                Outcome::NeedsToken
            }
        }
        Some("LH009") => {
            let current = sqlstate(db, &format!("BEGIN; {}; {sql}; COMMIT", admit(20))).await;
            expect(current.as_deref() == Some("LH009"), &format!("with a current token: {current:?}"));
            Outcome::AlwaysRefused
        }
        Some("42501") => Outcome::NoRight,
        // Not a table of this kind, an inherited column or trigger, an object that others depend on.
        Some("42809" | "42P16" | "0A000" | "2BP01" | "42P17" | "42611") => Outcome::NotSupported,
        Some(_) => {
            expect(false, "failed in another way");
            Outcome::NotSupported
        }
        None => {
            expect(target.state().await == target.initial, "changed the table without a token");
            if !undo.is_empty() {
                let undone = target.base.db.batch_execute(&format!("BEGIN; {}; {undo}; COMMIT", admit(20))).await;
                expect(undone.is_ok(), &format!("cannot be undone: {undone:?}"));
            }
            Outcome::Harmless
        }
    }
}

/// Adds a failure if the attacks by one statement changed anything. Asked once for all roles, because it reads every definition.
async fn expect_unchanged(target: &AttackedDatabase, sql: &str, failures: &mut Vec<String>) {
    if target.state().await != target.initial {
        failures.push(format!("{:?}: {sql}: changed the table", target.layout));
    }
}

async fn attack_by_writes(target: &AttackedDatabase, failures: &mut Vec<String>) -> Vec<WriteRow> {
    let mut rows = Vec::new();
    for path in WritePath::ALL {
        let mut cells = Vec::new();
        for statement in WriteStatement::ALL {
            let sql = match path.attack(statement, target.layout) {
                Ok(sql) => sql,
                Err(reason) => {
                    cells.push(Err(reason));
                    continue;
                }
            };
            let mut outcomes = Vec::new();
            for attacker in Attacker::ALL {
                let outcome = attack(target, attacker, &sql, "", failures).await;
                let expected = match (statement, attacker) {
                    (WriteStatement::SelectForUpdate, _) => [Outcome::Harmless, Outcome::NoRight],
                    (_, Attacker::Writer) => [Outcome::NeedsToken; 2],
                    _ => [Outcome::NeedsToken, Outcome::NoRight],
                };
                if !expected.contains(&outcome) {
                    failures.push(format!("{:?}, {attacker:?}: {sql}: {outcome:?}", target.layout));
                }
                outcomes.push(outcome);
            }
            expect_unchanged(target, &sql, failures).await;
            cells.push(Ok(outcomes));
        }
        rows.push(WriteRow { path, cells });
    }
    rows
}

async fn attack_by_ddl(target: &AttackedDatabase, failures: &mut Vec<String>) -> Vec<DdlRow> {
    let mut rows = Vec::new();
    for (layouts, sql, undo) in ddl::ATTACKS {
        if !layouts.contains(&target.layout) {
            continue;
        }
        let mut outcomes = Vec::new();
        for attacker in Attacker::ALL {
            let outcome = attack(target, attacker, sql, undo, failures).await;
            if outcome == Outcome::Harmless && undo.is_empty() {
                failures.push(format!("{:?}, {attacker:?}: {sql}: allowed without a token", target.layout));
            }
            outcomes.push(outcome);
        }
        expect_unchanged(target, sql, failures).await;
        if outcomes.iter().all(|outcome| *outcome == Outcome::NoRight) && !sql.contains("leasehold") {
            failures.push(format!("{:?}: {sql}: no role has the right, so nothing was attacked", target.layout));
        }
        rows.push(DdlRow { sql, layouts: vec![target.layout], outcomes });
    }
    rows
}

#[tokio::test]
async fn every_path_into_a_protected_table_is_refused_without_a_current_token() {
    let mut failures = Vec::new();
    let mut writes = Vec::new();
    let mut commands: Vec<DdlRow> = Vec::new();
    for layout in TableLayout::ALL {
        let target = AttackedDatabase::new(layout).await;
        writes.push((layout, attack_by_writes(&target, &mut failures).await));
        for row in attack_by_ddl(&target, &mut failures).await {
            match commands.iter_mut().find(|known| (known.sql, &known.outcomes) == (row.sql, &row.outcomes)) {
                Some(known) => known.layouts.extend(row.layouts),
                None => commands.push(row),
            }
        }
    }
    let server =
        tokio::task::spawn_blocking(|| Server::start(&["wal_level=logical", "wal_retrieve_retry_interval=100ms"]));
    let server = Arc::new(server.await.expect("a server"));
    let mut replicated = Vec::new();
    for layout in [TableLayout::Plain, TableLayout::Partition, TableLayout::PartitionedRoot] {
        let base = Database::on(Arc::clone(&server)).await;
        replicated.push((layout, crate::logical_replication::attack_by_subscription(base, layout).await));
    }
    tokio::task::spawn_blocking(move || drop(server)).await.expect("stopped");

    assert!(failures.is_empty(), "{} attacks:\n{}", failures.len(), failures.join("\n"));
    let text = page::render(&writes, &commands, &replicated);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/fence/postgres-forced-mode.md");
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&path, text).expect("written");
    } else {
        let stored = std::fs::read_to_string(&path).expect("the page is there");
        assert!(
            stored == text,
            "docs/how-to/fence/postgres-forced-mode.md differs; run this test with LEASEHOLD_BLESS=1 and review it"
        );
    }
}
