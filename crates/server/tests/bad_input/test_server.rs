//! A server with one client per transport, and the check that a refused request changed nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use leasehold_core::grantor::{Query, QueryAnswer, QueryBudget};
use leasehold_server::journal::memory::Memory;
use leasehold_server::metrics::GrantorStats;
use leasehold_server::server::{ServerConfig, ServerHandle, start};
use leasehold_server::transport::TransportLimits;
use leasehold_wire::json::ProblemBody;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, v1};

use crate::transport_clients::{GrpcClient, HttpConnection, SessionStream, acquire, connect, unary_call, with_timeout};

/// A server on a memory journal, with one connection per transport.
pub struct TestServer {
    pub handle: ServerHandle,
    /// gRPC, unary calls.
    pub client: GrpcClient,
    /// gRPC, a session stream.
    pub stream: SessionStream,
    /// HTTP/1, one connection for all requests.
    pub http: HttpConnection,
}

/// The refusal that an invalid request must get.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedRefusal {
    /// The stable error code.
    pub code: &'static str,
    /// The field, or empty.
    pub field: &'static str,
    /// A part of the message.
    pub message: &'static str,
    /// Whether the server does not know the field. All such fields share one counter.
    pub unknown_field: bool,
}

/// A refusal by code, field and part of the message.
pub const fn refusal(code: &'static str, field: &'static str, message: &'static str) -> ExpectedRefusal {
    ExpectedRefusal { code, field, message, unknown_field: false }
}

/// Starts a server with default limits and connects over every transport.
pub async fn start_server() -> TestServer {
    start_server_with(TransportLimits::default()).await
}

/// Starts a server with these limits and connects over every transport.
pub async fn start_server_with(limits: TransportLimits) -> TestServer {
    let config = ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), limits, ..ServerConfig::default() };
    let handle = start(Memory::default(), config).await.expect("a server starts on a free port");
    let client = connect(handle.address).await;
    let stream = SessionStream::open(client.clone()).await;
    TestServer { client, stream, http: HttpConnection::connect(handle.address).await, handle }
}

impl TestServer {
    /// Sends a request over all three transports; each must refuse it.
    pub async fn refuses(
        &mut self,
        case: &str,
        operation: &Operation,
        (request, body): (&str, &str),
        expected: ExpectedRefusal,
    ) {
        self.grpc_refuses(case, operation, expected).await;
        self.http_refuses(case, request, "", body, expected).await;
    }

    /// Sends a request as a unary call, if there is one for it, and over the session stream; each must refuse it.
    pub async fn grpc_refuses(&mut self, case: &str, operation: &Operation, expected: ExpectedRefusal) {
        let before = self.state().await;
        if let Some(result) = unary_call(&mut self.client, operation.clone()).await {
            let status = result.expect_err(case);
            self.assert_refused(&format!("{case}, unary"), &problem_from_status(&status), expected, &before).await;
        }
        let before = self.state().await;
        let answer = self.stream.request(operation.clone()).await;
        let Answer::Refused(problem) = answer else { panic!("{case}, on the stream: {answer:?}") };
        self.assert_refused(&format!("{case}, on the stream"), &problem, expected, &before).await;
    }

    /// Sends a request over HTTP, which must refuse it.
    pub async fn http_refuses(
        &mut self,
        case: &str,
        request: &str,
        headers: &str,
        body: &str,
        expected: ExpectedRefusal,
    ) {
        let before = self.state().await;
        let (status, body) = self.http.request(request, headers, body).await;
        let problem: ProblemBody = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{case}: {e}: {body}"));
        assert_eq!(status, problem.status, "{case}");
        let problem = v1::Problem {
            code: problem.code,
            field: problem.field.unwrap_or_default(),
            message: problem.detail,
            ..Default::default()
        };
        self.assert_refused(&format!("{case}, over HTTP"), &problem, expected, &before).await;
    }

    /// The problem is the expected one, nothing changed since `before`, and the refusal was counted once.
    pub async fn assert_refused(
        &self,
        case: &str,
        problem: &v1::Problem,
        expected: ExpectedRefusal,
        before: &ServerState,
    ) {
        let got = (problem.code.as_str(), problem.field.as_str());
        assert_eq!(got, (expected.code, expected.field), "{case}: {problem:?}");
        let message = &problem.message;
        assert!(message.contains(expected.message), "{case}: {message:?} does not contain {:?}", expected.message);
        let field = expected.field.split(['.', '[']).next().unwrap_or_default();
        let field = if expected.unknown_field { "other" } else { field };
        self.assert_counted_once(case, (expected.code, field), before).await;
    }

    /// Nothing changed since `before`, and only this counter increased, by one.
    pub async fn assert_counted_once(&self, case: &str, (code, field): (&str, &str), before: &ServerState) {
        let after = self.state().await;
        assert_eq!(after.summary, before.summary, "{case} changed something");
        assert_eq!(after.count(code, field), before.count(code, field) + 1, "{case}: {:?}", after.counters);
        assert_eq!(after.total(), before.total() + 1, "{case} increased another counter: {:?}", after.counters);
    }

    /// Waits until this counter increases by one. For faults that get no reply.
    pub async fn wait_until_counted(&self, case: &str, counter: (&str, &str), before: &ServerState) {
        self.wait_until_counted_times(case, counter, 1, before).await;
    }

    /// Waits until this counter increases by `times`; nothing else may change.
    pub async fn wait_until_counted_times(
        &self,
        case: &str,
        (code, field): (&str, &str),
        times: u64,
        before: &ServerState,
    ) {
        let counted = async {
            loop {
                let state = self.state().await;
                if state.total() >= before.total() + times {
                    return state;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let after = with_timeout(counted).await;
        assert_eq!(after.summary, before.summary, "{case} changed something");
        assert_eq!(after.count(code, field), before.count(code, field) + times, "{case}: {:?}", after.counters);
    }

    /// The grantor's state and the counters of invalid requests.
    pub async fn state(&self) -> ServerState {
        let api = self.handle.api();
        let (status, listed) = api
            .query(0, Query::Metrics, |answer| {
                let QueryAnswer::Everything(grantor) = answer else { return None };
                let (mut listed, _) = grantor.list("", 0, 1_000, 1_000, &mut QueryBudget::default());
                // Remaining times shrink on their own.
                listed.iter_mut().flat_map(|view| &mut view.leases).for_each(|lease| lease.remaining_ms = 0);
                Some((grantor.status(), listed))
            })
            .await
            .expect("the server is running")
            .0;
        let summary = format!(
            "{} held, {} sessions, {} waiters, counter {}, ended {:?}, {listed:?}",
            status.held, status.sessions, status.waiters, status.counter, status.totals
        );
        let text = api.metrics.encode_with(&GrantorStats {
            status,
            progress_ms: None,
            zombie_writes: 0,
            fence_checks: 0,
            fence_targets: 0,
            coverage_holes: Vec::new(),
        });
        let counters = text.lines().filter_map(|line| {
            let (labels, count) = line.strip_prefix("leasehold_invalid_requests_total{")?.split_once("} ")?;
            let label = |name: &str| {
                let rest = labels.split(&format!("{name}=\"")).nth(1).expect("the metric has this label");
                rest.split('"').next().expect("the label has a value").to_owned()
            };
            Some(((label("code"), label("field")), count.parse().expect("the count is a number")))
        });
        ServerState { summary, counters: counters.collect() }
    }

    /// Acquires a free lease.
    pub async fn acquire_lease(&mut self, resource: &str, ttl_ms: u64) -> v1::Grant {
        let request = v1::Acquire { ttl_ms: Some(ttl_ms), ..acquire(resource, "holder") };
        let grant = self.client.acquire(request).await.expect("the resource is free").into_inner();
        v1::Grant { resource: resource.into(), ..grant }
    }
}

/// What a refused request must not change, except for one counter.
#[derive(Debug, PartialEq)]
pub struct ServerState {
    /// The grantor's state as text.
    summary: String,
    /// Counts of invalid requests by code and field.
    counters: BTreeMap<(String, String), u64>,
}

impl ServerState {
    fn count(&self, code: &str, field: &str) -> u64 {
        self.counters.get(&(code.to_owned(), field.to_owned())).copied().unwrap_or(0)
    }

    fn total(&self) -> u64 {
        self.counters.values().sum()
    }
}
