//! The command line with a PostgreSQL target.

use std::time::Duration;

use leasehold::report::{FenceMode, Reporter};
use leasehold_core::charter;
use leasehold_fence::postgres::Fence;
use leasehold_fence::{Error, FenceRefusal};

use crate::server::Server as Database;
use crate::support::Server;
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

    let coverage = server.run(&["coverage", RESOURCE, "--probe", "--json"]);
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
    let removed = server.run(&["coverage", RESOURCE, "--probe"]);
    assert_eq!(removed.exit, 8, "{removed:?}");
}
