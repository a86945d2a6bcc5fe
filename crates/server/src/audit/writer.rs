//! Appends entries to the audit log exactly once, across crashes.

use std::sync::Arc;

use leasehold_core::grantor::AuditChange;
use leasehold_core::name::resource_hash;
use leasehold_core::record::BatchHeader;
use leasehold_core::token::Cluster;

use super::frame::{self, FileHeader};
use super::segment::{SegmentScan, read, scan};
use super::{AuditEntry, AuditHead, Hash, RecentEntries, Retention, link};
use crate::journal::{AppendOutcome, AuditFiles, JournalError, ReadError};

/// Bytes that are buffered before a write.
const BUFFER_BYTES: usize = 1 << 20;

/// Appends to the audit log.
pub struct AuditWriter {
    head: AuditHead,
    /// Hash of the batch at the head's position, if it is known.
    batch_hash: Option<Hash>,
    /// Position and step of the last entry, if its batch may have more.
    last: Option<(u64, u32)>,
    active: Option<ActiveFile>,
    /// Number of the next file.
    next: u64,
    buffer: Vec<u8>,
    text: Vec<u8>,
    retention: Retention,
    /// Receives the entries too.
    recent: Arc<RecentEntries>,
}

/// The file that is appended to.
struct ActiveFile {
    number: u64,
    salt: u32,
    /// Offset of the next frame.
    at: u64,
}

/// The end of a file.
struct FileEnd {
    scan: SegmentScan,
    /// Position and step of its last entry.
    last: Option<(u64, u32)>,
}

impl FileEnd {
    /// Reads a file; `None` if its header is invalid.
    fn read(
        files: &dyn AuditFiles,
        number: u64,
        length: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Self>, AuditWriteError> {
        read(files, number, length, bytes)?;
        let mut last = None;
        let scan = scan(bytes, true, |frame| {
            last = AuditEntry::parse(frame.text).map(|entry| (entry.position, entry.step));
        });
        Ok(scan.ok().map(|scan| Self { scan, last }))
    }

    fn is_empty(&self) -> bool {
        self.last.is_none() && self.scan.checkpoint.is_none()
    }

    /// The journal position up to which the log is complete.
    fn position(&self) -> u64 {
        match (self.scan.checkpoint, self.last) {
            (Some((position, _)), _) => position,
            (None, Some((position, _))) => position.saturating_sub(1),
            (None, None) => self.scan.header.position,
        }
    }

    /// The last entry, if its batch may have more.
    fn unfinished(&self) -> Option<(u64, u32)> {
        self.last.filter(|_| self.scan.checkpoint.is_none())
    }
}

/// The highest journal position that an entry or a checkpoint of the newest readable file names, with the name of the file. The batch
/// there was durable, because the log is derived from durable batches only.
pub fn proven_position(files: &dyn AuditFiles) -> Option<(u64, String)> {
    let mut bytes = Vec::new();
    for (number, length) in files.files().ok()?.into_iter().rev() {
        read(files, number, length, &mut bytes).ok()?;
        let mut position = 0;
        let scan = scan(&bytes, true, |frame| {
            position = position.max(AuditEntry::parse(frame.text).map_or(0, |entry| entry.position));
        });
        if let Ok(scan) = scan {
            let checked = scan.checkpoint.map_or(0, |(position, _)| position);
            return Some((position.max(checked).max(scan.header.position), files.label(number)));
        }
    }
    None
}

/// Position of a change in the journal.
#[derive(Clone, Copy, Debug)]
pub struct BatchStep<'a> {
    /// The cluster.
    pub cluster: Cluster,
    /// The journal position of the batch.
    pub position: u64,
    /// Index of the change in the batch.
    pub step: u32,
    /// Header of the batch, with its clocks.
    pub header: &'a BatchHeader,
}

/// The audit log could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditWriteError {
    /// A write failed.
    Journal(JournalError),
    /// A read failed.
    Read(ReadError),
    /// Another server owns the journal.
    Fenced,
}

impl From<JournalError> for AuditWriteError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl From<ReadError> for AuditWriteError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl AuditWriter {
    /// Finds the end of the log. A damaged last file is left as it is; the next file continues after its last valid entry.
    pub fn open(files: &dyn AuditFiles, retention: Retention) -> Result<Self, AuditWriteError> {
        let mut numbers = files.files()?;
        let mut writer = Self {
            head: AuditHead::default(),
            batch_hash: None,
            last: None,
            active: None,
            next: numbers.last().map_or(1, |(number, _)| number + 1),
            buffer: Vec::new(),
            text: Vec::new(),
            retention,
            recent: Arc::default(),
        };
        let mut bytes = Vec::new();
        while let Some((number, length)) = numbers.pop() {
            let Some(end) = FileEnd::read(files, number, length, &mut bytes)? else {
                // The process ended while it created the file, or the header is damaged; then a gap replaces its entries.
                if length <= frame::HEADER_BYTES as u64 {
                    writer.next = number;
                }
                continue;
            };
            writer.head = AuditHead { entries: end.scan.next - 1, hash: end.scan.hash, position: end.position() };
            writer.batch_hash = end.scan.checkpoint.map(|(_, batch)| batch);
            writer.last = end.unfinished();
            if end.scan.damage.is_none() {
                writer.active = Some(ActiveFile { number, salt: end.scan.salt, at: end.scan.at as u64 });
            }
            if end.is_empty()
                && let Some((number, length)) = numbers.pop()
                && let Some(previous) = FileEnd::read(files, number, length, &mut bytes)?
                && previous.scan.next == end.scan.next
            {
                // A batch may continue from the previous file.
                writer.head.position = previous.position();
                writer.batch_hash = previous.scan.checkpoint.map(|(_, batch)| batch);
                writer.last = previous.unfinished();
            }
            return Ok(writer);
        }
        Ok(writer)
    }

    /// Keeps the latest entries there, from the next one on.
    #[must_use]
    pub fn with_recent(self, recent: Arc<RecentEntries>) -> Self {
        recent.restart(self.head.entries);
        Self { recent, ..self }
    }

    /// The end of the log.
    pub fn head(&self) -> AuditHead {
        self.head
    }

    /// Hash of the batch at the head's position, if it is known.
    pub fn batch_hash(&self) -> Option<Hash> {
        self.batch_hash
    }

    /// Whether a change is not written yet.
    pub fn is_missing(&self, position: u64, step: u32) -> bool {
        position > self.head.position && self.last.is_none_or(|last| (position, step) > last)
    }

    /// Writes one change, unless it is written already.
    pub fn write(
        &mut self,
        files: &dyn AuditFiles,
        step: BatchStep<'_>,
        change: &AuditChange<'_>,
    ) -> Result<(), AuditWriteError> {
        if !self.is_missing(step.position, step.step) {
            return Ok(());
        }
        self.put(files, step, change)?;
        self.last = Some((step.position, step.step));
        Ok(())
    }

    /// Continues after an end that is known from elsewhere, because the entries up to it are lost. Their numbers are not used again.
    pub fn resume_after(&mut self, known: AuditHead) {
        (self.head, self.batch_hash, self.last, self.active) = (known, None, None, None);
        self.recent.restart(known.entries);
    }

    /// Writes a gap entry and continues at `step`: the journal lacks batches that the log needs, or it differs from the log.
    pub fn skip_to(&mut self, files: &dyn AuditFiles, step: BatchStep<'_>, cause: &str) -> Result<(), AuditWriteError> {
        self.last = None;
        self.put(
            files,
            step,
            &AuditChange { kind: "gap", comment: cause, at: Some(self.head.position), ..AuditChange::default() },
        )?;
        (self.head.position, self.batch_hash) = (step.position, None);
        Ok(())
    }

    fn put(
        &mut self,
        files: &dyn AuditFiles,
        step: BatchStep<'_>,
        change: &AuditChange<'_>,
    ) -> Result<(), AuditWriteError> {
        self.rotate_if_full(files, &step)?;
        let salt = self.active.as_ref().expect("there is an active file").salt;
        self.text.clear();
        let entry = self.head.entries + 1;
        AuditEntry::of(entry, step.position, step.step, step.header, change).encode(&mut self.text);
        let hash = link(&self.head.hash, &self.text);
        frame::put(salt, resource_hash(change.resource), &self.text, &hash, &mut self.buffer);
        (self.head.entries, self.head.hash) = (entry, hash);
        self.recent.push(change.resource, &self.text, hash);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush(files)?;
        }
        Ok(())
    }

    /// Writes a checkpoint at a position, makes the log durable, and applies the retention.
    pub fn finish(&mut self, files: &dyn AuditFiles, step: BatchStep<'_>, batch: Hash) -> Result<(), AuditWriteError> {
        if step.position > self.head.position {
            self.rotate_if_full(files, &step)?;
            let salt = self.active.as_ref().expect("there is an active file").salt;
            frame::put_checkpoint(salt, step.position, &batch, &mut self.buffer);
            (self.head.position, self.batch_hash, self.last) = (step.position, Some(batch), None);
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.flush(files)?;
        check_durable(files.sync(self.active.as_ref().expect("the active file was written").number)?)?;
        self.apply_retention(files, step.header.wall.0)
    }

    /// Starts the next file if the active one is full; the active one is made durable first.
    fn rotate_if_full(&mut self, files: &dyn AuditFiles, step: &BatchStep<'_>) -> Result<(), AuditWriteError> {
        if let Some(active) = &self.active {
            if active.at + (self.buffer.len() as u64) < self.retention.file_bytes {
                return Ok(());
            }
            let number = active.number;
            self.flush(files)?;
            check_durable(files.sync(number)?)?;
        }
        let header = first_header(step.cluster, self.head, step.header.wall.0);
        check_durable(files.create(self.next, &header)?)?;
        let salt = u32::from_le_bytes(*header.last_chunk().expect("a header ends with a checksum"));
        self.active = Some(ActiveFile { number: self.next, salt, at: frame::HEADER_BYTES as u64 });
        self.next += 1;
        Ok(())
    }

    fn flush(&mut self, files: &dyn AuditFiles) -> Result<(), AuditWriteError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        if !self.buffer.is_empty() {
            check_durable(files.write(active.number, active.at, &self.buffer)?)?;
            active.at += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Removes the oldest files that exceed the retention, one by one, never the newest.
    fn apply_retention(&self, files: &dyn AuditFiles, wall_ms: u64) -> Result<(), AuditWriteError> {
        let numbers = files.files()?;
        let max = self.retention.bytes.min(files.max_bytes());
        let mut bytes: u64 = numbers.iter().map(|(_, length)| length).sum();
        for pair in numbers.windows(2) {
            let [(number, length), (next, _)] = *pair else { unreachable!("windows of two") };
            // The next file was created after the last entry of this one.
            let is_old = self.retention.age_ms.is_some_and(|age| {
                let mut header = [0; frame::HEADER_BYTES];
                let next = files.read(next, 0, &mut header).ok().and_then(|_| FileHeader::decode(&header).ok());
                next.is_some_and(|(header, _)| header.wall_ms.saturating_add(age) < wall_ms)
            });
            if bytes <= max && !is_old {
                break;
            }
            check_durable(files.remove(number)?)?;
            bytes -= length;
        }
        Ok(())
    }
}

fn check_durable(outcome: AppendOutcome) -> Result<(), AuditWriteError> {
    match outcome {
        AppendOutcome::Durable => Ok(()),
        AppendOutcome::Fenced => Err(AuditWriteError::Fenced),
    }
}

/// Header of a file that continues after `head`, for example in a cluster that is restored from a backup.
pub fn first_header(cluster: Cluster, head: AuditHead, wall_ms: u64) -> [u8; frame::HEADER_BYTES] {
    let AuditHead { entries, hash, position } = head;
    FileHeader { cluster, first: entries + 1, position, previous: hash, wall_ms }.encode()
}
