//! Objects in a store like S3 that refuse the zombie: only what the manifest names exists, and the manifest is swapped.
//!
//! A write puts its data under keys that carry its token's number, and then swaps the manifest by a conditional put: the
//! mark, a nonce and the names of all data stand in its *body*, because what stands in metadata does not change the tag
//! that the store compares. Whoever comes too late is refused by the store itself, reads again, and asks the rule before it
//! tries again.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_core::{name::{Name, resource_hash}, token::{Cluster, Incarnation, Number, Reach, Token}};
//! # let (cluster, name) = (Cluster(*b"examples"), Name::parse("jobs/settle")?);
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: resource_hash("jobs/settle"),
//! #     reach: Reach::Slot(0), number: Number::FIRST }.to_string();
//! # let store = std::sync::Arc::new(object_store::memory::InMemory::new());
//! use leasehold_fence::objects::{Change, Fence};
//!
//! let fence = Fence::new(store, "accounts/7", cluster, name, 0)?;
//! fence.arm().await?; // once
//! fence.claim(&token).await?; // a new holder's first act, before it reads
//! fence.write(&token, &[Change::Put("balance", b"1200")]).await?;
//! assert_eq!(fence.get("balance").await?.unwrap(), b"1200");
//! # Ok(())
//! # }
//! ```

mod generations;
mod manifest;
mod swap;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Incarnation, Number};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::observer::Watch;
use crate::place::{Passed, Place};
use crate::state::State;
use crate::{Act, Counters, Error, Observer, Once};
pub use generations::{Generations, Held};
use manifest::{FILE, Manifest, data_key};
pub use object_store;
use swap::{Found, Put, Swap};
pub use sweep::survey;

/// How long a write tries to get in between others, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// A change to the objects behind a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// This name has this content from now on.
    Put(&'a str, &'a [u8]),
    /// This name does not exist from now on.
    Remove(&'a str),
}

/// A fence before all that lies under one prefix of a store with compare-and-swap. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fence {
    store: Arc<dyn ObjectStore>,
    root: Path,
    place: Place,
    patience: Duration,
    watch: Watch,
}

/// What a step does besides raising the mark.
enum Work<'a> {
    Claim,
    /// The keys are those of the data, once it was put.
    Changes(&'a [Change<'a>], Option<Vec<String>>),
    Update(&'a str, &'a mut (dyn FnMut(Option<&[u8]>) -> Vec<u8> + Send)),
}

impl Fence {
    /// A fence before this prefix. It looks at nothing yet.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        cluster: Cluster,
        resource: Name<'_>,
        slot: u32,
    ) -> Result<Self, Error> {
        let root = Path::parse(prefix).map_err(|error| Error::Storage(error.into()))?;
        let place = Place::new(cluster, resource, slot);
        Ok(Self { store, root, place, patience: PATIENCE, watch: Watch::default() })
    }

    /// How long a claim or a write may try while others get in before it (F8); 30 s unless set.
    pub const fn patience(mut self, bound: Duration) -> Self {
        self.patience = bound;
        self
    }

    /// Who is told every answer.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch.observer = Some(observer);
        self
    }

    /// What this fence answered.
    pub fn counters(&self) -> &Counters {
        &self.watch.counters
    }

    /// Makes the manifest, armed as fresh: its first token sets the mark. One that is there already is left alone.
    pub async fn arm(&self) -> Result<(), Error> {
        let mut swap = Swap::new(self)?;
        match swap.put(None, &Manifest::fresh().next(swap.nonce())).await? {
            Put::Kept => Ok(()),
            Put::Again if swap.landed(&swap.read().await?.manifest)? => Ok(()),
            Put::Again => Err(Error::Conflict("there is a manifest under this prefix already; use it, or re-arm it")),
        }
    }

    /// A new holder's first act, before it reads: raises the mark.
    pub async fn claim(&self, token: &str) -> Result<Number, Error> {
        self.step(Act::Claim, token, None, Work::Claim).await.map(|(passed, _)| passed.number)
    }

    /// Applies these changes, all or none.
    pub async fn write(&self, token: &str, changes: &[Change<'_>]) -> Result<Number, Error> {
        self.step(Act::Write, token, None, Work::Changes(changes, None)).await.map(|(passed, _)| passed.number)
    }

    /// The same, numbered inside the hold: a late duplicate changes nothing.
    pub async fn write_once(&self, token: &str, sequence: u64, changes: &[Change<'_>]) -> Result<Once, Error> {
        self.step(Act::Write, token, Some(sequence), Work::Changes(changes, None)).await.map(|(_, once)| once)
    }

    /// Makes a name's content from what it was, which nobody changes in between. `change` is asked again whenever somebody
    /// else got in first.
    pub async fn update(
        &self,
        token: &str,
        name: &str,
        mut change: impl FnMut(Option<&[u8]>) -> Vec<u8> + Send,
    ) -> Result<Number, Error> {
        self.step(Act::Write, token, None, Work::Update(name, &mut change)).await.map(|(passed, _)| passed.number)
    }

    /// The content of a name, if it exists.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let mut before = None;
        loop {
            let found = Swap::new(self)?.read().await?;
            let Some(key) = found.manifest.entries.get(name) else { return Ok(None) };
            match self.store.get(&self.data(key)).await {
                Ok(object) => return Ok(Some(object.bytes().await.map_err(swap::failed)?.to_vec())),
                // Replaced and swept since the manifest was read, unless the manifest still names it.
                Err(object_store::Error::NotFound { .. }) if before.as_ref() != Some(key) => before = Some(key.clone()),
                Err(object_store::Error::NotFound { path, .. }) => {
                    let reason = "the manifest names it, and it is not there";
                    return Err(Error::Corrupt { file: path.into(), offset: 0, reason });
                }
                Err(error) => return Err(swap::failed(error)),
            }
        }
    }

    /// The names that exist.
    pub async fn names(&self) -> Result<Vec<String>, Error> {
        Ok(Swap::new(self)?.read().await?.manifest.entries.into_keys().collect())
    }

    /// The mark that is kept. What is lost is told as a refusal.
    pub async fn mark(&self) -> Result<Option<Number>, Error> {
        Swap::new(self)?.read().await?.manifest.state.mark()
    }

    /// From now on everything is refused until [`Fence::rearm`]: the bucket was put back to what it was earlier.
    pub async fn declare_lost(&self) -> Result<(), Error> {
        self.operate(State::declare_lost).await
    }

    /// Arms a manifest that was copied, restored or declared lost, from a floor that no holder of before lies above. A
    /// floor below what was seen is refused.
    pub async fn rearm(&self, floor: Number) -> Result<(), Error> {
        self.operate(|state| state.rearm(floor)).await
    }

    /// From now on a token of an incarnation that it does not know is refused until it is adopted (T5).
    pub async fn make_strict(&self) -> Result<(), Error> {
        self.operate(State::make_strict).await
    }

    /// A strict fence follows this incarnation from now on.
    pub async fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.operate(|state| state.adopt(incarnation)).await
    }

    fn manifest(&self) -> Path {
        self.root.clone().join(FILE)
    }

    fn data(&self, key: &str) -> Path {
        self.root.clone().join("data").join(key)
    }

    async fn operate(&self, change: impl Fn(&mut State) -> Result<(), Error>) -> Result<(), Error> {
        let mut swap = Swap::new(self)?;
        loop {
            let found = swap.read().await?;
            if swap.landed(&found.manifest)? {
                return Ok(());
            }
            let mut next = found.manifest.next(swap.nonce());
            change(&mut next.state)?;
            if let Put::Kept = swap.put(Some(&found), &next).await? {
                return Ok(());
            }
        }
    }

    async fn step(
        &self,
        act: Act,
        token: &str,
        sequence: Option<u64>,
        mut work: Work<'_>,
    ) -> Result<(Passed, Once), Error> {
        let answer = self.attempt(token, sequence, &mut work).await;
        let told = answer.as_ref().map(|(passed, _)| passed);
        self.watch.told(&self.place.name, self.place.guarded.slot, act, told);
        answer
    }

    async fn attempt(&self, token: &str, sequence: Option<u64>, work: &mut Work<'_>) -> Result<(Passed, Once), Error> {
        let shown = self.place.read(token)?;
        if let Work::Changes(changes, _) = work {
            changes.iter().try_for_each(|change| named(change.name()))?;
        } else if let Work::Update(name, _) = work {
            named(name)?;
        }
        let mut swap = Swap::new(self)?;
        let mut passed = Passed { number: shown.number, left: None };
        loop {
            let found = swap.read().await?;
            // Before the rule is asked: a successor may have come after this write landed and before its answer did.
            if swap.landed(&found.manifest)? {
                return Ok((passed, Once::Applied));
            }
            let once;
            (passed, once) = shown.pass(&found.manifest.state.standing(), sequence)?;
            if let Once::AlreadyApplied { .. } = once {
                return Ok((passed, once));
            }
            let mut next = found.manifest.next(swap.nonce());
            next.state.raise(shown, sequence);
            if matches!(work, Work::Claim) && next.state == found.manifest.state {
                return Ok((passed, once));
            }
            self.put_data(&mut next, &found, &swap, work, shown.number).await?;
            if let Put::Kept = swap.put(Some(&found), &next).await? {
                return Ok((passed, once));
            }
        }
    }

    /// Puts the data that the next manifest is to name. Until that manifest is put, none of it exists.
    async fn put_data(
        &self,
        next: &mut Manifest,
        found: &Found,
        swap: &Swap<'_>,
        work: &mut Work<'_>,
        number: Number,
    ) -> Result<(), Error> {
        match work {
            Work::Claim => {}
            Work::Changes(changes, keys) => {
                if keys.is_none() {
                    let mut put = Vec::with_capacity(changes.len());
                    for (part, change) in changes.iter().enumerate() {
                        put.push(data_key(number, swap.nonce(), part));
                        if let Change::Put(_, content) = change {
                            self.put_object(&put[part], content.to_vec()).await?;
                        }
                    }
                    *keys = Some(put);
                }
                for (change, key) in changes.iter().zip(keys.iter().flatten()) {
                    match change {
                        Change::Put(name, _) => next.entries.insert((*name).to_owned(), key.clone()),
                        Change::Remove(name) => next.entries.remove(*name),
                    };
                }
            }
            Work::Update(name, change) => {
                let old = match found.manifest.entries.get(*name) {
                    Some(key) => match self.store.get(&self.data(key)).await {
                        // Swept since: then the manifest was swapped too, and this attempt comes to nothing.
                        Err(object_store::Error::NotFound { .. }) => None,
                        object => Some(object.map_err(swap::failed)?.bytes().await.map_err(swap::failed)?),
                    },
                    None => None,
                };
                let key = data_key(number, swap.nonce(), swap.tries());
                self.put_object(&key, change(old.as_deref())).await?;
                next.entries.insert((*name).to_owned(), key);
            }
        }
        Ok(())
    }

    async fn put_object(&self, key: &str, content: Vec<u8>) -> Result<(), Error> {
        self.store.put(&self.data(key), content.into()).await.map(|_| ()).map_err(swap::failed)
    }
}

impl Change<'_> {
    const fn name(&self) -> &str {
        match self {
            Self::Put(name, _) | Self::Remove(name) => name,
        }
    }
}

/// A name stands in a line of the manifest.
fn named(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > 512 || name.chars().any(char::is_control) {
        return Err(Error::Misplaced("a name has 1 to 512 bytes and no control characters; choose another"));
    }
    Ok(())
}
