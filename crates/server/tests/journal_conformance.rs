//! Every journal on trial, and the trial on trial: a journal with a fault must not pass.

mod journal_support;

use std::cell::Cell;
use std::future::Future;

use journal_support::{append, now, simulated_disk::Power, small};
use leasehold_server::journal::conformance::{self, Fencing};
use leasehold_server::journal::file::{Directory, FileJournal, FileOptions};
use leasehold_server::journal::memory::{Memory, MemoryJournal, MemorySnapshotStore};
use leasehold_server::journal::{
    AppendOutcome, AuditFiles, BatchVisitor, DiskSpace, Journal, JournalError, JournalLocation, OpenError,
    OpenedJournal, ReadError, Replay, SnapshotStore, WriterStatus,
};

#[test]
fn the_journal_in_memory_meets_every_obligation() {
    let held = now(conformance::run(Memory::new, Fencing::Takeover)).expect("memory conforms");
    assert_eq!(held.len(), 13, "{held:?}");
}

#[test]
fn the_file_journal_meets_every_obligation() {
    let above = tempfile::tempdir().expect("a directory");
    let beside = FileOptions { segment_bytes: 256 << 10, background: true, ..FileOptions::default() };
    for options in [small(), beside] {
        let count = Cell::new(0);
        let new = || {
            count.set(count.get() + 1);
            let path = above.path().join(format!("{}-{}", options.segment_bytes, count.get()));
            std::fs::remove_dir_all(&path).ok();
            Directory { path, options: options.clone() }
        };
        let held = now(conformance::run(new, Fencing::ExclusiveLock)).expect("the file journal conforms");
        assert_eq!(held.len(), 12, "all but what a fenced writer does: {held:?}");
    }
}

/// The simulated disk has no lock; whoever opens it again has let go of the first.
struct Simulated(Power);

impl JournalLocation for Simulated {
    type Journal = FileJournal<Power>;

    async fn open(&self, replay: &mut (dyn Replay + Send)) -> Result<OpenedJournal<Self::Journal>, OpenError> {
        FileJournal::open_on(self.0.lock()?, &small(), replay)
    }
}

#[test]
fn the_file_journal_meets_every_obligation_on_the_simulated_disk() {
    let held = now(conformance::run(|| Simulated(Power::new()), Fencing::ExclusiveLock)).expect("it conforms");
    assert_eq!(held.len(), 12, "{held:?}");
}

#[test]
fn a_journal_that_is_full_takes_the_same_batch_when_there_is_room() {
    let memory = Memory::new();
    let mut journal = now(memory.open(&mut conformance::RecordedReplay::default())).expect("opened").journal;
    append(&mut journal, b"one").expect("room");
    memory.set_disk_space(DiskSpace::None);
    assert_eq!(now(journal.append(2, b"two")), Err(JournalError::Full));
    assert_eq!(journal.disk_space(), Ok(DiskSpace::None));
    memory.set_disk_space(DiskSpace::ReserveOnly);
    assert_eq!(now(journal.append(2, b"two")), Ok(AppendOutcome::Durable));
    assert_eq!(journal.disk_space(), Ok(DiskSpace::ReserveOnly));
}

#[test]
fn a_journal_that_failed_fails_until_it_is_opened_anew() {
    let memory = Memory::new();
    let mut journal = now(memory.open(&mut conformance::RecordedReplay::default())).expect("opened").journal;
    memory.fail();
    assert!(matches!(now(journal.append(1, b"one")), Err(JournalError::Failed { .. })));
    assert!(matches!(now(journal.confirm()), Err(JournalError::Failed { .. })));
    assert!(matches!(now(journal.snapshots().trim(1)), Err(JournalError::Failed { .. })));
    assert!(journal.disk_space().is_err());
    let mut journal = now(memory.open(&mut conformance::RecordedReplay::default())).expect("opened").journal;
    append(&mut journal, b"one").expect("another process");
}

/// One way in which a journal can break its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    OldWriterAppends,
    GenerationStands,
    LosesEveryTenth,
    ResendTwice,
    OtherBytesPass,
    OldWriterConfirms,
    OldWriterTrims,
    SnapshotForgotten,
    TrimTakesAll,
    TailStartsLate,
    RackForgets,
}

#[derive(Clone)]
struct Faulty {
    memory: Memory,
    fault: Lie,
}

struct FaultyJournal {
    inner: MemoryJournal,
    place: Faulty,
    generation: u64,
    shift: u64,
    given: u64,
}

#[derive(Clone)]
struct FaultyShelf {
    inner: MemorySnapshotStore,
    place: Faulty,
}

impl JournalLocation for Faulty {
    type Journal = FaultyJournal;

    fn open(
        &self,
        replay: &mut (dyn Replay + Send),
    ) -> impl Future<Output = Result<OpenedJournal<FaultyJournal>, OpenError>> + Send {
        let opened = now(self.memory.open(replay)).map(|OpenedJournal { journal, warnings }| {
            let generation = if self.fault == Lie::GenerationStands { 1 } else { journal.generation() };
            let given = journal.next();
            OpenedJournal {
                journal: FaultyJournal { inner: journal, place: self.clone(), generation, shift: 0, given },
                warnings,
            }
        });
        std::future::ready(opened)
    }
}

impl Journal for FaultyJournal {
    type Snapshots = FaultyShelf;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn next(&self) -> u64 {
        self.inner.next() + self.shift
    }

    async fn append(&mut self, sequence: u64, batch: &[u8]) -> Result<AppendOutcome, JournalError> {
        let fault = self.place.fault;
        let resend = sequence < self.given;
        self.given = self.given.max(sequence + 1);
        if fault == Lie::LosesEveryTenth && sequence.is_multiple_of(10) && !resend {
            self.shift += 1;
            return Ok(AppendOutcome::Durable);
        }
        if fault == Lie::ResendTwice && resend {
            return self.inner.append(self.inner.next(), batch).await;
        }
        match self.inner.append(sequence - self.shift, batch).await? {
            AppendOutcome::Fenced if fault == Lie::OldWriterAppends => Ok(AppendOutcome::Durable),
            AppendOutcome::Fenced if fault == Lie::OtherBytesPass && resend => Ok(AppendOutcome::Durable),
            kept => Ok(kept),
        }
    }

    async fn confirm(&mut self) -> Result<WriterStatus, JournalError> {
        match self.inner.confirm().await? {
            WriterStatus::Fenced if self.place.fault == Lie::OldWriterConfirms => Ok(WriterStatus::Current),
            confirmed => Ok(confirmed),
        }
    }

    fn disk_space(&mut self) -> Result<DiskSpace, JournalError> {
        self.inner.disk_space()
    }

    fn snapshots(&self) -> FaultyShelf {
        FaultyShelf { inner: self.inner.snapshots(), place: self.place.clone() }
    }
}

impl AuditFiles for FaultyShelf {
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
        if self.place.fault == Lie::RackForgets {
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

    fn max_bytes(&self) -> u64 {
        self.inner.max_bytes()
    }
}

impl SnapshotStore for FaultyShelf {
    async fn save(&self, sequence: u64, snapshot: &[u8]) -> Result<AppendOutcome, JournalError> {
        if self.place.fault == Lie::SnapshotForgotten {
            return Ok(AppendOutcome::Durable);
        }
        self.inner.save(sequence, snapshot).await
    }

    async fn trim(&self, up_to: u64) -> Result<AppendOutcome, JournalError> {
        match self.inner.trim(up_to).await? {
            AppendOutcome::Fenced if self.place.fault == Lie::OldWriterTrims => Ok(AppendOutcome::Durable),
            kept => Ok(kept),
        }
    }

    async fn newest(&self) -> Result<Option<(u64, Vec<u8>)>, ReadError> {
        self.inner.newest().await
    }

    async fn tail(&self, from: u64, each: BatchVisitor<'_>) -> Result<u64, ReadError> {
        match self.place.fault {
            Lie::TrimTakesAll if from < 30 => Err(ReadError::Trimmed { first: 31 }),
            Lie::TailStartsLate => self.inner.tail(from + 1, each).await,
            _ => self.inner.tail(from, each).await,
        }
    }
}

#[test]
fn the_trial_finds_each_fault_at_its_obligation() {
    for (fault, check) in [
        (Lie::OldWriterAppends, "1 opening fences"),
        (Lie::GenerationStands, "2 generations rise"),
        (Lie::LosesEveryTenth, "3 replay is complete and in order"),
        (Lie::ResendTwice, "6 a resend is harmless"),
        (Lie::OtherBytesPass, "6 a resend is harmless"),
        (Lie::OldWriterConfirms, "7 a fenced writer changes nothing"),
        (Lie::OldWriterTrims, "7 a fenced writer changes nothing"),
        (Lie::SnapshotForgotten, "7 a fenced writer changes nothing"),
        (Lie::TrimTakesAll, "10 trim removes only covered batches"),
        (Lie::TailStartsLate, "10 trim removes only covered batches"),
        (Lie::RackForgets, "15 synced audit files are durable"),
    ] {
        let new = || Faulty { memory: Memory::new(), fault };
        let broken = now(conformance::run(new, Fencing::Takeover)).expect_err("a fault was built in");
        assert_eq!(broken.check, check, "{fault:?}: {broken}");
    }
}
