//! A fenced file that is replaced as a whole. Its mark is an extended attribute of the file.
//!
//! A write locks the current file, checks the token, writes a temporary file with the new content and mark, syncs it, and
//! renames it over the current file. So content and mark change in one step, even if the machine crashes, and readers always
//! find a complete file with only the written content.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_fence::{Cluster, FenceId, Incarnation, Number, Token, TokenScope, resource_hash};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("leader.conf");
//! # let cluster = Cluster(*b"examples");
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: resource_hash("jobs/settle"),
//! #     scope: TokenScope::Slot(0), number: Number::FIRST }.to_string();
//! use leasehold_fence::file::FencedFile;
//!
//! let id = FenceId::new(cluster, "jobs/settle")?;
//! FencedFile::create(&path, &id, b"")?; // once
//! let file = FencedFile::open(&path, &id)?;
//! file.claim(&token)?; // before the first read
//! file.write(&token, b"listen 10.0.0.7\n")?;
//! assert_eq!(std::fs::read(&path)?, b"listen 10.0.0.7\n"); // readers need no fence
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};

use super::atomic_file::{self, AtomicFile, LockedFile};
use crate::admission::Admission;
use crate::mark_state::MarkState;
use crate::observer::EventSink;
use crate::seal_verifier::SealCheck;
use crate::{ApplyOnce, Counters, Error, FenceId, Observer, Operation, SealVerifier};

/// A fenced file. Any number of threads and processes can have it open.
#[derive(Debug)]
pub struct FencedFile {
    id: FenceId,
    seals: SealCheck,
    file: AtomicFile,
    events: EventSink,
}

impl FencedFile {
    /// Creates the file, armed as fresh: its first token sets the mark. Fails if the file exists; use [`arm`](Self::arm) for
    /// a file that does.
    pub fn create(path: &Path, id: &FenceId, content: impl AsRef<[u8]>) -> Result<(), Error> {
        atomic_file::create(path, id, content.as_ref())
    }

    /// Opens a fenced file. A missing file, or one without a mark, is an error.
    pub fn open(path: &Path, id: &FenceId) -> Result<Self, Error> {
        let file = AtomicFile::resolve(path)?;
        atomic_file::open(&file.path)?.state(id)?;
        Ok(Self { id: id.clone(), seals: SealCheck::default(), file, events: EventSink::default() })
    }

    /// How long a claim or a write waits for other writers (F8). Default: 5 s.
    pub const fn with_claim_timeout(mut self, timeout: Duration) -> Self {
        self.file.claim_timeout = timeout;
        self
    }

    /// Verifies the seal of every token with these keys; tokens that none of them signed are refused (A8).
    pub fn with_seal_verifier(mut self, verifier: &SealVerifier) -> Self {
        self.seals = SealCheck::new(verifier);
        self
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

    /// Raises the mark; it is durable when this returns. A new holder calls this before it reads. It also
    /// removes temporary files of writers that died.
    pub fn claim(&self, token: impl AsRef<str>) -> Result<Number, Error> {
        self.step(Operation::Claim, token.as_ref(), None, None::<fn(&[u8]) -> Vec<u8>>)
            .map(|(admission, _)| admission.number)
    }

    /// Replaces the content under this token. It is durable when this returns.
    pub fn write(&self, token: impl AsRef<str>, content: impl AsRef<[u8]>) -> Result<Number, Error> {
        self.update(token, |_| content.as_ref().to_vec())
    }

    /// Like [`write`](Self::write), with a sequence that the holder counts upward: a duplicate changes nothing.
    pub fn write_once(
        &self,
        token: impl AsRef<str>,
        sequence: u64,
        content: impl AsRef<[u8]>,
    ) -> Result<ApplyOnce, Error> {
        self.update_once(token, sequence, |_| content.as_ref().to_vec())
    }

    /// Computes the new content from the current one. No other write happens in between.
    pub fn update(&self, token: impl AsRef<str>, change: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<Number, Error> {
        self.step(Operation::Write, token.as_ref(), None, Some(change)).map(|(admission, _)| admission.number)
    }

    /// Like [`update`](Self::update), with a sequence that the holder counts upward: a duplicate changes nothing.
    pub fn update_once(
        &self,
        token: impl AsRef<str>,
        sequence: u64,
        change: impl FnOnce(&[u8]) -> Vec<u8>,
    ) -> Result<ApplyOnce, Error> {
        self.step(Operation::Write, token.as_ref(), Some(sequence), Some(change)).map(|(_, once)| once)
    }

    /// The content and its mark. A plain read of the file returns the same content.
    pub fn read(&self) -> Result<(Vec<u8>, Option<Number>), Error> {
        let current = atomic_file::open(&self.file.path)?;
        let mark = current.state(&self.id)?.mark()?;
        Ok((current.content()?, mark))
    }

    /// The mark; `None` if no token was admitted yet. A lost mark is a refusal.
    pub fn mark(&self) -> Result<Option<Number>, Error> {
        atomic_file::open(&self.file.path)?.state(&self.id)?.mark()
    }

    /// Declares the mark lost: the content was restored to an earlier state. All tokens are rejected until
    /// [`FencedFile::rearm`].
    pub fn declare_lost(&self) -> Result<(), Error> {
        self.operate(MarkState::declare_lost)
    }

    /// Re-arms a file that was copied, restored or declared lost. No earlier holder may have a number above `floor`. A floor
    /// below the mark is an error.
    pub fn rearm(&self, floor: Number) -> Result<(), Error> {
        self.operate(|state| state.rearm(floor))
    }

    /// Sets whether the fence rejects tokens of other incarnations until they are adopted (T5).
    pub fn strict(&self, enabled: bool) -> Result<(), Error> {
        self.operate(|state| state.set_strict(enabled))
    }

    /// Seals the fence, permanently: without a [`SealVerifier`] every process refuses all tokens from now on (A8).
    pub fn seal(&self) -> Result<(), Error> {
        self.operate(MarkState::seal)
    }

    /// Makes a strict fence follow this incarnation.
    pub fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.operate(|state| state.adopt(incarnation))
    }

    /// Arms an existing file without a mark from a floor: one that was created without the fence, or copied without its
    /// attributes. Its content is unchanged. For a file that does not exist, use [`create`](Self::create), which needs no
    /// floor.
    pub fn arm(path: &Path, id: &FenceId, floor: Number) -> Result<(), Error> {
        let file = AtomicFile::resolve(path)?;
        let locked = file.lock()?;
        if locked.is_marked()? {
            return Err(Error::Conflict("the file has a mark already; open it, and re-arm it if it was moved"));
        }
        let state = MarkState { highest: Some(floor), ..MarkState::FRESH };
        let content = locked.content()?;
        file.replace(locked, id, &state, &content)
    }

    fn operate(&self, change: impl FnOnce(&mut MarkState) -> Result<(), Error>) -> Result<(), Error> {
        let locked = self.file.lock()?;
        // The mark of a moved file is still the lower limit of the floor.
        let mut state = locked.stored_state(&self.id)?;
        change(&mut state)?;
        let content = locked.content()?;
        self.file.replace(locked, &self.id, &state, &content)
    }

    fn step(
        &self,
        operation: Operation,
        token: &str,
        sequence: Option<u64>,
        change: Option<impl FnOnce(&[u8]) -> Vec<u8>>,
    ) -> Result<(Admission, ApplyOnce), Error> {
        let result = self.seals.present(&self.id, token).map_err(Error::from).and_then(|presented| {
            let locked: LockedFile = self.file.lock()?;
            let mut state = locked.state(&self.id)?;
            let (admission, once) = presented.admit(&state.stored_mark(), sequence)?;
            let before = state;
            state.raise(presented, sequence);
            if let ApplyOnce::AlreadyApplied { .. } = once {
                locked.sync(&self.file)?;
                return Ok((admission, once));
            }
            if operation == Operation::Claim {
                self.file.remove_temp_files()?;
            }
            let old = locked.content()?;
            match change {
                Some(change) => self.file.replace(locked, &self.id, &state, &change(&old))?,
                // The mark is unchanged; its writer may have died before its sync.
                None if state == before => locked.sync(&self.file)?,
                None => self.file.replace(locked, &self.id, &state, &old)?,
            }
            Ok((admission, once))
        });
        let admission = result.as_ref().map(|(admission, _)| admission);
        self.events.record(&self.id, operation, admission);
        result
    }
}
