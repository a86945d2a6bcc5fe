//! Routing of unary calls: finding the leader, retries, and errors without a reply.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::types::{Acquire, SessionId};
use leasehold::{Client, Code, Error, IdempotencyKey};
use leasehold_wire::{problem_to_status, v1};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

/// A fake server that counts its calls.
struct FakeServer {
    address: SocketAddr,
    calls: Arc<AtomicUsize>,
}

impl FakeServer {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

async fn bind() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("the listener is bound");
    (listener, address)
}

fn answers_on(listener: TcpListener, address: SocketAddr, problem: v1::Problem) -> FakeServer {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let handler = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let problem = problem.clone();
        async move { problem_to_status(problem).into_http::<axum::body::Body>() }
    };
    let router = axum::Router::new().fallback(handler);
    tokio::spawn(async move { axum::serve(listener, router).await });
    FakeServer { address, calls }
}

/// A server that answers every call with this problem.
async fn answering_server(problem: v1::Problem) -> FakeServer {
    let (listener, address) = bind().await;
    answers_on(listener, address, problem)
}

/// A server that reads a request and closes the connection without a reply.
async fn closing_server() -> FakeServer {
    let (listener, address) = bind().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut bytes = [0; 4_096];
            // The request is discarded.
            let _ = stream.read(&mut bytes).await;
        }
    });
    FakeServer { address, calls }
}

/// A server that accepts every call and never replies.
async fn silent_server() -> FakeServer {
    let (listener, address) = bind().await;
    let router = axum::Router::new().fallback(|| async { std::future::pending::<()>().await });
    tokio::spawn(async move { axum::serve(listener, router).await });
    FakeServer { address, calls: Arc::default() }
}

/// An address without a server.
async fn unreachable_address() -> SocketAddr {
    bind().await.1
}

fn busy() -> v1::Problem {
    v1::Problem::of(Code::Busy, "held by another; wait or give up")
}

fn not_leader(hint: &str) -> v1::Problem {
    v1::Problem { leader: hint.into(), ..v1::Problem::of(Code::NotLeader, "another server decides") }
}

fn client(addresses: &[SocketAddr]) -> Client {
    let text: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    Client::new(&text.join(",")).expect("valid addresses")
}

async fn acquire(client: &Client) -> Error {
    client.acquire(&Acquire::exclusive("a", "h", 1_000)).await.expect_err("no fake server grants")
}

#[tokio::test]
async fn the_next_server_is_tried_when_one_is_unreachable() {
    let here = answering_server(busy()).await;
    let client = client(&[unreachable_address().await, here.address]);
    assert_eq!(acquire(&client).await.code(), Some(Code::Busy));
    assert_eq!(here.calls(), 1, "a request that was answered is not sent again");
}

#[tokio::test]
async fn a_hint_to_the_leader_is_followed_and_remembered() {
    let leader = answering_server(busy()).await;
    let follower = answering_server(not_leader(&leader.address.to_string())).await;
    let between = answering_server(not_leader("")).await;
    let client = client(&[follower.address, between.address, leader.address]);
    assert_eq!(acquire(&client).await.code(), Some(Code::Busy));
    assert_eq!(acquire(&client).await.code(), Some(Code::Busy));
    assert_eq!((follower.calls(), between.calls(), leader.calls()), (1, 0, 2));
}

#[tokio::test]
async fn a_cycle_of_leader_hints_ends() {
    let (listener, address) = bind().await;
    let server = answers_on(listener, address, not_leader(&address.to_string()));
    let error = acquire(&client(&[address])).await;
    assert_eq!((error.code(), error.exit_code()), (Some(Code::NotLeader), 5));
    assert_eq!(server.calls(), 4);
}

#[tokio::test]
async fn without_a_valid_hint_the_other_servers_are_tried() {
    for hint in ["", "http://nonsense", "nowhere"] {
        let (follower, leader) = (answering_server(not_leader(hint)).await, answering_server(busy()).await);
        let error = acquire(&client(&[follower.address, leader.address])).await;
        assert_eq!(error.code(), Some(Code::Busy), "{hint}");
    }
}

#[tokio::test]
async fn no_reachable_server_means_unavailable() {
    let (one, other) = (unreachable_address().await, unreachable_address().await);
    let error = acquire(&client(&[one, other])).await;
    assert_eq!((error.code(), error.exit_code()), (Some(Code::Unavailable), 5));
    assert!(error.message().contains(&one.to_string()) && error.message().contains(&other.to_string()), "{error}");
}

#[tokio::test]
async fn a_change_without_a_reply_is_indeterminate_and_not_retried() {
    let (broken, other) = (closing_server().await, answering_server(busy()).await);
    let error = acquire(&client(&[broken.address, other.address])).await;
    assert_eq!((error.code(), error.exit_code()), (Some(Code::Indeterminate), 5));
    assert_eq!(other.calls(), 0);

    let silent = silent_server().await;
    let timeout = Duration::from_millis(50);
    let client = Client::builder(&silent.address.to_string()).expect("a valid address");
    let client = client.connect_timeout(timeout).request_timeout(timeout).build();
    assert_eq!(acquire(&client).await.code(), Some(Code::Indeterminate));
    assert_eq!(client.status().await.unwrap_err().code(), Some(Code::Unavailable));
}

#[tokio::test]
async fn a_lock_whose_session_cannot_be_opened_is_unavailable() {
    // The hello is not answered, so its outcome is unknown. The acquire was never sent.
    for server in [silent_server().await, closing_server().await] {
        let client = Client::builder(&server.address.to_string()).expect("a valid address");
        let client = client.session_ttl(Duration::from_secs(1)).request_timeout(Duration::from_secs(3)).build();
        let error = client.lock("a").acquire().await.map_err(Error::from).expect_err("no server answers");
        assert!(error.code() == Some(Code::Unavailable) && error.is_retryable(), "{error}");
    }
}

#[tokio::test]
async fn a_change_with_an_idempotency_key_is_retried() {
    let (broken, other) = (closing_server().await, answering_server(busy()).await);
    let key = IdempotencyKey { session: SessionId { slot: 17, reuse: 0 }, sequence: 42 };
    let both = client(&[broken.address, other.address]).with_idempotency_key(key);
    assert_eq!(acquire(&both).await.code(), Some(Code::Busy));

    let error = acquire(&client(&[broken.address]).with_idempotency_key(key)).await;
    assert_eq!(error.fields(), [("request_id", "17.0:42".to_owned())]);
}

#[tokio::test]
async fn a_query_is_retried_and_never_indeterminate() {
    let broken = closing_server().await;
    let error = client(&[broken.address]).status().await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable));
    assert!(broken.calls() >= 2, "{} calls", broken.calls());

    let other = answering_server(v1::Problem::of(Code::NotFound, "no such resource; list what is there")).await;
    let error = client(&[broken.address, other.address]).show("a").await.unwrap_err();
    assert_eq!((error.code(), error.exit_code()), (Some(Code::NotFound), 1));
}
