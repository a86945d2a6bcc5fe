//! The journal in memory, for tests and for servers without persistence.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    AppendOutcome, AuditFiles, BATCH_BYTES, BatchVisitor, DiskSpace, FIRST, Journal, JournalError, JournalLocation,
    OpenError, OpenedJournal, ReadError, Replay, SnapshotStore, WriterStatus,
};

/// A journal that lives as long as its last clone. Clones are the same journal; the last open is the writer.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    log: Arc<Mutex<MemoryLog>>,
}

#[derive(Debug, Default)]
struct MemoryLog {
    generation: u64,
    batches: BTreeMap<u64, Vec<u8>>,
    /// The last batch, which is not trimmed.
    last: Option<(u64, Vec<u8>)>,
    snapshot: Option<(u64, Vec<u8>)>,
    audit_files: BTreeMap<u64, Vec<u8>>,
    audit_heads: Vec<u8>,
    disk_space: Option<DiskSpace>,
    failed: bool,
}

impl Memory {
    /// An empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the space left, to simulate a full disk.
    pub fn set_disk_space(&self, space: DiskSpace) {
        self.lock().disk_space = Some(space);
    }

    /// Makes every call of this writer fail, as after a failed sync. The next open succeeds, like a new process.
    pub fn fail(&self) {
        self.lock().failed = true;
    }

    fn lock(&self) -> MutexGuard<'_, MemoryLog> {
        // A bug of the caller panics under this lock before anything is changed.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryLog {
    fn next(&self) -> u64 {
        self.last.as_ref().map_or(FIRST, |(sequence, _)| sequence + 1)
    }

    fn unless_failed(&self) -> Result<(), JournalError> {
        if self.failed { Err(JournalError::Failed { reason: "simulated failure".to_owned() }) } else { Ok(()) }
    }

    fn check_space(&self) -> Result<(), JournalError> {
        if self.disk_space == Some(DiskSpace::None) { Err(JournalError::Full) } else { Ok(()) }
    }
}

impl JournalLocation for Memory {
    type Journal = MemoryJournal;

    async fn open(&self, replay: &mut (dyn Replay + Send)) -> Result<OpenedJournal<MemoryJournal>, OpenError> {
        let mut log = self.lock();
        let corrupt = |sequence: u64, error: leasehold_core::grantor::CorruptionError| OpenError::Corrupt {
            file: format!("memory, sequence {sequence}").into(),
            offset: error.at as u64,
            reason: error.problem.to_owned(),
        };
        let mut covered = 0;
        if let Some((sequence, bytes)) = &log.snapshot {
            replay.snapshot(*sequence, bytes).map_err(|error| corrupt(*sequence, error))?;
            covered = *sequence;
        }
        for (sequence, batch) in log.batches.range(covered + 1..) {
            replay.batch(*sequence, batch).map_err(|error| corrupt(*sequence, error))?;
        }
        log.generation += 1;
        log.failed = false;
        let journal = MemoryJournal { generation: log.generation, next: log.next(), memory: self.clone() };
        Ok(OpenedJournal { journal, warnings: Vec::new() })
    }
}

/// The writer of a journal in memory.
#[derive(Debug)]
pub struct MemoryJournal {
    memory: Memory,
    generation: u64,
    next: u64,
}

impl Journal for MemoryJournal {
    type Snapshots = MemorySnapshotStore;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn next(&self) -> u64 {
        self.next
    }

    async fn append(&mut self, sequence: u64, batch: &[u8]) -> Result<AppendOutcome, JournalError> {
        let mut log = self.memory.lock();
        if log.generation != self.generation {
            return Ok(AppendOutcome::Fenced);
        }
        log.unless_failed()?;
        assert!(!batch.is_empty() && batch.len() <= BATCH_BYTES, "a batch is not empty and within its limit");
        if let Some((last, bytes)) = &log.last
            && *last == sequence
        {
            return Ok(if bytes == batch { AppendOutcome::Durable } else { AppendOutcome::Fenced });
        }
        assert_eq!(sequence, self.next, "batches are appended in order");
        log.check_space()?;
        log.batches.insert(sequence, batch.to_vec());
        log.last = Some((sequence, batch.to_vec()));
        self.next += 1;
        Ok(AppendOutcome::Durable)
    }

    async fn confirm(&mut self) -> Result<WriterStatus, JournalError> {
        let log = self.memory.lock();
        if log.generation != self.generation {
            return Ok(WriterStatus::Fenced);
        }
        log.unless_failed()?;
        Ok(WriterStatus::Current)
    }

    fn disk_space(&mut self) -> Result<DiskSpace, JournalError> {
        let log = self.memory.lock();
        log.unless_failed()?;
        Ok(log.disk_space.unwrap_or(DiskSpace::Plenty))
    }

    fn snapshots(&self) -> MemorySnapshotStore {
        MemorySnapshotStore { memory: self.memory.clone(), generation: self.generation }
    }
}

/// Snapshots of a journal in memory.
#[derive(Clone, Debug)]
pub struct MemorySnapshotStore {
    memory: Memory,
    generation: u64,
}

/// Limit on the audit log in memory.
const AUDIT_BYTES: u64 = 16 << 20;

impl MemorySnapshotStore {
    fn change(&self, change: impl FnOnce(&mut BTreeMap<u64, Vec<u8>>)) -> Result<AppendOutcome, JournalError> {
        let mut log = self.memory.lock();
        if log.generation != self.generation {
            return Ok(AppendOutcome::Fenced);
        }
        log.unless_failed()?;
        log.check_space()?;
        change(&mut log.audit_files);
        Ok(AppendOutcome::Durable)
    }
}

impl AuditFiles for MemorySnapshotStore {
    fn files(&self) -> Result<Vec<(u64, u64)>, ReadError> {
        Ok(self.memory.lock().audit_files.iter().map(|(number, bytes)| (*number, bytes.len() as u64)).collect())
    }

    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, ReadError> {
        let log = self.memory.lock();
        let missing = || ReadError::Unreadable { reason: format!("{}: no such file", self.label(number)) };
        let bytes = log.audit_files.get(&number).ok_or_else(missing)?;
        let bytes = bytes.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
        let got = bytes.len().min(into.len());
        into[..got].copy_from_slice(&bytes[..got]);
        Ok(got)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.change(|audit_files| drop(audit_files.insert(number, bytes.to_vec())))
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.change(|audit_files| {
            let file = audit_files.entry(number).or_default();
            let at = at as usize;
            file.resize(file.len().max(at + bytes.len()), 0);
            file[at..at + bytes.len()].copy_from_slice(bytes);
        })
    }

    fn sync(&self, _number: u64) -> Result<AppendOutcome, JournalError> {
        self.change(|_| {})
    }

    fn remove(&self, number: u64) -> Result<AppendOutcome, JournalError> {
        self.change(|audit_files| drop(audit_files.remove(&number)))
    }

    fn label(&self, number: u64) -> String {
        format!("memory, audit file {number}")
    }

    fn heads(&self) -> Result<Vec<u8>, ReadError> {
        Ok(self.memory.lock().audit_heads.clone())
    }

    fn put_heads(&self, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        let done = self.change(|_| {})?;
        if done == AppendOutcome::Durable {
            self.memory.lock().audit_heads = bytes.to_vec();
        }
        Ok(done)
    }

    fn max_bytes(&self) -> u64 {
        AUDIT_BYTES
    }
}

impl SnapshotStore for MemorySnapshotStore {
    async fn save(&self, sequence: u64, snapshot: &[u8]) -> Result<AppendOutcome, JournalError> {
        let mut log = self.memory.lock();
        if log.generation != self.generation {
            return Ok(AppendOutcome::Fenced);
        }
        log.unless_failed()?;
        log.check_space()?;
        assert!(sequence < log.next(), "a snapshot covers only durable batches");
        if log.snapshot.as_ref().is_none_or(|(newest, _)| *newest < sequence) {
            log.snapshot = Some((sequence, snapshot.to_vec()));
        }
        Ok(AppendOutcome::Durable)
    }

    async fn trim(&self, up_to: u64) -> Result<AppendOutcome, JournalError> {
        let mut log = self.memory.lock();
        if log.generation != self.generation {
            return Ok(AppendOutcome::Fenced);
        }
        log.unless_failed()?;
        let covered = log.snapshot.as_ref().map_or(0, |(sequence, _)| *sequence).min(up_to);
        log.batches = log.batches.split_off(&(covered + 1));
        Ok(AppendOutcome::Durable)
    }

    async fn newest(&self) -> Result<Option<(u64, Vec<u8>)>, ReadError> {
        Ok(self.memory.lock().snapshot.clone())
    }

    async fn tail(&self, from: u64, each: BatchVisitor<'_>) -> Result<u64, ReadError> {
        let (batches, first, next) = {
            let log = self.memory.lock();
            let first = log.batches.keys().next().copied().unwrap_or(log.next());
            (log.batches.range(from..).map(|(at, batch)| (*at, batch.clone())).collect::<Vec<_>>(), first, log.next())
        };
        if from < first {
            return Err(ReadError::Trimmed { first });
        }
        for (sequence, batch) in batches {
            if each(sequence, &batch) == ControlFlow::Break(()) {
                return Ok(sequence + 1);
            }
        }
        Ok(next.max(from))
    }
}
