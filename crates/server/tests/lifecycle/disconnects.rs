//! Callers who go away while they wait, and waits that are asked for again (W3, L11).

use leasehold_wire::headers::{IDEMPOTENCY_KEY, IdempotencyKey};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, session_id, v1};
use tonic::Request;

use crate::transports::{Doors, GrpcService, Http, Stream, acquire, connect, held, open, within};

fn waiting(resource: &str, holder: &str, session: Option<u64>) -> v1::Acquire {
    let terms = Some(v1::AcquireOptions { wait_ms: 600_000, ..Default::default() });
    v1::Acquire { options: terms, session, ..acquire(resource, holder) }
}

fn keyed(ask: v1::Acquire, session: u64, sequence: u64) -> Request<v1::Acquire> {
    let key = IdempotencyKey { session: session_id(session), sequence }.to_string();
    let mut request = Request::new(ask);
    request.metadata_mut().insert(IDEMPOTENCY_KEY, key.parse().expect("plain text"));
    request
}

async fn session(calls: &mut GrpcService) -> u64 {
    let open = v1::OpenSession { holder: "w".into(), ttl_ms: 600_000, waits_only: false };
    calls.open_session(open).await.expect("a session").into_inner().session
}

impl Doors {
    /// Waits until so many wait for a resource.
    pub async fn until_waiting(&self, resource: &str, count: usize) {
        let look = || v1::WaitersRequest { resource: resource.into(), offset: 0, limit: 0 };
        let mut calls = self.calls.clone();
        let looking = async {
            loop {
                let list = calls.waiters(look()).await;
                if list.map_or(0, |list| list.into_inner().waiters.len()) == count {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        within(looking).await;
    }

    /// Whether nobody holds or wants it.
    async fn until_free(&mut self, resource: &str) {
        let taking = async {
            while self.calls.acquire(acquire(resource, "next")).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        within(taking).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_in_a_session_goes_with_its_caller_if_nobody_can_ask_for_it_again() {
    let mut doors = open().await;
    let first = doors.take("r", 600_000).await;
    let session = session(&mut doors.calls).await;
    let mut calls = connect(doors.running.address).await;
    let call = tokio::spawn(async move { calls.acquire(waiting("r", "gone", Some(session))).await });
    doors.until_waiting("r", 1).await;
    call.abort();
    doors.until_waiting("r", 0).await;
    doors.calls.release(held("r", &first.token)).await.expect("given back");
    doors.calls.acquire(acquire("r", "next")).await.expect("nobody who has gone is granted");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_whose_connection_breaks_waits_no_more() {
    let mut doors = open().await;
    let first = doors.take("r", 600_000).await;
    for body in [r#"{"holder":"gone","ttl":"60s","wait":"10m"}"#.to_owned(), {
        let id = session_id(session(&mut doors.calls).await);
        format!(r#"{{"holder":"gone","ttl":"60s","wait":"10m","session":"{id}"}}"#)
    }] {
        let mut http = Http::connect(doors.running.address).await;
        let head = format!("POST /v1/leases/r:acquire HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n", body.len());
        http.send((head + &body).as_bytes()).await.expect("it asks");
        doors.until_waiting("r", 1).await;
        drop(http);
        doors.until_waiting("r", 0).await;
    }
    doors.calls.release(held("r", &first.token)).await.expect("given back");
    doors.calls.acquire(acquire("r", "next")).await.expect("nobody who has gone is granted");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_can_be_asked_for_again_stays_in_its_place() {
    let mut doors = open().await;
    let first = doors.take("r", 600_000).await;
    let session = session(&mut doors.calls).await;
    let mut calls = connect(doors.running.address).await;
    let ask = keyed(waiting("r", "back", Some(session)), session, 1);
    let call = tokio::spawn(async move { calls.acquire(ask).await });
    doors.until_waiting("r", 1).await;
    call.abort();
    let mut other = doors.calls.clone();
    let behind = tokio::spawn(async move { other.acquire(waiting("r", "behind", None)).await });
    doors.until_waiting("r", 2).await;
    doors.calls.release(held("r", &first.token)).await.expect("given back");
    let again = doors.calls.acquire(keyed(waiting("r", "back", Some(session)), session, 1)).await;
    let granted = again.expect("the same answer, also now").into_inner();
    doors.calls.release(held("r", &granted.token)).await.expect("its own");
    let last = within(behind).await.expect("no panic").expect("granted in its turn").into_inner();
    assert!(last.token_number > granted.token_number);
    doors.running.stop().await;
}

/// A key names a session: it carries the wait, although the request itself names none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_under_a_key_is_the_same_wait_when_it_is_asked_for_again() {
    let mut doors = open().await;
    let first = doors.take("r", 600_000).await;
    let session = session(&mut doors.calls).await;
    let ask = move || keyed(waiting("r", "back", None), session, 1);
    let mut calls = connect(doors.running.address).await;
    let call = tokio::spawn(async move { calls.acquire(ask()).await });
    doors.until_waiting("r", 1).await;
    call.abort();
    let mut calls = connect(doors.running.address).await;
    let call = tokio::spawn(async move { calls.acquire(ask()).await });
    doors.calls.release(held("r", &first.token)).await.expect("given back");
    let granted = within(call).await.expect("no panic").expect("granted").into_inner();
    let again = doors.calls.acquire(ask()).await.expect("the same answer").into_inner();
    assert_eq!(granted.token, again.token);
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_for_a_wait_again_is_answered_and_the_earlier_call_ends() {
    let mut doors = open().await;
    let first = doors.take("r", 600_000).await;
    let session = session(&mut doors.calls).await;
    let ask = move || keyed(waiting("r", "w", Some(session)), session, 1);
    let mut calls = connect(doors.running.address).await;
    let mut earlier = tokio::spawn(async move { calls.acquire(ask()).await });
    doors.until_waiting("r", 1).await;
    for _ in 0..3 {
        let mut calls = connect(doors.running.address).await;
        let later = tokio::spawn(async move { calls.acquire(ask()).await });
        let status = within(earlier).await.expect("no panic").expect_err("the later one is answered");
        assert_eq!(problem_from_status(&status).code, "INDETERMINATE", "{status:?}");
        earlier = later;
    }
    doors.calls.release(held("r", &first.token)).await.expect("given back");
    within(earlier).await.expect("no panic").expect("granted");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_speaks_for_a_session_the_one_that_came_last() {
    let doors = open().await;
    let mut calls = doors.calls.clone();
    let open = v1::OpenSession { holder: "w".into(), ttl_ms: 600_000, waits_only: false };
    let welcome = calls.open_session(open).await.expect("a session").into_inner();
    let resume = || {
        let how =
            v1::hello::Session::Resume(v1::ResumeSession { session: welcome.session, secret: welcome.secret.clone() });
        let hello = v1::Hello { protocol: 1, session: Some(how), ..Default::default() };
        v1::ClientBatch { hello: Some(hello), ..Default::default() }
    };
    let mut before = Stream::begin(calls.clone(), resume()).await.expect("the secret is right");
    assert!(before.next().await.expect("a stream").welcome.is_some());
    let mut now = Stream::begin(calls.clone(), resume()).await.expect("the secret is right");
    assert!(now.next().await.expect("a stream").welcome.is_some());
    let goodbye = before.next().await.expect("a last word").close.expect("a goodbye");
    assert_eq!((goodbye.code.as_str(), goodbye.subject.as_str()), ("CONFLICT", "session"));
    assert_eq!(before.next().await, None);
    assert!(matches!(now.ask(Operation::Acquire(acquire("a", ""))).await, Answer::Granted(_)), "it goes on");
    doors.running.stop().await;
}

/// The race between a grant and a caller who goes, many times: whichever comes first, nothing stays held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_raced_its_callers_leaving_is_given_back() {
    let mut doors = open().await;
    // An answer that was sent and never read ends by its ttl; one that was not sent ends at once.
    let brief = || v1::Acquire { ttl_ms: Some(1_000), ..waiting("r", "gone", None) };
    for round in 0..60 {
        let first = doors.take("r", 600_000).await;
        let mut calls = connect(doors.running.address).await;
        let call = tokio::spawn(async move { calls.acquire(brief()).await });
        doors.until_waiting("r", 1).await;
        let mut holder = doors.calls.clone();
        let release = tokio::spawn(async move { holder.release(held("r", &first.token)).await });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        call.abort();
        release.await.expect("no panic").expect("its own");
        let told = call.await.ok();
        match told {
            // It was told after all, and holds.
            Some(told) => {
                let grant = told.expect("it was granted").into_inner();
                // On a busy machine its ttl may be over by now.
                if let Err(status) = doors.calls.release(held("r", &grant.token)).await {
                    assert_eq!(problem_from_status(&status).code, "LEASE_LOST", "{status:?}");
                }
            }
            None => {
                doors.until_free("r").await;
                let view = doors.calls.show(v1::ShowRequest { resource: "r".into(), min_position: 0 }).await;
                let next = view.expect("it is held").into_inner().leases.remove(0);
                assert_eq!(next.holder, "next");
                let revoke = v1::Revoke {
                    selector: Some(v1::revoke::Selector::Resource("r".into())),
                    reason: v1::EndReason::Operator.into(),
                    comment: "the next round".into(),
                    ..Default::default()
                };
                doors.calls.revoke(revoke).await.expect("it is held");
            }
        }
    }
    doors.running.stop().await;
}
