//! One writer's way to change a journal: every transaction compares the leader key, and is sent until its outcome is known.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use prost::bytes::Bytes;

use super::gauge::Gauge;
use super::hold::Generation;
use super::keys::Keys;
use super::local::{Local, Witness};
use super::pb::{Compare, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use super::reach::Reach;
use super::stored::{self, CHUNK};
use super::trouble::Trouble;
use crate::journal::{Confirmed, FIRST, Fault, Kept};

/// What the journal and its shelf both know.
pub struct Writer {
    pub reach: Arc<Reach>,
    pub keys: Keys,
    pub local: Arc<Local>,
    pub gauge: Arc<Gauge>,
    pub mine: Generation,
    /// Which journal this is.
    pub journal: String,
    /// Whether a read tells who leads; where it may be stale, a write does.
    pub reads_are_fresh: bool,
    /// The sequence after the last durable batch.
    pub next: AtomicU64,
    pub fenced: AtomicBool,
    pub failed: OnceLock<String>,
}

impl Writer {
    fn fail(&self, why: String) -> Fault {
        Fault::Failed { why: self.failed.get_or_init(|| why).clone() }
    }

    /// Once failed, always failed; once fenced, always fenced.
    fn unless_over(&self) -> Result<bool, Fault> {
        match self.failed.get() {
            Some(why) => Err(Fault::Failed { why: why.clone() }),
            None => Ok(self.fenced.load(Ordering::Relaxed)),
        }
    }

    fn fence(&self) {
        self.fenced.store(true, Ordering::Relaxed);
    }

    /// Sends the same until it is known what became of it.
    async fn until_known(&self, txn: TxnRequest) -> Result<TxnResponse, Fault> {
        loop {
            let seen = self.reach.revision();
            match self.reach.txn(txn.clone()).await {
                Ok(told) => {
                    let revision = told.header.as_ref().map_or(0, |header| header.revision);
                    if revision < seen {
                        return Err(self.fail(format!("etcd was set back from revision {seen} to {revision}")));
                    }
                    return Ok(told);
                }
                Err(Trouble::Unknown(why)) => tracing::warn!("etcd did not answer, and is asked again: {why}"),
                Err(Trouble::Behind) => {}
                Err(Trouble::Full) => return Err(Fault::Full),
                Err(trouble) => return Err(self.fail(trouble.to_string())),
            }
        }
    }

    /// Does something if this writer leads; what it was told, or none if it does not.
    pub async fn change(&self, changes: Vec<RequestOp>) -> Result<Option<TxnResponse>, Fault> {
        if self.unless_over()? {
            return Ok(None);
        }
        let compare = self.mine.leads(&self.keys);
        let told = self.until_known(TxnRequest { compare, success: changes, failure: Vec::new() }).await?;
        if !told.succeeded {
            self.fence();
        }
        Ok(told.succeeded.then_some(told))
    }

    /// One batch under its sequence. Its parts come first, where it has some: without its key they are nothing.
    pub async fn append(&self, sequence: u64, batch: &[u8]) -> Result<Kept, Fault> {
        if self.unless_over()? {
            return Ok(Kept::Fenced);
        }
        if batch.len() > CHUNK {
            for (part, bytes) in (0..).zip(batch.chunks(CHUNK)) {
                let put = RequestOp::put(&self.keys.part(sequence, part), bytes.to_vec(), 0);
                if self.change(vec![put]).await?.is_none() {
                    return Ok(Kept::Fenced);
                }
            }
        }
        let (leader, key) = (self.keys.leader(), self.keys.log(sequence));
        let value = Bytes::from(stored::encode(&self.mine, batch));
        let mut compare = self.mine.leads(&self.keys);
        compare.push(Compare::absent(&key));
        // An etcd that was set back may know this writer and not what it wrote: a gap would be worse than a refusal.
        if sequence > FIRST {
            compare.push(Compare::present(&self.keys.log(sequence - 1)));
        }
        let put = RequestOp::put(&key, value.clone(), 0);
        let failure = vec![RequestOp::get(&leader), RequestOp::get(&key)];
        let told = self.until_known(TxnRequest { compare, success: vec![put], failure }).await?;
        if told.succeeded {
            return Ok(self.appended(sequence));
        }
        if !self.mine.is(told.got(0)) {
            self.fence();
        } else if told.got(1).is_none() {
            return Err(self.fail(format!("etcd was set back: batch {} is not there any more", sequence - 1)));
        }
        // It came through before, without a word: equal bytes are one's own, and durable.
        match told.got(1).is_some_and(|there| there.value == value) {
            true => Ok(self.appended(sequence)),
            false => Ok(Kept::Fenced),
        }
    }

    fn appended(&self, sequence: u64) -> Kept {
        self.next.store(sequence + 1, Ordering::Release);
        self.witness();
        Kept::Durable
    }

    /// Notes how far the journal is.
    pub fn witness(&self) {
        let sequence = self.next.load(Ordering::Acquire) - 1;
        self.local.note(&Witness { journal: self.journal.clone(), revision: self.reach.revision(), sequence });
    }

    /// Is the leader key still what this writer made it? Never asked of the lease: a key can go while its lease lives.
    pub async fn confirm(&self) -> Result<Confirmed, Fault> {
        if !self.reads_are_fresh {
            return self.confirm_by_writing().await;
        }
        loop {
            if self.unless_over()? {
                return Ok(Confirmed::Fenced);
            }
            let seen = self.reach.revision();
            match self.reach.range(RangeRequest { key: self.keys.leader(), ..Default::default() }).await {
                Ok(told) if told.header.as_ref().is_none_or(|header| header.revision < seen) => {
                    return Err(self.fail(format!("etcd was set back from revision {seen}")));
                }
                Ok(told) if self.mine.is(told.kvs.first()) => return Ok(Confirmed::StillMine),
                Ok(_) => {
                    self.fence();
                    return Ok(Confirmed::Fenced);
                }
                Err(Trouble::Unknown(why)) => tracing::warn!("etcd did not answer, and is asked again: {why}"),
                Err(Trouble::Behind) => {}
                Err(trouble) => return Err(self.fail(trouble.to_string())),
            }
        }
    }

    /// The last batch must be there too: an etcd that was set back by one revision has the old one again after this write.
    async fn confirm_by_writing(&self) -> Result<Confirmed, Fault> {
        if self.unless_over()? {
            return Ok(Confirmed::Fenced);
        }
        let (leader, last) = (self.keys.leader(), self.next.load(Ordering::Acquire) - 1);
        let mut compare = self.mine.leads(&self.keys);
        if last >= FIRST {
            compare.push(Compare::present(&self.keys.log(last)));
        }
        let success = vec![RequestOp::put(&self.keys.confirm(), Bytes::new(), 0)];
        let told = self.until_known(TxnRequest { compare, success, failure: vec![RequestOp::get(&leader)] }).await?;
        if told.succeeded {
            return Ok(Confirmed::StillMine);
        }
        if self.mine.is(told.got(0)) {
            return Err(self.fail(format!("etcd was set back: batch {last} is not there any more")));
        }
        self.fence();
        Ok(Confirmed::Fenced)
    }
}
