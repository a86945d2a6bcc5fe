//! What the client crate can do beyond the command line, against a real server.

mod support;

use leasehold::{Client, Code, Held, Key, Watched};
use leasehold_core::command::{Acquire, AcquireAll, Event, HandOff, Terms, Which};
use leasehold_core::lease::Access;
use support::Server;

fn client(server: &Server) -> Client {
    Client::try_from(server.address.as_str()).expect("an address with a port")
}

#[tokio::test]
async fn a_change_under_a_key_happens_once() {
    let server = Server::start();
    let client = client(&server);
    let session = client.open_session("w1", 60_000).await.expect("a session").session();
    let acquire = Acquire { session: Some(session), ..Acquire::exclusive("a", "", 60_000) };
    let key = Key { session, sequence: 1 };
    let first = client.under(key).acquire(&acquire).await.expect("it is free");
    let again = client.under(key).acquire(&acquire).await.expect("the same answer");
    assert_eq!(first.token(), again.token());
    let other = Acquire { resource: "b", ..acquire };
    let conflict = client.under(key).acquire(&other).await.expect_err("another body under the same key");
    assert_eq!(conflict.code(), Some(Code::Conflict));
    assert_eq!(client.seen(), Some(first.token()));

    let renewed = client.renew_session(session, None).await.expect("it lives");
    assert_eq!(renewed.session, session);
    client.close_session(session).await.expect("it lives");
    let gone = client.confirm(&Held::of("a", first.token())).await.expect_err("it ended with its session");
    assert_eq!(gone.lost(), Some(leasehold_core::lease::Reason::Session));
}

#[tokio::test]
async fn several_leases_are_had_together_or_not_at_all() {
    let server = Server::start();
    let client = client(&server);
    let wanted = [("a", Access::Exclusive), ("b", Access::Shared)];
    let ask = AcquireAll { wanted: &wanted, holder: "w1", session: None, ttl_ms: Some(60_000), terms: Terms::DEFAULT };
    let granted = client.acquire_all(&ask).await.expect("both are free");
    assert_eq!(granted.iter().map(|one| one.resource()).collect::<Vec<_>>(), ["a", "b"]);
    let wanted = [("c", Access::Exclusive), ("a", Access::Exclusive)];
    let busy = client.acquire_all(&AcquireAll { wanted: &wanted, ..ask }).await.expect_err("one is held");
    assert_eq!(busy.code(), Some(Code::Busy));
    assert_eq!(client.show("c").await.map(|resource| resource.held).unwrap_or(0), 0);
}

#[tokio::test]
async fn the_predecessor_of_an_overlap_says_that_it_has_drained() {
    let server = Server::start();
    let client = client(&server);
    let first = client.acquire(&Acquire::exclusive("a", "w1", 60_000)).await.expect("it is free");
    let terms = Terms { wait_ms: 60_000, ..Terms::DEFAULT };
    let ask = Acquire { terms, ..Acquire::exclusive("a", "w2", 60_000) };
    let waiting = client.acquire(&ask);
    let handing = async {
        while client.waiters("a").await.expect("the server answers").is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let style = Some(leasehold_core::charter::Style::Overlap);
        let ask = HandOff { which: Which::Resource("a"), number: None, to: None, style, drain_ms: Some(60_000) };
        client.hand_off(&ask, Some(first.token())).await
    };
    let (granted, handed) = tokio::join!(waiting, handing);
    handed.expect("its holder may");
    let granted = granted.expect("an overlap grants at once");
    assert!(granted.grant().overlaps_ms.is_some_and(|ms| ms > 0));
    client.drained(&Held::of("a", first.token())).await.expect("it is the predecessor");
    let renewed = client.renew(&Held::of("a", granted.token()), None, None).await.expect("it holds");
    assert_eq!(renewed.current().overlaps_ms, None, "the successor may claim");
}

#[tokio::test]
async fn a_capacity_bounds_how_many_hold() {
    let server = Server::start();
    let client = client(&server);
    client.set_capacity("pool", 1).await.expect("a size");
    let slot = Acquire { access: Access::Slot, ..Acquire::exclusive("pool", "w", 60_000) };
    client.acquire(&slot).await.expect("one is free");
    assert_eq!(client.acquire(&slot).await.expect_err("none is left").code(), Some(Code::Busy));
    client.set_capacity("pool", 2).await.expect("a size");
    client.acquire(&slot).await.expect("one more");
}

#[tokio::test]
async fn a_deadlock_is_refused_watched_and_listed() {
    let server = Server::start();
    let client = client(&server);
    let mut watch = client.watch("").await.expect("the server answers");
    let one = client.open_session("one", 60_000).await.expect("a session").session();
    let two = client.open_session("two", 60_000).await.expect("a session").session();
    let take = |resource, session| Acquire { session: Some(session), ..Acquire::exclusive(resource, "", 60_000) };
    client.acquire(&take("a", one)).await.expect("it is free");
    client.acquire(&take("b", two)).await.expect("it is free");
    let terms = Terms { wait_ms: 60_000, ..Terms::DEFAULT };
    let (first, second) = (Acquire { terms, ..take("b", one) }, Acquire { terms, ..take("a", two) });
    let crossed = async {
        tokio::select! {
            ended = client.acquire(&first) => ended,
            ended = client.acquire(&second) => ended,
        }
    };
    let refused = crossed.await.expect_err("waiting would never end");
    assert_eq!((refused.code(), refused.exit()), (Some(Code::Deadlock), 4));
    loop {
        match watch.next().await.expect("the server lives") {
            Watched::Event(happened) if matches!(happened.event, Event::Deadlock(_)) => break,
            _ => {}
        }
    }
    let listed = server.json(&["deadlocks"]);
    assert_eq!(listed[0]["length"], 2, "{listed}");
    let told = server.run(&["deadlocks"]).ok().out;
    assert!(told.contains("one waits for b") && told.contains("two waits for a"), "{told}");
}

#[tokio::test]
async fn what_does_not_fit_one_page_is_told_whole_and_once() {
    let server = Server::with(&["--ephemeral", "--listen", "127.0.0.1:0"]);
    let client = client(&server);
    let names: Vec<_> = (0..1_100).map(|n| format!("r/{n:04}")).collect();
    for names in names.chunks(100) {
        let wanted: Vec<_> = names.iter().map(|name| (name.as_str(), Access::Exclusive)).collect();
        let ask =
            AcquireAll { wanted: &wanted, holder: "w1", session: None, ttl_ms: Some(60_000), terms: Terms::DEFAULT };
        client.acquire_all(&ask).await.expect("all are free");
    }
    let held = client.held_by("w1").await.expect("the server answers");
    let told: std::collections::BTreeSet<_> = held.iter().map(|lease| &lease.resource).collect();
    assert_eq!((held.len(), told.len()), (1_100, 1_100));
    let listed = server.json(&["ls", "r"]);
    assert_eq!(listed["resources"].as_array().map(Vec::len), Some(1_100));
    assert_eq!(server.json(&["ls", "r", "--most", "700"])["resources"].as_array().map(Vec::len), Some(700));
}
