//! The journal in etcd, for clusters of several servers. Every transaction compares the leader key.
//!
//! The keys under one prefix are
//! - `leader`: address and nonce of the leader; leased, so that it disappears soon after its server;
//! - `log/N`: the batches; one that is too large for a request has its bytes in `part/N/…`, written before it;
//! - `snap/N/…`: the state after batch N, in chunks; it is valid once `meta` names it;
//! - `meta`: the id of the journal and its newest snapshot;
//! - `member/…`: the servers that may lead; leased;
//! - `confirm`: written to confirm the leader on versions of etcd whose reads may be stale;
//! - `keys`: a digest and ids of the keys that the servers share;
//! - `rolled_back`: written by a server that found that etcd was restored; every append compares that it does not exist;
//! - `accepted`: the batch with which the last accepted restore began a new incarnation.
//!
//! The generation is the revision of the last change of `leader`, and the nonce in it. Each transaction compares both, so a
//! deposed leader cannot change anything. One append is in flight at a time, because etcd may reorder two. An append without a
//! response is sent again with the same bytes until the log has that sequence; equal bytes prove that it is the writer's own. Each
//! transaction compares the revision of the last batch, and an append the existence of `meta`: a leader under which they are deleted or
//! overwritten stops. Earlier batches are compared only when they are read.
//!
//! After a claim the log is read at the revision of the claim, so that a lagging member fails instead of returning older data. A
//! high-water mark on the server's own disk detects an etcd that was restored, even if it kept its cluster id: it contains the
//! digest of the last batch and of the opening of its tenure, so that an etcd to which others have appended since is recognized too
//! ([page 0038](../../../../docs/internals/decisions/0038-recognize-a-restored-journal-by-content.md)).
//!
//! The audit log is on each server's own disk: [page 0026](../../../../docs/internals/decisions/0026-keep-the-audit-log-on-each-server.md).

mod batch_value;
mod client;
mod cluster_status;
mod error;
mod key_digest_record;
mod keys;
mod leadership;
mod local;
mod meta;
mod missing_journal;
mod open;
pub mod pb;
mod quota;
mod reader;
mod rollback_marker;
mod snapshots;
mod standby;
mod version;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinHandle;

pub use client::{EtcdEndpoints, EtcdTls};
pub use cluster_status::{EtcdMember, EtcdStatus, EtcdStatusReader};
pub use key_digest_record::KeyDigestRecord;
pub use quota::{QUOTA, Quota};
pub use snapshots::EtcdSnapshotStore;
pub use standby::{LeaderHandle, Standby, StandbyObserver};

use super::{
    AppendOutcome, BATCH_BYTES, DiskSpace, EtcdOpenError, Journal, JournalError, JournalLocation, OpenError,
    OpenedJournal, Replay, WriterStatus,
};
use leadership::{EtcdLeadership, Generation};
use local::LocalFiles;
use open::CheckedEtcd;
use writer::EtcdWriter;

/// A prefix in etcd. Opening its journal deposes the current leader.
#[derive(Clone)]
pub struct EtcdLocation {
    endpoints: EtcdEndpoints,
    prefix: String,
    address: String,
    quota_bytes: u64,
    lease_seconds: u32,
    accept_restored: bool,
    insecure: bool,
    local: Arc<LocalFiles>,
    key_digests: Option<Arc<dyn KeyDigestRecord>>,
}

impl EtcdLocation {
    /// The journal under a prefix, for the server at `address` with its own files in the directory `data`.
    pub fn new(endpoints: EtcdEndpoints, prefix: &str, address: &str, data: &Path) -> Result<Self, OpenError> {
        let local = Arc::new(LocalFiles::open(data)?);
        let (prefix, address) = (prefix.to_owned(), address.to_owned());
        Ok(Self {
            endpoints,
            prefix,
            address,
            quota_bytes: QUOTA,
            lease_seconds: 1,
            accept_restored: false,
            insecure: false,
            local,
            key_digests: None,
        })
    }

    /// Sets the quota of etcd's database, for versions of etcd that do not report it.
    pub fn with_quota(self, quota_bytes: u64) -> Self {
        Self { quota_bytes, ..self }
    }

    /// Sets whether an etcd that was restored from an older snapshot is accepted.
    pub fn with_accept_restored(self, accept_restored: bool) -> Self {
        Self { accept_restored, ..self }
    }

    /// Sets the keys that are compared with those of the other servers.
    pub fn with_key_digests(self, keys: Arc<dyn KeyDigestRecord>) -> Self {
        Self { key_digests: Some(keys), ..self }
    }

    /// Sets whether an etcd with authentication is accepted although its version lets others bypass it.
    pub fn with_insecure(self, insecure: bool) -> Self {
        Self { insecure, ..self }
    }

    /// Address at which other servers and clients reach this server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sets how long the leader key outlives its server, in seconds; etcd raises it to its minimum.
    pub fn with_lease(self, lease_seconds: u32) -> Self {
        Self { lease_seconds, ..self }
    }
}

impl JournalLocation for EtcdLocation {
    type Journal = EtcdJournal;

    async fn open(&self, replay: &mut (dyn Replay + Send)) -> Result<OpenedJournal<EtcdJournal>, OpenError> {
        let etcd = CheckedEtcd::check(self).await?;
        let leadership = Arc::new(etcd.register(self).await?);
        let generation = leadership.claim_by_force().await.map_err(|error| etcd.open_error(error))?;
        let generation = generation.ok_or(OpenError::Etcd(EtcdOpenError::Taken))?;
        etcd.open(leadership, generation, 0, false, replay).await
    }
}

/// The writer of a journal in etcd.
pub struct EtcdJournal {
    writer: Arc<EtcdWriter>,
    /// Keeps the leader key alive.
    _leadership: Arc<EtcdLeadership>,
    quota_poll: JoinHandle<()>,
}

impl EtcdJournal {
    /// Whether etcd was restored from an older snapshot, so that a new incarnation of the cluster must begin (T5).
    pub fn was_restored(&self) -> bool {
        self.writer.restored
    }

    /// Database size and quota of etcd.
    pub fn quota(&self) -> &Arc<Quota> {
        &self.writer.quota
    }
}

impl Drop for EtcdJournal {
    fn drop(&mut self) {
        self.quota_poll.abort();
    }
}

impl Journal for EtcdJournal {
    type Snapshots = EtcdSnapshotStore;

    fn generation(&self) -> u64 {
        u64::try_from(self.writer.generation.revision).expect("revisions start at one")
    }

    fn next(&self) -> u64 {
        self.writer.next.load(Ordering::Acquire)
    }

    async fn append(&mut self, sequence: u64, batch: &[u8]) -> Result<AppendOutcome, JournalError> {
        assert!(!batch.is_empty() && batch.len() <= BATCH_BYTES, "a batch is not empty and within its limit");
        let next = self.next();
        assert!(sequence == next || sequence + 1 == next, "batches are appended in order");
        self.writer.append(sequence, batch).await
    }

    async fn confirm(&mut self) -> Result<WriterStatus, JournalError> {
        self.writer.confirm().await
    }

    fn disk_space(&mut self) -> Result<DiskSpace, JournalError> {
        Ok(self.writer.quota.disk_space())
    }

    fn snapshots(&self) -> EtcdSnapshotStore {
        EtcdSnapshotStore::new(&self.writer)
    }
}
