//! A list of registrations that stays current, over sessions that close and servers that are killed.

use std::collections::BTreeSet;

use leasehold::recipes::session::{Change, Discovery};

use crate::support::Server;
use crate::way::Way;
use crate::{client, client_at, soon};

fn names(discovery: &Discovery) -> Vec<String> {
    discovery.instances().map(|one| format!("{} at {}", one.name, one.details)).collect()
}

async fn next(discovery: &mut Discovery) -> String {
    match soon(discovery.next()).await.expect("a server can be asked") {
        Change::Joined(one) => format!("+{}", one.name),
        Change::Left(one) => format!("-{}", one.name),
    }
}

#[tokio::test]
async fn a_list_of_instances_follows_who_comes_and_who_goes() {
    let server = Server::start();
    let (one, two, looking) = (client(&server, "host-1"), client(&server, "host-2"), client(&server, "proxy"));
    let a = one.announce("db", "a").details("10.0.0.1:5432").register().await.expect("the name is free");
    let mut discovery = looking.discover("db").await.expect("the server answers");
    assert_eq!(names(&discovery), ["a at 10.0.0.1:5432"]);
    let b = two.announce("db", "b").details("10.0.0.2:5432").register().await.expect("the name is free");
    let c = two.announce("db", "c").register().await.expect("the name is free");
    let other = two.announce("web", "x").register().await.expect("the name is free");
    assert_eq!((next(&mut discovery).await, next(&mut discovery).await), ("+b".into(), "+c".into()));
    assert_eq!(names(&discovery), ["a at 10.0.0.1:5432", "b at 10.0.0.2:5432", "c at "]);
    a.end().await.expect("it stands");
    assert_eq!(next(&mut discovery).await, "-a");
    // A process that goes takes all of its registrations with it, long before any ttl.
    two.close().await.expect("the server hears it");
    let gone: BTreeSet<_> = [next(&mut discovery).await, next(&mut discovery).await].into();
    assert_eq!(gone, ["-b".to_owned(), "-c".to_owned()].into());
    assert!(names(&discovery).is_empty());
    drop((b, c, other));
}

#[tokio::test]
async fn what_happened_while_nobody_could_be_heard_is_healed_by_listing_anew() {
    let server = Server::start();
    let way = Way::to(&server.address).await;
    let (one, two, looking) =
        (client_at(&way.address, "host-1"), client_at(&way.address, "host-2"), client_at(&way.address, "proxy"));
    let a = one.announce("db", "a").register().await.expect("the name is free");
    let stays = one.announce("db", "s").register().await.expect("the name is free");
    let mut discovery = looking.discover("db").await.expect("the server answers");
    assert_eq!(discovery.instances().count(), 2);
    // The feed breaks, and nobody makes it again before everything has happened.
    let server = server.again();
    way.leads_to(&server.address);
    a.end().await.expect("it stands");
    let _b = two.announce("db", "b").register().await.expect("the name is free");
    let _a = two.announce("db", "a").details("moved").register().await.expect("the name is free");
    let told: BTreeSet<_> = [next(&mut discovery).await, next(&mut discovery).await, next(&mut discovery).await].into();
    assert_eq!(told, ["-a".to_owned(), "+a".to_owned(), "+b".to_owned()].into());
    assert_eq!(names(&discovery), ["a at moved", "b at ", "s at "]);
    stays.end().await.expect("it stands");
    assert_eq!(next(&mut discovery).await, "-s");
}
