//! Zombies that a target rejected are reported to the grantor, and reporting never delays a writer.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use leasehold::report::{FenceMode, Reporter};
use leasehold_fence::{Error, FenceRefusal};

use crate::support::{Server, spawn_piped, text, wait_for_line};
use crate::{Ledger, RESOURCE, client, cluster, fence, number, zombie_and_successor};

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_zombie_is_visible_on_the_grantor_and_survives_its_restart() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    let (zombie, successor) = zombie_and_successor(&server);
    let mut watching = spawn_piped(&mut server.command(&["watch", "--json"]));
    wait_for_line(&mut BufReader::new(watching.stderr.take().expect("it is piped")), "watching");
    let reporter = Reporter::new(&client(&server), cluster(&server)).expect("a reporter");
    let observer = reporter.target("ledger", FenceMode::Cooperative).expect("a name");
    let (fence, mut db) = (fence(&server).with_observer(observer), ledger.open());
    fence.claim(&mut db, &zombie).expect("the first holder claims");
    fence.claim(&mut db, &successor).expect("the second holder claims");
    for _ in 0..3 {
        let late = fence.write(&mut db, &zombie, |tx| tx.execute("INSERT INTO paid VALUES (7)", []));
        assert!(matches!(late, Err(Error::Refused(FenceRefusal::Stale { .. }))), "{late:?}");
    }
    reporter.flush().await.expect("the grantor is there");

    let coverage = server.run(&["coverage", RESOURCE, "--json"]);
    assert_eq!(coverage.exit, 8, "no charter declares it: {coverage:?}");
    let coverage = coverage.json();
    let slot = &coverage["targets"][0]["slots"][0];
    assert_eq!(
        (&coverage["targets"][0]["name"], &coverage["targets"][0]["hole"]),
        (&"ledger".into(), &"undeclared".into())
    );
    assert_eq!((&slot["mode"], &slot["checks"], &slot["refusals"]), (&"cooperative".into(), &5.into(), &3.into()));
    assert_eq!((&slot["zombies"], &slot["last_zombie"]["holder"]), (&3.into(), &"w1".into()));
    assert_eq!(text(&slot["last_zombie"]["presented"]), number(&zombie));
    assert_eq!(text(&slot["last_zombie"]["mark"]), number(&successor));
    assert!(slot["checked_ms"].is_u64(), "{slot}");

    let event = BufReader::new(watching.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let event = event.filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok());
    let event = event.into_iter().find(|event| event["event"] == "zombie").expect("an event for the zombie");
    watching.kill().expect("it runs");
    watching.wait().expect("it ends");
    let output = (&event["resource"], &event["holder"], &event["target"], &event["times"]);
    assert_eq!(output, (&RESOURCE.into(), &"w1".into(), &"ledger".into(), &3.into()));
    assert_eq!((text(&event["token_number"]), text(&event["mark"])), (number(&zombie), number(&successor)));
    let metrics = server.http("GET", "/metrics", "", "");
    assert!(metrics.contains("leasehold_zombie_writes_refused_total 3"), "{metrics}");
    assert!(metrics.contains("leasehold_fence_checks 5"), "{metrics}");

    drop(reporter);
    let server = server.crash_and_restart();
    let coverage = server.run(&["coverage", RESOURCE, "--json"]).json();
    let slot = &coverage["targets"][0]["slots"][0];
    assert_eq!((&slot["zombies"], &slot["last_zombie"]["holder"]), (&3.into(), &"w1".into()));
    assert_eq!((&slot["checks"], &slot["checked_ms"]), (&0.into(), &serde_json::Value::Null));
    let past = server.http("GET", "/v1/history/jobs/settle", "", "");
    assert!(past.contains("\"kind\":\"zombie\"") && past.contains("\"target\":\"ledger\""), "{past}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_grantor_delays_no_writer_and_receives_all_reports_later() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    let token = server.acquire(RESOURCE, "w1");
    let reporter = Reporter::with_interval(&client(&server), cluster(&server), Duration::from_millis(20)).expect("one");
    let observer = reporter.target("ledger", FenceMode::Cooperative).expect("a name");
    let (fence, mut db) = (fence(&server).with_observer(observer), ledger.open());
    fence.claim(&mut db, &token).expect("the holder claims");
    server.signal("STOP");
    for invoice in 0..200 {
        fence.write(&mut db, &token, |tx| tx.execute("INSERT INTO paid VALUES (?1)", [invoice])).expect("current");
    }
    server.signal("CONT");
    // An attempt in flight may have failed; its reports are sent again.
    while reporter.flush().await.is_err() {}
    let coverage = server.run(&["coverage", RESOURCE, "--json"]).json();
    let checks = coverage["targets"][0]["slots"][0]["checks"].as_u64().expect("a count");
    assert!(checks >= 201, "no check is lost, and an attempt without a reply may count twice: {checks}");
    assert_eq!(reporter.missed(), 0);
    reporter.close().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reporter_for_another_cluster_is_rejected_and_changes_nothing() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    let token = server.acquire(RESOURCE, "w1");
    let other = leasehold_core::token::Cluster(*b"elsewher");
    let reporter = Reporter::new(&client(&server), other).expect("a reporter");
    let fence = fence(&server).with_observer(reporter.target("ledger", FenceMode::Forced).expect("a name"));
    fence.claim(&mut ledger.open(), &token).expect("the holder claims");
    let refused = reporter.flush().await.expect_err("it is another cluster's");
    assert_eq!(refused.code(), Some(leasehold::Code::WrongCluster), "{refused}");
    reporter.flush().await.expect("it is not sent again");
    assert_eq!(server.run(&["coverage", RESOURCE, "--json"]).json()["targets"][0]["hole"], "no_target");
    assert!(reporter.target("", FenceMode::Forced).is_err());
}
