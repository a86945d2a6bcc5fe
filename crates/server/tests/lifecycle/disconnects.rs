//! Callers that disconnect while they wait, and waits that are retried (W3, L11).

use leasehold_wire::headers::{IDEMPOTENCY_KEY, IdempotencyKey};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, session_id, v1};
use tonic::Request;

use crate::test_server::{TestServer, start_server};
use crate::transport_clients::{GrpcClient, HttpConnection, SessionStream, acquire, connect, lease_ref, with_timeout};

fn waiting_acquire(resource: &str, holder: &str, session: Option<u64>) -> v1::Acquire {
    let options = Some(v1::AcquireOptions { wait_ms: 600_000, ..Default::default() });
    v1::Acquire { options, session, ..acquire(resource, holder) }
}

/// An acquire with an idempotency key.
fn with_key(acquire: v1::Acquire, session: u64, sequence: u64) -> Request<v1::Acquire> {
    let key = IdempotencyKey { session: session_id(session), sequence }.to_string();
    let mut request = Request::new(acquire);
    request.metadata_mut().insert(IDEMPOTENCY_KEY, key.parse().expect("the key is ASCII"));
    request
}

async fn open_session(client: &mut GrpcClient) -> u64 {
    open(client, false).await
}

async fn open(client: &mut GrpcClient, waits_only: bool) -> u64 {
    let open = v1::OpenSession { holder: "w".into(), ttl_ms: 600_000, waits_only };
    client.open_session(open).await.expect("the session opens").into_inner().session
}

impl TestServer {
    /// Polls until the resource has this many waiters.
    pub async fn wait_for_waiters(&self, resource: &str, count: usize) {
        let request = || v1::WaitersRequest { resource: resource.into(), offset: 0, limit: 0 };
        let mut client = self.client.clone();
        let polling = async {
            loop {
                let list = client.waiters(request()).await;
                if list.map_or(0, |list| list.into_inner().waiters.len()) == count {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        with_timeout(polling).await;
    }

    /// Retries an acquire until it is granted.
    async fn acquire_when_free(&mut self, resource: &str) {
        let acquiring = async {
            while self.client.acquire(acquire(resource, "next")).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        with_timeout(acquiring).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_without_a_key_ends_when_its_caller_disconnects() {
    let mut server = start_server().await;
    let first = server.acquire_lease("r", 600_000).await;
    let session = open_session(&mut server.client).await;
    let mut client = connect(server.handle.address).await;
    let call = tokio::spawn(async move { client.acquire(waiting_acquire("r", "gone", Some(session))).await });
    server.wait_for_waiters("r", 1).await;
    call.abort();
    server.wait_for_waiters("r", 0).await;
    server.client.release(lease_ref("r", &first.token)).await.expect("the holder releases");
    server.client.acquire(acquire("r", "next")).await.expect("no disconnected caller is granted");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_ends_when_its_connection_breaks() {
    let mut server = start_server().await;
    let first = server.acquire_lease("r", 600_000).await;
    for body in [r#"{"holder":"gone","ttl":"60s","wait":"10m"}"#.to_owned(), {
        let id = session_id(open_session(&mut server.client).await);
        format!(r#"{{"holder":"gone","ttl":"60s","wait":"10m","session":"{id}"}}"#)
    }] {
        let mut http = HttpConnection::connect(server.handle.address).await;
        let head = format!(
            "POST /v1/leases/r:acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        http.send((head + &body).as_bytes()).await.expect("the request is sent");
        server.wait_for_waiters("r", 1).await;
        drop(http);
        server.wait_for_waiters("r", 0).await;
    }
    server.client.release(lease_ref("r", &first.token)).await.expect("the holder releases");
    server.client.acquire(acquire("r", "next")).await.expect("no disconnected caller is granted");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_with_a_key_keeps_its_queue_position_after_a_disconnect() {
    let mut server = start_server().await;
    let first = server.acquire_lease("r", 600_000).await;
    let session = open_session(&mut server.client).await;
    let mut client = connect(server.handle.address).await;
    let request = with_key(waiting_acquire("r", "back", Some(session)), session, 1);
    let call = tokio::spawn(async move { client.acquire(request).await });
    server.wait_for_waiters("r", 1).await;
    call.abort();
    let mut other = server.client.clone();
    let later_waiter = tokio::spawn(async move { other.acquire(waiting_acquire("r", "later", None)).await });
    server.wait_for_waiters("r", 2).await;
    server.client.release(lease_ref("r", &first.token)).await.expect("the holder releases");
    let retry = server.client.acquire(with_key(waiting_acquire("r", "back", Some(session)), session, 1)).await;
    let granted = retry.expect("the retry gets the grant").into_inner();
    server.client.release(lease_ref("r", &granted.token)).await.expect("the holder releases");
    let last = with_timeout(later_waiter).await.expect("no panic").expect("the next waiter is granted").into_inner();
    assert!(last.token_number > granted.token_number);
    server.handle.stop().await;
}

/// The key's session carries the wait, although the request itself names no session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_with_the_same_key_continues_the_same_wait() {
    let mut server = start_server().await;
    let first = server.acquire_lease("r", 600_000).await;
    let session = open(&mut server.client, true).await;
    let request = move || with_key(waiting_acquire("r", "back", None), session, 1);
    let mut client = connect(server.handle.address).await;
    let call = tokio::spawn(async move { client.acquire(request()).await });
    server.wait_for_waiters("r", 1).await;
    call.abort();
    let mut client = connect(server.handle.address).await;
    let call = tokio::spawn(async move { client.acquire(request()).await });
    server.client.release(lease_ref("r", &first.token)).await.expect("the holder releases");
    let granted = with_timeout(call).await.expect("no panic").expect("granted").into_inner();
    let retry = server.client.acquire(request()).await.expect("the retry gets the same grant").into_inner();
    assert_eq!(granted.token, retry.token);
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_takes_over_a_wait_and_the_earlier_call_ends() {
    let mut server = start_server().await;
    let first = server.acquire_lease("r", 600_000).await;
    let session = open_session(&mut server.client).await;
    let request = move || with_key(waiting_acquire("r", "w", Some(session)), session, 1);
    let mut client = connect(server.handle.address).await;
    let mut earlier = tokio::spawn(async move { client.acquire(request()).await });
    server.wait_for_waiters("r", 1).await;
    for _ in 0..3 {
        let mut client = connect(server.handle.address).await;
        let later = tokio::spawn(async move { client.acquire(request()).await });
        let status = with_timeout(earlier).await.expect("no panic").expect_err("the retry took over");
        assert_eq!(problem_from_status(&status).code, "INDETERMINATE", "{status:?}");
        earlier = later;
    }
    server.client.release(lease_ref("r", &first.token)).await.expect("the holder releases");
    with_timeout(earlier).await.expect("no panic").expect("granted");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_belongs_to_the_connection_that_resumed_it_last() {
    let server = start_server().await;
    let mut client = server.client.clone();
    let open = v1::OpenSession { holder: "w".into(), ttl_ms: 600_000, waits_only: false };
    let welcome = client.open_session(open).await.expect("the session opens").into_inner();
    let resume = || {
        let resume =
            v1::hello::Session::Resume(v1::ResumeSession { session: welcome.session, secret: welcome.secret.clone() });
        let hello = v1::Hello { protocol: 1, session: Some(resume), ..Default::default() };
        v1::ClientBatch { hello: Some(hello), ..Default::default() }
    };
    let mut earlier = SessionStream::start(client.clone(), resume()).await.expect("the secret is valid");
    assert!(earlier.next().await.expect("the stream is open").welcome.is_some());
    let mut later = SessionStream::start(client.clone(), resume()).await.expect("the secret is valid");
    assert!(later.next().await.expect("the stream is open").welcome.is_some());
    let close = earlier.next().await.expect("a last message").close.expect("the stream is closed with a reason");
    assert_eq!((close.code.as_str(), close.subject.as_str()), ("CONFLICT", "session"));
    assert_eq!(earlier.next().await, None);
    assert!(
        matches!(later.request(Operation::Acquire(acquire("a", ""))).await, Answer::Granted(_)),
        "the later stream works"
    );
    server.handle.stop().await;
}

/// Repeats the race between a grant and a disconnect: whichever comes first, no lease stays held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_races_with_a_disconnect_is_released() {
    let mut server = start_server().await;
    // A grant that was sent and never read ends with its ttl; one that was not sent is released at once.
    let short_wait = || v1::Acquire { ttl_ms: Some(1_000), ..waiting_acquire("r", "gone", None) };
    for round in 0..60 {
        let first = server.acquire_lease("r", 600_000).await;
        let mut client = connect(server.handle.address).await;
        let call = tokio::spawn(async move { client.acquire(short_wait()).await });
        server.wait_for_waiters("r", 1).await;
        let mut holder = server.client.clone();
        let release = tokio::spawn(async move { holder.release(lease_ref("r", &first.token)).await });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        call.abort();
        release.await.expect("no panic").expect("the holder releases");
        match call.await.ok() {
            // The reply arrived before the abort.
            Some(reply) => {
                let grant = reply.expect("the wait is granted").into_inner();
                // On a busy machine its ttl may have passed.
                if let Err(status) = server.client.release(lease_ref("r", &grant.token)).await {
                    assert_eq!(problem_from_status(&status).code, "LEASE_LOST", "{status:?}");
                }
            }
            None => {
                server.acquire_when_free("r").await;
                let view = server.client.show(v1::ShowRequest { resource: "r".into(), min_position: 0 }).await;
                let next = view.expect("the resource is held").into_inner().leases.remove(0);
                assert_eq!(next.holder, "next");
                let revoke = v1::Revoke {
                    selector: Some(v1::revoke::Selector::Resource("r".into())),
                    reason: v1::EndReason::Operator.into(),
                    comment: "the next round".into(),
                    ..Default::default()
                };
                server.client.revoke(revoke).await.expect("the lease is revoked");
            }
        }
    }
    server.handle.stop().await;
}
