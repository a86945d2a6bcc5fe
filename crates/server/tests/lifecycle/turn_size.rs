//! The size of one turn's batch is bounded, however many requests arrive at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_server::journal::memory::Memory;
use leasehold_server::journal::{
    AppendOutcome, DiskSpace, Journal, JournalError, JournalLocation, OpenError, OpenedJournal, Replay, WriterStatus,
};
use leasehold_server::server::{ServerConfig, ServerHandle, start};
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;

use crate::transport_clients::{SessionStream, acquire, connect, with_timeout};

/// A journal that measures its largest batch and can be blocked.
pub struct BlockableJournal<J> {
    inner: J,
    control: Arc<JournalControl>,
}

#[derive(Default)]
pub struct JournalControl {
    largest_batch: AtomicUsize,
    block: AtomicBool,
    /// Whether an append is blocked now.
    is_blocked: AtomicBool,
}

impl JournalControl {
    /// Blocks the next append and waits until a turn is blocked. Later requests gather in the queue.
    pub async fn block(&self, stream: &mut SessionStream) {
        self.block.store(true, Ordering::SeqCst);
        let operation = Some(Operation::Acquire(acquire("blocked", "")));
        let requests = vec![v1::Request { sequence: BLOCKING_SEQUENCE, operation, alone: None, traceparent: None }];
        stream.send(v1::ClientBatch { requests, lowest_pending: 1, ..Default::default() });
        let blocked = async {
            while !self.is_blocked.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        with_timeout(blocked).await;
    }

    pub fn unblock(&self) {
        self.block.store(false, Ordering::SeqCst);
    }
}

/// Sequence number of the request whose append is blocked.
const BLOCKING_SEQUENCE: u64 = 1 << 20;

/// Waits until the request queue has this length.
pub async fn wait_for_queue(server: &ServerHandle, length: usize) {
    let filling = async {
        while server.api().queue.waiting() < length {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    with_timeout(filling).await;
}

pub struct BlockableLocation(pub Arc<JournalControl>);

impl JournalLocation for BlockableLocation {
    type Journal = BlockableJournal<<Memory as JournalLocation>::Journal>;

    async fn open(&self, replay: &mut (dyn Replay + Send)) -> Result<OpenedJournal<Self::Journal>, OpenError> {
        let OpenedJournal { journal, warnings } = Memory::default().open(replay).await?;
        Ok(OpenedJournal { journal: BlockableJournal { inner: journal, control: self.0.clone() }, warnings })
    }
}

impl<J: Journal> Journal for BlockableJournal<J> {
    type Snapshots = J::Snapshots;

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    fn next(&self) -> u64 {
        self.inner.next()
    }

    async fn append(&mut self, sequence: u64, batch: &[u8]) -> Result<AppendOutcome, JournalError> {
        while self.control.block.load(Ordering::SeqCst) {
            self.control.is_blocked.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.control.is_blocked.store(false, Ordering::SeqCst);
        self.control.largest_batch.fetch_max(batch.len(), Ordering::Relaxed);
        self.inner.append(sequence, batch).await
    }

    async fn confirm(&mut self) -> Result<WriterStatus, JournalError> {
        self.inner.confirm().await
    }

    fn disk_space(&mut self) -> Result<DiskSpace, JournalError> {
        self.inner.disk_space()
    }

    fn snapshots(&self) -> J::Snapshots {
        self.inner.snapshots()
    }
}

/// Upper bound of a batch.
const MAX_BATCH_BYTES: usize = 6 << 20;

async fn start_server() -> (ServerHandle, Arc<JournalControl>) {
    let control = Arc::new(JournalControl::default());
    let config = ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerConfig::default() };
    (start(BlockableLocation(control.clone()), config).await.expect("a server starts on a free port"), control)
}

/// Sends requests in batches of `batch_size` and returns their first answers.
pub async fn request_all(stream: &mut SessionStream, operations: Vec<Operation>, batch_size: usize) -> Vec<Answer> {
    let mut answers = send_all(stream, operations, batch_size);
    while answers.iter().any(Option::is_none) {
        let batch = stream.next().await.expect("the stream is open");
        assert_eq!(batch.close, None);
        for response in batch.responses {
            answers[response.sequence as usize - 1] = response.answer;
        }
    }
    answers.into_iter().flatten().collect()
}

fn send_all(stream: &SessionStream, operations: Vec<Operation>, batch_size: usize) -> Vec<Option<Answer>> {
    let answers = operations.iter().map(|_| None).collect();
    let numbered = operations.into_iter().zip(1..);
    let requests: Vec<_> = numbered
        .map(|(operation, sequence)| v1::Request {
            sequence,
            operation: Some(operation),
            alone: None,
            traceparent: None,
        })
        .collect();
    for requests in requests.chunks(batch_size) {
        stream.send(v1::ClientBatch { requests: requests.to_vec(), lowest_pending: 1, ..Default::default() });
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_that_arrive_at_once_are_stored_in_several_turns() {
    let (server, control) = start_server().await;
    let mut streams = Vec::new();
    for _ in 0..6 {
        streams.push(SessionStream::open(connect(server.address).await).await);
    }
    let enqueue = || {
        let body = vec![7; 60_000];
        let command = v1::delivery_command::Command::Enqueue(v1::Enqueue { body, ..Default::default() });
        Operation::Delivery(v1::DeliveryCommand { queue: "q".into(), command: Some(command) })
    };
    let mut other = SessionStream::open(connect(server.address).await).await;
    control.block(&mut other).await;
    let requests = streams.iter_mut().map(|stream| request_all(stream, (0..120).map(|_| enqueue()).collect(), 4));
    let mut all = Box::pin(futures::future::join_all(requests));
    // Fill the queue with twice the size of a batch, counted in units of 512 bytes. No reply may come before the append.
    tokio::select! {
        _ = &mut all => panic!("a reply was sent before its batch was durable"),
        () = wait_for_queue(&server, (8 << 20) / 512) => control.unblock(),
    }
    for answers in all.await {
        assert!(answers.iter().all(|answer| matches!(answer, Answer::Delivery(_))), "{:?}", answers[0]);
    }
    let largest = control.largest_batch.load(Ordering::Relaxed);
    assert!(largest > 1 << 20, "requests gathered: {largest}");
    assert!(largest <= MAX_BATCH_BYTES, "{largest}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waiters_freed_at_once_are_granted_in_several_turns() {
    const LEASES_PER_STREAM: usize = 800;
    let (server, control) = start_server().await;
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        holders.push(SessionStream::open(connect(server.address).await).await);
        waiters.push(SessionStream::open(connect(server.address).await).await);
    }
    let name = |stream: usize, i: usize| format!("{}/{stream}/{i}", "n".repeat(200));
    for (index, (holder, waiter)) in holders.iter_mut().zip(&mut waiters).enumerate() {
        let operations = (0..LEASES_PER_STREAM).map(|i| Operation::Acquire(acquire(&name(index, i), ""))).collect();
        assert!(request_all(holder, operations, 100).await.iter().all(|answer| matches!(answer, Answer::Granted(_))));
        let options = Some(v1::AcquireOptions { wait_ms: 600_000, metadata: vec![7; 4_096], ..Default::default() });
        let wait = |i| Operation::Acquire(v1::Acquire { options: options.clone(), ..acquire(&name(index, i), "") });
        let operations = (0..LEASES_PER_STREAM).map(wait).collect();
        assert!(request_all(waiter, operations, 25).await.iter().all(|answer| matches!(answer, Answer::Waiting(_))));
    }
    let mut other = SessionStream::open(connect(server.address).await).await;
    control.block(&mut other).await;
    control.largest_batch.store(0, Ordering::Relaxed);
    for holder in &holders {
        let close = v1::Request {
            sequence: 1_000,
            operation: Some(Operation::CloseSession(v1::CloseSession::default())),
            alone: None,
            traceparent: None,
        };
        holder.send(v1::ClientBatch { requests: vec![close], lowest_pending: 1, ..Default::default() });
    }
    wait_for_queue(&server, holders.len()).await;
    control.unblock();
    for waiter in &mut waiters {
        let mut granted = 0;
        while granted < LEASES_PER_STREAM {
            let batch = waiter.next().await.expect("the stream is open");
            granted +=
                batch.responses.iter().filter(|response| matches!(response.answer, Some(Answer::Granted(_)))).count();
        }
    }
    let largest = control.largest_batch.load(Ordering::Relaxed);
    assert!(largest > 1 << 20, "requests gathered: {largest}");
    assert!(largest <= MAX_BATCH_BYTES, "{largest}");
    server.stop().await;
}
