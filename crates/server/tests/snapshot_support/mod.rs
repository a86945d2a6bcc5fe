//! A grantor that the test drives by hand over a journal, without a server.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use leasehold_core::command::{Acquire, Answer, Command, Input, LeaseRef, OpenSession, Request};
use leasehold_core::grantor::{CorruptionError, Grantor, Output, RecoveredGrantor, TenureOptions};
use leasehold_core::lease::Validity;
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation, Number};
use leasehold_server::journal::{AppendOutcome, Journal, JournalError, Replay};
use leasehold_server::metrics::{Metrics, SnapshotMetrics};
use leasehold_server::snapshot_file::SnapshotFile;
use leasehold_server::snapshotter::{SnapshotConfig, SnapshotHandle};

/// The output of a future that is ready at its first poll.
pub fn poll_ready<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("these journals are always ready"),
    }
}

/// Metrics that no test reads.
pub fn snapshot_metrics() -> SnapshotMetrics {
    Metrics::default().snapshots()
}

/// Takes a snapshot after this many bytes of log; a warning fails the test.
pub fn snapshot_config(log_bytes: u64) -> SnapshotConfig {
    let warn = |line: &str| panic!("unexpected warning: {line}");
    SnapshotConfig { log_bytes, log_batches: u64::MAX, warn, ..SnapshotConfig::default() }
}

/// The state that a journal replays when it is opened.
pub struct ReplayedState {
    pub recovered: RecoveredGrantor,
    pub batches: u64,
    pub bytes: u64,
    /// Position of the snapshot that the replay started from.
    pub snapshot: Option<u64>,
}

impl Default for ReplayedState {
    fn default() -> Self {
        Self { recovered: RecoveredGrantor::empty(7), batches: 0, bytes: 0, snapshot: None }
    }
}

impl Replay for ReplayedState {
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.recovered = RecoveredGrantor::from_snapshot(SnapshotFile::decode(bytes, sequence)?.state, 7)?;
        self.snapshot = Some(sequence);
        Ok(())
    }

    fn batch(&mut self, _sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.batches += 1;
        self.bytes += bytes.len() as u64;
        self.recovered.apply(bytes)
    }
}

/// A grantor over a journal, one command per turn, on a clock that the test advances.
pub struct GrantorHarness<J> {
    pub grantor: Grantor,
    pub journal: J,
    pub ms: u64,
    output: Output,
}

/// A date in 2026, so that the wall clock lifts token numbers as it does in production.
pub const WALL: u64 = 1_770_000_000_000;

impl<J: Journal> GrantorHarness<J> {
    /// Opens a tenure over the recovered state.
    pub fn open(recovered: RecoveredGrantor, mut journal: J) -> Self {
        let options = TenureOptions {
            cluster: Cluster(*b"the-keep"),
            incarnation: Incarnation(1),
            generation: journal.generation(),
            validity: Validity::Session,
            max_ttl: 600_000,
            restore: None,
        };
        let mut grantor = recovered.open(at(0), &options).expect("the cluster matches");
        let mut output = Output::default();
        grantor.take_output(&mut output);
        assert_eq!(poll_ready(journal.append(journal.next(), &output.batch)), Ok(AppendOutcome::Durable));
        grantor.serve(at(0));
        Self { grantor, journal, ms: 0, output }
    }

    /// Runs one turn with one command: appends its batch, reports its size to the snapshotter, and returns the answer.
    pub fn turn(&mut self, handle: Option<&SnapshotHandle>, command: Command<'_>) -> Result<Answer, JournalError> {
        self.ms += 10;
        self.grantor.step(at(self.ms), &Input::Request(Request::tagged(0), command));
        self.grantor.step(at(self.ms), &Input::Tick);
        self.grantor.take_output(&mut self.output);
        if !self.output.batch.is_empty() {
            let outcome = poll_ready(self.journal.append(self.journal.next(), &self.output.batch))?;
            assert_eq!(outcome, AppendOutcome::Durable);
            if let Some(handle) = handle {
                handle.appended(self.output.batch.len());
            }
        }
        Ok(self.output.replies.remove(0).answer)
    }

    /// Acquires a free lease and returns its token number.
    pub fn acquire(&mut self, handle: Option<&SnapshotHandle>, resource: &str, holder: &str) -> Number {
        let acquire = Command::Acquire(Acquire::exclusive(resource, holder, 60_000));
        match self.turn(handle, acquire).expect("the journal works") {
            Answer::Granted(grant) => grant.number,
            other => panic!("{resource} is free: {other:?}"),
        }
    }

    pub fn release(&mut self, handle: Option<&SnapshotHandle>, resource: &str, number: Number) {
        let release = Command::Release(LeaseRef::by_name(resource, number));
        assert!(matches!(self.turn(handle, release), Ok(Answer::Done)));
    }

    pub fn open_session(&mut self, handle: Option<&SnapshotHandle>, holder: &str) -> leasehold_core::ids::SessionId {
        let open = OpenSession { holder, ttl_ms: 60_000, secret: [9; 32].into(), waits_only: false };
        match self.turn(handle, Command::OpenSession(open)) {
            Ok(Answer::Session(grant)) => grant.session,
            other => panic!("the session opens: {other:?}"),
        }
    }

    /// Acquires one lease per number, and releases four of every five.
    pub fn acquire_and_release(&mut self, handle: Option<&SnapshotHandle>, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let resource = format!("jobs/{number}");
            let token = self.acquire(handle, &resource, &format!("worker-{}", number % 7));
            if number % 5 != 0 {
                self.release(handle, &resource, token);
            }
        }
    }
}

/// Both clocks, this many milliseconds after the start.
pub fn at(ms: u64) -> Now {
    Now { instant: Instant::from_millis(1_000 + ms), wall: WallClock(WALL + ms) }
}
