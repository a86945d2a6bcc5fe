//! The leader recipe: handoff on shutdown, and observers that never see an old leader after a new one.

use std::time::Duration;

use futures::StreamExt;
use leasehold::recipes::leader::{Leader, LeaderUpdates};
use leasehold_testkit::tcp_proxy::TcpProxy;
use tokio::sync::oneshot;

use crate::support::Server;
use crate::{client, client_at, until, waiters, within_timeout};

/// Longer than any test: a successor that leads sooner did not wait for the expiry.
const TTL: Duration = Duration::from_secs(30);

fn named(leader: Option<&Leader>) -> Option<&str> {
    leader.map(|leader| leader.metadata.as_str())
}

async fn next(updates: &mut LeaderUpdates) -> Option<Leader> {
    within_timeout(updates.next()).await.expect("the stream does not end").expect("the server responds")
}

#[tokio::test]
async fn a_stopping_leader_under_load_hands_off_immediately_instead_of_expiring() {
    let server = Server::start();
    let (one, two, observer) = (client(&server, "one"), client(&server, "two"), client(&server, "observer"));
    // Background load on the server and both clients.
    let load: Vec<_> =
        [&one, &two, &observer].into_iter().enumerate().map(|(at, client)| load(client.clone(), at)).collect();
    let (stop, stopped) = oneshot::channel::<()>();
    let leading = tokio::spawn({
        let election = one.election("jobs/leader").ttl(TTL);
        async move {
            let stop = async { drop(stopped.await) };
            election
                .lead(stop, async |hold| {
                    hold.draining_started().await;
                    hold.put("last", b"words").await.map(|_| hold.token_number())
                })
                .await
        }
    });
    until(async || observer.show("jobs/leader").await.is_ok_and(|shown| shown.held == 1)).await;
    let next = tokio::spawn({
        let election = two.election("jobs/leader").ttl(TTL);
        async move { election.campaign().await }
    });
    until(async || waiters(&observer, "jobs/leader").await == 1).await;
    stop.send(()).expect("the receiver exists");
    let finished = within_timeout(leading)
        .await
        .expect("the task completed")
        .expect("it was not revoked")
        .expect("the work returned");
    let second = within_timeout(next).await.expect("the task completed").expect("it was elected");
    assert!(second.token_number() > finished.expect("its last write was accepted"));
    // The end reason of the first lease shows how leadership moved.
    let ends = observer.recent_ends("jobs/leader", 1).await.expect("the server responds");
    assert_eq!(ends[0].reason, "handed_off");
    load.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Acquires and releases leases in a loop.
fn load(client: leasehold::Client, at: usize) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        for round in 0_u64.. {
            let guard = client.lock(format!("load/{at}/{}", round % 64)).acquire().await.expect("the resource is free");
            guard.release().await.expect("the lease is held");
        }
    })
}

#[tokio::test]
async fn an_observer_never_sees_an_old_leader_after_the_new_one_acted() {
    let server = Server::start();
    let clients = [client(&server, "one"), client(&server, "two")];
    let elections = clients.each_ref().map(|client| {
        let election = client.election("jobs/leader").ttl(TTL);
        move |round: usize| election.clone().metadata(&format!("round {round}"))
    });
    let observer = client(&server, "observer").election("jobs/leader");
    let mut observing = within_timeout(observer.observe()).await.expect("the server responds");
    assert_eq!(next(&mut observing).await, None);
    let mut leader = within_timeout(elections[0](0).campaign()).await.expect("there is no leader");
    for round in 1..8 {
        let election = elections[round % 2](round);
        let candidate = tokio::spawn(async move { election.campaign().await });
        until(async || waiters(&clients[0], "jobs/leader").await == 1).await;
        leader.resign().await.expect("the leader holds its lease");
        leader = within_timeout(candidate).await.expect("the task completed").expect("it was elected");
        leader.put("acted", b"yes").await.expect("the leader holds its lease");
        // From here on no query may return an earlier leader.
        let announced = format!("round {round}");
        let seen = within_timeout(observer.leader()).await.expect("the server responds");
        assert_eq!(named(seen.as_ref()), Some(announced.as_str()));
        let reported = next(&mut observing).await;
        assert_eq!(reported, seen);
    }
    leader.resign().await.expect("the leader holds its lease");
    assert_eq!(next(&mut observing).await, None);
}

#[tokio::test]
async fn an_observer_finds_the_leader_again_after_a_server_crash() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    let address = proxy.address().to_string();
    let one = client_at(&address, "one");
    let observer = client_at(&address, "observer").election("jobs/leader");
    let mut observing = within_timeout(observer.observe()).await.expect("the server responds");
    assert_eq!(next(&mut observing).await, None);
    let leader =
        within_timeout(one.election("jobs/leader").metadata("first").campaign()).await.expect("there is no leader");
    assert_eq!(named(next(&mut observing).await.as_ref()), Some("first"));
    let server = server.crash_and_restart();
    proxy.set_upstream(&server.address);
    leader.put("acted", b"yes").await.expect("a server crash ends no lease");
    leader.resign().await.expect("the leader holds its lease");
    assert_eq!(next(&mut observing).await, None);
}
