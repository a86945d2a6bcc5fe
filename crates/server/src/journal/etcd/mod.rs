//! The journal on etcd, for when one machine is not enough: etcd agrees, and every change compares who leads.
//!
//! Under one prefix lie
//! - `leader`: who leads, an address and a nonce; leased, so that it goes soon after its server;
//! - `log/N`: the batches; one too large for a request has its bytes under `part/N/…`, written before it;
//! - `snap/N/…`: the state after batch N, in chunks; it counts once `meta` names it;
//! - `meta`: which journal this is, and its newest snapshot;
//! - `member/…`: the servers that may lead; leased;
//! - `confirm`: written to know who leads, on versions of etcd whose reads may be stale.
//!
//! The generation is the revision of the last change of `leader`, and the nonce in it. Each transaction compares both, so
//! whatever a deposed leader sends changes nothing. One append is under way at a time: etcd may turn two around. One
//! without an answer is sent again, the same bytes, until the log has that sequence: equal bytes are one's own.
//!
//! After a claim the log is read at the revision of the claim, so that a member that lags behind errs instead of telling an
//! older story. A witness on the own machine tells an etcd that was set back, also when it kept its cluster id.
//!
//! The audit trail lies on each server's own machine: [page 0026](../../../../docs/decisions/0026-the-trail-stays-local.md).

mod bare;
mod entering;
mod follow;
mod gauge;
mod hold;
mod keys;
mod local;
mod meta;
mod pb;
mod reach;
mod reading;
mod refused;
mod shelf;
mod stored;
mod survey;
mod trouble;
mod version;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinHandle;

pub use bare::Bare;
pub use follow::{Leading, Listen, Standby};
pub use gauge::{Gauge, QUOTA};
pub use reach::{Entry, Tls};
pub use refused::Refused;
pub use shelf::EtcdShelf;
pub use survey::{Member, Survey, Surveyed};

use super::{BATCH_BYTES, Confirmed, Fault, Journal, Kept, OpenError, Opened, Place, Replay, Room};
use entering::Entered;
use hold::Hold;
use local::Local;
use writer::Writer;

/// A prefix of an etcd, where a journal is or will be. Whoever opens it leads, whoever led before.
#[derive(Clone)]
pub struct Etcd {
    entry: Entry,
    prefix: String,
    address: String,
    quota: u64,
    lease_seconds: u32,
    accept_restored: bool,
    local: Arc<Local>,
}

impl Etcd {
    /// The journal under a prefix, for a server at an address, which keeps what is its own in a directory.
    pub fn new(entry: Entry, prefix: &str, address: &str, data: &Path) -> Result<Self, OpenError> {
        let local = Arc::new(Local::open(data)?);
        let (prefix, address) = (prefix.to_owned(), address.to_owned());
        Ok(Self { entry, prefix, address, quota: QUOTA, lease_seconds: 1, accept_restored: false, local })
    }

    /// How large etcd's database may become, where it does not say so itself.
    pub fn with_quota(self, quota: u64) -> Self {
        Self { quota, ..self }
    }

    /// Whether what etcd has forgotten is given up.
    pub fn accepting_restored(self, accept_restored: bool) -> Self {
        Self { accept_restored, ..self }
    }

    /// Where others reach the server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How long the leader key outlives its server, in seconds. Less than etcd allows is the shortest that it does.
    pub fn with_lease(self, lease_seconds: u32) -> Self {
        Self { lease_seconds, ..self }
    }
}

impl Place for Etcd {
    type Journal = EtcdJournal;

    async fn open(&self, replay: &mut (dyn Replay + Send)) -> Result<Opened<EtcdJournal>, OpenError> {
        let entered = Entered::into(self).await?;
        let hold = Arc::new(entered.begin(self).await?);
        let mine = hold.claim_by_force().await.map_err(|trouble| entered.refused(trouble))?;
        let mine = mine.ok_or(OpenError::Etcd(Refused::Taken))?;
        entered.take(hold, mine, 0, replay).await
    }
}

/// One writer of a journal on etcd.
pub struct EtcdJournal {
    writer: Arc<Writer>,
    /// As long as it is there the leader key is kept.
    _hold: Arc<Hold>,
    looking: JoinHandle<()>,
    restored: bool,
}

impl EtcdJournal {
    /// Whether etcd was set back to a snapshot: what comes from there begins a new life of the cluster (T5).
    pub fn was_restored(&self) -> bool {
        self.restored
    }

    /// How full etcd is.
    pub fn gauge(&self) -> &Arc<Gauge> {
        &self.writer.gauge
    }
}

impl Drop for EtcdJournal {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

impl Journal for EtcdJournal {
    type Shelf = EtcdShelf;

    fn generation(&self) -> u64 {
        u64::try_from(self.writer.mine.revision).expect("revisions count up from one")
    }

    fn next(&self) -> u64 {
        self.writer.next.load(Ordering::Acquire)
    }

    async fn append(&mut self, sequence: u64, batch: &[u8]) -> Result<Kept, Fault> {
        assert!(!batch.is_empty() && batch.len() <= BATCH_BYTES, "a batch has bytes, and not too many");
        let next = self.next();
        assert!(sequence == next || sequence + 1 == next, "batches are appended in order");
        self.writer.append(sequence, batch).await
    }

    async fn confirm(&mut self) -> Result<Confirmed, Fault> {
        self.writer.confirm().await
    }

    fn room(&mut self) -> Result<Room, Fault> {
        Ok(self.writer.gauge.room())
    }

    fn shelf(&self) -> EtcdShelf {
        EtcdShelf::new(&self.writer)
    }
}
