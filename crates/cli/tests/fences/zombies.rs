//! A zombie that a target refused shows on the grantor, and reporting never holds a writer up.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use leasehold::report::{Mode, Reporter};
use leasehold_fence::{Error, Refusal};

use crate::support::{Server, await_line, begin, text};
use crate::{Ledger, RESOURCE, client, cluster, fence, number, zombie_and_successor};

#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_that_a_database_refused_shows_on_the_grantor_and_survives_its_restart() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    let (zombie, successor) = zombie_and_successor(&server);
    let mut watching = begin(&mut server.command(&["watch", "--json"]));
    await_line(&mut BufReader::new(watching.stderr.take().expect("it is piped")), "watching");
    let reporter = Reporter::new(&client(&server), cluster(&server)).expect("a reporter");
    let observer = reporter.target("ledger", Mode::Cooperative).expect("a name");
    let (fence, mut db) = (fence(&server).observed_by(observer), ledger.open());
    fence.claim(&mut db, &zombie).expect("the first holder claims");
    fence.claim(&mut db, &successor).expect("the second holder claims");
    for _ in 0..3 {
        let late = fence.write(&mut db, &zombie, |tx| tx.execute("INSERT INTO paid VALUES (7)", []));
        assert!(matches!(late, Err(Error::Refused(Refusal::Stale { .. }))), "{late:?}");
    }
    reporter.flush().await.expect("the grantor is there");

    let shown = server.run(&["fences", RESOURCE, "--json"]);
    assert_eq!(shown.exit, 8, "no charter declares it: {shown:?}");
    let shown = shown.json();
    let place = &shown["targets"][0]["places"][0];
    assert_eq!((&shown["targets"][0]["name"], &shown["targets"][0]["hole"]), (&"ledger".into(), &"undeclared".into()));
    assert_eq!((&place["mode"], &place["checks"], &place["refusals"]), (&"cooperative".into(), &5.into(), &3.into()));
    assert_eq!((&place["zombies"], &place["last"]["holder"]), (&3.into(), &"w1".into()));
    assert_eq!(text(&place["last"]["presented"]), number(&zombie));
    assert_eq!(text(&place["last"]["mark"]), number(&successor));
    assert!(place["checked_ms"].is_u64(), "{place}");

    let event = BufReader::new(watching.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let event = event.filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok());
    let event = event.into_iter().find(|event| event["event"] == "zombie").expect("it is told as it happens");
    watching.kill().expect("it runs");
    watching.wait().expect("it ends");
    let told = (&event["resource"], &event["holder"], &event["target"], &event["times"]);
    assert_eq!(told, (&RESOURCE.into(), &"w1".into(), &"ledger".into(), &3.into()));
    assert_eq!((text(&event["token_number"]), text(&event["mark"])), (number(&zombie), number(&successor)));
    let metrics = server.http("GET", "/metrics", "", "");
    assert!(metrics.contains("leasehold_zombies_total 3"), "{metrics}");
    assert!(metrics.contains("leasehold_fence_checks 5"), "{metrics}");

    drop(reporter);
    let server = server.again();
    let shown = server.run(&["fences", RESOURCE, "--json"]).json();
    let place = &shown["targets"][0]["places"][0];
    assert_eq!((&place["zombies"], &place["last"]["holder"]), (&3.into(), &"w1".into()));
    assert_eq!((&place["checks"], &place["checked_ms"]), (&0.into(), &serde_json::Value::Null));
    let past = server.http("GET", "/v1/history/jobs/settle", "", "");
    assert!(past.contains("\"kind\":\"zombie\"") && past.contains("\"target\":\"ledger\""), "{past}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grantor_that_stands_still_holds_no_writer_up_and_hears_it_all_later() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    let token = server.acquire(RESOURCE, "w1");
    let reporter = Reporter::sending_every(&client(&server), cluster(&server), Duration::from_millis(20)).expect("one");
    let observer = reporter.target("ledger", Mode::Cooperative).expect("a name");
    let (fence, mut db) = (fence(&server).observed_by(observer), ledger.open());
    fence.claim(&mut db, &token).expect("the holder claims");
    server.signal("STOP");
    for invoice in 0..200 {
        fence.write(&mut db, &token, |tx| tx.execute("INSERT INTO paid VALUES (?1)", [invoice])).expect("current");
    }
    server.signal("CONT");
    // A try that was under way may have failed meanwhile; what it carried is sent again.
    while reporter.flush().await.is_err() {}
    let shown = server.run(&["fences", RESOURCE, "--json"]).json();
    let checks = shown["targets"][0]["places"][0]["checks"].as_u64().expect("a count");
    assert!(checks >= 201, "nothing is lost, and a try without an answer may count twice: {checks}");
    assert_eq!(reporter.missed(), 0);
    reporter.close().await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reporter_for_another_cluster_is_refused_and_changes_nothing() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    let token = server.acquire(RESOURCE, "w1");
    let other = leasehold_core::token::Cluster(*b"elsewher");
    let reporter = Reporter::new(&client(&server), other).expect("a reporter");
    let fence = fence(&server).observed_by(reporter.target("ledger", Mode::Forced).expect("a name"));
    fence.claim(&mut ledger.open(), &token).expect("the holder claims");
    let refused = reporter.flush().await.expect_err("it is another cluster's");
    assert_eq!(refused.code(), Some(leasehold::Code::WrongCluster), "{refused}");
    reporter.flush().await.expect("it is not sent for ever");
    assert_eq!(server.run(&["fences", RESOURCE, "--json"]).json()["targets"][0]["hole"], "no_target");
    assert!(reporter.target("", Mode::Forced).is_err());
}
