//! Transactions of one writer: each compares the leader key and is resent until its outcome is known.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use leasehold_core::journal_lineage::{self, TenureStart};
use prost::bytes::Bytes;

use super::batch_value::{self, CHUNK_BYTES};
use super::client::EtcdClient;
use super::error::EtcdError;
use super::keys::JournalKeys;
use super::leadership::Generation;
use super::local::{HighWater, LocalFiles};
use super::pb::{Compare, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use super::quota::Quota;
use super::rollback_marker::leave_marker;
use crate::journal::{AppendOutcome, FIRST, JournalError, WriterStatus};

/// The last durable batch, as it is stored in etcd.
#[derive(Clone, Copy, Debug)]
pub struct StoredBatch {
    pub sequence: u64,
    /// Revision at which it was written; zero if etcd has no such batch.
    pub revision: i64,
}

/// Shared by the journal and its snapshots.
pub struct EtcdWriter {
    pub client: Arc<EtcdClient>,
    pub keys: JournalKeys,
    pub local: Arc<LocalFiles>,
    pub quota: Arc<Quota>,
    pub generation: Generation,
    /// Id of the journal.
    pub journal: String,
    /// Whether a read confirms the leader; otherwise a write does.
    pub reads_are_fresh: bool,
    /// The sequence after the last durable batch.
    pub next: AtomicU64,
    /// The batch before it. Every transaction compares that no one has changed or deleted it.
    pub last: Mutex<StoredBatch>,
    pub fenced: AtomicBool,
    pub failed: OnceLock<JournalError>,
    /// Whether etcd was restored and this is accepted: the first batch begins a new incarnation and removes the marker.
    pub restored: bool,
    /// The first opening of the incarnation that was replayed.
    pub incarnation: Option<TenureStart>,
    /// The first batch of this writer, which opens its tenure.
    pub opening: OnceLock<TenureStart>,
}

impl EtcdWriter {
    fn fail(&self, reason: String) -> JournalError {
        self.failed.get_or_init(|| JournalError::Failed { reason }).clone()
    }

    /// etcd has lost what this writer has appended: it stops, and no other server leads until an operator accepts it.
    async fn roll_back(&self, reason: String) -> JournalError {
        let next = Compare::absent(&self.keys.log(self.next.load(Ordering::Acquire)));
        leave_marker(&self.client, &self.keys, &reason, next).await;
        self.failed.get_or_init(|| JournalError::RolledBack { reason }).clone()
    }

    /// Condition that a batch exists, and if it is the last one, that it is unchanged; `None` before the first batch.
    fn unchanged(&self, sequence: u64) -> Option<Compare> {
        let last = *self.last.lock().expect("no panic under this lock");
        let key = self.keys.log(sequence);
        (sequence >= FIRST).then(|| match last.revision {
            // An absent key would be equal to revision zero.
            0 => Compare::present(&key),
            _ if last.sequence != sequence => Compare::present(&key),
            revision => Compare::changed_at(&key, revision),
        })
    }

    /// Fails if the journal has failed; true if the writer is fenced. Both are permanent.
    fn is_fenced(&self) -> Result<bool, JournalError> {
        match self.failed.get() {
            Some(error) => Err(error.clone()),
            None => Ok(self.fenced.load(Ordering::Relaxed)),
        }
    }

    fn fence(&self) {
        self.fenced.store(true, Ordering::Relaxed);
    }

    /// Sends a transaction again until its outcome is known.
    async fn send_until_known(&self, txn: TxnRequest) -> Result<TxnResponse, JournalError> {
        loop {
            let seen = self.client.revision();
            match self.client.txn(txn.clone()).await {
                Ok(response) => {
                    let revision = response.header.as_ref().map_or(0, |header| header.revision);
                    if revision < seen {
                        return Err(self.roll_back(format!("revision {revision} of etcd is below {seen}")).await);
                    }
                    return Ok(response);
                }
                Err(EtcdError::Unknown(error)) => tracing::warn!(error, "no response from etcd; retrying"),
                Err(EtcdError::Behind) => {}
                Err(EtcdError::Full) => return Err(JournalError::Full),
                Err(error) => return Err(self.fail(error.to_string())),
            }
        }
    }

    /// Executes operations if this writer leads; `None` if it does not.
    pub async fn change(&self, operations: Vec<RequestOp>) -> Result<Option<TxnResponse>, JournalError> {
        let last = self.last.lock().expect("no panic under this lock").sequence;
        self.change_if(self.unchanged(last), operations).await
    }

    /// Like [`change`](Self::change), if a key exists that this writer has written. Otherwise etcd was rolled back, and a change would
    /// refer to what is lost: a snapshot that no longer exists, or batches that it does not cover.
    pub async fn change_after(
        &self,
        written: Option<Vec<u8>>,
        operations: Vec<RequestOp>,
    ) -> Result<Option<TxnResponse>, JournalError> {
        self.change_if(written.as_deref().map(Compare::present), operations).await
    }

    async fn change_if(
        &self,
        written: Option<Compare>,
        operations: Vec<RequestOp>,
    ) -> Result<Option<TxnResponse>, JournalError> {
        if self.is_fenced()? {
            return Ok(None);
        }
        let mut compare = self.generation.conditions(&self.keys);
        compare.extend(written.clone());
        let failure = vec![RequestOp::get(&self.keys.leader())];
        let response = self.send_until_known(TxnRequest { compare, success: operations, failure }).await?;
        if response.succeeded {
            return Ok(Some(response));
        }
        if let Some(written) = written.filter(|_| self.generation.matches(response.got(0))) {
            let key = String::from_utf8_lossy(&written.key).into_owned();
            return Err(self.roll_back(format!("{key} in etcd was deleted or changed")).await);
        }
        self.fence();
        Ok(None)
    }

    /// Appends one batch. Its parts are written first; without the key of the batch they have no effect.
    pub async fn append(&self, sequence: u64, batch: &[u8]) -> Result<AppendOutcome, JournalError> {
        if self.is_fenced()? {
            return Ok(AppendOutcome::Fenced);
        }
        if batch.len() > CHUNK_BYTES {
            for (part, bytes) in (0..).zip(batch.chunks(CHUNK_BYTES)) {
                let put = RequestOp::put(&self.keys.part(sequence, part), bytes.to_vec(), 0);
                if self.change(vec![put]).await?.is_none() {
                    return Ok(AppendOutcome::Fenced);
                }
            }
        }
        let (leader, key) = (self.keys.leader(), self.keys.log(sequence));
        let value = Bytes::from(batch_value::encode(&self.generation, batch));
        let mut compare = self.generation.conditions(&self.keys);
        compare.push(Compare::absent(&key));
        let marker = self.keys.rolled_back();
        let accepts = self.restored && self.opening.get().is_none();
        if !accepts {
            compare.push(Compare::absent(&marker));
        }
        // A restored etcd may know this writer but not its last batch; a gap would be worse than an error. A batch that someone has
        // overwritten is lost too, and without `meta` no server opens the journal.
        compare.extend(self.unchanged(sequence - 1));
        let meta = self.keys.meta();
        compare.push(Compare::present(&meta));
        let mut success = vec![RequestOp::put(&key, value.clone(), 0)];
        if accepts {
            success.push(RequestOp::delete(&marker, &[]));
            success.push(RequestOp::put(&self.keys.accepted(), sequence.to_string(), 0));
        }
        let failure =
            [&leader, &key, &marker, &self.keys.log(sequence - 1), &meta].map(|key| RequestOp::get(key)).into();
        let response = self.send_until_known(TxnRequest { compare, success, failure }).await?;
        if response.succeeded {
            let revision = response.header.as_ref().map_or(0, |header| header.revision);
            return Ok(self.appended(StoredBatch { sequence, revision }, batch));
        }
        // An earlier attempt succeeded without a response: equal bytes are the writer's own, and durable.
        let stored = response.got(1).filter(|stored| stored.value == value);
        if let Some(stored) = stored.filter(|_| self.generation.matches(response.got(0))) {
            return Ok(self.appended(StoredBatch { sequence, revision: stored.mod_revision }, batch));
        }
        if let Some(marker) = response.got(2).filter(|_| !accepts) {
            let found = String::from_utf8_lossy(&marker.value).into_owned();
            return Err(self.failed.get_or_init(|| JournalError::RolledBack { reason: found }).clone());
        }
        if !self.generation.matches(response.got(0)) {
            self.fence();
        } else if response.got(1).is_none() {
            let last = sequence - 1;
            let unchanged = last < FIRST || {
                let known = *self.last.lock().expect("no panic under this lock");
                response.got(3).is_some_and(|stored| known.sequence == last && stored.mod_revision == known.revision)
            };
            return Err(match (unchanged, response.got(3).is_some()) {
                (true, _) if response.got(4).is_none() => {
                    self.fail(format!("{} in etcd was deleted", String::from_utf8_lossy(&meta)))
                }
                (_, true) => self.roll_back(format!("batch {last} in etcd was changed")).await,
                _ => self.roll_back(format!("etcd has lost batch {last}")).await,
            });
        }
        Ok(AppendOutcome::Fenced)
    }

    fn appended(&self, stored: StoredBatch, batch: &[u8]) -> AppendOutcome {
        let sequence = stored.sequence;
        *self.last.lock().expect("no panic under this lock") = stored;
        self.next.store(sequence + 1, Ordering::Release);
        let digest = journal_lineage::digest(batch);
        let opening = *self.opening.get_or_init(|| TenureStart { sequence, digest });
        self.save_high_water(Some(digest), Some(opening));
        AppendOutcome::Durable
    }

    /// Saves how far the journal is: the digest of its last batch, and the opening of the tenure of that batch.
    pub fn save_high_water(&self, digest: Option<[u8; 32]>, opening: Option<TenureStart>) {
        let begun = self.opening.get().copied().filter(|_| self.restored);
        self.local.save_high_water(&HighWater {
            journal: self.journal.clone(),
            revision: self.client.revision(),
            sequence: self.next.load(Ordering::Acquire) - 1,
            digest,
            opening,
            incarnation: begun.or(self.incarnation),
        });
    }

    /// Whether the leader key still names this writer. The lease is not checked: a key can be deleted while its lease lives.
    pub async fn confirm(&self) -> Result<WriterStatus, JournalError> {
        if !self.reads_are_fresh {
            return self.confirm_by_writing().await;
        }
        loop {
            if self.is_fenced()? {
                return Ok(WriterStatus::Fenced);
            }
            let seen = self.client.revision();
            match self.client.range(RangeRequest { key: self.keys.leader(), ..Default::default() }).await {
                Ok(response) if response.header.as_ref().is_none_or(|header| header.revision < seen) => {
                    return Err(self.roll_back(format!("the revision of etcd is below {seen}")).await);
                }
                Ok(response) if self.generation.matches(response.kvs.first()) => return Ok(WriterStatus::Current),
                Ok(_) => {
                    self.fence();
                    return Ok(WriterStatus::Fenced);
                }
                Err(EtcdError::Unknown(error)) => tracing::warn!(error, "no response from etcd; retrying"),
                Err(EtcdError::Behind) => {}
                Err(error) => return Err(self.fail(error.to_string())),
            }
        }
    }

    /// Confirms with a write. The last batch must be unchanged too: after this write, an etcd that was restored by one revision would have
    /// the same revision again.
    async fn confirm_by_writing(&self) -> Result<WriterStatus, JournalError> {
        if self.is_fenced()? {
            return Ok(WriterStatus::Fenced);
        }
        let (leader, last) = (self.keys.leader(), self.next.load(Ordering::Acquire) - 1);
        let mut compare = self.generation.conditions(&self.keys);
        compare.extend(self.unchanged(last));
        let success = vec![RequestOp::put(&self.keys.confirm(), Bytes::new(), 0)];
        let response =
            self.send_until_known(TxnRequest { compare, success, failure: vec![RequestOp::get(&leader)] }).await?;
        if response.succeeded {
            return Ok(WriterStatus::Current);
        }
        if self.generation.matches(response.got(0)) {
            return Err(self.roll_back(format!("etcd has lost batch {last}")).await);
        }
        self.fence();
        Ok(WriterStatus::Fenced)
    }
}
