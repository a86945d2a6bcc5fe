//! What keeps a lease: a thread of its own, a session that goes on, and a list that is compared.

use std::collections::BTreeSet;

use leasehold::{Code, Held, Options, State};
use leasehold_core::command::Acquire;

use crate::servers::Server;
use crate::way::Way;
use crate::{TTL, acquire, client, client_at, client_by_way, crowd, until};

#[tokio::test]
async fn an_event_loop_that_is_blocked_for_three_ttls_keeps_its_lease() {
    let server = Server::start();
    let client = client(&server, "w1");
    let guard = client.lock("a").ttl(TTL).acquire().await.expect("it is free");
    let token = guard.token();
    std::thread::sleep(3 * TTL);
    assert_eq!((guard.state(), guard.token()), (State::Held, token));
    guard.confirm().await.expect("the grantor says so too");
}

#[tokio::test]
async fn a_server_that_is_down_for_three_ttls_suspends_a_guard_which_then_holds_again_under_the_same_token() {
    let mut server = Server::start();
    let (client, way) = client_by_way(&server).await;
    let guard = client.lock("a").ttl(TTL).acquire().await.expect("it is free");
    let token = guard.token();
    server.signal("KILL");
    server.wait();
    assert_eq!(guard.stopped().await, State::Suspended);
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(guard.state(), State::Suspended, "nobody said that it is over");
    let server = server.again();
    way.leads_to(&server.address);
    until(async || guard.state() == State::Held).await;
    assert_eq!(guard.token(), token);
    let busy = crate::client(&server, "w2").lock("a").acquire().await.expect_err("it is held").into_error();
    assert_eq!(busy.code(), Some(Code::Busy));
}

#[tokio::test]
async fn what_is_asked_while_the_server_is_down_happens_once_when_it_is_back() {
    let mut server = Server::start();
    let (client, way) = client_by_way(&server).await;
    let guard = acquire(&client, "a").await;
    server.signal("KILL");
    server.wait();
    let hold = guard.hold().clone();
    let put = tokio::spawn(async move { hold.put("at", b"1").await });
    tokio::time::sleep(TTL / 2).await;
    let server = server.again();
    way.leads_to(&server.address);
    let first = put.await.expect("it ran").expect("the session went on");
    assert_eq!(guard.store("at", Some(b"2"), Some(first)).await.expect("nothing came between"), first + 1);
}

#[tokio::test]
async fn a_thousand_guards_are_renewed_on_one_stream_and_given_back_by_closing() {
    let server = Server::start();
    let client = client(&server, "w1");
    let mut asking = tokio::task::JoinSet::new();
    for at in 0..1_000 {
        let lock = client.lock(format!("many/{at}")).ttl(2 * TTL);
        asking.spawn(async move { lock.acquire().await });
    }
    let mut guards = Vec::new();
    while let Some(guard) = asking.join_next().await {
        guards.push(guard.expect("it ran").expect("it is free"));
    }
    let tokens: BTreeSet<_> = guards.iter().map(|guard| guard.token_number()).collect();
    assert_eq!(tokens.len(), 1_000, "one token, one grant");
    tokio::time::sleep(4 * TTL).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    client.close().await.expect("the server answers");
    assert!(guards.iter().all(|guard| !guard.is_held()));
    let looking = crate::client(&server, "looks");
    for guard in guards.iter().step_by(100) {
        let shown = looking.show(guard.resource()).await;
        assert_eq!(shown.map_or(0, |shown| shown.held), 0);
    }
}

#[tokio::test]
async fn a_guard_outlives_its_client_and_the_token_is_what_others_see() {
    let server = Server::start();
    let client = client(&server, "w1");
    let guard = client.lock("a").ttl(TTL).acquire().await.expect("it is free");
    drop(client);
    tokio::time::sleep(2 * TTL).await;
    assert!(guard.is_held());
    let token = guard.token().parse().expect("a token's text");
    crate::client(&server, "w2").confirm(&Held::of("a", token)).await.expect("the text is the lease's");
}

#[tokio::test]
async fn a_connection_that_broke_is_made_again_and_the_session_goes_on() {
    let server = Server::start();
    let way = Way::to(&server.address).await;
    let client = client_at(&way.address, Options { holder: Some("w1".into()), ..Options::default() });
    let looking = crate::client(&server, "looks");
    let guard = acquire(&client, "a").await;
    let session = looking.show("a").await.expect("it is held").leases[0].session.clone();
    assert!(session.is_some());
    for revision in 1..=5 {
        let made = way.made();
        way.cut();
        assert_eq!(guard.put("at", b"x").await.expect("it is asked again"), revision, "once each");
        assert!(way.made() > made, "over another connection");
    }
    let shown = looking.show("a").await.expect("it is held");
    assert_eq!((shown.leases[0].session.clone(), guard.state()), (session, State::Held));
}

#[tokio::test]
async fn a_lease_that_its_client_does_not_know_ends_when_the_session_is_compared() {
    let server = Server::start();
    let short = Options { holder: Some("w1".into()), session: 3 * TTL, ..Options::default() };
    let client = client_at(&server.address, short);
    let looking = crate::client(&server, "looks");
    let guard = acquire(&client, "a").await;
    let session = looking.show("a").await.expect("it is held").leases[0].session.clone().expect("a session carries it");
    let session = Some(session.parse().expect("a session's id"));
    let orphan = Acquire { session, ..Acquire::exclusive("b", "orphan", 60_000) };
    looking.acquire(&orphan).await.expect("it is free");
    until(async || crowd(&looking, "b").await.0 == 0).await;
    guard.confirm().await.expect("what is known stays");
}
