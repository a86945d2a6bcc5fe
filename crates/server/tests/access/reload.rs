//! A reload of the access rules applies to open watches and streams (A7, A10).

use std::time::{Duration, SystemTime};

use leasehold_server::identity::Identity;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, v1};

use crate::access_server::{ADMIN, AccessServer, identity};
use crate::transport_clients::{SessionStream, acquire, connect, with_timeout};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_shows_each_event_by_the_rights_of_that_moment() {
    let before = [("uid:1", "observer", "a"), ("uid:1", "observer", "b/x"), ("uid:2", "observer", "")];
    let mut server = AccessServer::start(&before).await;
    let mut admin = server.client_as(ADMIN).await;
    let mut watcher = server.client_as("uid:1").await;
    let mut everything = server.client_as("uid:2").await;
    let watch = |prefix: &str| v1::WatchRequest { prefix: prefix.into() };
    let mut events = watcher.watch(watch("")).await.expect("an observer watches").into_inner();
    let mut all = everything.watch(watch("")).await.expect("an observer watches").into_inner();
    let mut hold = async |name: &str| {
        admin.acquire(acquire(name, "w")).await.expect("the name is free");
        // Once the other watcher has it, it was sent to all.
        loop {
            let event = with_timeout(all.message()).await.expect("the watch goes on").expect("an event");
            if event.resource == name {
                break;
            }
        }
    };
    for name in ["b/1", "a/1", "ab/1", "b/x/1"] {
        hold(name).await;
    }
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.push(with_timeout(events.message()).await.expect("the watch goes on").expect("an event").resource);
    }
    assert_eq!(seen, ["a/1", "b/x/1"]);
    server.reload(&[("uid:1", "observer", "b"), ("uid:2", "observer", "")]);
    for name in ["a/2", "b/2"] {
        hold(name).await;
    }
    let event = with_timeout(events.message()).await.expect("the watch goes on").expect("an event");
    assert_eq!(event.resource, "b/2", "a/2 may no longer be seen");
    server.reload(&[("uid:1", "reporter", "b"), ("uid:2", "observer", "")]);
    let ended = with_timeout(events.message()).await.expect_err("a reporter may not watch");
    assert_eq!(problem_from_status(&ended).code, "PERMISSION_DENIED");
    hold("b/3").await;
    assert!(watcher.watch(watch("b")).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_a_removed_identity_is_closed_and_its_session_lives_on() {
    let mut server = AccessServer::start(&[("uid:1", "holder", "jobs"), ("uid:2", "holder", "jobs")]).await;
    let address = server.listen_as("uid:1").await;
    let client = connect(address).await;
    let open = v1::OpenSession { holder: "w".into(), ttl_ms: 600_000, waits_only: false };
    let hello = |session| v1::Hello { protocol: 1, session: Some(session), ..Default::default() };
    let first = |session| v1::ClientBatch { hello: Some(hello(session)), ..Default::default() };
    let started = SessionStream::start(client.clone(), first(v1::hello::Session::Open(open))).await;
    let mut stream = started.expect("a holder opens a session");
    let welcome = stream.next().await.expect("the stream is open").welcome.expect("a welcome");
    let answer = stream.request(Operation::Acquire(v1::Acquire { ttl_ms: None, ..acquire("jobs/a", "") })).await;
    let Answer::Granted(_) = answer else { panic!("{answer:?}") };
    let mut other = server.stream_as("uid:2").await;

    // Rights that shrink do not close the stream; its requests are refused one by one.
    server.reload(&[("uid:1", "holder", "elsewhere"), ("uid:2", "holder", "jobs")]);
    let answer = stream.request(Operation::Acquire(acquire("jobs/b", ""))).await;
    let Answer::Refused(problem) = answer else { panic!("{answer:?}") };
    assert_eq!(problem.code, "PERMISSION_DENIED");

    server.reload(&[("uid:2", "holder", "jobs")]);
    let closed = loop {
        let batch = stream.next().await.expect("a reason precedes the end");
        if let Some(problem) = batch.close {
            break problem;
        }
    };
    assert_eq!(closed.code, "PERMISSION_DENIED", "{closed:?}");
    let answer = other.request(Operation::Acquire(acquire("jobs/c", ""))).await;
    assert!(matches!(answer, Answer::Granted(_)), "a reload drops no one who still belongs: {answer:?}");
    let mut admin = server.client_as(ADMIN).await;
    let shown = admin.show(v1::ShowRequest { resource: "jobs/a".into(), min_position: 0 }).await;
    assert_eq!(shown.expect("it is held").into_inner().held, 1, "the session lives until its ttl");
    let resume = || {
        let (session, secret) = (welcome.session, welcome.secret.clone());
        first(v1::hello::Session::Resume(v1::ResumeSession { session, secret }))
    };
    assert!(SessionStream::start(client.clone(), resume()).await.is_err(), "it may not resume");
    server.reload(&[("uid:1", "holder", "jobs"), ("uid:2", "holder", "jobs")]);
    SessionStream::start(client, resume()).await.expect("it may resume again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_the_credential_of_its_identity() {
    let mut server = AccessServer::start(&[("uid:1", "holder", "jobs")]).await;
    let not_after = Some(SystemTime::now() + Duration::from_secs(2));
    let (address, _) = server.listen_with(Identity { not_after, ..identity("uid:1") }).await;
    let mut stream = SessionStream::open(connect(address).await).await;
    let mut client = connect(address).await;
    let mut events =
        client.watch(v1::WatchRequest { prefix: "jobs".into() }).await.expect("a holder watches").into_inner();
    let closed = stream.next().await.expect("a reason precedes the end").close.expect("the stream is closed");
    assert_eq!(closed.code, "PERMISSION_DENIED");
    assert!(closed.reason.contains("expired"), "{closed:?}");
    let ended = with_timeout(events.message()).await.expect_err("the watch ends too");
    assert_eq!(problem_from_status(&ended).code, "PERMISSION_DENIED");
}
