//! A fence for stores without compare-and-swap: every holder writes under a prefix with its token number, and readers use the
//! highest complete generation.
//!
//! Such a store cannot reject a write. The write of a zombie is stored, but in a generation that no reader uses. The zombie
//! detects this when it lists the generations after its write. A claim records which objects it inherits when it completes, and
//! later writes of predecessors do not change that. An acknowledged write is always inherited: no higher claim existed when it
//! was stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt;
use leasehold_core::token::Number;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};

use super::cas::storage_error;
use crate::admission::{Admission, PresentedToken};
use crate::mark_state::MarkState;
use crate::nonce::nonce;
use crate::observer::EventSink;
use crate::seal_verifier::SealCheck;
use crate::{Counters, Error, FenceId, FenceRefusal, Mark, MarkLoss, Observer, Operation, SealVerifier, mark_text};

/// Object that announces a generation: from now on writes of its predecessors are not acknowledged.
const CLAIM: &str = "claim";
/// Object that completes a generation. It lists the inherited objects.
const INHERITED: &str = "taken";

/// Folder with one object for each further claim of the same holder.
const AGAIN: &str = "again";
/// Number of indices for the writes of one claim.
const WRITES_PER_CLAIM: u64 = 1_000_000_000;

/// All generations under one prefix.
#[derive(Clone, Debug)]
pub struct Generations {
    store: Arc<dyn ObjectStore>,
    root: Path,
    id: FenceId,
    seals: SealCheck,
    events: EventSink,
}

/// The generation of one holder. Only this holder uses it.
#[derive(Debug)]
pub struct ClaimedGeneration {
    generations: Generations,
    presented: PresentedToken,
    inherited: BTreeMap<String, String>,
    next: u64,
}

impl Generations {
    /// Creates a fence for this prefix, without any request to the store.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, id: &FenceId) -> Result<Self, Error> {
        let root = Path::parse(prefix).map_err(|error| Error::Storage(error.into()))?.join("generations");
        Ok(Self { store, root, id: id.clone(), seals: SealCheck::default(), events: EventSink::default() })
    }

    /// Verifies the seal of every token with these keys; tokens that none of them signed are refused (A8). A generation stores
    /// no seal: give the keys to every process that claims.
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

    /// Creates the first generation, below every token. Fails if one exists.
    pub async fn arm(&self) -> Result<(), Error> {
        if !self.numbers().await?.is_empty() {
            return Err(Error::Conflict("the prefix has generations already; claim the next one"));
        }
        self.put_list(0, INHERITED, &MarkState::FRESH, &BTreeMap::new()).await
    }

    /// Announces the generation of a new holder, and inherits the objects of its predecessor.
    pub async fn claim(&self, token: impl AsRef<str>) -> Result<ClaimedGeneration, Error> {
        let result = self.take_over(token.as_ref()).await;
        let admission = result
            .as_ref()
            .map(|generation| Admission { number: generation.presented.number, previous_incarnation: None });
        self.events.record(&self.id, Operation::Claim, admission.as_ref().map_err(|error| *error));
        result
    }

    /// The content of a name, and the number of the current generation.
    pub async fn get(&self, name: &str) -> Result<Option<(Number, Vec<u8>)>, Error> {
        let (number, entries) = self.latest_complete(u64::MAX).await?;
        let (Some(number), Some(key)) = (Number::new(number), entries.get(name)) else { return Ok(None) };
        Ok(Some((number, self.content(key).await?)))
    }

    /// The number of the highest announced generation.
    pub async fn mark(&self) -> Result<Option<Number>, Error> {
        let highest = self.numbers().await?.last().copied().ok_or(FenceRefusal::MarkLost(MarkLoss::Missing))?;
        Ok(Number::new(highest))
    }

    async fn take_over(&self, token: &str) -> Result<ClaimedGeneration, Error> {
        let presented = self.seals.present(&self.id, token)?;
        let number = presented.number.get();
        self.check_current(presented).await?;
        let state =
            MarkState { highest: Some(presented.number), incarnation: Some(presented.incarnation), ..MarkState::FRESH };
        let existing = self.list_of(number, INHERITED).await?;
        let (inherited, next) = match existing {
            // The same holder claims again.
            Some(inherited) => self.reopen(number, inherited).await?,
            None => {
                self.put_list(number, CLAIM, &state, &BTreeMap::new()).await?;
                // Only now: a predecessor that writes after this point finds the claim when it lists the generations.
                let (_, inherited) = self.latest_complete(number).await?;
                self.put_list(number, INHERITED, &state, &inherited).await?;
                (inherited, 0)
            }
        };
        self.check_current(presented).await?;
        Ok(ClaimedGeneration { generations: self.clone(), presented, inherited, next })
    }

    /// The objects of a generation that its holder claims again, and the first index for its writes. Each claim has indices of
    /// its own, above those of earlier claims: a write of an earlier claim whose outcome is unknown may still arrive, and must
    /// not replace a later one.
    async fn reopen(
        &self,
        number: u64,
        inherited: BTreeMap<String, String>,
    ) -> Result<(BTreeMap<String, String>, u64), Error> {
        let again = self.generation_path(number).join(AGAIN);
        let listed: Vec<Path> = self
            .store
            .list(Some(&again))
            .map_ok(|object| object.location)
            .try_collect()
            .await
            .map_err(storage_error)?;
        let claims = listed.iter().filter_map(|path| path.filename()?.parse::<u64>().ok());
        let claim = claims.max().unwrap_or(0) + 1;
        let marker = again.join(format!("{claim:019}"));
        self.store.put(&marker, Vec::new().into()).await.map_err(storage_error)?;
        Ok((self.with_written(number, inherited).await?, claim * WRITES_PER_CLAIM))
    }

    /// Adds what was written in a generation to what it inherited.
    async fn with_written(
        &self,
        number: u64,
        mut entries: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, Error> {
        for key in self.written_keys(number).await? {
            let name = key.rsplit_once('/').expect("a key ends with its name").1;
            entries.insert(name.to_owned(), key.clone());
        }
        Ok(entries)
    }

    /// Rejects a number below the highest announced generation.
    async fn check_current(&self, presented: PresentedToken) -> Result<Number, Error> {
        let mark = match self.numbers().await?.last() {
            None => Mark::Lost,
            Some(highest) => Number::new(*highest).map_or(Mark::Fresh, Mark::Armed),
        };
        presented.check_mark(mark, MarkLoss::Missing)
    }

    /// The newest complete generation below this number, and its objects.
    async fn latest_complete(&self, below: u64) -> Result<(u64, BTreeMap<String, String>), Error> {
        for number in self.numbers().await?.into_iter().rev().filter(|number| *number < below) {
            if let Some(entries) = self.list_of(number, INHERITED).await? {
                return Ok((number, self.with_written(number, entries).await?));
            }
        }
        Err(FenceRefusal::MarkLost(MarkLoss::Missing).into())
    }

    /// The numbers of all generations, in ascending order.
    async fn numbers(&self) -> Result<Vec<u64>, Error> {
        let listed = self.store.list_with_delimiter(Some(&self.root)).await.map_err(storage_error)?;
        let parts = listed.common_prefixes.iter().filter_map(|prefix| generation_number(prefix.filename()?));
        let mut numbers: Vec<u64> = parts.collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The keys written in a generation, relative to the root, in the order of the writes.
    async fn written_keys(&self, number: u64) -> Result<Vec<String>, Error> {
        let data = self.generation_path(number).join("w");
        let listed = self.store.list(Some(&data)).map_ok(|object| object.location);
        let listed: Vec<Path> = listed.try_collect().await.map_err(storage_error)?;
        let root = format!("{}/", self.root);
        let mut keys: Vec<String> =
            listed.iter().filter_map(|path| path.as_ref().strip_prefix(&root).map(str::to_owned)).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    async fn list_of(&self, number: u64, object: &str) -> Result<Option<BTreeMap<String, String>>, Error> {
        let object = match self.store.get(&self.generation_path(number).join(object)).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            object => object.map_err(storage_error)?,
        };
        let body = object.bytes().await.map_err(storage_error)?;
        let body = str::from_utf8(&body).map_err(|_| FenceRefusal::MarkLost(MarkLoss::Unreadable))?;
        let parsed = mark_text::parse(body)?;
        parsed.state_for(&self.id)?;
        if parsed.value("at") != Some(self.root.as_ref()) {
            return Err(FenceRefusal::MarkLost(MarkLoss::Moved).into());
        }
        let entries = parsed.extra.iter().filter(|(word, _)| *word == "entry");
        let entries = entries.map(|(_, value)| value.split_once(' ').map(|(key, name)| (name.into(), key.into())));
        Ok(Some(entries.collect::<Option<_>>().ok_or(FenceRefusal::MarkLost(MarkLoss::Unreadable))?))
    }

    async fn put_list(
        &self,
        number: u64,
        object: &str,
        state: &MarkState,
        entries: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let mut rest = vec![("at", self.root.to_string())];
        rest.extend(entries.iter().map(|(name, key)| ("entry", format!("{key} {name}"))));
        let body = mark_text::encode(&self.id, state, &rest);
        self.store.put(&self.generation_path(number).join(object), body.into()).await.map(|_| ()).map_err(storage_error)
    }

    async fn content(&self, key: &str) -> Result<Vec<u8>, Error> {
        let location = Path::parse(format!("{}/{key}", self.root)).map_err(|error| Error::Storage(error.into()))?;
        Ok(self.store.get(&location).await.map_err(storage_error)?.bytes().await.map_err(storage_error)?.to_vec())
    }

    fn generation_path(&self, number: u64) -> Path {
        self.root.clone().join(format!("{number:019}"))
    }
}

/// The number of a generation's folder: that of a token, or 0 for the first one. Other folders are none of the fence's.
fn generation_number(folder: &str) -> Option<u64> {
    let is_written_so = |number: &u64| format!("{number:019}") == folder;
    folder.parse().ok().filter(is_written_so).filter(|number| *number <= Number::MAX.get())
}

impl ClaimedGeneration {
    /// The number of this generation.
    pub const fn number(&self) -> Number {
        self.presented.number
    }

    /// Sets the content of a name. It succeeds only if no higher claim exists afterwards. If it fails as stale, the bytes may
    /// still be stored, and a successor may or may not have inherited them.
    pub async fn write(&mut self, name: &str, content: &[u8]) -> Result<Number, Error> {
        let result = self.try_write(name, content).await;
        let admission = result.as_ref().map(|number| Admission { number: *number, previous_incarnation: None });
        let Generations { id, events, .. } = &self.generations;
        events.record(id, Operation::Write, admission.as_ref().map_err(|error| *error));
        result
    }

    /// The content of a name, as inherited or written by this holder.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        match self.inherited.get(name) {
            Some(key) => self.generations.content(key).await.map(Some),
            None => Ok(None),
        }
    }

    async fn try_write(&mut self, name: &str, content: &[u8]) -> Result<Number, Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > 512 || !name.chars().all(plain) || name.starts_with('.') {
            return Err(Error::InvalidArgument(
                "a name has 1 to 512 letters, digits, `.`, `_` and `-`, and does not begin with `.`; choose another",
            ));
        }
        let generations = &self.generations;
        generations.check_current(self.presented).await?;
        // Each write has its own key, so that a delayed write cannot replace a later one, nor what a successor inherited. Two
        // processes that claim with one token at the same time may have the same index, hence the nonce.
        let key = format!("{:019}/w/{:019}-{}/{name}", self.presented.number.get(), self.next, nonce()?);
        let location = Path::parse(format!("{}/{key}", generations.root)).map_err(|e| Error::Storage(e.into()))?;
        self.next += 1;
        generations.store.put(&location, content.to_vec().into()).await.map_err(storage_error)?;
        self.inherited.insert(name.to_owned(), key);
        generations.check_current(self.presented).await
    }
}
