//! The same in PostgreSQL, where the server's own rules answer.

use std::time::Duration;

use leasehold::report::{Mode, Reporter};
use leasehold_core::charter;
use leasehold_core::name::Name;
use leasehold_fence::postgres::Fence;
use leasehold_fence::{Error, Refusal};

use crate::server::Server as Database;
use crate::support::Server;
use crate::{RESOURCE, client, cluster, declare, number, zombie_and_successor};

#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_in_postgres_is_refused_reported_and_the_fence_proven() {
    let server = Server::start();
    let database = tokio::task::spawn_blocking(Database::shared).await.expect("it starts");
    let host = database.socket().to_str().expect("plain").replace('/', "%2F");
    let url = format!("postgres://leasehold@{host}/postgres");
    server.run(&["fence", "arm", &url, "--resource", RESOURCE]).ok();
    declare(&server, "orders", &url, charter::Mode::Cooperative).await;
    let (zombie, successor) = zombie_and_successor(&server);
    let reporter = Reporter::new(&client(&server), cluster(&server)).expect("a reporter");
    let observer = reporter.target("orders", Mode::Cooperative).expect("a name");
    let fence = Fence::new(cluster(&server), Name::parse(RESOURCE).expect("a name"), 0).observed_by(observer);
    let mut db = database.connect("leasehold", "postgres").await.expect("it answers");
    fence.claim(&db, &zombie).await.expect("the first holder claims");
    fence.claim(&db, &successor).await.expect("the second holder claims");
    let tx = db.transaction().await.expect("a transaction");
    let late = fence.admit(&tx, &zombie, Duration::from_secs(30)).await;
    assert!(matches!(late, Err(Error::Refused(Refusal::Stale { .. }))), "{late:?}");
    tx.rollback().await.expect("it is given up");
    reporter.close().await.expect("the grantor is there");

    let shown = server.run(&["fences", RESOURCE, "--probe", "--json"]);
    assert_eq!(shown.exit, 0, "{shown:?}");
    let shown = shown.json();
    let target = &shown["targets"][0];
    assert_eq!((&target["probe"]["found"], &target["hole"]), (&"refused".into(), &serde_json::Value::Null));
    assert_eq!((&target["places"][0]["zombies"], &target["places"][0]["last"]["holder"]), (&1.into(), &"w1".into()));
    let marks = server.json(&["fence", "marks", &url]);
    assert_eq!(marks[0]["mark"], number(&successor));

    db.batch_execute("DROP SCHEMA leasehold CASCADE").await.expect("somebody removes the fence");
    let removed = server.run(&["fences", RESOURCE, "--probe"]);
    assert_eq!(removed.exit, 8, "{removed:?}");
}
