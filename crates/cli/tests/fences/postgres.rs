//! The command line with a PostgreSQL target.

use std::time::Duration;

use leasehold::report::{FenceMode, Reporter};
use leasehold_core::charter;
use leasehold_fence::postgres::Fence;
use leasehold_fence::{Error, FenceRefusal};

use crate::server::Server as Database;
use crate::support::{CommandRun, Server, text};
use crate::{RESOURCE, client, cluster, declare, fence_id, number, zombie_and_successor};

#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_in_postgres_is_rejected_and_reported_and_the_fence_is_probed() {
    let server = Server::start();
    let database = tokio::task::spawn_blocking(Database::shared).await.expect("it starts");
    let host = database.socket().to_str().expect("plain").replace('/', "%2F");
    let url = format!("postgres://leasehold@{host}/postgres");
    server.run(&["fence", "arm", &url, "--resource", RESOURCE]).ok();
    declare(&server, "orders", &url, charter::TargetMode::Cooperative).await;
    let (zombie, successor) = zombie_and_successor(&server);
    let reporter = Reporter::new(&client(&server), cluster(&server)).expect("a reporter");
    let observer = reporter.target("orders", FenceMode::Cooperative).expect("a name");
    let fence = Fence::new(&fence_id(&server)).with_observer(observer);
    let mut db = database.connect("leasehold", "postgres").await.expect("it answers");
    fence.claim(&db, &zombie).await.expect("the first holder claims");
    fence.claim(&db, &successor).await.expect("the second holder claims");
    let tx = db.transaction().await.expect("a transaction");
    let late = fence.admit(&tx, &zombie, Duration::from_secs(30)).await;
    assert!(matches!(late, Err(Error::Refused(FenceRefusal::Stale { .. }))), "{late:?}");
    tx.rollback().await.expect("it is given up");
    reporter.close().await.expect("the grantor is there");

    let orders = format!("orders={url}");
    let coverage = server.run(&["coverage", RESOURCE, "--probe", "--target", &orders, "--json"]);
    assert_eq!(coverage.exit, 0, "{coverage:?}");
    let coverage = coverage.json();
    let target = &coverage["targets"][0];
    assert_eq!((&target["probe"]["result"], &target["hole"]), (&"refused".into(), &serde_json::Value::Null));
    assert_eq!(
        (&target["slots"][0]["zombies"], &target["slots"][0]["last_zombie"]["holder"]),
        (&1.into(), &"w1".into())
    );
    let marks = server.json(&["fence", "marks", &url]);
    assert_eq!(marks[0]["mark"], number(&successor));

    db.batch_execute("DROP SCHEMA leasehold CASCADE").await.expect("the fence is removed");
    let removed = server.run(&["coverage", RESOURCE, "--probe", "--target", &orders]);
    assert_eq!(removed.exit, 8, "{removed:?}");
}

/// A database of its own, with a claimed fence and two tables.
async fn two_tables(server: &Server, database: &Database, name: &str) -> (String, tokio_postgres::Client) {
    let main = database.connect("leasehold", "postgres").await.expect("it answers");
    main.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
    let url = format!("postgres://leasehold@{}/{name}", database.socket().to_str().expect("plain").replace('/', "%2F"));
    let db = database.connect("leasehold", name).await.expect("it answers");
    let tables = "CREATE TABLE paid (id int NOT NULL, cents int NOT NULL); CREATE TABLE refunds (id int NOT NULL);
                  INSERT INTO paid VALUES (7, 1200)";
    db.batch_execute(tables).await.expect("tables");
    server.run(&["fence", "arm", &url, "--resource", RESOURCE]).ok();
    Fence::new(&fence_id(server)).claim(&db, server.acquire(RESOURCE, "w1")).await.expect("claimed");
    (url, db)
}

fn hole(probed: &CommandRun) -> String {
    probed.json()["targets"][0]["hole"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_postgres_target_is_green_only_while_its_guards_refuse() {
    let server = Server::start();
    let database = tokio::task::spawn_blocking(Database::shared).await.expect("it starts");
    let (url, db) = two_tables(&server, &database, "forced_probe").await;
    declare(&server, "orders", &url, charter::TargetMode::Forced).await;
    let listed = format!("orders={url}?tables=paid,public.refunds");
    let probe = |target: &str| server.run(&["coverage", RESOURCE, "--probe", "--target", target, "--json"]);
    let open = probe(&format!("orders={url}"));
    assert_eq!((open.exit, hole(&open)), (8, "unprotected".to_owned()), "nothing is protected: {open:?}");
    assert!(open.err.contains("leasehold fence protect"), "the command that closes it: {open:?}");

    server.run(&["fence", "protect", &url, "--resource", RESOURCE, "--table", "paid"]).ok();
    let partly = probe(&listed);
    assert_eq!((partly.exit, hole(&partly)), (8, "unprotected".to_owned()), "{partly:?}");
    assert!(partly.err.contains("refunds"), "{partly:?}");
    server.run(&["fence", "protect", &url, "--resource", RESOURCE, "--table", "refunds"]).ok();
    for target in [&listed, &format!("orders={url}")] {
        let proven = probe(target);
        assert_eq!((proven.exit, hole(&proven)), (0, String::new()), "{proven:?}");
        assert_eq!(text(&proven.json()["targets"][0]["probe"]["established"]), "forced", "{proven:?}");
    }

    // A superuser disables the guard of one table.
    let disable = "ALTER EVENT TRIGGER leasehold_check_ddl DISABLE; ALTER TABLE paid DISABLE TRIGGER leasehold_guard;
                   ALTER EVENT TRIGGER leasehold_check_ddl ENABLE ALWAYS";
    db.batch_execute(disable).await.expect("a superuser can");
    let disabled = probe(&format!("orders={url}"));
    assert_eq!((disabled.exit, hole(&disabled)), (8, "unprotected".to_owned()), "{disabled:?}");
    assert!(disabled.err.contains("paid"), "{disabled:?}");
    server.run(&["fence", "protect", &url, "--resource", RESOURCE, "--table", "paid"]).ok();
    let closed = probe(&listed);
    assert_eq!(closed.exit, 0, "the command of the message closes the hole: {closed:?}");

    db.batch_execute("SELECT leasehold.unprotect('paid'); SELECT leasehold.unprotect('refunds')")
        .await
        .expect("removed");
    for target in [&listed, &format!("orders={url}")] {
        let removed = probe(target);
        assert_eq!((removed.exit, hole(&removed)), (8, "unprotected".to_owned()), "{removed:?}");
    }
    let rows = db.query("SELECT id, cents FROM paid", &[]).await.expect("rows");
    assert_eq!((rows.len(), rows[0].get::<_, i32>(1)), (1, 1200), "a probe changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_commands_name_the_servers_reason_and_the_next_step() {
    let server = Server::start();
    let database = tokio::task::spawn_blocking(Database::shared).await.expect("it starts");
    let (url, db) = two_tables(&server, &database, "reasons").await;
    let missing = server.run(&["fence", "protect", &url, "--resource", RESOURCE, "--table", "nosuch"]);
    assert_eq!(missing.exit, 1, "{missing:?}");
    assert!(
        missing.err.contains("NOT_FOUND") && missing.err.contains("relation \"nosuch\" does not exist"),
        "{missing:?}"
    );

    server.run(&["fence", "protect", &url, "--resource", RESOURCE, "--table", "paid"]).ok();
    server.run(&["fence", "arm", &url, "--resource", "jobs/other"]).ok();
    let taken = server.run(&["fence", "protect", &url, "--resource", "jobs/other", "--table", "paid"]);
    assert_eq!(taken.exit, 1, "{taken:?}");
    assert!(taken.err.contains("already protected by") && taken.err.contains("leasehold.unprotect"), "{taken:?}");

    db.batch_execute("CREATE ROLE reasons_reader LOGIN; GRANT USAGE ON SCHEMA leasehold TO reasons_reader")
        .await
        .expect("a role");
    let denied = server.run(&["fence", "marks", &url.replace("//leasehold@", "//reasons_reader@")]);
    assert_eq!(denied.exit, 6, "{denied:?}");
    assert!(denied.err.contains("PERMISSION_DENIED") && denied.err.contains("owner of schema leasehold"), "{denied:?}");
}
