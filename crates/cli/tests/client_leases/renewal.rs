//! Renewal: the renewal thread, resumed sessions, and reconciliation of the held leases.

use std::collections::BTreeSet;

use leasehold::{Code, GuardState, HeldLease};
use leasehold_core::command::Acquire;
use leasehold_testkit::tcp_proxy::TcpProxy;

use crate::servers::Server;
use crate::{TTL, acquire, builder, client, holders_and_waiters, proxied_client, until};

#[tokio::test]
async fn an_event_loop_that_is_blocked_for_three_ttls_keeps_its_lease() {
    let server = Server::start();
    let client = client(&server, "w1");
    let guard = client.lock("a").ttl(TTL).acquire().await.expect("the resource is free");
    let token = guard.token();
    std::thread::sleep(3 * TTL);
    assert_eq!((guard.state(), guard.token()), (GuardState::Held, token));
    guard.check().await.expect("the server confirms it");
}

#[tokio::test]
async fn a_server_outage_of_three_ttls_suspends_a_guard_that_then_holds_again_under_the_same_token() {
    let mut server = Server::start();
    let (client, proxy) = proxied_client(&server);
    let guard = client.lock("a").ttl(TTL).acquire().await.expect("the resource is free");
    let token = guard.token();
    server.signal("KILL");
    server.wait();
    assert_eq!(guard.wait_stopped().await, GuardState::Suspended);
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(guard.state(), GuardState::Suspended, "no server has reported its end");
    let server = server.crash_and_restart();
    proxy.set_upstream(&server.address);
    until(async || guard.state() == GuardState::Held).await;
    assert_eq!(guard.token(), token);
    let busy = crate::client(&server, "w2").lock("a").acquire().await.expect_err("the resource is held").into_error();
    assert_eq!(busy.code(), Some(Code::Busy));
}

#[tokio::test]
async fn a_request_made_while_the_server_is_down_is_applied_once_after_its_restart() {
    let mut server = Server::start();
    let (client, proxy) = proxied_client(&server);
    let guard = acquire(&client, "a").await;
    server.signal("KILL");
    server.wait();
    let hold = guard.handle().clone();
    let put = tokio::spawn(async move { hold.put("at", b"1").await });
    tokio::time::sleep(TTL / 2).await;
    let server = server.crash_and_restart();
    proxy.set_upstream(&server.address);
    let first = put.await.expect("the task completed").expect("the session was resumed");
    assert_eq!(guard.put_if("at", Some(b"2"), Some(first)).await.expect("no write in between"), first + 1);
}

#[tokio::test]
async fn a_thousand_guards_are_renewed_on_one_stream_and_released_by_close() {
    let server = Server::start();
    let client = client(&server, "w1");
    let mut acquiring = tokio::task::JoinSet::new();
    for at in 0..1_000 {
        let lock = client.lock(format!("many/{at}")).ttl(2 * TTL);
        acquiring.spawn(async move { lock.acquire().await });
    }
    let mut guards = Vec::new();
    while let Some(guard) = acquiring.join_next().await {
        guards.push(guard.expect("the task completed").expect("the resource is free"));
    }
    let tokens: BTreeSet<_> = guards.iter().map(|guard| guard.token_number()).collect();
    assert_eq!(tokens.len(), 1_000, "one token, one grant");
    tokio::time::sleep(4 * TTL).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    client.close().await.expect("the server responds");
    assert!(guards.iter().all(|guard| !guard.is_held()));
    let observer = crate::client(&server, "observer");
    for guard in guards.iter().step_by(100) {
        let shown = observer.show(guard.resource()).await;
        assert_eq!(shown.map_or(0, |shown| shown.held), 0);
    }
}

#[tokio::test]
async fn a_guard_outlives_its_client_and_its_token_is_valid_for_others() {
    let server = Server::start();
    let client = client(&server, "w1");
    let guard = client.lock("a").ttl(TTL).acquire().await.expect("the resource is free");
    drop(client);
    tokio::time::sleep(2 * TTL).await;
    assert!(guard.is_held());
    crate::client(&server, "w2")
        .check(&HeldLease::new("a", guard.token()))
        .await
        .expect("the token belongs to the lease");
}

#[tokio::test]
async fn a_broken_connection_is_reopened_and_the_session_is_resumed() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    let client = builder(&proxy.address().to_string()).holder("w1").build();
    let observer = crate::client(&server, "observer");
    let guard = acquire(&client, "a").await;
    let session = observer.show("a").await.expect("the lease is held").leases[0].session.clone();
    assert!(session.is_some());
    for revision in 1..=5 {
        let before = proxy.connection_count();
        proxy.disconnect_all();
        assert_eq!(guard.put("at", b"x").await.expect("the request is retried"), revision, "once each");
        assert!(proxy.connection_count() > before, "a new connection was opened");
    }
    let shown = observer.show("a").await.expect("the lease is held");
    assert_eq!((shown.leases[0].session.clone(), guard.state()), (session, GuardState::Held));
}

#[tokio::test]
async fn a_lease_unknown_to_its_client_ends_when_the_session_is_reconciled() {
    let server = Server::start();
    let client = builder(&server.address).holder("w1").session_ttl(3 * TTL).build();
    let observer = crate::client(&server, "observer");
    let guard = acquire(&client, "a").await;
    let session = observer.show("a").await.expect("the lease is held").leases[0]
        .session
        .clone()
        .expect("the lease has a session");
    let session = Some(session.parse().expect("a session id"));
    let orphan = Acquire { session, ..Acquire::exclusive("b", "orphan", 60_000) };
    observer.acquire(&orphan).await.expect("the resource is free");
    until(async || holders_and_waiters(&observer, "b").await.0 == 0).await;
    guard.check().await.expect("known leases stay held");
}
