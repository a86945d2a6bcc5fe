//! What one turn puts on record has a bound, whatever is asked at once; and so has what waits for a turn.

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

use crate::transports::{Stream, acquire, connect, within};

/// A journal that tells how large its largest batch was, and keeps nothing while it is held up.
struct Measured<J> {
    inner: J,
    place: Arc<Measures>,
}

#[derive(Default)]
struct Measures {
    largest: AtomicUsize,
    held_up: AtomicBool,
    /// Whether a turn stands still because of that.
    stands: AtomicBool,
}

impl Measures {
    /// Holds up the next turn that has something to keep, and waits until one is: what is asked then gathers behind it.
    async fn hold_up(&self, stream: &mut Stream) {
        self.held_up.store(true, Ordering::SeqCst);
        let ask = Some(Operation::Acquire(acquire("held/up", "")));
        let requests = vec![v1::Request { sequence: HOLDS_UP, operation: ask }];
        stream.send(v1::ClientBatch { requests, lowest_pending: 1, ..Default::default() });
        let standing = async {
            while !self.stands.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within(standing).await;
    }

    fn go_on(&self) {
        self.held_up.store(false, Ordering::SeqCst);
    }
}

/// The number of the request that holds a turn up.
const HOLDS_UP: u64 = 1 << 20;

/// Waits until so much waits for a turn.
async fn until_gathered(running: &ServerHandle, much: usize) {
    let gathering = async {
        while running.api().queue.waiting() < much {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within(gathering).await;
}

struct MeasuredPlace(Arc<Measures>);

impl JournalLocation for MeasuredPlace {
    type Journal = Measured<<Memory as JournalLocation>::Journal>;

    async fn open(&self, replay: &mut (dyn Replay + Send)) -> Result<OpenedJournal<Self::Journal>, OpenError> {
        let OpenedJournal { journal, warnings } = Memory::default().open(replay).await?;
        Ok(OpenedJournal { journal: Measured { inner: journal, place: self.0.clone() }, warnings })
    }
}

impl<J: Journal> Journal for Measured<J> {
    type Snapshots = J::Snapshots;

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    fn next(&self) -> u64 {
        self.inner.next()
    }

    async fn append(&mut self, sequence: u64, batch: &[u8]) -> Result<AppendOutcome, JournalError> {
        while self.place.held_up.load(Ordering::SeqCst) {
            self.place.stands.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.place.stands.store(false, Ordering::SeqCst);
        self.place.largest.fetch_max(batch.len(), Ordering::Relaxed);
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

/// More than any turn may put on record, apart from one request of extraordinary reach.
const MOST: usize = 6 << 20;

async fn server() -> (ServerHandle, Arc<Measures>) {
    let measures = Arc::new(Measures::default());
    let settings = ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerConfig::default() };
    (start(MeasuredPlace(measures.clone()), settings).await.expect("a server on a free port starts"), measures)
}

/// Asks on one stream in messages of a few requests, and hears as many answers as there are.
async fn ask(stream: &mut Stream, asks: Vec<Operation>, some: usize) -> Vec<Answer> {
    let mut answers = tell(stream, asks, some);
    while answers.iter().any(Option::is_none) {
        let batch = stream.next().await.expect("the stream goes on");
        assert_eq!(batch.close, None);
        for response in batch.responses {
            answers[response.sequence as usize - 1] = response.answer;
        }
    }
    answers.into_iter().flatten().collect()
}

fn tell(stream: &Stream, asks: Vec<Operation>, some: usize) -> Vec<Option<Answer>> {
    let answers = asks.iter().map(|_| None).collect();
    let requests: Vec<_> =
        asks.into_iter().zip(1..).map(|(ask, sequence)| v1::Request { sequence, operation: Some(ask) }).collect();
    for requests in requests.chunks(some) {
        stream.send(v1::ClientBatch { requests: requests.to_vec(), lowest_pending: 1, ..Default::default() });
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_asked_at_once_is_put_on_record_in_several_turns() {
    let (running, measures) = server().await;
    let mut streams = Vec::new();
    for _ in 0..6 {
        streams.push(Stream::open(connect(running.address).await).await);
    }
    let enqueue = || {
        let body = vec![7; 60_000];
        let ask = v1::delivery_command::Command::Enqueue(v1::Enqueue { body, ..Default::default() });
        Operation::Delivery(v1::DeliveryCommand { queue: "q".into(), command: Some(ask) })
    };
    let mut other = Stream::open(connect(running.address).await).await;
    measures.hold_up(&mut other).await;
    let told = streams.iter_mut().map(|stream| ask(stream, (0..120).map(|_| enqueue()).collect(), 4));
    let mut all = Box::pin(futures::future::join_all(told));
    // Twice what a turn puts on record gathers, counted in portions of 512 bytes; nothing is told while nothing is kept.
    tokio::select! {
        _ = &mut all => panic!("told before it was kept"),
        () = until_gathered(&running, (8 << 20) / 512) => measures.go_on(),
    }
    for answers in all.await {
        assert!(answers.iter().all(|answer| matches!(answer, Answer::Delivery(_))), "{:?}", answers[0]);
    }
    let largest = measures.largest.load(Ordering::Relaxed);
    assert!(largest > 1 << 20, "it gathered: {largest}");
    assert!(largest <= MOST, "{largest}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_are_freed_at_once_are_granted_in_several_turns() {
    const EACH: usize = 800;
    let (running, measures) = server().await;
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        holders.push(Stream::open(connect(running.address).await).await);
        waiters.push(Stream::open(connect(running.address).await).await);
    }
    let name = |stream: usize, i: usize| format!("{}/{stream}/{i}", "n".repeat(200));
    for (at, (holder, waiter)) in holders.iter_mut().zip(&mut waiters).enumerate() {
        let asks = (0..EACH).map(|i| Operation::Acquire(acquire(&name(at, i), ""))).collect();
        assert!(ask(holder, asks, 100).await.iter().all(|answer| matches!(answer, Answer::Granted(_))));
        let terms = Some(v1::AcquireOptions { wait_ms: 600_000, metadata: vec![7; 4_096], ..Default::default() });
        let wait = |i| Operation::Acquire(v1::Acquire { options: terms.clone(), ..acquire(&name(at, i), "") });
        let asks = (0..EACH).map(wait).collect();
        assert!(ask(waiter, asks, 25).await.iter().all(|answer| matches!(answer, Answer::Waiting(_))));
    }
    let mut other = Stream::open(connect(running.address).await).await;
    measures.hold_up(&mut other).await;
    measures.largest.store(0, Ordering::Relaxed);
    for holder in &holders {
        let close =
            v1::Request { sequence: 1_000, operation: Some(Operation::CloseSession(v1::CloseSession::default())) };
        holder.send(v1::ClientBatch { requests: vec![close], lowest_pending: 1, ..Default::default() });
    }
    until_gathered(&running, holders.len()).await;
    measures.go_on();
    for waiter in &mut waiters {
        let mut granted = 0;
        while granted < EACH {
            let batch = waiter.next().await.expect("the stream goes on");
            granted += batch.responses.iter().filter(|one| matches!(one.answer, Some(Answer::Granted(_)))).count();
        }
    }
    let largest = measures.largest.load(Ordering::Relaxed);
    assert!(largest > 1 << 20, "it gathered: {largest}");
    assert!(largest <= MOST, "{largest}");
    running.stop().await;
}
