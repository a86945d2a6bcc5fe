//! The journal conformance suite on every journal, and on journals with built-in faults, which it must detect.

mod journal_support;

use std::cell::Cell;
use std::future::Future;

use journal_support::{append, poll_ready, simulated_disk::SimulatedDisk, small_segments};
use leasehold_server::journal::conformance::{self, Fencing};
use leasehold_server::journal::file::{Directory, FileJournal, FileOptions};
use leasehold_server::journal::memory::{Memory, MemoryJournal, MemorySnapshotStore};
use leasehold_server::journal::{
    AppendOutcome, AuditFiles, BatchVisitor, DiskSpace, Journal, JournalError, JournalLocation, OpenError,
    OpenedJournal, ReadError, Replay, SnapshotStore, WriterStatus,
};

#[test]
fn the_memory_journal_conforms() {
    let obligations =
        poll_ready(conformance::run(Memory::new, Fencing::Takeover)).expect("the memory journal conforms");
    assert_eq!(obligations.len(), 13, "{obligations:?}");
}

#[test]
fn the_file_journal_conforms() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let background = FileOptions { segment_bytes: 256 << 10, background: true, ..FileOptions::default() };
    for options in [small_segments(), background] {
        let count = Cell::new(0);
        let new = || {
            count.set(count.get() + 1);
            let path = parent.path().join(format!("{}-{}", options.segment_bytes, count.get()));
            std::fs::remove_dir_all(&path).ok();
            Directory { path, options: options.clone() }
        };
        let obligations = poll_ready(conformance::run(new, Fencing::ExclusiveLock)).expect("the file journal conforms");
        assert_eq!(obligations.len(), 12, "all except those of a fenced writer: {obligations:?}");
    }
}

/// The simulated disk, locked while a journal is open on it.
struct LockedDisk(SimulatedDisk);

impl JournalLocation for LockedDisk {
    type Journal = FileJournal<SimulatedDisk>;

    async fn open(&self, replay: &mut (dyn Replay + Send)) -> Result<OpenedJournal<Self::Journal>, OpenError> {
        FileJournal::open_on(self.0.lock()?, &small_segments(), replay)
    }
}

#[test]
fn the_file_journal_conforms_on_the_simulated_disk() {
    let obligations = poll_ready(conformance::run(|| LockedDisk(SimulatedDisk::new()), Fencing::ExclusiveLock))
        .expect("the file journal conforms");
    assert_eq!(obligations.len(), 12, "{obligations:?}");
}

#[test]
fn a_full_journal_refuses_a_batch_and_accepts_it_when_there_is_space() {
    let memory = Memory::new();
    let mut journal =
        poll_ready(memory.open(&mut conformance::RecordedReplay::default())).expect("the journal opens").journal;
    append(&mut journal, b"one").expect("the journal has space");
    memory.set_disk_space(DiskSpace::None);
    assert_eq!(poll_ready(journal.append(2, b"two")), Err(JournalError::Full));
    assert_eq!(journal.disk_space(), Ok(DiskSpace::None));
    memory.set_disk_space(DiskSpace::ReserveOnly);
    assert_eq!(poll_ready(journal.append(2, b"two")), Ok(AppendOutcome::Durable));
    assert_eq!(journal.disk_space(), Ok(DiskSpace::ReserveOnly));
}

#[test]
fn a_failed_journal_keeps_failing_until_it_is_reopened() {
    let memory = Memory::new();
    let mut journal =
        poll_ready(memory.open(&mut conformance::RecordedReplay::default())).expect("the journal opens").journal;
    memory.fail();
    assert!(matches!(poll_ready(journal.append(1, b"one")), Err(JournalError::Failed { .. })));
    assert!(matches!(poll_ready(journal.confirm()), Err(JournalError::Failed { .. })));
    assert!(matches!(poll_ready(journal.snapshots().trim(1)), Err(JournalError::Failed { .. })));
    assert!(journal.disk_space().is_err());
    let mut journal =
        poll_ready(memory.open(&mut conformance::RecordedReplay::default())).expect("the journal opens").journal;
    append(&mut journal, b"one").expect("the reopened journal works");
}

/// A fault that breaks one obligation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    OldWriterAppends,
    GenerationUnchanged,
    LosesEveryTenthBatch,
    ResendAppendsTwice,
    ConflictingResendAccepted,
    OldWriterConfirms,
    OldWriterTrims,
    SnapshotLost,
    TrimRemovesTooMuch,
    TailStartsLate,
    AuditWriteLost,
}

#[derive(Clone)]
struct FaultyLocation {
    memory: Memory,
    fault: Fault,
}

struct FaultyJournal {
    inner: MemoryJournal,
    location: FaultyLocation,
    generation: u64,
    /// Number of batches that were acknowledged and lost.
    lost: u64,
    /// The first sequence number that was never submitted.
    next_submitted: u64,
}

#[derive(Clone)]
struct FaultySnapshotStore {
    inner: MemorySnapshotStore,
    location: FaultyLocation,
}

impl JournalLocation for FaultyLocation {
    type Journal = FaultyJournal;

    fn open(
        &self,
        replay: &mut (dyn Replay + Send),
    ) -> impl Future<Output = Result<OpenedJournal<FaultyJournal>, OpenError>> + Send {
        let opened = poll_ready(self.memory.open(replay)).map(|OpenedJournal { journal, warnings }| {
            let generation = if self.fault == Fault::GenerationUnchanged { 1 } else { journal.generation() };
            let next_submitted = journal.next();
            OpenedJournal {
                journal: FaultyJournal { inner: journal, location: self.clone(), generation, lost: 0, next_submitted },
                warnings,
            }
        });
        std::future::ready(opened)
    }
}

impl Journal for FaultyJournal {
    type Snapshots = FaultySnapshotStore;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn next(&self) -> u64 {
        self.inner.next() + self.lost
    }

    async fn append(&mut self, sequence: u64, batch: &[u8]) -> Result<AppendOutcome, JournalError> {
        let fault = self.location.fault;
        let resend = sequence < self.next_submitted;
        self.next_submitted = self.next_submitted.max(sequence + 1);
        if fault == Fault::LosesEveryTenthBatch && sequence.is_multiple_of(10) && !resend {
            self.lost += 1;
            return Ok(AppendOutcome::Durable);
        }
        if fault == Fault::ResendAppendsTwice && resend {
            return self.inner.append(self.inner.next(), batch).await;
        }
        match self.inner.append(sequence - self.lost, batch).await? {
            AppendOutcome::Fenced if fault == Fault::OldWriterAppends => Ok(AppendOutcome::Durable),
            AppendOutcome::Fenced if fault == Fault::ConflictingResendAccepted && resend => Ok(AppendOutcome::Durable),
            outcome => Ok(outcome),
        }
    }

    async fn confirm(&mut self) -> Result<WriterStatus, JournalError> {
        match self.inner.confirm().await? {
            WriterStatus::Fenced if self.location.fault == Fault::OldWriterConfirms => Ok(WriterStatus::Current),
            status => Ok(status),
        }
    }

    fn disk_space(&mut self) -> Result<DiskSpace, JournalError> {
        self.inner.disk_space()
    }

    fn snapshots(&self) -> FaultySnapshotStore {
        FaultySnapshotStore { inner: self.inner.snapshots(), location: self.location.clone() }
    }
}

impl AuditFiles for FaultySnapshotStore {
    fn files(&self) -> Result<Vec<(u64, u64)>, ReadError> {
        self.inner.files()
    }

    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, ReadError> {
        self.inner.read(number, at, into)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.inner.create(number, bytes)
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        if self.location.fault == Fault::AuditWriteLost {
            return Ok(AppendOutcome::Durable);
        }
        self.inner.write(number, at, bytes)
    }

    fn sync(&self, number: u64) -> Result<AppendOutcome, JournalError> {
        self.inner.sync(number)
    }

    fn remove(&self, number: u64) -> Result<AppendOutcome, JournalError> {
        self.inner.remove(number)
    }

    fn label(&self, number: u64) -> String {
        self.inner.label(number)
    }

    fn heads(&self) -> Result<Vec<u8>, ReadError> {
        self.inner.heads()
    }

    fn put_heads(&self, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.inner.put_heads(bytes)
    }

    fn max_bytes(&self) -> u64 {
        self.inner.max_bytes()
    }
}

impl SnapshotStore for FaultySnapshotStore {
    async fn save(&self, sequence: u64, snapshot: &[u8]) -> Result<AppendOutcome, JournalError> {
        if self.location.fault == Fault::SnapshotLost {
            return Ok(AppendOutcome::Durable);
        }
        self.inner.save(sequence, snapshot).await
    }

    async fn trim(&self, up_to: u64) -> Result<AppendOutcome, JournalError> {
        match self.inner.trim(up_to).await? {
            AppendOutcome::Fenced if self.location.fault == Fault::OldWriterTrims => Ok(AppendOutcome::Durable),
            outcome => Ok(outcome),
        }
    }

    async fn newest(&self) -> Result<Option<(u64, Vec<u8>)>, ReadError> {
        self.inner.newest().await
    }

    async fn tail(&self, from: u64, each: BatchVisitor<'_>) -> Result<u64, ReadError> {
        match self.location.fault {
            Fault::TrimRemovesTooMuch if from < 30 => Err(ReadError::Trimmed { first: 31 }),
            Fault::TailStartsLate => self.inner.tail(from + 1, each).await,
            _ => self.inner.tail(from, each).await,
        }
    }
}

#[test]
fn the_suite_detects_each_fault_at_its_obligation() {
    for (fault, check) in [
        (Fault::OldWriterAppends, "1 opening fences"),
        (Fault::GenerationUnchanged, "2 generations rise"),
        (Fault::LosesEveryTenthBatch, "3 replay is complete and in order"),
        (Fault::ResendAppendsTwice, "6 a resend is harmless"),
        (Fault::ConflictingResendAccepted, "6 a resend is harmless"),
        (Fault::OldWriterConfirms, "7 a fenced writer changes nothing"),
        (Fault::OldWriterTrims, "7 a fenced writer changes nothing"),
        (Fault::SnapshotLost, "7 a fenced writer changes nothing"),
        (Fault::TrimRemovesTooMuch, "10 trim removes only covered batches"),
        (Fault::TailStartsLate, "10 trim removes only covered batches"),
        (Fault::AuditWriteLost, "15 synced audit files are durable"),
    ] {
        let new = || FaultyLocation { memory: Memory::new(), fault };
        let violation = poll_ready(conformance::run(new, Fencing::Takeover)).expect_err("the journal has a fault");
        assert_eq!(violation.check, check, "{fault:?}: {violation}");
    }
}
