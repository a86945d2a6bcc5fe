//! Clients for the three transports: unary gRPC, the session stream, and HTTP/1.

use std::net::SocketAddr;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use leasehold_wire::v1;
use leasehold_wire::v1::leasehold_client::LeaseholdClient;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

/// The client for unary calls.
pub type GrpcClient = LeaseholdClient<Channel>;

/// Opens a gRPC connection.
pub async fn connect(address: SocketAddr) -> GrpcClient {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("the address is valid");
    LeaseholdClient::new(endpoint.connect().await.expect("the server listens"))
}

/// An exclusive acquire for 60 seconds, with defaults otherwise.
pub fn acquire(resource: &str, holder: &str) -> v1::Acquire {
    v1::Acquire { resource: resource.into(), holder: holder.into(), ttl_ms: Some(60_000), ..Default::default() }
}

/// A lease by resource and token, as its holder refers to it.
pub fn lease_ref(resource: &str, token: &str) -> v1::LeaseRef {
    v1::LeaseRef {
        selector: Some(v1::lease_ref::Selector::Resource(resource.into())),
        token: token.into(),
        ..Default::default()
    }
}

/// Sends an operation as a unary call; `None` if it exists only on the stream.
pub async fn unary_call(client: &mut GrpcClient, operation: Operation) -> Option<Result<(), Status>> {
    fn done<T>(result: Result<Response<T>, Status>) -> Option<Result<(), Status>> {
        Some(result.map(|_| ()))
    }
    match operation {
        Operation::Acquire(request) => done(client.acquire(request).await),
        Operation::AcquireAll(request) => done(client.acquire_all(request).await),
        Operation::Renew(request) => done(client.renew(request).await),
        Operation::Release(request) => done(client.release(request).await),
        Operation::Check(request) => done(client.check(request).await),
        Operation::Revoke(request) => done(client.revoke(request).await),
        Operation::Handoff(request) => done(client.handoff(request).await),
        Operation::SetCapacity(request) => done(client.set_capacity(request).await),
        Operation::Free(request) => done(client.free(request).await),
        Operation::SetCharter(request) => done(client.set_charter(*request).await),
        Operation::WaiveQuarantine(request) => done(client.waive_quarantine(request).await),
        Operation::SetMaxTtl(request) => done(client.set_max_ttl(request).await),
        Operation::StepDown(request) => done(client.step_down(request).await),
        Operation::ReportFences(request) => done(client.report_fences(request).await),
        Operation::Reconcile(request) => done(client.reconcile(request).await),
        Operation::Cancel(request) => done(client.cancel(request).await),
        Operation::Progress(request) => done(client.progress(request).await),
        Operation::Rotate(request) => done(client.rotate(request).await),
        Operation::Put(request) => done(client.put(request).await),
        Operation::Pin(request) => done(client.pin(request).await),
        Operation::Collect(request) => done(client.collect(request).await),
        Operation::Delivery(request) => done(client.delivery(request).await),
        Operation::Cache(request) => done(client.cache(request).await),
        Operation::ObserveToken(request) => done(client.observe_token(request).await),
        Operation::ForgetTarget(request) => done(client.forget_target(request).await),
        _ => None,
    }
}

/// A session stream.
pub struct SessionStream {
    outgoing: UnboundedSender<v1::ClientBatch>,
    incoming: Streaming<v1::ServerBatch>,
    sequence: u64,
}

impl SessionStream {
    /// Opens a session and waits for the welcome.
    pub async fn open(client: GrpcClient) -> Self {
        let open = v1::OpenSession { holder: "streams".into(), ttl_ms: 600_000, waits_only: false };
        let hello = v1::Hello { protocol: 1, session: Some(v1::hello::Session::Open(open)), ..Default::default() };
        let first = v1::ClientBatch { hello: Some(hello), ..Default::default() };
        let mut stream = Self::start(client, first).await.expect("the hello is valid");
        assert!(stream.next().await.expect("the stream is open").welcome.is_some());
        stream
    }

    /// Starts a stream with any first message.
    pub async fn start(mut client: GrpcClient, first: v1::ClientBatch) -> Result<Self, Status> {
        let (outgoing, batches) = unbounded();
        outgoing.unbounded_send(first).expect("the receiver exists");
        let incoming = client.session(Request::new(batches)).await?.into_inner();
        Ok(Self { outgoing, incoming, sequence: 0 })
    }

    /// Sends a request under the next sequence number and returns its answer.
    pub async fn request(&mut self, operation: Operation) -> Answer {
        self.sequence += 1;
        self.request_with_sequence(self.sequence, Some(operation)).await
    }

    /// Sends a request with a reason to act alone and returns its answer.
    #[allow(dead_code, reason = "only the tests of access act alone")]
    pub async fn request_alone(&mut self, operation: Operation, reason: &str) -> Answer {
        self.sequence += 1;
        self.send_one(v1::Request {
            sequence: self.sequence,
            operation: Some(operation),
            alone: Some(reason.into()),
            traceparent: None,
        })
        .await
    }

    /// Sends a request under any sequence number and returns its answer.
    pub async fn request_with_sequence(&mut self, sequence: u64, operation: Option<Operation>) -> Answer {
        self.send_one(v1::Request { sequence, operation, alone: None, traceparent: None }).await
    }

    async fn send_one(&mut self, request: v1::Request) -> Answer {
        let (sequence, requests) = (request.sequence, vec![request]);
        self.send(v1::ClientBatch { requests, lowest_pending: 1, ..Default::default() });
        loop {
            let batch = self.next().await.expect("the stream is open");
            assert_eq!(batch.close, None);
            if let Some(response) = batch.responses.into_iter().find(|response| response.sequence == sequence) {
                return response.answer.expect("a response contains an answer");
            }
        }
    }

    /// Skips sequence numbers that the test uses itself.
    pub fn skip(&mut self, numbers: u64) {
        self.sequence += numbers;
    }

    /// Sends any message.
    pub fn send(&self, batch: v1::ClientBatch) {
        self.outgoing.unbounded_send(batch).expect("the receiver exists");
    }

    /// The next message; `None` after the server ended the stream.
    pub async fn next(&mut self) -> Option<v1::ServerBatch> {
        with_timeout(self.incoming.message()).await.expect("the stream ends without an error")
    }
}

/// A persistent HTTP/1 connection.
pub struct HttpConnection(BufReader<TcpStream>);

impl HttpConnection {
    pub async fn connect(address: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(address).await.expect("the server listens")))
    }

    /// Sends one request (method and path, extra header lines, body) and returns the response's status and body.
    pub async fn request(&mut self, request: &str, headers: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let is_typed = body.is_empty() || headers.to_ascii_lowercase().contains("content-type:");
        let kind = if is_typed { "" } else { "content-type: application/json\r\n" };
        let head = format!("{request} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{kind}{headers}");
        let text = format!("{head}\r\n{body}");
        self.0.write_all(text.as_bytes()).await.expect("the server reads");
        with_timeout(self.response()).await.expect("the connection stays open")
    }

    /// Sends any bytes.
    pub async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// The next response; `None` if the connection is closed.
    pub async fn response(&mut self) -> Option<(u16, String)> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("the status line has a code");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.ok()?;
        // Events have no end.
        if head.contains("transfer-encoding: chunked\r\n") && !head.contains("text/event-stream") {
            body = self.chunks().await?;
        }
        // A backup is the only body that is not text.
        Some((status, String::from_utf8_lossy(&body).into_owned()))
    }

    async fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut size = String::new();
            self.0.read_line(&mut size).await.ok()?;
            let size = usize::from_str_radix(size.trim(), 16).expect("the size of a chunk");
            let mut chunk = vec![0; size + "\r\n".len()];
            self.0.read_exact(&mut chunk).await.ok()?;
            if size == 0 {
                return Some(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    /// Reads at most one buffer.
    pub async fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer).await
    }

    /// Reads until the server closes the connection.
    pub async fn read_to_end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset connection is closed too.
        let _ = with_timeout(self.0.read_to_end(&mut rest)).await;
        rest
    }
}

/// Fails if the future is not ready within a minute, which is far longer than any success takes.
pub async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("ready within a minute")
}
