//! The discovery recipe: service discovery follows registrations across closed sessions and server crashes.

use std::collections::BTreeSet;

use futures::StreamExt;
use leasehold::recipes::discovery::{Discovery, InstanceChange};
use leasehold_testkit::tcp_proxy::TcpProxy;

use crate::support::Server;
use crate::{client, client_at, within_timeout};

fn names(discovery: &Discovery) -> Vec<String> {
    discovery.instances().map(|one| format!("{} at {}", one.name, one.details)).collect()
}

async fn next(discovery: &mut Discovery) -> String {
    match within_timeout(discovery.next()).await.expect("the stream does not end").expect("the server responds") {
        InstanceChange::Joined(one) => format!("+{}", one.name),
        InstanceChange::Left(one) => format!("-{}", one.name),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn discovery_follows_joining_and_leaving_instances() {
    let server = Server::start();
    let (one, two, observer) = (client(&server, "host-1"), client(&server, "host-2"), client(&server, "proxy"));
    let a = one.service("db", "a").details("10.0.0.1:5432").register().await.expect("the name is free");
    let mut discovery = observer.discover("db").await.expect("the server responds");
    assert_eq!(names(&discovery), ["a at 10.0.0.1:5432"]);
    let b = two.service("db", "b").details("10.0.0.2:5432").register().await.expect("the name is free");
    let c = two.service("db", "c").register().await.expect("the name is free");
    let other = two.service("web", "x").register().await.expect("the name is free");
    assert_eq!((next(&mut discovery).await, next(&mut discovery).await), ("+b".into(), "+c".into()));
    assert_eq!(names(&discovery), ["a at 10.0.0.1:5432", "b at 10.0.0.2:5432", "c at "]);
    a.deregister().await.expect("the registration exists");
    assert_eq!(next(&mut discovery).await, "-a");
    // A closing client removes all of its registrations long before any ttl ends.
    two.close().await.expect("the server responds");
    let gone: BTreeSet<_> = [next(&mut discovery).await, next(&mut discovery).await].into();
    assert_eq!(gone, ["-b".to_owned(), "-c".to_owned()].into());
    assert!(names(&discovery).is_empty());
    drop((b, c, other));
}

#[tokio::test]
async fn changes_missed_during_an_outage_are_recovered_by_a_new_listing() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    let address = proxy.address().to_string();
    let (one, two, observer) =
        (client_at(&address, "host-1"), client_at(&address, "host-2"), client_at(&address, "proxy"));
    let a = one.service("db", "a").register().await.expect("the name is free");
    let stays = one.service("db", "s").register().await.expect("the name is free");
    let mut discovery = observer.discover("db").await.expect("the server responds");
    assert_eq!(discovery.instances().count(), 2);
    // The event stream breaks and is not reopened before all changes are made.
    let server = server.crash_and_restart();
    proxy.set_upstream(&server.address);
    a.deregister().await.expect("the registration exists");
    let _b = two.service("db", "b").register().await.expect("the name is free");
    let _a = two.service("db", "a").details("moved").register().await.expect("the name is free");
    let reported: BTreeSet<_> =
        [next(&mut discovery).await, next(&mut discovery).await, next(&mut discovery).await].into();
    assert_eq!(reported, ["-a".to_owned(), "+a".to_owned(), "+b".to_owned()].into());
    assert_eq!(names(&discovery), ["a at moved", "b at ", "s at "]);
    stays.deregister().await.expect("the registration exists");
    assert_eq!(next(&mut discovery).await, "-s");
}
