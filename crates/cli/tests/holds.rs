//! What a guard keeps to when things go wrong, against a real server over a real connection.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use leasehold::{Client, Code, Endpoints, Guard, Held, Loss, Options, State};
use leasehold_core::lease::Reason;
use support::{PATIENCE, Server};

const TTL: Duration = Duration::from_secs(1);

fn client(server: &Server, holder: &str) -> Client {
    let endpoints = Endpoints::parse(&server.address).expect("an address with a port");
    Client::with(endpoints, Options { holder: Some(holder.into()), ..Options::default() })
}

async fn acquire(client: &Client, name: &str) -> Guard {
    client.lock(name).ttl(TTL).acquire().await.expect("it is free")
}

/// Waits until it is so, with a generous bound.
async fn until(mut so: impl FnMut() -> bool) {
    let over = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < over, "it never came to be so");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_event_loop_that_is_blocked_for_three_ttls_keeps_its_lease() {
    let server = Server::start();
    let client = client(&server, "w1");
    let guard = acquire(&client, "a").await;
    let token = guard.token();
    std::thread::sleep(3 * TTL);
    assert_eq!((guard.state(), guard.token()), (State::Held, token));
    guard.confirm().await.expect("the grantor says so too");
}

#[tokio::test]
async fn a_server_that_is_down_for_three_ttls_suspends_a_guard_which_then_holds_again_under_the_same_token() {
    let mut server = Server::start();
    let client = client(&server, "w1");
    let guard = acquire(&client, "a").await;
    let token = guard.token();
    server.signal("KILL");
    server.wait();
    assert_eq!(guard.stopped().await, State::Suspended);
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(guard.state(), State::Suspended, "nobody said that it is over");
    let server = server.again();
    until(|| guard.state() == State::Held).await;
    assert_eq!(guard.token(), token);
    let busy = self::client(&server, "w2").lock("a").acquire().await.expect_err("it is held").into_error();
    assert_eq!(busy.code(), Some(Code::Busy));
}

#[tokio::test]
async fn what_is_asked_while_the_server_is_down_happens_once_when_it_is_back() {
    let mut server = Server::start();
    let client = client(&server, "w1");
    let guard = acquire(&client, "a").await;
    server.signal("KILL");
    server.wait();
    let hold = guard.hold().clone();
    let put = tokio::spawn(async move { hold.put("at", b"1").await });
    tokio::time::sleep(TTL / 2).await;
    let _server = server.again();
    let first = put.await.expect("it ran").expect("the session went on");
    assert_eq!(guard.store("at", Some(b"2"), Some(first)).await.expect("nothing came between"), first + 1);
}

#[tokio::test]
async fn a_revoked_guard_is_told_at_once() {
    let server = Server::start();
    let client = client(&server, "w1");
    let guard = acquire(&client, "a").await;
    server.run(&["revoke", "a", "--reason", "a test"]).ok();
    assert_eq!(guard.lost().await, Loss::Ended(Reason::Operator));
    let refused = guard.release().await.expect_err("it is not ours any more").into_error();
    assert_eq!(refused.lost(), Some(Reason::Operator));
}

#[tokio::test]
async fn a_release_wakes_exactly_one_of_a_thousand_waiters() {
    let server = Server::start();
    let (holder, crowd) = (client(&server, "w1"), client(&server, "crowd"));
    let first = acquire(&holder, "a").await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let lock = crowd.lock("a").wait(PATIENCE);
        waiting.spawn(async move { lock.acquire().await });
    }
    let looking = client(&server, "looks");
    while looking.waiters("a").await.expect("the server answers").len() < 1_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    first.release().await.expect("it is ours");
    let second = waiting.join_next().await.expect("one is woken").expect("it ran").expect("it was given back");
    assert_eq!(second.state(), State::Held);
    assert_eq!(looking.waiters("a").await.expect("the server answers").len(), 999);
    assert!(waiting.try_join_next().is_none(), "nobody else was woken");
    waiting.abort_all();
    while waiting.join_next().await.is_some() {}
    while !looking.waiters("a").await.expect("the server answers").is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    second.confirm().await.expect("it holds");
}

#[tokio::test]
async fn two_clients_of_one_holder_name_are_two_holders() {
    let server = Server::start();
    let (one, other) = (client(&server, "w1"), client(&server, "w1"));
    let guard = acquire(&one, "a").await;
    let busy = other.lock("a").holder("w1").acquire().await.expect_err("it is held").into_error();
    assert_eq!(busy.code(), Some(Code::Busy));
    guard.release().await.expect("it is ours");
    let second = other.lock("a").holder("w1").acquire().await.expect("it is free");
    assert_eq!(second.state(), State::Held);
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
    let looking = self::client(&server, "looks");
    for guard in guards.iter().step_by(100) {
        let shown = looking.show(guard.resource()).await;
        assert_eq!(shown.map_or(0, |shown| shown.held), 0);
    }
}

#[tokio::test]
async fn a_guard_outlives_its_client_and_the_token_is_what_others_see() {
    let server = Server::start();
    let client = client(&server, "w1");
    let guard = acquire(&client, "a").await;
    drop(client);
    tokio::time::sleep(2 * TTL).await;
    assert!(guard.is_held());
    let token = guard.token().parse().expect("a token's text");
    self::client(&server, "w2").confirm(&Held::of("a", token)).await.expect("the text is the lease's");
}
