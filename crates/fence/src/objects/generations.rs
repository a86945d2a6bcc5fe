//! What still works in a store without compare-and-swap: every holder writes under a prefix that carries its number, and
//! readers follow the highest.
//!
//! Such a store cannot refuse anybody. A zombie's write lands, in a generation that nobody follows any more; it is told so
//! when it looks, after its write. What a successor took over is written down when its claim is complete, and nothing that
//! lands later changes that. A write that was told as kept is taken over: no higher claim was there when it had landed.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt;
use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};

use super::swap::failed;
use crate::observer::Watch;
use crate::place::{Passed, Place, Shown};
use crate::state::State;
use crate::{Act, Counters, Error, Lost, Mark, Observer, Refusal, text};

/// Announces a generation: from here on its predecessors' writes are not told as kept.
const CLAIM: &str = "claim";
/// Completes it: what it took over.
const TAKEN: &str = "taken";

/// The generations under one prefix.
#[derive(Clone, Debug)]
pub struct Generations {
    store: Arc<dyn ObjectStore>,
    root: Path,
    place: Place,
    watch: Watch,
}

/// A claimed generation, for its holder alone.
#[derive(Debug)]
pub struct Held {
    generations: Generations,
    shown: Shown,
    taken: BTreeMap<String, String>,
    next: u64,
}

impl Generations {
    /// The generations under this prefix. It looks at nothing yet.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        cluster: Cluster,
        resource: Name<'_>,
        slot: u32,
    ) -> Result<Self, Error> {
        let root = Path::parse(prefix).map_err(|error| Error::Storage(error.into()))?.join("generations");
        Ok(Self { store, root, place: Place::new(cluster, resource, slot), watch: Watch::default() })
    }

    /// Who is told every answer.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch.observer = Some(observer);
        self
    }

    /// What was answered here.
    pub fn counters(&self) -> &Counters {
        &self.watch.counters
    }

    /// Makes the first generation, below every token. Where one is already, it is left alone.
    pub async fn arm(&self) -> Result<(), Error> {
        if !self.numbers().await?.is_empty() {
            return Err(Error::Conflict("there are generations under this prefix already; claim the next one"));
        }
        self.put_list(0, TAKEN, &State::FRESH, &BTreeMap::new()).await
    }

    /// A new holder's first act: announces its generation, and takes over what the one before holds.
    pub async fn claim(&self, token: &str) -> Result<Held, Error> {
        let answer = self.take_over(token).await;
        let passed = answer.as_ref().map(|held| Passed { number: held.shown.number, left: None });
        self.watch.told(&self.place.name, self.place.guarded.slot, Act::Claim, passed.as_ref().map_err(|error| *error));
        answer
    }

    /// The content of a name and the number of the generation that is followed.
    pub async fn get(&self, name: &str) -> Result<Option<(Number, Vec<u8>)>, Error> {
        let (number, entries) = self.complete(u64::MAX).await?;
        let (Some(number), Some(key)) = (Number::new(number), entries.get(name)) else { return Ok(None) };
        Ok(Some((number, self.content(key).await?)))
    }

    /// The highest generation that was announced.
    pub async fn mark(&self) -> Result<Option<Number>, Error> {
        let highest = self.numbers().await?.last().copied().ok_or(Refusal::Lost(Lost::Missing))?;
        Ok(Number::new(highest))
    }

    async fn take_over(&self, token: &str) -> Result<Held, Error> {
        let shown = self.place.read(token)?;
        let number = shown.number.get();
        self.current(shown).await?;
        let state = State { seen: Some(shown.number), incarnation: Some(shown.incarnation), ..State::FRESH };
        let complete = self.list_of(number, TAKEN).await?;
        let taken = match complete {
            // The same hold, going on.
            Some(taken) => taken,
            None => {
                self.put_list(number, CLAIM, &state, &BTreeMap::new()).await?;
                // Only now: whoever writes below from here on looks afterwards, and finds the claim.
                let (_, taken) = self.complete(number).await?;
                self.put_list(number, TAKEN, &state, &taken).await?;
                taken
            }
        };
        self.current(shown).await?;
        let next = self.written(number).await?.len() as u64;
        Ok(Held { generations: self.clone(), shown, taken, next })
    }

    /// Refuses a number below the highest generation that was announced.
    async fn current(&self, shown: Shown) -> Result<Number, Error> {
        let mark = match self.numbers().await?.last() {
            None => Mark::Lost,
            Some(highest) => Number::new(*highest).map_or(Mark::Fresh, Mark::Armed),
        };
        shown.against(mark, Lost::Missing)
    }

    /// The newest complete generation below this number, and what it holds.
    async fn complete(&self, below: u64) -> Result<(u64, BTreeMap<String, String>), Error> {
        for number in self.numbers().await?.into_iter().rev().filter(|number| *number < below) {
            if let Some(mut entries) = self.list_of(number, TAKEN).await? {
                for key in self.written(number).await? {
                    let name = key.rsplit_once('/').expect("a written key has its name behind a slash").1;
                    entries.insert(name.to_owned(), key.clone());
                }
                return Ok((number, entries));
            }
        }
        Err(Refusal::Lost(Lost::Missing).into())
    }

    /// The numbers of all generations, rising.
    async fn numbers(&self) -> Result<Vec<u64>, Error> {
        let listed = self.store.list_with_delimiter(Some(&self.root)).await.map_err(failed)?;
        let parts = listed.common_prefixes.iter().filter_map(|prefix| prefix.filename()?.parse().ok());
        let mut numbers: Vec<u64> = parts.collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The keys that a generation's holder wrote, below its root, in the order in which it wrote them.
    async fn written(&self, number: u64) -> Result<Vec<String>, Error> {
        let folder = self.folder(number).join("w");
        let listed = self.store.list(Some(&folder)).map_ok(|object| object.location);
        let listed: Vec<Path> = listed.try_collect().await.map_err(failed)?;
        let below = format!("{}/", self.root);
        let mut keys: Vec<String> =
            listed.iter().filter_map(|at| at.as_ref().strip_prefix(&below).map(str::to_owned)).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    async fn list_of(&self, number: u64, what: &str) -> Result<Option<BTreeMap<String, String>>, Error> {
        let object = match self.store.get(&self.folder(number).join(what)).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            object => object.map_err(failed)?,
        };
        let body = object.bytes().await.map_err(failed)?;
        let body = str::from_utf8(&body).map_err(|_| Refusal::Lost(Lost::Unreadable))?;
        let written = text::read(body)?;
        written.at(&self.place)?;
        if written.value("at") != Some(self.root.as_ref()) {
            return Err(Refusal::Lost(Lost::Moved).into());
        }
        let entries = written.rest.iter().filter(|(word, _)| *word == "entry");
        let entries = entries.map(|(_, value)| value.split_once(' ').map(|(key, name)| (name.into(), key.into())));
        Ok(Some(entries.collect::<Option<_>>().ok_or(Refusal::Lost(Lost::Unreadable))?))
    }

    async fn put_list(
        &self,
        number: u64,
        what: &str,
        state: &State,
        entries: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let mut rest = vec![("at", self.root.to_string())];
        rest.extend(entries.iter().map(|(name, key)| ("entry", format!("{key} {name}"))));
        let body = text::write(&self.place, state, &rest);
        self.store.put(&self.folder(number).join(what), body.into()).await.map(|_| ()).map_err(failed)
    }

    async fn content(&self, key: &str) -> Result<Vec<u8>, Error> {
        let location = Path::parse(format!("{}/{key}", self.root)).map_err(|error| Error::Storage(error.into()))?;
        Ok(self.store.get(&location).await.map_err(failed)?.bytes().await.map_err(failed)?.to_vec())
    }

    fn folder(&self, number: u64) -> Path {
        self.root.clone().join(format!("{number:019}"))
    }
}

impl Held {
    /// This generation's number.
    pub const fn number(&self) -> Number {
        self.shown.number
    }

    /// Gives a name its content. Told as kept only if no higher claim was there afterwards; told as stale, the bytes may
    /// lie there all the same, and a successor may or may not have taken them over.
    pub async fn put(&mut self, name: &str, content: &[u8]) -> Result<Number, Error> {
        let answer = self.keep(name, content).await;
        let passed = answer.as_ref().map(|number| Passed { number: *number, left: None });
        let Generations { place, watch, .. } = &self.generations;
        watch.told(&place.name, place.guarded.slot, Act::Write, passed.as_ref().map_err(|error| *error));
        answer
    }

    /// The content of a name, as this holder took it over or wrote it.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        match self.taken.get(name) {
            Some(key) => self.generations.content(key).await.map(Some),
            None => Ok(None),
        }
    }

    async fn keep(&mut self, name: &str, content: &[u8]) -> Result<Number, Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > 512 || !name.chars().all(plain) || name.starts_with('.') {
            return Err(Error::Misplaced("a name here has 1 to 512 letters, digits, `.`, `_` and `-`; choose another"));
        }
        let generations = &self.generations;
        generations.current(self.shown).await?;
        // Each write has a key of its own, so that one that comes late cannot replace one that came after it.
        let key = format!("{:019}/w/{:019}/{name}", self.shown.number.get(), self.next);
        let location = Path::parse(format!("{}/{key}", generations.root)).map_err(|e| Error::Storage(e.into()))?;
        self.next += 1;
        generations.store.put(&location, content.to_vec().into()).await.map_err(failed)?;
        self.taken.insert(name.to_owned(), key);
        generations.current(self.shown).await
    }
}
