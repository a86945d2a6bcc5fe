//! Elections over real connections: who shuts down hands over, and who watches is never told an old leader for the new one.

use std::time::Duration;

use leasehold::recipes::leader::Leader;
use tokio::sync::oneshot;

use crate::support::Server;
use crate::way::Way;
use crate::{client, client_at, soon, until, waiters};

/// Longer than any test: who is followed sooner was not waited out.
const TTL: Duration = Duration::from_secs(30);

fn named(leader: Option<&Leader>) -> Option<&str> {
    leader.map(|leader| leader.announced.as_str())
}

#[tokio::test]
async fn a_leader_told_to_stop_under_load_hands_over_at_once_rather_than_by_expiry() {
    let server = Server::start();
    let (one, two, looking) = (client(&server, "one"), client(&server, "two"), client(&server, "looking"));
    // Others keep the server and both clients busy meanwhile.
    let load: Vec<_> =
        [&one, &two, &looking].into_iter().enumerate().map(|(at, client)| load(client.clone(), at)).collect();
    let (stop, stopped) = oneshot::channel::<()>();
    let leading = tokio::spawn({
        let election = one.election("jobs/leader").ttl(TTL);
        async move {
            let stop = async { drop(stopped.await) };
            election
                .lead(stop, async |hold| {
                    hold.leaving().await;
                    hold.put("last", b"words").await.map(|_| hold.token_number())
                })
                .await
        }
    });
    until(async || looking.show("jobs/leader").await.is_ok_and(|shown| shown.held == 1)).await;
    let next = tokio::spawn({
        let election = two.election("jobs/leader").ttl(TTL);
        async move { election.campaign().await }
    });
    until(async || waiters(&looking, "jobs/leader").await == 1).await;
    stop.send(()).expect("it listens");
    let finished = soon(leading).await.expect("it ended").expect("it was not revoked").expect("the work returned");
    let second = soon(next).await.expect("it ended").expect("it was elected");
    assert!(second.token_number() > finished.expect("its last write was taken"));
    // How the first one's lease ended tells how it was followed.
    let ends = looking.ends("jobs/leader", 1).await.expect("the server answers");
    assert_eq!(ends[0].reason, "handed_off");
    load.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Takes and gives back leases, one after the other.
fn load(client: leasehold::Client, at: usize) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        for round in 0_u64.. {
            let guard = client.lock(format!("load/{at}/{}", round % 64)).acquire().await.expect("it is free");
            guard.release().await.expect("it is held");
        }
    })
}

#[tokio::test]
async fn who_watches_is_never_told_an_old_leader_after_the_new_one_acted() {
    let server = Server::start();
    let clients = [client(&server, "one"), client(&server, "two")];
    let elections = clients.each_ref().map(|client| {
        let election = client.election("jobs/leader").ttl(TTL);
        move |round: usize| election.clone().announce(&format!("round {round}"))
    });
    let looking = client(&server, "looking").election("jobs/leader");
    let mut observing = soon(looking.observe()).await.expect("the server answers");
    assert_eq!(soon(observing.next()).await.expect("the server answers"), None);
    let mut leads = soon(elections[0](0).campaign()).await.expect("nobody leads");
    for round in 1..8 {
        let election = elections[round % 2](round);
        let next = tokio::spawn(async move { election.campaign().await });
        until(async || waiters(&clients[0], "jobs/leader").await == 1).await;
        leads.resign().await.expect("it leads");
        leads = soon(next).await.expect("it ended").expect("it was elected");
        leads.put("acted", b"yes").await.expect("it leads");
        // From here on nothing that is asked may tell of an earlier one.
        let words = format!("round {round}");
        let seen = soon(looking.leader()).await.expect("the server answers");
        assert_eq!(named(seen.as_ref()), Some(words.as_str()));
        let told = soon(observing.next()).await.expect("the server answers");
        assert_eq!(told, seen);
    }
    leads.resign().await.expect("it leads");
    assert_eq!(soon(observing.next()).await.expect("the server answers"), None);
}

#[tokio::test]
async fn who_watches_finds_the_leader_again_after_the_server_was_killed() {
    let server = Server::start();
    let way = Way::to(&server.address).await;
    let one = client_at(&way.address, "one");
    let looking = client_at(&way.address, "looking").election("jobs/leader");
    let mut observing = soon(looking.observe()).await.expect("the server answers");
    assert_eq!(soon(observing.next()).await.expect("the server answers"), None);
    let leads = soon(one.election("jobs/leader").announce("first").campaign()).await.expect("nobody leads");
    assert_eq!(named(soon(observing.next()).await.expect("the server answers").as_ref()), Some("first"));
    let server = server.again();
    way.leads_to(&server.address);
    leads.put("acted", b"yes").await.expect("a killed server ends no lease");
    leads.resign().await.expect("it leads");
    assert_eq!(soon(observing.next()).await.expect("the server answers"), None);
}
