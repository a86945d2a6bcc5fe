//! Fenced files: an append-only log ([`FencedLog`]), and a file that is replaced as a whole ([`FencedFile`]).
//!
//! The marks of a log are entries of the log itself. Every append locks the file, reads what other processes appended, checks
//! the token, writes one entry and syncs it, and then releases the lock. So a claim is one step relative to the appends of all
//! processes of this machine.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_fence::{Cluster, FenceId, Incarnation, Number, Token, TokenScope};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("events.log");
//! # let cluster = Cluster(*b"examples");
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: leasehold_fence::resource_hash("jobs/settle"),
//! #     scope: TokenScope::Slot(0), number: Number::FIRST }.to_string();
//! use leasehold_fence::file::{FencedLog, LogReader};
//!
//! let id = FenceId::new(cluster, "jobs/settle")?;
//! FencedLog::create(&path, &id)?; // once
//! let mut log = FencedLog::open(&path, &id)?;
//! log.claim(&token)?; // before the first read
//! log.append(&token, b"invoice 7 paid")?;
//!
//! let mut reader = LogReader::open(&path, &id)?;
//! assert_eq!(reader.next()?.unwrap().bytes, b"invoice 7 paid");
//! # Ok(())
//! # }
//! ```

mod atomic_file;
mod fenced_file;
mod identity;
mod list_marks;
mod log_file;
mod log_format;
mod log_reader;
mod log_state;
mod operator;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::limits::LOG_ENTRY_BYTES;
use leasehold_core::token::Number;

use crate::admission::{Admission, PresentedToken, StoredMark};
use crate::observer::EventSink;
use crate::seal_verifier::SealCheck;
use crate::{ApplyOnce, Counters, Error, FenceId, Mark, MarkLoss, Observer, Operation, SealVerifier};
pub use fenced_file::FencedFile;
pub(crate) use identity::{OWNER_ONLY, restrict_access};
pub use list_marks::list_marks;
use log_file::{EntryAt, LockMode, LogFile};
use log_format::{EntryHead, EntryKind, LogHeader};
pub use log_reader::{Checkpoint, LogReader, LogRecord};
use log_state::LogState;

/// Default of [`FencedLog::with_claim_timeout`].
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// A fenced log, open for appending. Any number of processes can have it open.
#[derive(Debug)]
pub struct FencedLog {
    id: FenceId,
    seals: SealCheck,
    file: LogFile,
    state: LogState,
    claim_timeout: Duration,
    events: EventSink,
    /// A sync failed: what the kernel returns may differ from what is on disk.
    failed: bool,
}

impl FencedLog {
    /// Creates a log, armed as fresh: its first token sets the mark. Fails if the file exists. There is no separate `arm`:
    /// marks are entries, so every log has one.
    pub fn create(path: &Path, id: &FenceId) -> Result<(), Error> {
        let salt = log_file::rand_u64()?;
        log_file::create(path, |identity| {
            let mut bytes = LogHeader::new(id.key(), salt).encode().to_vec();
            let head = EntryHead { kind: EntryKind::Armed { identity }, index: 0, number: 0, incarnation: 0, flags: 0 };
            bytes.extend(log_format::encode(salt, head, &[]));
            bytes
        })
    }

    /// Opens a log. A missing or damaged log is an error: it is never re-created silently.
    pub fn open(path: &Path, id: &FenceId) -> Result<Self, Error> {
        let file = LogFile::open(path, id)?;
        restrict_access(&file.file)?;
        let mut log = Self {
            id: id.clone(),
            seals: SealCheck::default(),
            file,
            state: LogState::EMPTY,
            claim_timeout: CLAIM_TIMEOUT,
            events: EventSink::default(),
            failed: false,
        };
        let locked = log.file.lock(LockMode::Shared, log.claim_timeout)?;
        log.state = read_to_end(&log.file, log.state)?;
        drop(locked);
        Ok(log)
    }

    /// How long a claim or an append waits for other writers (F8). Default: 5 s.
    pub const fn with_claim_timeout(mut self, timeout: Duration) -> Self {
        self.claim_timeout = timeout;
        self
    }

    /// Verifies the seal of every token with these keys; tokens that none of them signed are refused (A8).
    pub fn with_seal_verifier(mut self, verifier: &SealVerifier) -> Self {
        self.set_seal_verifier(verifier);
        self
    }

    pub(crate) fn set_seal_verifier(&mut self, verifier: &SealVerifier) {
        self.seals = SealCheck::new(verifier);
    }

    /// Sets the observer that receives every decision.
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.events.observer = Some(observer);
        self
    }

    /// Counters of the decisions of this handle.
    pub fn counters(&self) -> &Counters {
        &self.events.counters
    }

    /// Raises the mark; it is durable when this returns. A new holder calls this before it reads.
    pub fn claim(&mut self, token: impl AsRef<str>) -> Result<Number, Error> {
        let result = self.append_entry(token.as_ref(), EntryKind::Claim, None, &[]);
        self.report(Operation::Claim, result).map(|(admission, _)| admission.number)
    }

    /// Appends one entry under this token. It is durable when this returns.
    pub fn append(&mut self, token: impl AsRef<str>, bytes: impl AsRef<[u8]>) -> Result<Number, Error> {
        self.append_checked(token.as_ref(), None, bytes.as_ref()).map(|(admission, _)| admission.number)
    }

    /// Like [`append`](Self::append), with a sequence that the holder counts upward: a duplicate is not appended again.
    pub fn append_once(
        &mut self,
        token: impl AsRef<str>,
        sequence: u64,
        bytes: impl AsRef<[u8]>,
    ) -> Result<ApplyOnce, Error> {
        if sequence == u64::MAX {
            return Err(Error::InvalidArgument("the sequence is 2^64 - 1; number the entries from 0"));
        }
        self.append_checked(token.as_ref(), Some(sequence), bytes.as_ref()).map(|(_, once)| once)
    }

    fn append_checked(
        &mut self,
        token: &str,
        sequence: Option<u64>,
        bytes: &[u8],
    ) -> Result<(Admission, ApplyOnce), Error> {
        let result = if bytes.len() > LOG_ENTRY_BYTES {
            Err(Error::InvalidArgument("the entry is larger than 16 MiB; append it in parts"))
        } else {
            self.append_entry(token, EntryKind::Entry, sequence, bytes)
        };
        self.report(Operation::Write, result)
    }

    fn report(
        &self,
        operation: Operation,
        result: Result<(Admission, ApplyOnce), Error>,
    ) -> Result<(Admission, ApplyOnce), Error> {
        let admission = result.as_ref().map(|(admission, _)| admission);
        self.events.record(&self.id, operation, admission);
        result
    }

    fn append_entry(
        &mut self,
        token: &str,
        kind: EntryKind,
        sequence: Option<u64>,
        bytes: &[u8],
    ) -> Result<(Admission, ApplyOnce), Error> {
        let presented = self.seals.present(&self.id, token)?;
        self.ensure_usable()?;
        let locked = self.file.lock(LockMode::Exclusive, self.claim_timeout)?;
        let appended = check(&self.file, &mut self.state, presented, sequence).and_then(|(admission, once)| {
            let unchanged = self.state.mark == Mark::Armed(admission.number)
                && self.state.incarnation == Some(presented.incarnation);
            if once != ApplyOnce::Applied || (kind == EntryKind::Claim && unchanged) {
                // The writer may have died before its sync.
                self.file.file.sync_data().map_err(AppendError::Sync)?;
                return Ok((admission, once));
            }
            let (number, incarnation) = (admission.number.get(), presented.incarnation.0);
            let flags = sequence.map_or(0, |sequence| sequence + 1);
            let head = EntryHead { kind, index: self.state.index, number, incarnation, flags };
            write_entry(&self.file, &mut self.state, head, bytes)?;
            Ok((admission, once))
        });
        drop(locked);
        self.note_failure(appended)
    }

    fn ensure_usable(&self) -> Result<(), Error> {
        if self.failed {
            return Err(io::Error::other("an earlier sync of this log failed; reopen it").into());
        }
        Ok(())
    }

    fn note_failure<T>(&mut self, appended: Result<T, AppendError>) -> Result<T, Error> {
        appended.map_err(|failed| match failed {
            AppendError::Sync(error) => {
                self.failed = true;
                error.into()
            }
            AppendError::Other(error) => error,
        })
    }
}

/// Why nothing was appended, and whether the handle is still usable.
enum AppendError {
    /// The sync failed, so the content on disk is unknown.
    Sync(io::Error),
    Other(Error),
}

impl From<Error> for AppendError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Reads what other processes appended, and checks the token. Requires the lock.
fn check(
    file: &LogFile,
    state: &mut LogState,
    presented: PresentedToken,
    sequence: Option<u64>,
) -> Result<(Admission, ApplyOnce), AppendError> {
    *state = read_to_end(file, *state)?;
    Ok(presented.admit(&stored_mark(file, state)?, sequence)?)
}

/// Replays the log up to its end.
fn read_to_end(file: &LogFile, mut state: LogState) -> Result<LogState, Error> {
    while let EntryAt::Entry(head, _, next) = file.read_entry(state.end, state.index)? {
        state.apply(head, next);
    }
    Ok(state)
}

/// The effective mark: it is lost if this is not the file that was armed.
fn stored_mark(file: &LogFile, state: &LogState) -> Result<StoredMark, Error> {
    let (mark, loss) = match state.identity {
        Some(armed) if armed.is(file.identity()?) => {
            (state.mark, if state.declared_lost { MarkLoss::Declared } else { MarkLoss::Unreadable })
        }
        Some(_) => (Mark::Lost, MarkLoss::Moved),
        None => (Mark::Lost, MarkLoss::Unreadable),
    };
    Ok(StoredMark {
        mark,
        loss,
        incarnation: state.incarnation,
        strict: state.strict,
        sealed: state.sealed,
        last_sequence: state.last_sequence,
    })
}

/// Cuts off a torn append, writes one entry at the end, and syncs it.
fn write_entry(file: &LogFile, state: &mut LogState, head: EntryHead, bytes: &[u8]) -> Result<(), AppendError> {
    let entry = log_format::encode(file.salt, head, bytes);
    file.file.set_len(state.end).map_err(Error::from)?;
    if let Err(error) = file.file.write_all_at(&entry, state.end) {
        // If this fails too, a partial entry may remain; the next append cuts it off.
        file.file.set_len(state.end).ok();
        return Err(Error::from(error).into());
    }
    if let Err(error) = file.file.sync_data() {
        // The kernel may now consider lost pages clean. The next writer must write them again.
        file.file.set_len(state.end).ok();
        return Err(AppendError::Sync(error));
    }
    state.apply(head, state.end + entry.len() as u64);
    Ok(())
}
