//! A fence for etcd keys. The mark is a key, and every write is a transaction that compares it.
//!
//! ```no_run
//! # async fn example(cluster: leasehold_fence::Cluster, token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold_fence::FenceId;
//! use leasehold_fence::etcd::{Fence, KvChange};
//!
//! let etcd = tonic::transport::Endpoint::from_static("http://127.0.0.1:2379").connect_lazy();
//! let fence = Fence::new(etcd, &FenceId::new(cluster, "jobs/settle")?);
//! fence.arm().await?; // once for the resource
//!
//! fence.claim(token).await?; // before the first read
//! fence.write(token, &[KvChange::put("paid/7", "1200")]).await?;
//! # Ok(())
//! # }
//! ```

mod change;
mod kv;
mod operator;
mod pb;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::token::Number;
use tonic::transport::Channel;

use crate::admission::{Admission, PresentedToken};
use crate::mark_fixed_text::FixedMark;
use crate::observer::EventSink;
use crate::seal_verifier::SealCheck;
use crate::{ApplyOnce, Counters, Error, FenceId, FenceRefusal, MarkLoss, Observer, Operation, SealVerifier};
pub use change::KvChange;
use kv::{KeyState, Kv};
pub use operator::list_marks;

/// Default of [`Fence::with_claim_timeout`].
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Default prefix of the keys of marks.
const PREFIX: &str = "leasehold/";

/// A fence for one slot of a resource, in an etcd cluster.
#[derive(Clone, Debug)]
pub struct Fence {
    id: FenceId,
    seals: SealCheck,
    kv: Kv,
    prefix: String,
    claim_timeout: Duration,
    /// The last known mark. It may be outdated: every transaction compares it.
    cached: Arc<Mutex<Option<KeyState>>>,
    events: EventSink,
}

impl Fence {
    /// Creates a fence for a slot of a resource. The slot of an exclusive lease is 0.
    pub fn new(etcd: Channel, id: &FenceId) -> Self {
        let (kv, prefix) = (Kv::new(etcd), PREFIX.to_owned());
        Self {
            id: id.clone(),
            seals: SealCheck::default(),
            kv,
            prefix,
            claim_timeout: CLAIM_TIMEOUT,
            cached: Arc::default(),
            events: EventSink::default(),
        }
    }

    /// Sets the prefix of the mark's key. All fences of the same data must use the same prefix. Default: `leasehold/`.
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// How long a claim or a write retries while other writers change the mark (F8). Default: 5 s.
    pub const fn with_claim_timeout(mut self, timeout: Duration) -> Self {
        self.claim_timeout = timeout;
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

    /// Counters of the decisions of this fence and its clones.
    pub fn counters(&self) -> &Counters {
        &self.events.counters
    }

    /// The key of the mark.
    pub fn key(&self) -> String {
        format!("{}{}/{:08x}", self.prefix, self.id.resource_hash(), self.id.slot())
    }

    /// Raises the mark; it is durable when this returns. A new holder calls this before it reads.
    pub async fn claim(&self, token: impl AsRef<str>) -> Result<Number, Error> {
        let result = self.apply(token.as_ref(), None, &[]).await;
        self.record(Operation::Claim, &result);
        Ok(result?.0.number)
    }

    /// Applies these changes in one transaction.
    pub async fn write(&self, token: impl AsRef<str>, changes: &[KvChange]) -> Result<Number, Error> {
        let result = self.apply(token.as_ref(), None, changes).await;
        self.record(Operation::Write, &result);
        Ok(result?.0.number)
    }

    /// Like [`write`](Self::write), with a sequence that the holder counts upward: a duplicate changes nothing. Wait for the
    /// reply to each write before the next one.
    pub async fn write_once(
        &self,
        token: impl AsRef<str>,
        sequence: u64,
        changes: &[KvChange],
    ) -> Result<ApplyOnce, Error> {
        let result = self.apply(token.as_ref(), Some(sequence), changes).await;
        self.record(Operation::Write, &result);
        Ok(result?.1)
    }

    async fn apply(
        &self,
        token: &str,
        sequence: Option<u64>,
        changes: &[KvChange],
    ) -> Result<(Admission, ApplyOnce), Error> {
        let presented = self.seals.present(&self.id, token)?;
        if changes.iter().any(|change| change.touches(&self.key())) {
            return Err(Error::InvalidArgument("a change sets the key of the mark, which only the fence writes"));
        }
        let began = Instant::now();
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The cached mark can admit a token, because the transaction compares it. It never rejects one.
        let mut current = match cached.filter(|current| self.check(current, presented, sequence).is_ok()) {
            Some(current) => current,
            None => self.kv.read(&self.key()).await?,
        };
        loop {
            let (mark, admission, once) = self.check(&current, presented, sequence)?;
            if matches!(once, ApplyOnce::AlreadyApplied { .. }) {
                // The write is certainly applied only if the mark is unchanged.
                current = match self.kv.compare_and_apply(&self.key(), &current, None, &[]).await? {
                    Ok(_) => return Ok((admission, once)),
                    Err(newer) => newer,
                };
            } else {
                let raised = mark.raised(presented, sequence).to_string();
                current = match self.kv.compare_and_apply(&self.key(), &current, Some(raised), changes).await? {
                    Ok(newer) => {
                        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = Some(newer);
                        return Ok((admission, once));
                    }
                    Err(newer) => newer,
                };
            }
            if began.elapsed() > self.claim_timeout {
                self.check(&current, presented, sequence)?;
                return Err(Error::Blocked { waited: began.elapsed(), blockers: Vec::new() });
            }
        }
    }

    /// Checks the token against a mark.
    fn check(
        &self,
        current: &KeyState,
        presented: PresentedToken,
        sequence: Option<u64>,
    ) -> Result<(FixedMark, Admission, ApplyOnce), Error> {
        let mark = current.mark()?;
        let (admission, once) = presented.admit(&mark.stored_mark(&self.id, &current.home)?, sequence)?;
        Ok((mark, admission, once))
    }

    fn record(&self, operation: Operation, result: &Result<(Admission, ApplyOnce), Error>) {
        let result = result.as_ref().map(|(admission, _)| admission);
        self.events.record(&self.id, operation, result);
    }
}

impl KeyState {
    fn mark(&self) -> Result<FixedMark, Error> {
        let Some(text) = &self.text else { return Err(FenceRefusal::MarkLost(MarkLoss::Missing).into()) };
        FixedMark::parse(text).ok_or(Error::Refused(FenceRefusal::MarkLost(MarkLoss::Unreadable)))
    }
}
