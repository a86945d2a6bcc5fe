//! Logical replication into a protected table, which fires only row triggers.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Client;

use crate::database::Database;
use crate::matrix::layout::TableLayout;
use crate::server::Server;
use crate::support::token;

/// Changes at the publisher, each with what a subscription does with it.
const CHANGES: [(&str, &str); 5] = [
    ("INSERT", "INSERT INTO r (id, v, region) VALUES (2, 99, 'eu')"),
    ("UPDATE", "UPDATE r SET v = 99 WHERE id = 1"),
    ("DELETE", "DELETE FROM r WHERE id = 1"),
    ("TRUNCATE", "TRUNCATE r"),
    ("initial copy", ""),
];

/// The published table, and the same table at the subscriber. Only the first has the extra row of the initial copy.
fn tables(layout: TableLayout) -> &'static str {
    match layout {
        TableLayout::Partition => {
            "CREATE TABLE public.r (id int, v int, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
             CREATE TABLE public.eu PARTITION OF r FOR VALUES IN ('eu'); INSERT INTO r VALUES (1, 10, 'eu')"
        }
        TableLayout::PartitionedRoot => {
            "CREATE TABLE public.r (id int, v int, region text, PRIMARY KEY (id, region)) PARTITION BY RANGE (id);
             CREATE TABLE public.low PARTITION OF r FOR VALUES FROM (0) TO (100); INSERT INTO r VALUES (1, 10, 'eu')"
        }
        _ => {
            "CREATE TABLE public.r (id int, v int, region text, PRIMARY KEY (id, region)); INSERT INTO r VALUES (1, 10, 'eu')"
        }
    }
}

async fn rows(db: &Client) -> String {
    db.query_one("SELECT string_agg(r::text, ' ' ORDER BY r::text) FROM r", &[]).await.expect("read").get(0)
}

/// Replicates each change into a protected table, and asserts that it is refused.
pub async fn attack_by_subscription(base: Database, layout: TableLayout) -> Vec<(&'static str, &'static str)> {
    let source_name = format!("source_{}", base.name);
    base.db.batch_execute(&format!("CREATE DATABASE {source_name}")).await.expect("a database");
    let source = base.server.connect("leasehold", &source_name).await.expect("connected");
    source.batch_execute(tables(layout)).await.expect("tables");
    let publish = "CREATE PUBLICATION changes FOR TABLE r WITH (publish_via_partition_root = true)";
    source.batch_execute(publish).await.expect("published");
    base.db.batch_execute(tables(layout)).await.expect("tables");
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    let protected = if layout == TableLayout::Partition { "public.eu" } else { "public.r" };
    base.fence.protect(&base.db, protected).await.expect("protected");

    let mut outcomes = Vec::new();
    for (index, (title, change)) in CHANGES.into_iter().enumerate() {
        let before = rows(&base.db).await;
        let slot = format!("slot_{}_{index}", base.name);
        let copies = change.is_empty();
        if copies {
            source.batch_execute("TRUNCATE r; INSERT INTO r VALUES (3, 30, 'eu')").await.expect("inserted");
        }
        let sql = format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')");
        source.batch_execute(&sql).await.expect("a slot");
        let subscribe = format!(
            "CREATE SUBSCRIPTION {slot} CONNECTION 'host={} dbname={source_name} user=leasehold' PUBLICATION changes
             WITH (create_slot = false, copy_data = {copies})",
            base.server.socket().display()
        );
        base.db.batch_execute(&subscribe).await.expect("subscribed");
        if !copies {
            source.batch_execute(change).await.expect(title);
        }
        let failed = format!(
            "SELECT apply_error_count + sync_error_count FROM pg_stat_subscription_stats WHERE subname = '{slot}'"
        );
        while base.db.query_one(&failed, &[]).await.expect("read").get::<_, i64>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(rows(&base.db).await, before, "{layout:?}, {title}");
        // Without a slot, dropping the subscription does not connect to the publisher.
        for sql in [
            format!("ALTER SUBSCRIPTION {slot} DISABLE"),
            format!("ALTER SUBSCRIPTION {slot} SET (slot_name = NONE)"),
            format!("DROP SUBSCRIPTION {slot}"),
        ] {
            base.db.batch_execute(&sql).await.expect("unsubscribed");
        }
        drop_slots(&source).await;
        source.batch_execute("TRUNCATE r; INSERT INTO r VALUES (1, 10, 'eu')").await.expect("restored");
        outcomes.push((title, "never"));
    }
    outcomes
}

/// Drops all slots of this database, once their walsenders have ended.
async fn drop_slots(source: &Client) {
    let sql =
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()";
    while let Err(error) = source.batch_execute(sql).await {
        assert_eq!(error.code().map(|code| code.code()), Some("55006"), "only a slot in use can fail: {error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_change_of_a_subscription_is_applied_when_the_table_is_not_protected_any_more() {
    let settings = ["wal_level=logical", "wal_retrieve_retry_interval=100ms"];
    let server = tokio::task::spawn_blocking(move || Server::start(&settings)).await.expect("a server");
    let base = Database::on(Arc::new(server)).await;
    base.fence.claim(&base.db, &token(20)).await.expect("claimed");
    base.fence.protect(&base.db, "written").await.expect("protected");

    base.db.batch_execute("CREATE DATABASE elsewhere").await.expect("a database");
    let source = base.server.connect("leasehold", "elsewhere").await.expect("connected");
    for sql in [
        "CREATE TABLE written (place bigserial PRIMARY KEY, number bigint NOT NULL)",
        "CREATE PUBLICATION changes FOR TABLE written",
        "SELECT pg_create_logical_replication_slot('changes', 'pgoutput')",
        "INSERT INTO written (number) VALUES (99)",
    ] {
        source.batch_execute(sql).await.expect(sql);
    }
    let subscribe = format!(
        "CREATE SUBSCRIPTION changes CONNECTION 'host={} dbname=elsewhere user=leasehold' PUBLICATION changes
         WITH (create_slot = false, copy_data = false)",
        base.server.socket().display()
    );
    base.db.batch_execute(&subscribe).await.expect("subscribed");
    let failed = "SELECT apply_error_count FROM pg_stat_subscription_stats";
    while base.db.query_one(failed, &[]).await.expect("read").get::<_, i64>(0) == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(base.written().await, [] as [u64; 0], "no token was presented");

    // Without the protection the change is applied.
    base.fence.unprotect(&base.db, "written").await.expect("unprotected");
    while base.written().await != [99] {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    base.db.batch_execute("ALTER SUBSCRIPTION changes DISABLE").await.expect("disabled");
    tokio::task::spawn_blocking(move || drop(base)).await.expect("stopped");
}
