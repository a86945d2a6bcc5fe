//! How a request finds the server that decides, and what is said when it does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{Client, Code, Endpoints, Error, Key, Options};
use leasehold_core::command::Acquire;
use leasehold_core::ids::SessionId;
use leasehold_wire::{status, v1};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

/// Something that listens and counts who comes. A follower cannot be started yet, so its answer is given by hand.
struct Listening {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Listening {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn bind() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

fn answers_on(listener: TcpListener, address: SocketAddr, told: v1::Problem) -> Listening {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let answer = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let told = told.clone();
        async move { status(told).into_http::<axum::body::Body>() }
    };
    let router = axum::Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Listening { address, asked }
}

/// Answers every call with this problem.
async fn answers(told: v1::Problem) -> Listening {
    let (listener, address) = bind().await;
    answers_on(listener, address, told)
}

/// Reads what comes and goes away without an answer.
async fn breaks() -> Listening {
    let (listener, address) = bind().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut bytes = [0; 4_096];
            // Whatever was read, nobody will hear of it.
            let _ = stream.read(&mut bytes).await;
        }
    });
    Listening { address, asked }
}

/// Takes every call and never answers.
async fn silent() -> Listening {
    let (listener, address) = bind().await;
    let router = axum::Router::new().fallback(|| async { std::future::pending::<()>().await });
    tokio::spawn(async move { axum::serve(listener, router).await });
    Listening { address, asked: Arc::default() }
}

/// An address where nobody listens.
async fn nobody() -> SocketAddr {
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
    Client::connect(Endpoints::parse(&text.join(",")).expect("addresses with ports"))
}

async fn acquire(client: &Client) -> Error {
    client.acquire(&Acquire::exclusive("a", "h", 1_000)).await.expect_err("nobody here grants")
}

#[tokio::test]
async fn the_next_server_is_asked_when_one_cannot_be_reached() {
    let here = answers(busy()).await;
    let client = client(&[nobody().await, here.address]);
    assert_eq!(acquire(&client).await.code(), Some(Code::Busy));
    assert_eq!(here.asked(), 1, "and a request that was answered is not sent again");
}

#[tokio::test]
async fn a_hint_to_the_leader_is_followed_and_remembered() {
    let leader = answers(busy()).await;
    let follower = answers(not_leader(&leader.address.to_string())).await;
    let client = client(&[follower.address]);
    assert_eq!(acquire(&client).await.code(), Some(Code::Busy));
    assert_eq!(acquire(&client).await.code(), Some(Code::Busy));
    assert_eq!((follower.asked(), leader.asked()), (1, 2));
}

#[tokio::test]
async fn hints_in_a_circle_end() {
    let (listener, address) = bind().await;
    let circle = answers_on(listener, address, not_leader(&address.to_string()));
    let error = acquire(&client(&[address])).await;
    assert_eq!((error.code(), error.exit()), (Some(Code::NotLeader), 5));
    assert_eq!(circle.asked(), 4);
}

#[tokio::test]
async fn without_a_hint_or_with_nonsense_for_one_the_others_are_asked() {
    for hint in ["", "http://nonsense", "nowhere"] {
        let (follower, leader) = (answers(not_leader(hint)).await, answers(busy()).await);
        let error = acquire(&client(&[follower.address, leader.address])).await;
        assert_eq!(error.code(), Some(Code::Busy), "{hint}");
    }
}

#[tokio::test]
async fn nobody_reached_means_that_nothing_happened() {
    let (one, other) = (nobody().await, nobody().await);
    let error = acquire(&client(&[one, other])).await;
    assert_eq!((error.code(), error.exit()), (Some(Code::Unavailable), 5));
    assert!(error.message().contains(&one.to_string()) && error.message().contains(&other.to_string()), "{error}");
}

#[tokio::test]
async fn a_change_whose_answer_did_not_come_may_have_happened_and_is_not_sent_again() {
    let (broken, other) = (breaks().await, answers(busy()).await);
    let error = acquire(&client(&[broken.address, other.address])).await;
    assert_eq!((error.code(), error.exit()), (Some(Code::Indeterminate), 5));
    assert_eq!(other.asked(), 0);

    let silent = silent().await;
    let options =
        Options { request: Duration::from_millis(50), connect: Duration::from_millis(50), ..Options::default() };
    let patient = Client::with(Endpoints::parse(&silent.address.to_string()).unwrap(), options);
    assert_eq!(acquire(&patient).await.code(), Some(Code::Indeterminate));
    assert_eq!(patient.status().await.unwrap_err().code(), Some(Code::Unavailable));
}

#[tokio::test]
async fn under_a_key_a_change_is_sent_again() {
    let (broken, other) = (breaks().await, answers(busy()).await);
    let key = Key { session: SessionId { slot: 17, reuse: 0 }, sequence: 42 };
    let both = client(&[broken.address, other.address]).under(key);
    assert_eq!(acquire(&both).await.code(), Some(Code::Busy));

    let error = acquire(&client(&[broken.address]).under(key)).await;
    assert_eq!(error.fields(), [("request_id", "17.0:42".to_owned())]);
}

#[tokio::test]
async fn a_look_is_repeated_and_its_failure_is_never_indeterminate() {
    let broken = breaks().await;
    let error = client(&[broken.address]).status().await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable));
    assert!(broken.asked() >= 2, "asked {} times", broken.asked());

    let other = answers(v1::Problem::of(Code::NotFound, "no such resource; list what is there")).await;
    let error = client(&[broken.address, other.address]).show("a").await.unwrap_err();
    assert_eq!((error.code(), error.exit()), (Some(Code::NotFound), 1));
}
