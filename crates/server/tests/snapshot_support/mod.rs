//! What the tests of the keeper share: a grantor that is driven by hand over a journal, and keeps its own account.

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
use leasehold_server::snapshotter::{SnapshotConfig, SnapshotHandle};

/// The outcome of a future that has nothing to wait for.
pub fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("these journals never wait"),
    }
}

/// Figures that nobody looks at.
pub fn meter() -> SnapshotMetrics {
    Metrics::default().snapshots()
}

/// A keeper that works after so many bytes.
pub fn keep(log_bytes: u64) -> SnapshotConfig {
    let warn = |line: &str| panic!("the keeper has nothing to complain about: {line}");
    SnapshotConfig { log_bytes, log_batches: u64::MAX, warn, ..SnapshotConfig::default() }
}

/// What a journal tells at an open, folded.
pub struct Folded {
    pub recovered: RecoveredGrantor,
    pub batches: u64,
    pub bytes: u64,
    pub snapshot: Option<u64>,
}

impl Default for Folded {
    fn default() -> Self {
        Self { recovered: RecoveredGrantor::empty(7), batches: 0, bytes: 0, snapshot: None }
    }
}

impl Replay for Folded {
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.recovered = RecoveredGrantor::from_snapshot(bytes, 7)?;
        self.snapshot = Some(sequence);
        Ok(())
    }

    fn batch(&mut self, _sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.batches += 1;
        self.bytes += bytes.len() as u64;
        self.recovered.apply(bytes)
    }
}

/// A grantor over a journal, one turn after the other, on a clock that the test moves.
pub struct World<J> {
    pub grantor: Grantor,
    pub journal: J,
    pub ms: u64,
    output: Output,
}

/// 2026, so that token numbers are lifted by a clock that is right.
pub const WALL: u64 = 1_770_000_000_000;

impl<J: Journal> World<J> {
    /// Opens a tenure over what was found.
    pub fn open(found: RecoveredGrantor, mut journal: J) -> Self {
        let opening = TenureOptions {
            cluster: Cluster(*b"the-keep"),
            incarnation: Incarnation(1),
            generation: journal.generation(),
            validity: Validity::Session,
            max_ttl: 600_000,
            restore: None,
        };
        let mut grantor = found.open(at(0), &opening).expect("the cluster is this one");
        let mut output = Output::default();
        grantor.take_output(&mut output);
        assert_eq!(now(journal.append(journal.next(), &output.batch)), Ok(AppendOutcome::Durable));
        grantor.serve(at(0));
        Self { grantor, journal, ms: 0, output }
    }

    /// One turn with one command: appended, counted, answered.
    pub fn turn(&mut self, keeping: Option<&SnapshotHandle>, command: Command<'_>) -> Result<Answer, JournalError> {
        self.ms += 10;
        self.grantor.step(at(self.ms), &Input::Request(Request::tagged(0), command));
        self.grantor.step(at(self.ms), &Input::Tick);
        self.grantor.take_output(&mut self.output);
        if !self.output.batch.is_empty() {
            assert_eq!(now(self.journal.append(self.journal.next(), &self.output.batch))?, AppendOutcome::Durable);
            if let Some(keeping) = keeping {
                keeping.appended(self.output.batch.len());
            }
        }
        Ok(self.output.replies.remove(0).answer)
    }

    /// Takes a lease and tells its token.
    pub fn acquire(&mut self, keeping: Option<&SnapshotHandle>, resource: &str, holder: &str) -> Number {
        let acquire = Command::Acquire(Acquire::exclusive(resource, holder, 60_000));
        match self.turn(keeping, acquire).expect("the journal is well") {
            Answer::Granted(grant) => grant.number,
            other => panic!("{resource} was free: {other:?}"),
        }
    }

    /// Gives a lease back.
    pub fn release(&mut self, keeping: Option<&SnapshotHandle>, resource: &str, number: Number) {
        let release = Command::Release(LeaseRef::by_name(resource, number));
        assert!(matches!(self.turn(keeping, release), Ok(Answer::Done)));
    }

    /// Opens a session.
    pub fn session(&mut self, keeping: Option<&SnapshotHandle>, holder: &str) -> leasehold_core::ids::SessionId {
        let open = OpenSession { holder, ttl_ms: 60_000, secret: [9; 32].into(), waits_only: false };
        match self.turn(keeping, Command::OpenSession(open)) {
            Ok(Answer::Session(grant)) => grant.session,
            other => panic!("a session opens: {other:?}"),
        }
    }

    /// A busy day: some leases stay, the others come and go.
    pub fn work(&mut self, keeping: Option<&SnapshotHandle>, turns: std::ops::Range<usize>) {
        for turn in turns {
            let resource = format!("jobs/{turn}");
            let number = self.acquire(keeping, &resource, &format!("worker-{}", turn % 7));
            if turn % 5 != 0 {
                self.release(keeping, &resource, number);
            }
        }
    }
}

/// The clocks after so many milliseconds.
pub fn at(ms: u64) -> Now {
    Now { instant: Instant::from_millis(1_000 + ms), wall: WallClock(WALL + ms) }
}
