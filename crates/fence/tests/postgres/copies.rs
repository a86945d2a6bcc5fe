//! Copies of a database refuse all tokens until an operator re-arms them: dumps, templates and promoted standbys (F7).

use std::process::Command;
use std::sync::Arc;

use leasehold_fence::postgres::{install, repair_guards};
use leasehold_fence::{Error, FenceRefusal, MarkLoss};
use tokio_postgres::Client;

use crate::database::{Database, LONG};
use crate::protected_tables::{code, protected};
use crate::server::Server;
use crate::support::{number, token};

/// Runs a program of PostgreSQL against the server of this database.
fn run(base: &Database, program: &str, args: &[&str]) -> Vec<u8> {
    let output = Command::new(program)
        .arg("-h")
        .arg(base.server.socket())
        .args(["-U", "leasehold"])
        .args(args)
        .output()
        .expect("PostgreSQL's client programs are installed; ./test installs them");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Restores a dump of a protected database, with its cached token, into a new database of the same server.
async fn restored(base: &Database, name: &str, options: &[&str]) -> Client {
    let mut holder = base.connect().await;
    for _ in 0..3 {
        base.write(&mut holder, 20).await.expect("written, which caches the token");
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    let dump = run(base, "pg_dump", &[options, &[base.name.as_str()]].concat());
    std::fs::write(file.path(), dump).expect("dumped");
    if name != base.name {
        base.db.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
    }
    let path = file.path().to_str().expect("a path of text");
    run(base, "psql", &["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", path, name]);
    base.server.connect("leasehold", name).await.expect("connected")
}

fn is_moved(result: Result<impl std::fmt::Debug, Error>) {
    match result {
        Err(Error::Refused(FenceRefusal::MarkLost(MarkLoss::Moved))) => {}
        other => panic!("not moved: {other:?}"),
    }
}

/// How the guards of a copy are repaired.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RepairBy {
    /// `repair_guards`, before the mark is re-armed.
    Itself,
    /// `rearm`, which does both.
    Rearm,
}

/// Asserts that a copy refuses everything, then repairs and re-arms it.
async fn refuses_until_rearmed(base: &Database, mut copy: Client, repair: RepairBy) {
    is_moved(base.fence.claim(&copy, &token(21)).await);
    is_moved(base.write(&mut copy, 20).await);
    is_moved(base.fence.set_session_token(&copy, &token(20), LONG).await);
    is_moved(base.fence.mark(&copy).await);
    assert_eq!(code(&copy, "DELETE FROM written").await.as_deref(), Some("LH002"));
    for ddl in ["ALTER TABLE written ADD COLUMN more int", "CREATE TABLE public.more (a int)", "DROP TABLE written"] {
        let error = copy.batch_execute(ddl).await.expect_err(ddl);
        let error = error.as_db_error().expect("a server error");
        assert_eq!(error.code().code(), "LH005", "{ddl}: {error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("leasehold.repair_guards()")), "{ddl}: {error:?}");
    }
    install(&copy).await.expect("an installation changes no mark");
    is_moved(base.fence.claim(&copy, &token(21)).await);
    if repair == RepairBy::Itself {
        assert_eq!(repair_guards(&copy).await.expect("repaired"), ["written"]);
        is_moved(base.write(&mut copy, 20).await);
        copy.batch_execute("CREATE TABLE public.early (a int)").await.expect("DDL works again");
    }
    base.fence.rearm(&copy, number(25)).await.expect("re-armed");
    copy.batch_execute("CREATE TABLE public.more (a int)").await.expect("DDL works again");
    assert_eq!(base.write(&mut copy, 20).await.expect_err("the zombie").code(), "STALE_TOKEN");
    assert_eq!(code(&copy, "DELETE FROM written").await.as_deref(), Some("LH002"));
    base.write(&mut copy, 26).await.expect("a later holder");
    let report = base.fence.probe(&mut copy, &token(3)).await.expect("probed");
    assert!(report.is_forced(), "{report:?}");
    assert_eq!(report.holes(), [""; 0]);
}

#[tokio::test]
async fn a_dump_restored_into_the_same_server_refuses_all_tokens_until_it_is_repaired_and_rearmed() {
    let base = protected().await;
    let copy = restored(&base, &format!("copy_{}", base.name), &[]).await;
    base.fence.claim(&base.db, &token(21)).await.expect("the original goes on");
    refuses_until_rearmed(&base, copy, RepairBy::Itself).await;
    assert_eq!(base.mark().await, Some(21));
}

#[tokio::test]
async fn a_dump_restored_over_its_own_database_refuses_all_tokens_until_it_is_repaired_and_rearmed() {
    let base = protected().await;
    let copy = restored(&base, &base.name, &["--clean"]).await;
    refuses_until_rearmed(&base, copy, RepairBy::Rearm).await;
}

#[tokio::test]
async fn a_database_created_from_a_protected_template_refuses_all_tokens_until_it_is_repaired_and_rearmed() {
    let base = protected().await;
    let (name, original) = (format!("copy_{}", base.name), base.name.clone());
    let admin = base.server.connect("leasehold", "postgres").await.expect("connected");
    let Database { server, fence, db, .. } = base;
    drop(db);
    // The connection ends a moment after its client.
    let sql = format!("CREATE DATABASE {name} TEMPLATE {original}");
    while let Err(error) = admin.batch_execute(&sql).await {
        assert_eq!(error.code().map(|code| code.code()), Some("55006"), "only a connection can be in the way: {error}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let db = server.connect("leasehold", &original).await.expect("connected");
    let copy = server.connect("leasehold", &name).await.expect("connected");
    refuses_until_rearmed(&Database { server, name: original, fence, db }, copy, RepairBy::Rearm).await;
}

#[tokio::test]
async fn a_promoted_standby_refuses_all_tokens_until_it_is_repaired_and_rearmed() {
    let server = tokio::task::spawn_blocking(|| Server::start(&[])).await.expect("a server");
    let mut base = Database::on(Arc::new(server)).await;
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    base.fence.protect(&base.db, "written").await.expect("protected");
    for _ in 0..3 {
        let mut db = base.connect().await;
        base.write(&mut db, 20).await.expect("written");
    }
    let primary = Arc::clone(&base.server);
    let standby = tokio::task::spawn_blocking(move || primary.start_standby()).await.expect("a standby");
    let mut early = standby.connect("leasehold", &base.name).await.expect("connected");
    let sql = "SELECT mark FROM leasehold.list_marks()";
    early.query(sql, &[]).await.expect_err("a standby cannot read its timeline");
    let tx = early.transaction().await.expect("begun");
    base.fence.admit(&tx, &token(20), LONG).await.expect_err("a standby admits nothing");
    tx.rollback().await.expect("ended");

    // The standby lags: it never receives the next claim.
    early.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").await.expect("set");
    early.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
    let receives = "SELECT count(*) FROM pg_stat_wal_receiver";
    while early.query_one(receives, &[]).await.expect("read").get::<_, i64>(0) > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    base.fence.claim(&base.db, &token(21)).await.expect("the successor claims");
    early.batch_execute("SELECT pg_promote()").await.expect("promoted");
    // The session from before the promotion goes on, and so does the zombie in it.
    is_moved(base.write(&mut early, 20).await);
    is_moved(base.fence.set_session_token(&early, &token(20), LONG).await);
    assert_eq!(code(&early, "DELETE FROM written").await.as_deref(), Some("LH002"));
    base.server = Arc::new(standby);
    refuses_until_rearmed(&base, early, RepairBy::Itself).await;
    tokio::task::spawn_blocking(move || drop(base)).await.expect("stopped");
}

/// A server with a protected table, whose holder has written.
async fn protected_server() -> Database {
    let server = tokio::task::spawn_blocking(|| Server::start(&[])).await.expect("a server");
    let base = Database::on(Arc::new(server)).await;
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    base.fence.protect(&base.db, "written").await.expect("protected");
    for _ in 0..3 {
        let mut db = base.connect().await;
        base.write(&mut db, 20).await.expect("written, which caches the token");
    }
    base
}

#[tokio::test]
async fn a_base_backup_that_continues_on_its_timeline_refuses_all_tokens_until_it_is_repaired_and_rearmed() {
    let mut base = protected_server().await;
    let original = Arc::clone(&base.server);
    let copy = tokio::task::spawn_blocking(move || original.start_copy()).await.expect("a copy");
    base.fence.claim(&base.db, &token(21)).await.expect("the original goes on");
    let db = copy.connect("leasehold", &base.name).await.expect("connected");
    let original = std::mem::replace(&mut base.server, Arc::new(copy));
    refuses_until_rearmed(&base, db, RepairBy::Itself).await;
    // A copy of the copy is another one.
    let first = Arc::clone(&base.server);
    let second = tokio::task::spawn_blocking(move || first.start_copy()).await.expect("a copy");
    let mut db = second.connect("leasehold", &base.name).await.expect("connected");
    is_moved(base.write(&mut db, 26).await);
    // A restart changes nothing.
    let server = Arc::clone(&base.server);
    tokio::task::spawn_blocking(move || server.crash_and_restart()).await.expect("restarted");
    let mut db = base.connect().await;
    base.write(&mut db, 26).await.expect("re-armed");
    assert_eq!(base.write(&mut db, 20).await.expect_err("the zombie").code(), "STALE_TOKEN");
    tokio::task::spawn_blocking(move || drop((base, original, second))).await.expect("stopped");
}

#[tokio::test]
async fn a_standby_that_becomes_a_primary_without_a_promotion_refuses_all_tokens_until_it_is_rearmed() {
    let mut base = protected_server().await;
    let primary = Arc::clone(&base.server);
    let standby = tokio::task::spawn_blocking(move || {
        let standby = primary.start_standby();
        standby.restart_as_primary();
        standby
    });
    let standby = standby.await.expect("a standby");
    base.fence.claim(&base.db, &token(21)).await.expect("the successor claims");
    let db = standby.connect("leasehold", &base.name).await.expect("connected");
    let primary = std::mem::replace(&mut base.server, Arc::new(standby));
    refuses_until_rearmed(&base, db, RepairBy::Rearm).await;
    tokio::task::spawn_blocking(move || drop((base, primary))).await.expect("stopped");
}
