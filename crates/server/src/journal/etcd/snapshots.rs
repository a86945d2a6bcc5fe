//! Snapshots in chunks, trimming and compaction, concurrently with appends. The audit log is on this machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use prost::bytes::Bytes;

use super::batch_value::CHUNK_BYTES;
use super::error::EtcdError;
use super::meta::{JournalMeta, SnapshotMeta};
use super::pb::RequestOp;
use super::reader::{EtcdReadError, EtcdReader};
use super::writer::EtcdWriter;
use crate::journal::{AppendOutcome, AuditFiles, BatchVisitor, JournalError, ReadError, SnapshotStore};

/// Batches that one transaction deletes.
const TRIM_STEP: u64 = 5_000;

/// Snapshots of a journal in etcd.
#[derive(Clone)]
pub struct EtcdSnapshotStore {
    writer: Arc<EtcdWriter>,
}

impl EtcdSnapshotStore {
    pub(super) fn new(writer: &Arc<EtcdWriter>) -> Self {
        Self { writer: writer.clone() }
    }

    fn reader(&self, revision: i64) -> EtcdReader<'_> {
        EtcdReader { client: &self.writer.client, keys: &self.writer.keys, revision }
    }

    /// The value of `meta`; `None` if this writer no longer leads.
    async fn meta(&self) -> Result<Option<JournalMeta>, JournalError> {
        let mut operations = vec![RequestOp::get(&self.writer.keys.meta())];
        if !self.writer.reads_are_fresh {
            operations.push(RequestOp::put(&self.writer.keys.confirm(), Bytes::new(), 0));
        }
        let Some(response) = self.writer.change(operations).await? else { return Ok(None) };
        let meta =
            response.got(0).ok_or("missing").and_then(|meta| JournalMeta::decode(&meta.value).map_err(|_| "invalid"));
        let invalid =
            |reason| JournalError::Failed { reason: format!("{}meta in etcd: {reason}", self.writer.keys.prefix()) };
        meta.map(Some).map_err(invalid)
    }

    /// Deletes all snapshots except one, complete or not.
    async fn delete_others(&self, sequence: u64) -> Result<AppendOutcome, JournalError> {
        let keys = &self.writer.keys;
        let ((first, last), (from, end)) = (keys.snapshots(), keys.chunks(sequence));
        let delete = vec![RequestOp::delete(&first, &from), RequestOp::delete(&end, &last)];
        Ok(outcome(self.writer.change(delete).await?.is_some()))
    }

    /// The first sequence that the log has.
    async fn first(&self) -> Result<Option<u64>, JournalError> {
        let keys = &self.writer.keys;
        let range = super::pb::RangeRequest {
            key: keys.log(0),
            range_end: keys.log_end(),
            limit: 1,
            keys_only: true,
            ..Default::default()
        };
        match self.writer.client.range_with_retry(range).await {
            Ok(response) => Ok(response.kvs.first().and_then(|batch| keys.sequence(&batch.key))),
            // Trimming is retried later.
            Err(error) => Err(JournalError::Failed { reason: error.to_string() }),
        }
    }
}

fn outcome(done: bool) -> AppendOutcome {
    if done { AppendOutcome::Durable } else { AppendOutcome::Fenced }
}

fn read_error(error: EtcdReadError) -> ReadError {
    match error {
        EtcdReadError::Trimmed { first } => ReadError::Trimmed { first },
        EtcdReadError::Etcd(error) => ReadError::Unreadable { reason: error.to_string() },
        EtcdReadError::Corrupt { key, reason } => ReadError::Unreadable { reason: format!("{key} in etcd: {reason}") },
        EtcdReadError::Meta(_) => ReadError::Unreadable { reason: "meta in etcd is invalid".to_owned() },
    }
}

impl SnapshotStore for EtcdSnapshotStore {
    async fn save(&self, sequence: u64, snapshot: &[u8]) -> Result<AppendOutcome, JournalError> {
        let writer = &*self.writer;
        assert!(sequence < writer.next.load(Ordering::Acquire), "a snapshot covers only durable batches");
        let Some(mut meta) = self.meta().await? else { return Ok(AppendOutcome::Fenced) };
        if meta.snapshot.is_some_and(|newest| newest.sequence >= sequence) {
            return Ok(AppendOutcome::Durable);
        }
        let mut chunks = 0;
        for bytes in snapshot.chunks(CHUNK_BYTES) {
            let put = RequestOp::put(&writer.keys.chunk(sequence, chunks), bytes.to_vec(), 0);
            if writer.change(vec![put]).await?.is_none() {
                return Ok(AppendOutcome::Fenced);
            }
            chunks += 1;
        }
        let (bytes, checksum) = (snapshot.len() as u64, crc32fast::hash(snapshot));
        meta.snapshot = Some(SnapshotMeta { sequence, chunks, bytes, checksum });
        let put = RequestOp::put(&writer.keys.meta(), meta.encode(), 0);
        // Chunks are written in order: if the last one exists, all do, also in an etcd that was rolled back meanwhile.
        let written = chunks.checked_sub(1).map(|last| writer.keys.chunk(sequence, last));
        if writer.change_after(written, vec![put]).await?.is_none() {
            return Ok(AppendOutcome::Fenced);
        }
        self.delete_others(sequence).await
    }

    /// Always keeps the last batch, so that a resend finds it.
    async fn trim(&self, up_to: u64) -> Result<AppendOutcome, JournalError> {
        let writer = &*self.writer;
        let Some(meta) = self.meta().await? else { return Ok(AppendOutcome::Fenced) };
        let last = writer.next.load(Ordering::Acquire).saturating_sub(2);
        let covered = meta.snapshot.map_or(0, |newest| newest.sequence).min(up_to).min(last);
        let Some(mut first) = self.first().await?.filter(|first| *first <= covered) else {
            return Ok(AppendOutcome::Durable);
        };
        let mut revision = 0;
        while first <= covered {
            let before = (covered + 1).min(first.saturating_add(TRIM_STEP));
            let parts = writer.keys.parts(first, before);
            let delete = vec![
                RequestOp::delete(&writer.keys.log(first), &writer.keys.log(before)),
                RequestOp::delete(&parts.0, &parts.1),
            ];
            let Some(response) = writer.change(delete).await? else { return Ok(AppendOutcome::Fenced) };
            revision = response.header.map_or(0, |header| header.revision);
            first = before;
        }
        // A leader compacts only revisions before its successor's claim, which no one reads any more.
        match writer.client.compact(revision).await {
            Ok(()) | Err(EtcdError::Compacted) => {}
            Err(error) => tracing::warn!(%error, "compaction of etcd failed; it is retried with the next snapshot"),
        }
        Ok(AppendOutcome::Durable)
    }

    async fn newest(&self) -> Result<Option<(u64, Vec<u8>)>, ReadError> {
        loop {
            let (meta, revision) = self.reader(0).meta().await.map_err(read_error)?;
            let Some(snapshot) = meta.and_then(|meta| meta.snapshot) else { return Ok(None) };
            match self.reader(revision).snapshot(snapshot).await {
                // A newer snapshot replaced this one while it was read.
                Err(EtcdReadError::Etcd(EtcdError::Compacted)) => {}
                response => return response.map(|bytes| Some((snapshot.sequence, bytes))).map_err(read_error),
            }
        }
    }

    async fn tail(&self, from: u64, each: BatchVisitor<'_>) -> Result<u64, ReadError> {
        self.reader(0).batches(from, each).await.map(|(next, _)| next).map_err(read_error)
    }
}

impl AuditFiles for EtcdSnapshotStore {
    fn files(&self) -> Result<Vec<(u64, u64)>, ReadError> {
        self.writer.local.audit_files().files()
    }

    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, ReadError> {
        self.writer.local.audit_files().read(number, at, into)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.writer.local.audit_files().create(number, bytes)
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.writer.local.audit_files().write(number, at, bytes)
    }

    fn sync(&self, number: u64) -> Result<AppendOutcome, JournalError> {
        self.writer.local.audit_files().sync(number)
    }

    fn remove(&self, number: u64) -> Result<AppendOutcome, JournalError> {
        self.writer.local.audit_files().remove(number)
    }

    fn label(&self, number: u64) -> String {
        self.writer.local.audit_files().label(number)
    }

    fn heads(&self) -> Result<Vec<u8>, ReadError> {
        self.writer.local.audit_files().heads()
    }

    fn put_heads(&self, bytes: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.writer.local.audit_files().put_heads(bytes)
    }

    fn is_local(&self) -> bool {
        false
    }

    fn max_bytes(&self) -> u64 {
        u64::MAX
    }
}
