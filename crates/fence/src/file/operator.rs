//! Operator actions on a fenced log: read the mark, re-arm, declare lost, adopt.

use std::path::Path;

use leasehold_core::token::{Incarnation, Number};

use super::identity::FileIdentity;
use super::log_file::{LockMode, LogFile};
use super::log_format::{EntryHead, EntryKind};
use super::log_state::LogState;
use super::{CLAIM_TIMEOUT, FencedLog, read_to_end, stored_mark, write_entry};
use crate::admission::StoredMark;
use crate::{Error, FenceRefusal, Mark, MarkInfo, MarkLoss};

impl FencedLog {
    /// The mark; `None` if no token was admitted yet. A lost mark is a refusal.
    pub fn mark(&mut self) -> Result<Option<Number>, Error> {
        let locked = self.file.lock(LockMode::Shared, self.claim_timeout)?;
        self.state = read_to_end(&self.file, self.state)?;
        let standing = stored_mark(&self.file, &self.state)?;
        drop(locked);
        match standing {
            StoredMark { mark: Mark::Armed(mark), .. } => Ok(Some(mark)),
            StoredMark { mark: Mark::Fresh, .. } => Ok(None),
            StoredMark { mark: Mark::Lost, loss, .. } => Err(FenceRefusal::MarkLost(loss).into()),
        }
    }

    /// The mark of the log at this path, of any cluster and resource.
    pub fn list_marks(path: &Path) -> Result<Vec<MarkInfo>, Error> {
        let (file, header) = LogFile::open_any(path)?;
        let locked = file.lock(LockMode::Shared, CLAIM_TIMEOUT)?;
        let state = read_to_end(&file, LogState::EMPTY)?;
        let StoredMark { mark, incarnation, strict, sealed, .. } = stored_mark(&file, &state)?;
        drop(locked);
        let resource_hash = format!("{:016x}", u64::from_be_bytes(header.resource));
        let (cluster, slot) = (header.cluster, header.slot);
        Ok(vec![MarkInfo { cluster, resource_hash, name: None, slot, mark, incarnation, strict, sealed }])
    }

    /// Re-arms a log that was copied, restored or declared lost. No earlier holder may have a number above `floor`. A floor
    /// below the highest number of the log is an error.
    pub fn rearm(&mut self, floor: Number) -> Result<(), Error> {
        self.append_head(|state, identity| {
            if state.highest > Some(floor) {
                return Err(Error::Conflict("the floor is below the mark; use a higher one"));
            }
            Ok(state.armed_head(identity, Some(floor)))
        })
    }

    /// Declares the mark lost: all tokens are rejected until [`FencedLog::rearm`].
    pub fn declare_lost(&mut self) -> Result<(), Error> {
        let lost = |state: &LogState| EntryHead {
            kind: EntryKind::Claim,
            index: state.index,
            number: 0,
            incarnation: 0,
            flags: 0,
        };
        self.append_head(|state, _| Ok(lost(state)))
    }

    /// Sets whether the fence rejects tokens of other incarnations until they are adopted (T5).
    pub fn strict(&mut self, enabled: bool) -> Result<(), Error> {
        self.rewrite_arming(|state| state.strict = enabled)
    }

    /// Seals the log, permanently: without a [`SealVerifier`](crate::SealVerifier) every process refuses all tokens from now
    /// on (A8).
    pub fn seal(&mut self) -> Result<(), Error> {
        self.rewrite_arming(|state| state.sealed = true)
    }

    /// Whether the log was sealed when it was last read. A sealed log stays sealed.
    pub(crate) const fn was_sealed(&self) -> bool {
        self.state.sealed
    }

    /// Makes a strict fence follow this incarnation, after an intended restore of the cluster. The mark is unchanged.
    pub fn adopt(&mut self, incarnation: Incarnation) -> Result<(), Error> {
        self.rewrite_arming(|state| state.incarnation = Some(incarnation))
    }

    fn rewrite_arming(&mut self, change: impl FnOnce(&mut LogState)) -> Result<(), Error> {
        self.append_head(|state, identity| {
            // Arming here would make a copy the log.
            if !state.identity.is_some_and(|armed| armed.is(identity)) {
                return Err(FenceRefusal::MarkLost(MarkLoss::Moved).into());
            }
            let floor = match state.mark {
                Mark::Armed(mark) => Some(mark),
                Mark::Fresh => None,
                Mark::Lost => return Err(Error::Conflict("the mark is lost; re-arm the log first")),
            };
            let mut changed = *state;
            change(&mut changed);
            Ok(changed.armed_head(identity, floor))
        })
    }

    fn append_head(
        &mut self,
        head: impl FnOnce(&LogState, FileIdentity) -> Result<EntryHead, Error>,
    ) -> Result<(), Error> {
        self.ensure_usable()?;
        let locked = self.file.lock(LockMode::Exclusive, self.claim_timeout)?;
        let identity = self.file.identity_to_store()?;
        self.state = read_to_end(&self.file, self.state)?;
        let head = head(&self.state, identity)?;
        let appended = write_entry(&self.file, &mut self.state, head, &[]);
        drop(locked);
        self.note_failure(appended)
    }
}
