//! The audit log and backups, shared by gRPC and HTTP.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use leasehold_core::access::{Action, ReadScope};
use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_seal::SealKeys;
use leasehold_wire::{Code, v1};
use tokio::sync::mpsc;

use super::Api;
use super::operator_log;
use super::problems::shutting_down;
use super::queries::invalid_name;
use super::standby::not_leader;
use crate::access::{AccessRules, DenialEntry, StreamAccess};
use crate::audit::{
    self, AuditExport, AuditHead, AuditMatches, AuditProof, AuditQuery, HeadCheck, SignedHead, VerifyError,
    parse_heads, verify_with,
};
use crate::backup::{BackupChunks, BackupHeader};
use crate::clock;
use crate::identity::Identity;
use crate::journal::AuditFiles;
use crate::journal::file::HEADS;
use crate::snapshotter::SnapshotError;

impl Api {
    /// A backup of the state as of now: its header and its bytes in chunks.
    pub async fn backup(&self) -> Result<(BackupHeader, impl Stream<Item = Chunk> + Send + use<>), v1::Problem> {
        let identity = self.authorize_current(Action::Backup)?;
        let permit = self.snapshots.try_transfer().ok_or_else(busy)?;
        // Confirms authority, so that the backup contains everything that was replied before the request (E1).
        self.confirm().await?;
        let (snapshot, permit) = self.snapshots.snapshot(permit).await.map_err(|error| snapshot_problem(&error))?;
        let chunks = BackupChunks::of(snapshot, clock::now().wall);
        let header = *chunks.header();
        operator_log::log_copy(Action::Backup, &identity);
        let access = StreamAccess::of_action(&self.access, identity, Action::Backup);
        let metrics = self.metrics.snapshots();
        let chunks = with_read_timeout(chunks.stream(permit).map(Ok).boxed(), access);
        Ok((header, when_complete(chunks, header.total(), move || metrics.backup_sent(header.wall))))
    }
}

/// Most entries of one page.
const MAX_PAGE: usize = 1_000;

/// Bytes of an export that are sent at a time.
const CHUNK_BYTES: usize = 256 << 10;

impl Api {
    /// One page of a search of the audit log, and the end of the log. The current identity sees what the rules in effect let it see.
    pub async fn audit(&self, query: AuditQuery) -> Result<(AuditMatches, AuditHead), v1::Problem> {
        if let Some(resource) = &query.resource {
            Name::parse(resource).map_err(invalid_name)?;
        }
        let identity = self.authorize_current(Action::Audit)?;
        let head = self.audit_head().await?;
        Ok((self.search_audit(&identity, self.access.rules(), head, query).await?, head))
    }

    /// A page of a search up to a known end of the log, as far as an identity may see the entries under these rules.
    pub(super) async fn search_audit(
        &self,
        identity: &Arc<Identity>,
        rules: Arc<AccessRules>,
        head: AuditHead,
        mut query: AuditQuery,
    ) -> Result<AuditMatches, v1::Problem> {
        query.limit = if query.limit == 0 { MAX_PAGE } else { query.limit.min(MAX_PAGE) };
        let (mut found, in_files) = {
            // An entry without a resource concerns the whole cluster, like the empty name.
            let scope = ReadScope::of(&rules.caller(identity), Action::Audit);
            let is_visible = |resource: &str| scope.as_ref().is_ok_and(|scope| scope.covers(resource));
            self.snapshots.recent_entries().search(head, &query, is_visible)
        };
        let Some(before) = in_files else { return Ok(found) };
        (query.before, query.limit) = (before, query.limit - found.entries.len());
        let reader = identity.clone();
        let read = move |files: &dyn AuditFiles| {
            let scope = ReadScope::of(&rules.caller(&reader), Action::Audit);
            let is_visible = |resource: &str| scope.as_ref().is_ok_and(|scope| scope.covers(resource));
            let is_unlimited = scope.as_ref().is_ok_and(ReadScope::covers_all);
            audit::query(files, head, &query, (!is_unlimited).then_some(&is_visible)).map_err(SnapshotError::from)
        };
        let older = self.read_audit(identity, read).await?;
        found.entries.extend(older.entries);
        Ok(AuditMatches { next: older.next, ..found })
    }

    /// Verifies the whole audit log.
    pub async fn verify_audit(&self) -> Result<Result<AuditProof, VerifyError>, v1::Problem> {
        let identity = self.authorize_current(Action::VerifyAudit)?;
        let head = self.audit_head().await?;
        let signer = self.snapshots.head_signer().cloned();
        self.read_audit(&identity, move |files| {
            let known = match signer {
                // Without a key nothing can be verified, and nothing was signed.
                Some((cluster, signer)) if !signer.keys().is_empty() => {
                    known_heads(&files.heads()?, &signer.keys(), cluster)
                }
                _ => Ok(HeadCheck::default()),
            };
            match known.and_then(|known| verify_with(files, head, known)) {
                Err(VerifyError::Read(error)) => Err(error.into()),
                verified => Ok(verified),
            }
        })
        .await
    }

    /// The stored signed heads of the audit log, oldest first.
    pub async fn audit_heads(&self) -> Result<Vec<SignedHead>, v1::Problem> {
        let identity = self.authorize_current(Action::VerifyAudit)?;
        // The newest state of the log, so that a head that is due is signed.
        self.confirm().await?;
        self.write_audit().await?;
        let stored = self.read_audit(&identity, |files| Ok(files.heads()?)).await?;
        parse_heads(&stored[..]).map_err(|error| v1::Problem {
            reason: error.to_string(),
            ..v1::Problem::of(Code::Corrupt, error.to_string())
        })
    }

    /// The last requests that the access rules refused, newest first, and how many there were since the start.
    pub fn last_denials(&self) -> Result<(Vec<DenialEntry>, u64), Box<v1::Problem>> {
        self.authorize_current(Action::ExportAudit)?;
        Ok(self.denials.last())
    }

    /// The audit log as lines of JSON, in chunks.
    pub async fn export_audit(&self) -> Result<impl Stream<Item = Chunk> + Send + use<>, v1::Problem> {
        let identity = self.authorize_current(Action::ExportAudit)?;
        let permit = self.snapshots.try_transfer().ok_or_else(busy)?;
        let export = AuditExport::new(self.audit_head().await?);
        operator_log::log_copy(Action::ExportAudit, &identity);
        let (api, reader) = (self.clone(), identity.clone());
        let state = Some((export, permit));
        let chunks = futures::stream::unfold(state, move |state| {
            let (api, reader) = (api.clone(), reader.clone());
            async move {
                let (mut export, permit) = state?;
                let read = api.read_audit(&reader, move |files| {
                    let lines = export.lines(files)?;
                    Ok((lines, export))
                });
                match read.await {
                    Ok((Some(lines), export)) => {
                        let chunks: Vec<_> = lines.chunks(CHUNK_BYTES).map(|chunk| Ok(chunk.to_vec())).collect();
                        Some((futures::stream::iter(chunks), Some((export, permit))))
                    }
                    Ok((None, _)) => None,
                    Err(problem) => Some((futures::stream::iter(vec![Err(Box::new(problem))]), None)),
                }
            }
        });
        let access = StreamAccess::of_action(&self.access, identity, Action::ExportAudit);
        Ok(with_read_timeout(chunks.flatten().boxed(), access))
    }

    /// The end of the audit log with everything that was replied before the request (E1). The log is written only if something was
    /// recorded since the last time: writing it needs a copy of the state.
    pub(super) async fn audit_head(&self) -> Result<AuditHead, v1::Problem> {
        if self.standby.is_some() {
            // The leader derives the audit log; a standby has none.
            let leader = self.server_status.leader().await;
            return Err(not_leader(leader.as_deref()));
        }
        let position = self.confirm().await?;
        match self.snapshots.audit_head().filter(|head| head.position >= position) {
            Some(head) => Ok(head),
            None => self.write_audit().await,
        }
    }

    async fn write_audit(&self) -> Result<AuditHead, v1::Problem> {
        self.snapshots.write_audit().await.map_err(|error| snapshot_problem(&error))
    }

    /// Reads files of the audit log on a thread that may block, when it is the turn of the identity.
    async fn read_audit<T: Send + 'static>(
        &self,
        identity: &Identity,
        read: impl FnOnce(&dyn AuditFiles) -> Result<T, SnapshotError> + Send + 'static,
    ) -> Result<T, v1::Problem> {
        let counted = self.access.is_restricted().then_some(&*identity.principal);
        let permit = self.snapshots.audit_readers().acquire(counted).await.map_err(|problem| {
            self.denials.limit_reached(identity, &problem.limit);
            *problem
        })?;
        let snapshots = self.snapshots.clone();
        let read = move || {
            // Held until the read is done, even if the caller has disconnected.
            let _permit = permit;
            read(&*snapshots.audit_files()?)
        };
        let done = tokio::task::spawn_blocking(read).await;
        done.unwrap_or(Err(SnapshotError::Stopping)).map_err(|error| snapshot_problem(&error))
    }
}

/// The stored heads, which the log must agree with.
fn known_heads(stored: &[u8], keys: &SealKeys, cluster: Cluster) -> Result<HeadCheck, VerifyError> {
    let damaged = |reason: String| VerifyError::Damaged { file: HEADS.to_owned(), offset: 0, reason };
    let heads = parse_heads(stored).map_err(|error| damaged(error.to_string()))?;
    let known: Result<Vec<_>, _> = heads.iter().map(|head| head.verify_for(keys, cluster)).collect();
    let known = known.map_err(|error| damaged(error.to_string()))?;
    HeadCheck::new(known.iter().map(Into::into), None).map_err(|mismatch| damaged(mismatch.to_string()))
}

/// A chunk of a large response.
type Chunk = Result<Vec<u8>, Box<v1::Problem>>;

/// Ends a stream whose reader does not read a chunk in time, so that the data behind it is freed, and one whose identity is no longer
/// allowed to read it (A10).
fn with_read_timeout(
    mut chunks: BoxStream<'static, Chunk>,
    access: StreamAccess,
) -> impl Stream<Item = Chunk> + Send + use<> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let chunk = match access.end_reason() {
                Some(reason) => Some(Err(Box::new(reason))),
                None => chunks.next().await,
            };
            let last = !matches!(chunk, Some(Ok(_)));
            let sent = sender.send_timeout(chunk, READ_TIMEOUT).await;
            if last || sent.is_err() {
                return;
            }
        }
    });
    // The end is sent explicitly, so that a truncated stream is not mistaken for a complete one.
    futures::stream::unfold(Some(receiver), |receiver| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Some(Ok(chunk))) => Some((Ok(chunk), Some(receiver))),
            Some(Some(Err(problem))) => Some((Err(problem), None)),
            Some(None) => None,
            None => Some((Err(Box::new(read_timed_out())), None)),
        }
    })
}

/// Calls `done` with the last of `bytes` bytes. Not at the end of the stream: a reader that knows the length does not wait for it.
fn when_complete(
    chunks: impl Stream<Item = Chunk> + Send,
    bytes: u64,
    done: impl Fn() + Send,
) -> impl Stream<Item = Chunk> + Send {
    let mut remaining = bytes;
    chunks.inspect(move |chunk| {
        if let Ok(chunk) = chunk {
            remaining = remaining.saturating_sub(chunk.len() as u64);
            if remaining == 0 {
                done();
            }
        }
    })
}

/// Time for the reader to read one chunk.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

fn read_timed_out() -> v1::Problem {
    let message = format!("a chunk was not read within {} seconds; retry and read faster", READ_TIMEOUT.as_secs());
    v1::Problem::of(Code::Unavailable, message)
}

fn busy() -> v1::Problem {
    let problem = v1::Problem::of(Code::Unavailable, "too many backups or exports are in progress; retry later");
    v1::Problem { retry_after_ms: Some(5_000), ..problem }
}

/// The problem of a failed snapshot or audit log.
fn snapshot_problem(error: &SnapshotError) -> v1::Problem {
    match error {
        SnapshotError::Stopping => shutting_down(),
        SnapshotError::Fenced => {
            v1::Problem::of(Code::Unavailable, "another server has taken over the journal; connect to that server")
        }
        SnapshotError::Journal(error) => {
            let code = Code::from_word(error.code()).unwrap_or(Code::StorageFailed);
            v1::Problem { reason: error.to_string(), ..v1::Problem::of(code, error.to_string()) }
        }
        SnapshotError::Read(_) | SnapshotError::Corrupt { .. } => {
            v1::Problem { reason: error.to_string(), ..v1::Problem::of(Code::StorageFailed, error.to_string()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_backup_counts_only_when_all_of_it_was_read() {
        let done = AtomicU32::new(0);
        let chunks = futures::stream::iter([Ok(vec![1; 100]), Ok(vec![2; 20]), Ok(vec![3; 32])]);
        let mut sent = std::pin::pin!(when_complete(chunks, 152, || {
            done.fetch_add(1, Ordering::Relaxed);
        }));
        for (length, completed) in [(100, 0), (20, 0), (32, 1)] {
            let chunk = sent.next().await.expect("a chunk").expect("no problem");
            assert_eq!((chunk.len(), done.load(Ordering::Relaxed)), (length, completed));
        }
        assert!(sent.next().await.is_none());
        let aborted = futures::stream::iter([Ok(vec![1; 100]), Err(Box::new(read_timed_out()))]);
        let sent = when_complete(aborted, 152, || {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(sent.count().await, 2);
        assert_eq!(done.load(Ordering::Relaxed), 1, "an aborted backup does not count");
    }
}
