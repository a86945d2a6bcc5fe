//! The request rate limit refuses new requests, and never the renewal or release of a held lease.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_server::transport::TransportLimits;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;

use crate::test_server::{TestServer, start_server_with};
use crate::transport_clients::{HttpConnection, SessionStream, acquire, connect, lease_ref, with_timeout};

/// Far more requests at once than the limit of one per second.
const FLOOD: u64 = 64;

async fn start_rate_limited() -> TestServer {
    start_server_with(TransportLimits { request_rate: Some(1), ..TransportLimits::default() }).await
}

/// The number of requests refused by the rate limit.
async fn refused_count(server: &TestServer) -> u64 {
    // A new connection: a scrape does not count as a request.
    let (status, text) = HttpConnection::connect(server.handle.address).await.request("GET /metrics", "", "").await;
    assert_eq!(status, 200);
    let line =
        text.lines().find_map(|line| line.strip_prefix("leasehold_limits_reached_total{limit=\"request_rate\"} "));
    line.and_then(|count| count.parse().ok()).expect("the metric exists")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_on_a_stream_is_refused_and_its_leases_are_kept() {
    let mut server = start_rate_limited().await;
    let mut early = 0;
    // The session of this stream was the first request of its connection.
    let grant = loop {
        match server.stream.request(Operation::Acquire(acquire("mine", "streams"))).await {
            Answer::Granted(grant) => break grant,
            Answer::Refused(problem) => {
                assert_eq!(problem.limit, "request_rate");
                early += 1;
                tokio::time::sleep(Duration::from_millis(problem.retry_after_ms.unwrap_or(1))).await;
            }
            other => panic!("{other:?}"),
        }
    };
    let sequence = 2 + early;
    let request = |sequence| v1::Request {
        sequence,
        operation: Some(Operation::Acquire(acquire(&format!("more/{sequence}"), "w"))),
        alone: None,
        traceparent: None,
    };
    let requests = (sequence..sequence + FLOOD).map(request).collect();
    server.stream.skip(FLOOD);
    server.stream.send(v1::ClientBatch { requests, lowest_pending: 1, ..Default::default() });
    let (mut granted, mut refused) = (0, 0);
    while granted + refused < FLOOD {
        for response in server.stream.next().await.expect("the stream is open").responses {
            match response.answer {
                Some(Answer::Granted(_)) => granted += 1,
                Some(Answer::Refused(problem)) => {
                    assert_eq!((problem.code.as_str(), problem.limit.as_str()), ("RESOURCE_EXHAUSTED", "request_rate"));
                    assert_eq!((problem.max, problem.got), (Some(1), Some(2)));
                    assert!(problem.retry_after_ms.is_some_and(|ms| (1..=1_000).contains(&ms)), "{problem:?}");
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(refused > 0);
    assert_eq!(refused_count(&server).await, early + refused);
    let held_now = server.handle.api().status(0).await.expect("the server is running").0.held;
    assert_eq!(held_now, 1 + granted, "refused requests have no effect");
    for _ in 0..FLOOD {
        let renew = v1::Renew { lease: Some(lease_ref("mine", &grant.token)), ..Default::default() };
        let answer = server.stream.request(Operation::Renew(renew)).await;
        assert!(matches!(answer, Answer::Current(_)), "{answer:?}");
    }
    let answer = server.stream.request(Operation::Release(lease_ref("mine", &grant.token))).await;
    assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_unary_requests_is_refused_and_its_leases_are_kept() {
    let mut server = start_rate_limited().await;
    let (status, reply) =
        server.http.request("POST /v1/leases/mine:acquire", "", r#"{"holder":"w","ttl":"60s"}"#).await;
    assert_eq!(status, 200, "{reply}");
    let grant: serde_json::Value = serde_json::from_str(&reply).expect("the body is a grant");
    let mut refused = 0;
    for _ in 0..10_000 {
        let (status, reply) = server.http.request("GET /v1/status", "", "").await;
        if status == 429 {
            assert!(reply.contains(r#""limit":"request_rate","max":1,"got":2"#), "{reply}");
            refused += 1;
            break;
        }
        assert_eq!(status, 200, "{reply}");
    }
    assert_eq!(refused, 1, "the limit is reached");
    let body = format!(r#"{{"token":{}}}"#, grant["token"]);
    for _ in 0..FLOOD {
        let (status, reply) = server.http.request("POST /v1/leases/mine:renew", "", &body).await;
        assert_eq!(status, 200, "{reply}");
        assert_eq!(server.http.request("GET /healthz", "", "").await.0, 200);
    }
    let (status, reply) = server.http.request("POST /v1/leases/mine:release", "", &body).await;
    assert_eq!(status, 200, "{reply}");

    let mut client = connect(server.handle.address).await;
    let status = loop {
        if let Err(status) = client.status(v1::StatusRequest::default()).await {
            break status;
        }
    };
    let problem = leasehold_wire::problem_from_status(&status);
    assert_eq!((problem.code.as_str(), problem.limit.as_str()), ("RESOURCE_EXHAUSTED", "request_rate"));
    assert_eq!(refused_count(&server).await, 2);
    server.handle.rate_limit.set(None, None);
    for _ in 0..FLOOD {
        client.status(v1::StatusRequest::default()).await.expect("no request is refused without a limit");
    }
    server.handle.stop().await;
}

/// Sends a request until it is refused by the rate limit; false if it never is.
async fn is_limited(address: SocketAddr, request: &str, body: &str) -> bool {
    let mut http = HttpConnection::connect(address).await;
    for _ in 0..FLOOD {
        let (status, reply) = http.request(request, "", body).await;
        if status == 429 {
            assert!(reply.contains(r#""limit":"request_rate""#), "{reply}");
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operation_decides_and_not_the_end_of_the_path() {
    let server = start_rate_limited().await;
    let address = server.handle.address;
    for (request, body) in [
        ("GET /v1/leases/a:renew", ""),
        ("GET /v1/history/a:release", ""),
        ("GET /v1/holders/a:renew", ""),
        ("POST /nowhere:renew", "{}"),
        ("PUT /v1/charters/a:renew", "{}"),
        // A renewal that cannot be decoded keeps no lease.
        ("POST /v1/leases/a:renew", "{"),
        ("POST /v1/leases/a:renew?x=1", "{}"),
        ("POST /v1/leases/a%3Arene", "{}"),
    ] {
        assert!(is_limited(address, request, body).await, "{request}");
    }
    assert!(!is_limited(address, "POST /v1/leases/a%3Arenew", r#"{"token":"x"}"#).await, "a renewal is exempt");
    assert!(!is_limited(address, "POST /v1/sessions/1.0:renew", "").await, "a renewal is exempt");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_connections_do_not_evade_the_limit_of_their_address() {
    let limits =
        TransportLimits { request_rate: Some(1_000), address_request_rate: Some(1), ..TransportLimits::default() };
    let server = start_server_with(limits).await;
    let mut refused = 0;
    for _ in 0..FLOOD {
        let mut http = HttpConnection::connect(server.handle.address).await;
        let (status, reply) = http.request("GET /v1/status", "", "").await;
        if status == 429 {
            assert!(reply.contains(r#""limit":"request_rate_per_address","max":1,"got":2"#), "{reply}");
            refused += 1;
        }
    }
    assert!(refused > 0, "each connection has its own burst");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_sessions_on_streams_are_limited_and_resumed_ones_are_not() {
    let server = start_rate_limited().await;
    let hello = |session| v1::Hello { protocol: 1, session: Some(session), ..Default::default() };
    let start = async |session| {
        let first = v1::ClientBatch { hello: Some(hello(session)), ..Default::default() };
        SessionStream::start(server.client.clone(), first).await
    };
    let open = || v1::hello::Session::Open(v1::OpenSession { holder: "w".into(), ttl_ms: 600_000, waits_only: false });
    let mut refused = 0;
    for _ in 0..FLOOD {
        if let Err(status) = start(open()).await {
            assert_eq!(leasehold_wire::problem_from_status(&status).limit, "request_rate");
            refused += 1;
        }
    }
    assert!(refused > 0, "each stream opens a session");
    let opened = with_timeout(async {
        loop {
            if let Ok(mut stream) = start(open()).await {
                return stream.next().await.and_then(|batch| batch.welcome).expect("a welcome");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let welcome = opened.await;
    for _ in 0..FLOOD {
        let resume = v1::ResumeSession { session: welcome.session, secret: welcome.secret.clone() };
        start(v1::hello::Session::Resume(resume)).await.expect("a holder that reconnects is not limited");
    }
    server.handle.stop().await;
}
