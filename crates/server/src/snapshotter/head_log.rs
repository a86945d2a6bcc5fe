//! Signed heads of the audit log: when the next one is due, and which are stored (A13).

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::token::Cluster;

use super::SnapshotError;
use crate::audit::{AuditHead, HeadSigner, SignedHead, add_head, encode_heads, parse_heads};
use crate::clock;
use crate::journal::{AppendOutcome, AuditFiles};

/// Time after which a log that has grown gets a head.
const HEAD_INTERVAL: Duration = Duration::from_secs(60);
/// Entries after which the log gets a head.
const HEAD_ENTRIES: u64 = 10_000;
/// Bytes of the journal after which the log is written, because it may have that many new entries.
const HEAD_JOURNAL_BYTES: u64 = 1 << 20;
/// Writing the log of a large state takes long; it then rests this many times as long.
const REST_FACTOR: u32 = 20;

/// The heads of one log.
pub(super) struct HeadLog {
    cluster: Cluster,
    signer: Arc<dyn HeadSigner>,
    heads: Vec<SignedHead>,
    /// The newest stored head, until the log was compared with it.
    unchecked: Option<AuditHead>,
    signed_at: Option<Instant>,
    rest_until: Instant,
    /// Bytes of the journal when the log was written last.
    written_bytes: u64,
}

impl HeadLog {
    pub fn new(cluster: Cluster, signer: Arc<dyn HeadSigner>) -> Self {
        Self {
            cluster,
            signer,
            heads: Vec::new(),
            unchecked: None,
            signed_at: None,
            rest_until: Instant::now(),
            written_bytes: 0,
        }
    }

    /// Reads the stored heads; returns the newest one. Heads that prove nothing are reported and dropped.
    pub fn load(&mut self, files: &dyn AuditFiles, warn: fn(&str)) -> Result<Option<AuditHead>, SnapshotError> {
        let stored = match parse_heads(&files.heads()?[..]) {
            Ok(stored) => stored,
            Err(error) => {
                warn(&format!("the stored heads of the audit log are damaged and start again: {error}"));
                Vec::new()
            }
        };
        let keys = self.signer.keys();
        for head in stored {
            match head.verify_for(&keys, self.cluster) {
                Ok(end) => {
                    let later = self.unchecked.filter(|known| known.entries >= end.entries);
                    self.unchecked = Some(later.unwrap_or(end));
                    self.heads.push(head);
                }
                Err(error) => warn(&format!("a stored head of the audit log is not used: {error}")),
            }
        }
        self.heads.sort_by_key(|head| head.entry);
        Ok(self.unchecked)
    }

    /// The newest stored head, until the log was compared with it.
    pub fn unchecked(&self) -> Option<AuditHead> {
        self.unchecked
    }

    /// Whether the log should be written now, so that a head can be signed.
    pub fn is_due(&self, now: Instant, appended_bytes: u64) -> bool {
        let new_bytes = appended_bytes.saturating_sub(self.written_bytes);
        let waited = self.signed_at.is_none_or(|at| now.saturating_duration_since(at) >= HEAD_INTERVAL);
        now >= self.rest_until && new_bytes > 0 && (waited || new_bytes >= HEAD_JOURNAL_BYTES)
    }

    /// The log was compared with the stored heads and written, from this moment on, up to what the journal contained.
    pub fn caught_up(&mut self, started: Instant, appended_bytes: u64) {
        self.unchecked = None;
        self.rest_until = Instant::now() + started.elapsed() * REST_FACTOR;
        self.written_bytes = appended_bytes;
    }

    /// Signs and stores the end of the log, if it has grown enough or long enough ago.
    pub fn sign_if_due(&mut self, files: &dyn AuditFiles, end: AuditHead) -> Result<bool, SnapshotError> {
        let last = self.heads.last().map_or(0, |head| head.entry);
        let new_entries = end.entries.saturating_sub(last);
        let waited = self.signed_at.is_none_or(|at| at.elapsed() >= HEAD_INTERVAL);
        if new_entries == 0 || !(waited || new_entries >= HEAD_ENTRIES) {
            return Ok(false);
        }
        let Some(head) = SignedHead::sign(&*self.signer, self.cluster, end, clock::now().wall.0) else {
            return Ok(false);
        };
        let SignedHead { entry, hash, position, wall_ms, kid, signature, .. } = &head;
        tracing::info!(entry, hash, position, wall_ms, kid, signature, "audit head signed");
        add_head(&mut self.heads, head);
        if files.put_heads(&encode_heads(&self.heads))? == AppendOutcome::Fenced {
            return Err(SnapshotError::Fenced);
        }
        self.signed_at = Some(Instant::now());
        Ok(true)
    }
}
