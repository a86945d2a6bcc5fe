//! A fence for objects in S3 and similar stores. A manifest lists the objects that exist, and is replaced by compare-and-swap.
//!
//! A write stores its data under keys with its token's number, and then replaces the manifest with a conditional put. The
//! mark, a nonce and the names of all data are in the *body* of the manifest, because metadata does not change the ETag that
//! the store compares. A concurrent writer is rejected by the store itself; it reads the manifest again and checks its token
//! before it retries.
//!
//! Use [`Generations`] for stores without conditional puts.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_fence::{Cluster, FenceId, Incarnation, Number, Token, TokenScope, resource_hash};
//! # let cluster = Cluster(*b"examples");
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: resource_hash("jobs/settle"),
//! #     scope: TokenScope::Slot(0), number: Number::FIRST }.to_string();
//! # let store = std::sync::Arc::new(object_store::memory::InMemory::new());
//! use leasehold_fence::objects::{Fence, ObjectChange};
//!
//! let fence = Fence::new(store, "accounts/7", &FenceId::new(cluster, "jobs/settle")?)?;
//! fence.arm().await?; // once
//! fence.claim(&token).await?; // before the first read
//! fence.write(&token, &[ObjectChange::Put("balance", b"1200")]).await?;
//! assert_eq!(fence.get("balance").await?.unwrap(), b"1200");
//! # Ok(())
//! # }
//! ```

mod cas;
mod conditions;
mod gc;
mod generations;
mod manifest;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::admission::Admission;
use crate::mark_state::MarkState;
use crate::observer::EventSink;
use crate::seal_verifier::SealCheck;
use crate::{ApplyOnce, Counters, Error, FenceId, FenceRefusal, MarkLoss, Observer, Operation, SealVerifier};
use cas::{CasOutcome, ManifestCas, StoredManifest};
pub use gc::list_marks;
pub use generations::{ClaimedGeneration, Generations};
use manifest::{FILE, Manifest, data_key};
pub use object_store;

/// Default of [`Fence::with_claim_timeout`].
const CLAIM_TIMEOUT: Duration = Duration::from_secs(30);

/// A change to the objects of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectChange<'a> {
    /// Set the content of a name.
    Put(&'a str, &'a [u8]),
    /// Remove a name.
    Remove(&'a str),
}

/// A fence for the objects under one prefix of a store with conditional puts. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Fence {
    store: Arc<dyn ObjectStore>,
    root: Path,
    id: FenceId,
    seals: SealCheck,
    claim_timeout: Duration,
    events: EventSink,
}

/// What a write does besides raising the mark.
enum WritePlan<'a> {
    Claim,
    /// The second field contains the data keys, once the data is stored.
    Changes(&'a [ObjectChange<'a>], Option<Vec<String>>),
    /// The last field is the data key that did not exist in an earlier attempt.
    Update(&'a str, &'a mut (dyn FnMut(Option<&[u8]>) -> Vec<u8> + Send), Option<String>),
}

impl Fence {
    /// Creates a fence for this prefix, without any request to the store.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, id: &FenceId) -> Result<Self, Error> {
        let root = Path::parse(prefix).map_err(|error| Error::Storage(error.into()))?;
        let (seals, events) = (SealCheck::default(), EventSink::default());
        Ok(Self { store, root, id: id.clone(), seals, claim_timeout: CLAIM_TIMEOUT, events })
    }

    /// How long a claim or a write retries while other writers interfere (F8). Default: 30 s.
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

    /// Counters of the decisions of this fence.
    pub fn counters(&self) -> &Counters {
        &self.events.counters
    }

    /// Creates the manifest, armed as fresh: its first token sets the mark. Fails if it exists, and if the store does not refuse a
    /// conditional put whose condition is not met.
    pub async fn arm(&self) -> Result<(), Error> {
        conditions::ensure_refused(&*self.store, &self.root).await?;
        let mut cas = ManifestCas::new(self)?;
        match cas.put(None, &Manifest::fresh().next(cas.nonce())).await? {
            CasOutcome::Swapped => Ok(()),
            CasOutcome::Retry if cas.is_applied(&cas.read().await?.manifest)? => Ok(()),
            CasOutcome::Retry => Err(Error::Conflict("the prefix has a manifest already; use it, or re-arm it")),
        }
    }

    /// Raises the mark. A new holder calls this before it reads.
    pub async fn claim(&self, token: impl AsRef<str>) -> Result<Number, Error> {
        self.step(Operation::Claim, token.as_ref(), None, WritePlan::Claim).await.map(|(admission, _)| admission.number)
    }

    /// Applies these changes atomically.
    pub async fn write(&self, token: impl AsRef<str>, changes: &[ObjectChange<'_>]) -> Result<Number, Error> {
        self.step(Operation::Write, token.as_ref(), None, WritePlan::Changes(changes, None))
            .await
            .map(|(admission, _)| admission.number)
    }

    /// Like [`write`](Self::write), with a sequence that the holder counts upward: a duplicate changes nothing.
    pub async fn write_once(
        &self,
        token: impl AsRef<str>,
        sequence: u64,
        changes: &[ObjectChange<'_>],
    ) -> Result<ApplyOnce, Error> {
        self.step(Operation::Write, token.as_ref(), Some(sequence), WritePlan::Changes(changes, None))
            .await
            .map(|(_, once)| once)
    }

    /// Computes the new content of a name from the current one. No other write happens in between. `change` is called again
    /// after each conflict with another writer.
    pub async fn update(
        &self,
        token: impl AsRef<str>,
        name: &str,
        mut change: impl FnMut(Option<&[u8]>) -> Vec<u8> + Send,
    ) -> Result<Number, Error> {
        self.step(Operation::Write, token.as_ref(), None, WritePlan::Update(name, &mut change, None))
            .await
            .map(|(admission, _)| admission.number)
    }

    /// The content of a name, if it exists.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let mut before = None;
        loop {
            let stored = ManifestCas::new(self)?.read().await?;
            let Some(key) = stored.manifest.entries.get(name) else { return Ok(None) };
            match self.store.get(&self.data(key)).await {
                Ok(object) => return Ok(Some(object.bytes().await.map_err(cas::storage_error)?.to_vec())),
                // Replaced and garbage-collected since the manifest was read, unless the manifest still lists it.
                Err(object_store::Error::NotFound { .. }) if before.as_ref() != Some(key) => before = Some(key.clone()),
                Err(object_store::Error::NotFound { path, .. }) => return Err(missing_object(path)),
                Err(error) => return Err(cas::storage_error(error)),
            }
        }
    }

    /// All names.
    pub async fn names(&self) -> Result<Vec<String>, Error> {
        Ok(ManifestCas::new(self)?.read().await?.manifest.entries.into_keys().collect())
    }

    /// The mark; `None` if no token was admitted yet. A lost mark is a refusal.
    pub async fn mark(&self) -> Result<Option<Number>, Error> {
        ManifestCas::new(self)?.read().await?.manifest.state.mark()
    }

    /// Declares the mark lost: the bucket was restored to an earlier state. All tokens are rejected until [`Fence::rearm`].
    pub async fn declare_lost(&self) -> Result<(), Error> {
        self.operate(MarkState::declare_lost).await
    }

    /// Re-arms a manifest that was copied, restored or declared lost. No earlier holder may have a number above `floor`. A
    /// floor below the mark is an error.
    pub async fn rearm(&self, floor: Number) -> Result<(), Error> {
        self.operate(|state| state.rearm(floor)).await
    }

    /// Sets whether the fence rejects tokens of other incarnations until they are adopted (T5).
    pub async fn strict(&self, enabled: bool) -> Result<(), Error> {
        self.operate(|state| state.set_strict(enabled)).await
    }

    /// Seals the fence, permanently: a process without a [`SealVerifier`] refuses all tokens from now on (A8). It binds those
    /// who write through this fence; the store itself verifies nothing.
    pub async fn seal(&self) -> Result<(), Error> {
        self.operate(MarkState::seal).await
    }

    /// Makes a strict fence follow this incarnation.
    pub async fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.operate(|state| state.adopt(incarnation)).await
    }

    fn manifest(&self) -> Path {
        self.root.clone().join(FILE)
    }

    fn data(&self, key: &str) -> Path {
        self.root.clone().join("data").join(key)
    }

    async fn operate(&self, change: impl Fn(&mut MarkState) -> Result<(), Error>) -> Result<(), Error> {
        let mut cas = ManifestCas::new(self)?;
        loop {
            let stored = cas.read().await.map_err(|error| self.unreadable_manifest(error))?;
            if cas.is_applied(&stored.manifest)? {
                return Ok(());
            }
            let mut next = stored.manifest.next(cas.nonce());
            change(&mut next.state)?;
            if let CasOutcome::Swapped = cas.put(Some(&stored), &next).await? {
                return Ok(());
            }
        }
    }

    /// The error for operators: a manifest that cannot be read lists no objects, so that re-arming it would lose them.
    fn unreadable_manifest(&self, error: Error) -> Error {
        match error {
            Error::Refused(FenceRefusal::MarkLost(MarkLoss::Unreadable)) => {
                let reason = "the manifest cannot be read, and it lists the objects";
                Error::Corrupt { file: self.manifest().to_string().into(), offset: 0, reason }
            }
            error => error,
        }
    }

    async fn step(
        &self,
        operation: Operation,
        token: &str,
        sequence: Option<u64>,
        mut plan: WritePlan<'_>,
    ) -> Result<(Admission, ApplyOnce), Error> {
        let result = self.attempt(token, sequence, &mut plan).await;
        let admission = result.as_ref().map(|(admission, _)| admission);
        self.events.record(&self.id, operation, admission);
        result
    }

    async fn attempt(
        &self,
        token: &str,
        sequence: Option<u64>,
        plan: &mut WritePlan<'_>,
    ) -> Result<(Admission, ApplyOnce), Error> {
        let presented = self.seals.present(&self.id, token)?;
        if let WritePlan::Changes(changes, _) = plan {
            changes.iter().try_for_each(|change| validate_name(change.name()))?;
        } else if let WritePlan::Update(name, ..) = plan {
            validate_name(name)?;
        }
        let mut cas = ManifestCas::new(self)?;
        let mut admission = Admission { number: presented.number, previous_incarnation: None };
        loop {
            let stored = cas.read().await?;
            // Before the token is checked: a successor may have claimed after this write was applied, but before its reply arrived.
            if cas.is_applied(&stored.manifest)? {
                return Ok((admission, ApplyOnce::Applied));
            }
            let once;
            (admission, once) = presented.admit(&stored.manifest.state.stored_mark(), sequence)?;
            if let ApplyOnce::AlreadyApplied { .. } = once {
                return Ok((admission, once));
            }
            let mut next = stored.manifest.next(cas.nonce());
            next.state.raise(presented, sequence);
            if matches!(plan, WritePlan::Claim) && next.state == stored.manifest.state {
                return Ok((admission, once));
            }
            if !self.put_data(&mut next, &stored, &cas, plan, presented.number).await? {
                continue;
            }
            if let CasOutcome::Swapped = cas.put(Some(&stored), &next).await? {
                return Ok((admission, once));
            }
        }
    }

    /// Stores the data for the next manifest. It does not exist until that manifest is stored. Returns false if the manifest must
    /// be read again.
    async fn put_data(
        &self,
        next: &mut Manifest,
        stored: &StoredManifest,
        cas: &ManifestCas<'_>,
        plan: &mut WritePlan<'_>,
        number: Number,
    ) -> Result<bool, Error> {
        match plan {
            WritePlan::Claim => {}
            WritePlan::Changes(changes, keys) => {
                if keys.is_none() {
                    let mut put = Vec::with_capacity(changes.len());
                    for (part, change) in changes.iter().enumerate() {
                        put.push(data_key(number, cas.nonce(), part));
                        if let ObjectChange::Put(_, content) = change {
                            self.put_object(&put[part], content.to_vec()).await?;
                        }
                    }
                    *keys = Some(put);
                }
                for (change, key) in changes.iter().zip(keys.iter().flatten()) {
                    match change {
                        ObjectChange::Put(name, _) => next.entries.insert((*name).to_owned(), key.clone()),
                        ObjectChange::Remove(name) => next.entries.remove(*name),
                    };
                }
            }
            WritePlan::Update(name, change, missing) => {
                let old = match stored.manifest.entries.get(*name) {
                    Some(key) => match self.store.get(&self.data(key)).await {
                        // Garbage-collected since the manifest was read, unless the manifest still lists it.
                        Err(object_store::Error::NotFound { .. }) if missing.as_ref() != Some(key) => {
                            *missing = Some(key.clone());
                            return Ok(false);
                        }
                        Err(object_store::Error::NotFound { path, .. }) => return Err(missing_object(path)),
                        object => Some(object.map_err(cas::storage_error)?.bytes().await.map_err(cas::storage_error)?),
                    },
                    None => None,
                };
                let key = data_key(number, cas.nonce(), cas.tries());
                self.put_object(&key, change(old.as_deref())).await?;
                next.entries.insert((*name).to_owned(), key);
            }
        }
        Ok(true)
    }

    async fn put_object(&self, key: &str, content: Vec<u8>) -> Result<(), Error> {
        self.store.put(&self.data(key), content.into()).await.map(|_| ()).map_err(cas::storage_error)
    }
}

impl ObjectChange<'_> {
    const fn name(&self) -> &str {
        match self {
            Self::Put(name, _) | Self::Remove(name) => name,
        }
    }
}

fn missing_object(path: String) -> Error {
    Error::Corrupt { file: path.into(), offset: 0, reason: "the manifest lists an object that does not exist" }
}

/// Checks that a name fits on a line of the manifest.
fn validate_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > 512 || name.chars().any(char::is_control) {
        return Err(Error::InvalidArgument("a name has 1 to 512 bytes and no control characters; choose another"));
    }
    Ok(())
}
