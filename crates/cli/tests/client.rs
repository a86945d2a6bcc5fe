//! Client library calls that no command uses, against a real server.

mod support;

use futures::StreamExt;
use leasehold::{Client, Code, HeldLease, IdempotencyKey, WatchItem};
use leasehold_core::command::{Acquire, AcquireAll, AcquireOptions, Handoff, LeaseSelector, SessionEvent};
use leasehold_core::lease::Access;
use support::Server;

fn client(server: &Server) -> Client {
    Client::new(server.address.as_str()).expect("an address with a port")
}

#[tokio::test]
async fn a_change_with_an_idempotency_key_is_applied_once() {
    let server = Server::start();
    let client = client(&server);
    let session = client.open_session("w1", 60_000).await.expect("a session").id();
    let acquire = Acquire { session: Some(session), ..Acquire::exclusive("a", "", 60_000) };
    let key = IdempotencyKey { session, sequence: 1 };
    let first = client.with_idempotency_key(key).acquire(&acquire).await.expect("the resource is free");
    let again = client.with_idempotency_key(key).acquire(&acquire).await.expect("the same reply");
    assert_eq!(first.token(), again.token());
    let other = Acquire { resource: "b", ..acquire };
    let conflict =
        client.with_idempotency_key(key).acquire(&other).await.expect_err("the key belongs to another request");
    assert_eq!(conflict.code(), Some(Code::Conflict));
    assert_eq!(client.highest_token(), Some(first.token().parsed()));

    let renewed = client.renew_session(session, None).await.expect("the session is open");
    assert_eq!(renewed.session, session);
    client.close_session(session).await.expect("the session is open");
    let gone = client.check(&HeldLease::new("a", first.token())).await.expect_err("the lease ended with its session");
    assert_eq!(gone.end_reason(), Some(leasehold_core::lease::EndReason::Session));
}

#[tokio::test]
async fn acquire_all_grants_all_leases_or_none() {
    let server = Server::start();
    let client = client(&server);
    let wanted = [("a", Access::Exclusive), ("b", Access::Shared)];
    let ask = AcquireAll {
        resources: &wanted,
        holder: "w1",
        session: None,
        ttl_ms: Some(60_000),
        options: AcquireOptions::DEFAULT,
    };
    let granted = client.acquire_all(&ask).await.expect("both are free");
    assert_eq!(granted.iter().map(|one| one.resource()).collect::<Vec<_>>(), ["a", "b"]);
    let wanted = [("c", Access::Exclusive), ("a", Access::Exclusive)];
    let busy = client.acquire_all(&AcquireAll { resources: &wanted, ..ask }).await.expect_err("one is held");
    assert_eq!(busy.code(), Some(Code::Busy));
    assert_eq!(client.show("c").await.map(|resource| resource.held).unwrap_or(0), 0);
}

#[tokio::test]
async fn the_predecessor_of_an_overlap_handoff_reports_that_it_has_drained() {
    let server = Server::start();
    let client = client(&server);
    let first = client.acquire(&Acquire::exclusive("a", "w1", 60_000)).await.expect("the resource is free");
    let options = AcquireOptions { wait_ms: 60_000, ..AcquireOptions::DEFAULT };
    let ask = Acquire { options, ..Acquire::exclusive("a", "w2", 60_000) };
    let waiting = client.acquire(&ask);
    let handing = async {
        while client.waiters("a").await.expect("the server responds").is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let mode = Some(leasehold_core::charter::HandoffMode::Overlap);
        let ask =
            Handoff { selector: LeaseSelector::Resource("a"), number: None, to: None, mode, drain_ms: Some(60_000) };
        client.handoff(&ask, Some(first.token())).await
    };
    let (granted, handed) = tokio::join!(waiting, handing);
    handed.expect("the holder may hand off");
    let granted = granted.expect("an overlap grants immediately");
    assert!(granted.grant().overlaps_ms.is_some_and(|ms| ms > 0));
    client.finish_drain(&HeldLease::new("a", first.token())).await.expect("the caller is the predecessor");
    let renewed = client.renew(&HeldLease::new("a", granted.token()), None, None).await.expect("the lease is held");
    assert_eq!(renewed.current().overlaps_ms, None, "the successor may claim");
}

#[tokio::test]
async fn capacity_limits_the_number_of_holders() {
    let server = Server::start();
    let client = client(&server);
    client.set_capacity("pool", 1).await.expect("the capacity is valid");
    let slot = Acquire { access: Access::Slot, ..Acquire::exclusive("pool", "w", 60_000) };
    client.acquire(&slot).await.expect("one slot is free");
    assert_eq!(client.acquire(&slot).await.expect_err("no slot is free").code(), Some(Code::Busy));
    client.set_capacity("pool", 2).await.expect("the capacity is valid");
    client.acquire(&slot).await.expect("one more slot is free");
}

#[tokio::test]
async fn a_deadlock_is_rejected_reported_to_watchers_and_listed() {
    let server = Server::start();
    let client = client(&server);
    let mut watch = client.watch("").await.expect("the server responds");
    let one = client.open_session("one", 60_000).await.expect("a session").id();
    let two = client.open_session("two", 60_000).await.expect("a session").id();
    let take = |resource, session| Acquire { session: Some(session), ..Acquire::exclusive(resource, "", 60_000) };
    client.acquire(&take("a", one)).await.expect("the resource is free");
    client.acquire(&take("b", two)).await.expect("the resource is free");
    let options = AcquireOptions { wait_ms: 60_000, ..AcquireOptions::DEFAULT };
    let (first, second) = (Acquire { options, ..take("b", one) }, Acquire { options, ..take("a", two) });
    let crossed = async {
        tokio::select! {
            ended = client.acquire(&first) => ended,
            ended = client.acquire(&second) => ended,
        }
    };
    let refused = crossed.await.expect_err("the wait would never end");
    assert_eq!((refused.code(), refused.exit_code()), (Some(Code::Deadlock), 4));
    loop {
        match watch.next().await.expect("the stream does not end").expect("the server runs") {
            WatchItem::Event(happened) if matches!(happened.event, SessionEvent::Deadlock(_)) => break,
            _ => {}
        }
    }
    let listed = server.json(&["deadlocks"]);
    assert_eq!(listed[0]["length"], 2, "{listed}");
    let result = server.run(&["deadlocks"]).ok().out;
    assert!(result.contains("one waits for b") && result.contains("two waits for a"), "{result}");
}

#[tokio::test]
async fn listings_longer_than_one_page_are_complete_and_without_duplicates() {
    let server = Server::with_flags(&["--ephemeral", "--listen", "127.0.0.1:0"]);
    let client = client(&server);
    let names: Vec<_> = (0..1_100).map(|n| format!("r/{n:04}")).collect();
    for names in names.chunks(100) {
        let wanted: Vec<_> = names.iter().map(|name| (name.as_str(), Access::Exclusive)).collect();
        let ask = AcquireAll {
            resources: &wanted,
            holder: "w1",
            session: None,
            ttl_ms: Some(60_000),
            options: AcquireOptions::DEFAULT,
        };
        client.acquire_all(&ask).await.expect("all are free");
    }
    let held = client.held_by("w1").await.expect("the server responds");
    let result: std::collections::BTreeSet<_> = held.iter().map(|lease| &lease.resource).collect();
    assert_eq!((held.len(), result.len()), (1_100, 1_100));
    let listed = server.json(&["ls", "r"]);
    assert_eq!(listed["resources"].as_array().map(Vec::len), Some(1_100));
    assert_eq!(server.json(&["ls", "r", "--limit", "700"])["resources"].as_array().map(Vec::len), Some(700));
}

#[tokio::test]
async fn metrics_are_read_over_the_connection_of_queries_and_their_refusal_is_an_error() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| folder.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    let grant = "[[grant]]\nprincipal = \"anonymous\"\nrole = \"holder\"\nprefix = \"\"\n";
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("the process exists"));
    let observer = format!("[[grant]]\nprincipal = \"uid:{user}\"\nrole = \"observer\"\nprefix = \"\"\n");
    std::fs::write(path("access.toml"), format!("{grant}{observer}")).expect("the file is writable");
    let (data, access, socket) = (path("data"), path("access.toml"), path("socket"));
    let flags = ["--listen", "127.0.0.1:0", "--data", &data, "--access", &access, "--socket", &socket];
    let server = Server::with_flags(&flags);
    server.acquire("a", "w1");
    let of_socket = Client::new(&format!("unix:{socket}")).expect("an address");
    let text = of_socket.metrics().await.expect("an observer may read metrics");
    assert!(text.lines().any(|line| line == "leasehold_leases_held 1"), "{text}");
    assert_eq!(of_socket.first_waiters("a", 5).await.expect("the resource exists"), []);
    let refused = client(&server).metrics().await.expect_err("a holder may not");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
    let nowhere = Client::new(support::UNUSED_ADDRESS).expect("an address");
    assert_eq!(nowhere.metrics().await.expect_err("no server").code(), Some(Code::Unavailable));
}
