//! Logical replication into a protected table, which fires only row triggers.

use std::sync::Arc;
use std::time::Duration;

use crate::database::Database;
use crate::server::Server;
use crate::support::token;

#[tokio::test]
async fn changes_of_a_subscription_are_refused_while_the_table_is_protected() {
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
