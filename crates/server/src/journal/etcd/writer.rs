//! Transactions of one writer: each compares the leader key and is resent until its outcome is known.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use prost::bytes::Bytes;

use super::batch_value::{self, CHUNK_BYTES};
use super::client::EtcdClient;
use super::error::EtcdError;
use super::keys::JournalKeys;
use super::leadership::Generation;
use super::local::{HighWater, LocalFiles};
use super::pb::{Compare, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use super::quota::Quota;
use crate::journal::{AppendOutcome, FIRST, JournalError, WriterStatus};

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
    pub fenced: AtomicBool,
    pub failed: OnceLock<String>,
}

impl EtcdWriter {
    fn fail(&self, reason: String) -> JournalError {
        JournalError::Failed { reason: self.failed.get_or_init(|| reason).clone() }
    }

    /// Fails if the journal has failed; true if the writer is fenced. Both are permanent.
    fn is_fenced(&self) -> Result<bool, JournalError> {
        match self.failed.get() {
            Some(reason) => Err(JournalError::Failed { reason: reason.clone() }),
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
                        return Err(self.fail(format!("etcd was rolled back: revision {revision} is below {seen}")));
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
        if self.is_fenced()? {
            return Ok(None);
        }
        let compare = self.generation.conditions(&self.keys);
        let response = self.send_until_known(TxnRequest { compare, success: operations, failure: Vec::new() }).await?;
        if !response.succeeded {
            self.fence();
        }
        Ok(response.succeeded.then_some(response))
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
        // A restored etcd may know this writer but not its last batch; a gap would be worse than an error.
        if sequence > FIRST {
            compare.push(Compare::present(&self.keys.log(sequence - 1)));
        }
        let put = RequestOp::put(&key, value.clone(), 0);
        let failure = vec![RequestOp::get(&leader), RequestOp::get(&key)];
        let response = self.send_until_known(TxnRequest { compare, success: vec![put], failure }).await?;
        if response.succeeded {
            return Ok(self.appended(sequence));
        }
        if !self.generation.matches(response.got(0)) {
            self.fence();
        } else if response.got(1).is_none() {
            return Err(self.fail(format!("etcd was rolled back: batch {} is missing", sequence - 1)));
        }
        // An earlier attempt succeeded without a response: equal bytes are the writer's own, and durable.
        match response.got(1).is_some_and(|there| there.value == value) {
            true => Ok(self.appended(sequence)),
            false => Ok(AppendOutcome::Fenced),
        }
    }

    fn appended(&self, sequence: u64) -> AppendOutcome {
        self.next.store(sequence + 1, Ordering::Release);
        self.save_high_water();
        AppendOutcome::Durable
    }

    /// Saves how far the journal is.
    pub fn save_high_water(&self) {
        let sequence = self.next.load(Ordering::Acquire) - 1;
        self.local.save_high_water(&HighWater {
            journal: self.journal.clone(),
            revision: self.client.revision(),
            sequence,
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
                    return Err(self.fail(format!("etcd was rolled back to a revision below {seen}")));
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

    /// Confirms with a write. The last batch must exist too: after this write, an etcd that was restored by one revision would have
    /// the same revision again.
    async fn confirm_by_writing(&self) -> Result<WriterStatus, JournalError> {
        if self.is_fenced()? {
            return Ok(WriterStatus::Fenced);
        }
        let (leader, last) = (self.keys.leader(), self.next.load(Ordering::Acquire) - 1);
        let mut compare = self.generation.conditions(&self.keys);
        if last >= FIRST {
            compare.push(Compare::present(&self.keys.log(last)));
        }
        let success = vec![RequestOp::put(&self.keys.confirm(), Bytes::new(), 0)];
        let response =
            self.send_until_known(TxnRequest { compare, success, failure: vec![RequestOp::get(&leader)] }).await?;
        if response.succeeded {
            return Ok(WriterStatus::Current);
        }
        if self.generation.matches(response.got(0)) {
            return Err(self.fail(format!("etcd was rolled back: batch {last} is missing")));
        }
        self.fence();
        Ok(WriterStatus::Fenced)
    }
}
