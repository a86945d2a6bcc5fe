//! The three doors of one server, asked the same wrong thing, and what must not have changed afterwards.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use leasehold_server::journal::memory::Memory;
use leasehold_server::metrics::GrantorStats;
use leasehold_server::server::{ServerConfig, ServerHandle, start};
use leasehold_server::transport::TransportLimits;
use leasehold_wire::json::ProblemBody;
use leasehold_wire::v1::leasehold_client::LeaseholdClient;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, v1};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

/// Single calls.
pub type GrpcService = LeaseholdClient<Channel>;

/// One server with a connection through each of its doors.
pub struct Doors {
    /// The server.
    pub running: ServerHandle,
    /// gRPC, single calls.
    pub calls: GrpcService,
    /// gRPC, the stream of a session.
    pub stream: Stream,
    /// HTTP/1, one connection for all requests.
    pub http: Http,
}

/// What a wrong request must be told.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// The stable code.
    pub code: &'static str,
    /// The field, or empty.
    pub field: &'static str,
    /// Words of the message.
    pub says: &'static str,
    /// Whether the caller made the field up; those are counted together.
    pub made_up: bool,
}

/// A refusal by code, field and words.
pub const fn refused(code: &'static str, field: &'static str, says: &'static str) -> Refused {
    Refused { code, field, says, made_up: false }
}

/// Starts a server and goes through all its doors.
pub async fn open() -> Doors {
    open_with(TransportLimits::default()).await
}

/// The same, with other bounds.
pub async fn open_with(limits: TransportLimits) -> Doors {
    let settings = ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), limits, ..ServerConfig::default() };
    let running = start(Memory::default(), settings).await.expect("a server on a free port starts");
    let at = running.address;
    let calls = connect(at).await;
    let stream = Stream::open(calls.clone()).await;
    Doors { calls, stream, http: Http::connect(at).await, running }
}

/// A channel of its own.
pub async fn connect(at: SocketAddr) -> GrpcService {
    let endpoint = Endpoint::from_shared(format!("http://{at}")).expect("an address");
    LeaseholdClient::new(endpoint.connect().await.expect("the server listens"))
}

impl Doors {
    /// Asks over single calls, where there is one, and over the stream.
    pub async fn grpc(&mut self, what: &str, ask: &Operation, expected: Refused) {
        let before = self.state().await;
        if let Some(told) = call(&mut self.calls, ask.clone()).await {
            let status = told.expect_err(what);
            self.check(&format!("{what}, as a call"), &problem_from_status(&status), expected, &before).await;
        }
        let before = self.state().await;
        let told = self.stream.ask(ask.clone()).await;
        let Answer::Refused(problem) = told else { panic!("{what}, on the stream: {told:?}") };
        self.check(&format!("{what}, on the stream"), &problem, expected, &before).await;
    }

    /// Asks over HTTP.
    pub async fn http(&mut self, what: &str, request: &str, headers: &str, body: &str, expected: Refused) {
        let before = self.state().await;
        let (status, answer) = self.http.ask(request, headers, body).await;
        let problem: ProblemBody = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{what}: {e}: {answer}"));
        assert_eq!(status, problem.status, "{what}");
        let told = v1::Problem {
            code: problem.code,
            field: problem.field.unwrap_or_default(),
            message: problem.detail,
            ..Default::default()
        };
        self.check(&format!("{what}, over HTTP"), &told, expected, &before).await;
    }

    /// Over all three.
    pub async fn all(&mut self, what: &str, ask: &Operation, (request, body): (&str, &str), expected: Refused) {
        self.grpc(what, ask, expected).await;
        self.http(what, request, "", body, expected).await;
    }

    /// It was refused as expected, changed nothing since, and was counted once, as itself.
    pub async fn check(&self, what: &str, told: &v1::Problem, expected: Refused, before: &State) {
        assert_eq!((told.code.as_str(), told.field.as_str()), (expected.code, expected.field), "{what}: {told:?}");
        assert!(told.message.contains(expected.says), "{what}: {:?} does not say {:?}", told.message, expected.says);
        let field = expected.field.split(['.', '[']).next().unwrap_or_default();
        self.check_counted(what, (expected.code, if expected.made_up { "other" } else { field }), before).await;
    }

    /// Nothing changed since, and this was counted once and nothing else.
    pub async fn check_counted(&self, what: &str, (code, field): (&str, &str), before: &State) {
        let after = self.state().await;
        assert_eq!(after.figures, before.figures, "{what} changed something");
        let key = (code.to_owned(), field.to_owned());
        let count = |state: &State| state.counted.get(&key).copied().unwrap_or(0);
        assert_eq!(count(&after), count(before) + 1, "{what} is counted once: {:?}", after.counted);
        let total = |state: &State| state.counted.values().sum::<u64>();
        assert_eq!(total(&after), total(before) + 1, "{what} is counted as itself only: {:?}", after.counted);
    }

    /// Waits until this is counted, for something that nobody is told; nothing changed, and nothing else was counted.
    pub async fn until_counted(&self, what: &str, counted: (&str, &str), before: &State) {
        self.until_all_counted(what, counted, 1, before).await;
    }

    /// The same for several.
    pub async fn until_all_counted(&self, what: &str, (code, field): (&str, &str), times: u64, before: &State) {
        let total = |state: &State| state.counted.values().sum::<u64>();
        let counting = async {
            loop {
                let now = self.state().await;
                if total(&now) >= total(before) + times {
                    return now;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let after = within(counting).await;
        assert_eq!(after.figures, before.figures, "{what} changed something");
        let key = (code.to_owned(), field.to_owned());
        let count = |state: &State| state.counted.get(&key).copied().unwrap_or(0);
        assert_eq!(count(&after), count(before) + times, "{what} is counted as itself: {:?}", after.counted);
    }

    /// What a refused request must leave alone, and the counters.
    pub async fn state(&self) -> State {
        let api = self.running.api();
        let (status, listed) = api
            .query(|grantor| {
                let (mut listed, _) = grantor.list("", 0, 1_000, 1 << 16);
                // Time passes, whatever is asked.
                listed.iter_mut().flat_map(|view| &mut view.leases).for_each(|lease| lease.remaining_ms = 0);
                (grantor.status(), listed)
            })
            .await
            .expect("the server serves");
        let figures = format!(
            "{} held, {} sessions, {} waiters, {} the last number, ended {:?}, {listed:?}",
            status.held, status.sessions, status.waiters, status.counter, status.totals
        );
        let text = api.metrics.encode_with(&GrantorStats {
            status,
            progress_ms: None,
            zombie_writes: 0,
            fence_checks: 0,
            fence_targets: 0,
        });
        let counted = text.lines().filter_map(|line| {
            let (labels, count) = line.strip_prefix("leasehold_invalid_requests_total{")?.split_once("} ")?;
            let label = |name: &str| {
                let rest = labels.split(&format!("{name}=\"")).nth(1).expect("the label is there");
                rest.split('"').next().expect("a value").to_owned()
            };
            Some(((label("code"), label("field")), count.parse().expect("a count")))
        });
        State { figures, counted: counted.collect() }
    }

    /// Takes a lease rightly.
    pub async fn take(&mut self, resource: &str, ttl_ms: u64) -> v1::Grant {
        let ask = v1::Acquire { ttl_ms: Some(ttl_ms), ..acquire(resource, "holder") };
        let grant = self.calls.acquire(ask).await.expect("it is free").into_inner();
        v1::Grant { resource: resource.into(), ..grant }
    }
}

/// What can be seen from outside.
#[derive(Debug, PartialEq)]
pub struct State {
    figures: String,
    counted: BTreeMap<(String, String), u64>,
}

/// An acquire that says little.
pub fn acquire(resource: &str, holder: &str) -> v1::Acquire {
    v1::Acquire { resource: resource.into(), holder: holder.into(), ttl_ms: Some(60_000), ..Default::default() }
}

/// A lease as its holder names it.
pub fn held(resource: &str, token: &str) -> v1::LeaseRef {
    v1::LeaseRef {
        selector: Some(v1::lease_ref::Selector::Resource(resource.into())),
        token: token.into(),
        ..Default::default()
    }
}

/// One single call, if there is one for this.
pub async fn call(calls: &mut GrpcService, ask: Operation) -> Option<Result<(), Status>> {
    fn done<T>(told: Result<Response<T>, Status>) -> Option<Result<(), Status>> {
        Some(told.map(|_| ()))
    }
    match ask {
        Operation::Acquire(ask) => done(calls.acquire(ask).await),
        Operation::AcquireAll(ask) => done(calls.acquire_all(ask).await),
        Operation::Renew(ask) => done(calls.renew(ask).await),
        Operation::Release(ask) => done(calls.release(ask).await),
        Operation::Check(ask) => done(calls.check(ask).await),
        Operation::Revoke(ask) => done(calls.revoke(ask).await),
        Operation::Handoff(ask) => done(calls.handoff(ask).await),
        Operation::SetCapacity(ask) => done(calls.set_capacity(ask).await),
        Operation::Free(ask) => done(calls.free(ask).await),
        Operation::SetCharter(ask) => done(calls.set_charter(*ask).await),
        Operation::WaiveQuarantine(ask) => done(calls.waive_quarantine(ask).await),
        Operation::StepDown(ask) => done(calls.step_down(ask).await),
        Operation::ReportFences(ask) => done(calls.report_fences(ask).await),
        Operation::ForgetTarget(ask) => done(calls.forget_target(ask).await),
        _ => None,
    }
}

/// The stream of a session.
pub struct Stream {
    send: UnboundedSender<v1::ClientBatch>,
    from: Streaming<v1::ServerBatch>,
    sequence: u64,
}

impl Stream {
    /// Opens a session.
    pub async fn open(calls: GrpcService) -> Self {
        let open = v1::OpenSession { holder: "streams".into(), ttl_ms: 600_000, waits_only: false };
        let hello = v1::Hello { protocol: 1, session: Some(v1::hello::Session::Open(open)), ..Default::default() };
        let first = v1::ClientBatch { hello: Some(hello), ..Default::default() };
        let mut stream = Self::begin(calls, first).await.expect("a good hello");
        assert!(stream.next().await.expect("a stream").welcome.is_some());
        stream
    }

    /// Begins a stream with any message.
    pub async fn begin(mut calls: GrpcService, first: v1::ClientBatch) -> Result<Self, Status> {
        let (send, batches) = unbounded();
        send.unbounded_send(first).expect("the other half is here");
        let from = calls.session(Request::new(batches)).await?.into_inner();
        Ok(Self { send, from, sequence: 0 })
    }

    /// One request and its answer.
    pub async fn ask(&mut self, ask: Operation) -> Answer {
        self.sequence += 1;
        self.ask_as(self.sequence, Some(ask)).await
    }

    /// The same, under any number.
    pub async fn ask_as(&mut self, sequence: u64, ask: Option<Operation>) -> Answer {
        let requests = vec![v1::Request { sequence, operation: ask }];
        self.send(v1::ClientBatch { requests, lowest_pending: 1, ..Default::default() });
        loop {
            let batch = self.next().await.expect("the stream goes on");
            assert_eq!(batch.close, None);
            if let Some(response) = batch.responses.into_iter().find(|response| response.sequence == sequence) {
                return response.answer.expect("an answer says something");
            }
        }
    }

    /// So many numbers are used by somebody else.
    pub fn skip(&mut self, numbers: u64) {
        self.sequence += numbers;
    }

    /// Sends anything.
    pub fn send(&self, batch: v1::ClientBatch) {
        self.send.unbounded_send(batch).expect("the other half is here");
    }

    /// The next message; none when the server has ended the stream.
    pub async fn next(&mut self) -> Option<v1::ServerBatch> {
        within(self.from.message()).await.expect("no broken stream")
    }
}

/// HTTP/1 over one kept connection.
pub struct Http(BufReader<TcpStream>);

impl Http {
    /// Connects.
    pub async fn connect(at: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(at).await.expect("the server listens")))
    }

    /// One request: its method and path, more header lines, and a body. The status and the body that come back.
    pub async fn ask(&mut self, request: &str, headers: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let text = format!("{request} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
        self.0.write_all(text.as_bytes()).await.expect("the server reads");
        within(self.answer()).await.expect("the connection is kept")
    }

    /// Sends anything.
    pub async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// The next answer; none if the connection is closed.
    pub async fn answer(&mut self) -> Option<(u16, String)> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.ok()?;
        Some((status, String::from_utf8(body).expect("text")))
    }

    /// Some of what comes.
    pub async fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into).await
    }

    /// Everything until the server closes.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A connection that was reset is closed too.
        let _ = within(self.0.read_to_end(&mut rest)).await;
        rest
    }
}

/// Nothing that goes well takes as long.
pub async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("an answer in time")
}
