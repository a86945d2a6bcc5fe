//! A server with many leases and waiters, over a few session streams.

use std::time::Duration;

use leasehold::session_stream::{OutgoingBatch, SessionReceiver, SessionSender};
use leasehold::{Client, Endpoints};
use leasehold_core::command::{Acquire, AcquireOptions, Answer, Command};
use leasehold_core::ids::LeaseId;
use leasehold_core::token::Number;
use tokio::runtime::Runtime;

use crate::support::{Server, TEST_TIMEOUT};

/// Longer than any test.
const TTL_MS: u64 = 600_000;
/// Requests in one batch.
const BATCH: usize = 500;
/// Waits of one session; a session remembers at most 1,024 requests that its client has not acknowledged.
const WAITS_PER_SESSION: usize = 1_000;
/// Resources of one part, such as `orders/shard-017`.
const PART: usize = 1_000;
/// Resources on which others wait; the first of them has a tenth of all waiters.
const CONTENDED: usize = 500;

/// A server with its sessions, which end with it.
pub struct FullServer {
    pub server: Server,
    pub runtime: Runtime,
    /// The session of the holders.
    pub holder: LoadSession,
    /// Ids and token numbers of the leases.
    pub leases: Vec<(LeaseId, Number)>,
    _waiting: Vec<LoadSession>,
}

/// A session stream, and the number of its next request.
pub struct LoadSession {
    sender: SessionSender,
    receiver: SessionReceiver,
    next: u64,
}

/// The name of a resource.
pub fn name(index: usize) -> String {
    format!("orders/shard-{:03}/order-{:05}", index / PART, index % PART)
}

impl LoadSession {
    async fn open(client: &Client, holder: &str) -> Self {
        let (_, sender, receiver) = client.stream(holder, TTL_MS, None).await.expect("the server responds");
        Self { sender, receiver, next: 1 }
    }

    /// Sends these requests, and waits until each has a reply.
    async fn send(&mut self, lowest: u64, requests: &[(String, String)], wait_ms: u64) -> Vec<Answer> {
        let options = AcquireOptions { wait_ms, ..AcquireOptions::DEFAULT };
        let mut batch = OutgoingBatch::new(lowest);
        for (resource, holder) in requests {
            let acquire = Acquire { options, ..Acquire::exclusive(resource, holder, TTL_MS) };
            assert!(batch.push_command(self.next, &Command::Acquire(acquire)), "a command of a session");
            self.next += 1;
        }
        self.sender.send(batch).await.expect("the stream is open");
        let mut answers = Vec::new();
        while answers.len() < requests.len() {
            let received = tokio::time::timeout(TEST_TIMEOUT, self.receiver.recv()).await.expect("a reply in time");
            let replies = received.expect("the stream is open").replies;
            answers.extend(replies.into_iter().map(|(_, answer)| answer.expect("the request is valid")));
        }
        answers
    }

    /// Renews all leases in batches for a time, one batch in flight. Returns the latency of each batch.
    pub async fn renew(&mut self, leases: &[(LeaseId, Number)], size: usize, duration: Duration) -> Vec<Duration> {
        let mut latencies = Vec::new();
        let mut portions = leases.chunks(size).cycle();
        let began = std::time::Instant::now();
        while began.elapsed() < duration {
            latencies.push(self.renew_batch(portions.next().expect("there are leases")).await);
        }
        latencies
    }

    /// Renews these leases, and returns the time to the reply.
    pub async fn renew_batch(&mut self, leases: &[(LeaseId, Number)]) -> Duration {
        let mut batch = OutgoingBatch::new(self.next);
        batch.renew(self.next, leases.iter().copied());
        self.next += 1;
        let sent = std::time::Instant::now();
        self.sender.send(batch).await.expect("the stream is open");
        let received = loop {
            let received = tokio::time::timeout(TEST_TIMEOUT, self.receiver.recv()).await.expect("a reply in time");
            let mut renewals = received.expect("the stream is open").renewals;
            if let Some(renewed) = renewals.pop() {
                break renewed;
            }
        };
        assert!(received.details.is_empty(), "each lease is renewed: {:?}", received.details.first());
        sent.elapsed()
    }
}

impl FullServer {
    /// Fills a server. Holders have names like `worker-0042`; each holds a thousandth of the leases.
    pub fn start(server: Server, leases: usize, waiters: usize) -> Self {
        let runtime = Runtime::new().expect("threads start");
        let client = Client::from(Endpoints::parse(&server.address).expect("an address with a port"));
        let (holder, held, waiting) = runtime.block_on(async {
            let mut holder = LoadSession::open(&client, "orders").await;
            let mut held = Vec::with_capacity(leases);
            let all: Vec<usize> = (0..leases).collect();
            for portion in all.chunks(BATCH) {
                let requests: Vec<_> =
                    portion.iter().map(|at| (name(*at), format!("worker-{:04}", at % 1_000))).collect();
                let lowest = holder.next;
                for answer in holder.send(lowest, &requests, 0).await {
                    let Answer::Granted(grant) = answer else { panic!("{answer:?}") };
                    held.push((grant.lease, grant.number));
                }
            }
            let mut waiting = Vec::new();
            let all: Vec<usize> = (0..waiters).collect();
            for portion in all.chunks(WAITS_PER_SESSION) {
                let mut session = LoadSession::open(&client, "waiting").await;
                for portion in portion.chunks(BATCH) {
                    let contended = |at: usize| if at.is_multiple_of(10) { 0 } else { at % CONTENDED };
                    let requests: Vec<_> =
                        portion.iter().map(|at| (name(contended(*at)), format!("waiter-{at:05}"))).collect();
                    for answer in session.send(1, &requests, 3_600_000).await {
                        assert!(matches!(answer, Answer::Waiting { .. }), "{answer:?}");
                    }
                }
                waiting.push(session);
            }
            (holder, held, waiting)
        });
        let status = server.json(&["status"]);
        assert_eq!((&status["held"], &status["waiters"]), (&leases.into(), &waiters.into()), "{status}");
        Self { server, runtime, holder, leases: held, _waiting: waiting }
    }
}
