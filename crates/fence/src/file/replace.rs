//! A file that is replaced as a whole, and refuses the zombie: its mark is an attribute of the very file it guards.
//!
//! A write takes the kernel's lock on the file that stands there, asks the rule, writes another file with the new mark,
//! syncs it, and renames it into the place. So content and mark change in one step, over a crash too, and who reads finds
//! a whole file with nothing in it but what was written.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_core::{name::{Name, resource_hash}, token::{Cluster, Incarnation, Number, Reach, Token}};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("leader.conf");
//! # let (cluster, name) = (Cluster(*b"examples"), Name::parse("jobs/settle")?);
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: resource_hash("jobs/settle"),
//! #     reach: Reach::Slot(0), number: Number::FIRST }.to_string();
//! use leasehold_fence::file::Replace;
//!
//! Replace::create(&path, cluster, name, 0, b"")?; // once
//! let file = Replace::open(&path, cluster, name, 0)?;
//! file.claim(&token)?; // a new holder's first act, before it reads
//! file.write(&token, b"listen 10.0.0.7\n")?;
//! assert_eq!(std::fs::read(&path)?, b"listen 10.0.0.7\n"); // anybody reads it, without knowing of the fence
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Incarnation, Number};

use super::stand::{self, Inside, Stand};
use crate::observer::Watch;
use crate::place::{Passed, Place};
use crate::state::State;
use crate::{Act, Counters, Error, Observer, Once};

/// A fenced file. Any number of threads and processes may have it open.
#[derive(Debug)]
pub struct Replace {
    place: Place,
    stand: Stand,
    watch: Watch,
}

impl Replace {
    /// Makes the file, armed as fresh: its first token sets the mark. A file that is there already is left alone.
    pub fn create(path: &Path, cluster: Cluster, resource: Name<'_>, slot: u32, content: &[u8]) -> Result<(), Error> {
        stand::create(path, &Place::new(cluster, resource, slot), content)
    }

    /// Opens a fenced file. One that is not there, or keeps no mark, refuses.
    pub fn open(path: &Path, cluster: Cluster, resource: Name<'_>, slot: u32) -> Result<Self, Error> {
        let place = Place::new(cluster, resource, slot);
        let stand = Stand::at(path)?;
        stand::read(&stand.path)?.state(&place)?;
        Ok(Self { place, stand, watch: Watch::default() })
    }

    /// How long a claim or a write may wait for others to leave (F8); 5 s unless set.
    pub const fn patience(mut self, bound: Duration) -> Self {
        self.stand.patience = bound;
        self
    }

    /// Who is told every answer.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch.observer = Some(observer);
        self
    }

    /// What this handle answered.
    pub fn counters(&self) -> &Counters {
        &self.watch.counters
    }

    /// A new holder's first act, before it reads: raises the mark, durable when this returns. The content is written anew,
    /// and what writers that died left behind is cleared away.
    pub fn claim(&self, token: &str) -> Result<Number, Error> {
        self.step(Act::Claim, token, None, None::<fn(&[u8]) -> Vec<u8>>).map(|(passed, _)| passed.number)
    }

    /// Replaces the content under this token, durable when this returns.
    pub fn write(&self, token: &str, content: &[u8]) -> Result<Number, Error> {
        self.update(token, |_| content.to_vec())
    }

    /// The same with what was there, which nobody changes in between.
    pub fn update(&self, token: &str, change: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<Number, Error> {
        self.step(Act::Write, token, None, Some(change)).map(|(passed, _)| passed.number)
    }

    /// The same, numbered inside the hold: a late duplicate changes nothing.
    pub fn update_once(
        &self,
        token: &str,
        sequence: u64,
        change: impl FnOnce(&[u8]) -> Vec<u8>,
    ) -> Result<Once, Error> {
        self.step(Act::Write, token, Some(sequence), Some(change)).map(|(_, once)| once)
    }

    /// The content and the mark that stands with it. A plain read of the file gives the same content.
    pub fn read(&self) -> Result<(Vec<u8>, Option<Number>), Error> {
        let found = stand::read(&self.stand.path)?;
        let mark = found.state(&self.place)?.mark()?;
        Ok((found.content()?, mark))
    }

    /// The mark that is kept. What is lost is told as a refusal.
    pub fn mark(&self) -> Result<Option<Number>, Error> {
        stand::read(&self.stand.path)?.state(&self.place)?.mark()
    }

    /// From now on everything is refused until [`Replace::rearm`]: the content was put back to what it was earlier.
    pub fn declare_lost(&self) -> Result<(), Error> {
        self.operate(State::declare_lost)
    }

    /// Arms a file that was copied, restored or declared lost, from a floor that no holder of before lies above. A floor
    /// below what was seen is refused.
    pub fn rearm(&self, floor: Number) -> Result<(), Error> {
        self.operate(|state| state.rearm(floor))
    }

    /// From now on a token of an incarnation that it does not know is refused until it is adopted (T5).
    pub fn make_strict(&self) -> Result<(), Error> {
        self.operate(State::make_strict)
    }

    /// A strict fence follows this incarnation from now on.
    pub fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.operate(|state| state.adopt(incarnation))
    }

    /// Arms a file that is there and keeps no mark, from a floor: one that was made without the fence, or copied without
    /// its attributes. Its content stays.
    pub fn arm(path: &Path, cluster: Cluster, resource: Name<'_>, slot: u32, floor: Number) -> Result<(), Error> {
        let stand = Stand::at(path)?;
        let inside = stand.enter()?;
        if inside.is_marked()? {
            return Err(Error::Conflict("the file keeps a mark already; open it, and re-arm it if it was moved"));
        }
        let state = State { seen: Some(floor), ..State::FRESH };
        let content = inside.content()?;
        stand.put(inside, &Place::new(cluster, resource, slot), &state, &content)
    }

    fn operate(&self, change: impl FnOnce(&mut State) -> Result<(), Error>) -> Result<(), Error> {
        let inside = self.stand.enter()?;
        // A moved file keeps what it has seen: that is what the floor must not lie below.
        let mut state = inside.as_written(&self.place)?;
        change(&mut state)?;
        let content = inside.content()?;
        self.stand.put(inside, &self.place, &state, &content)
    }

    fn step(
        &self,
        act: Act,
        token: &str,
        sequence: Option<u64>,
        change: Option<impl FnOnce(&[u8]) -> Vec<u8>>,
    ) -> Result<(Passed, Once), Error> {
        let answer = self.place.read(token).map_err(Error::from).and_then(|shown| {
            let inside: Inside = self.stand.enter()?;
            let mut state = inside.state(&self.place)?;
            let (passed, once) = shown.pass(&state.standing(), sequence)?;
            let before = state;
            state.raise(shown, sequence);
            if let Once::AlreadyApplied { .. } = once {
                inside.sync(&self.stand)?;
                return Ok((passed, once));
            }
            if act == Act::Claim {
                self.stand.clear_drafts()?;
            }
            let old = inside.content()?;
            match change {
                Some(change) => self.stand.put(inside, &self.place, &state, &change(&old))?,
                // The mark stands; whoever wrote it may have died before its sync.
                None if state == before => inside.sync(&self.stand)?,
                None => self.stand.put(inside, &self.place, &state, &old)?,
            }
            Ok((passed, once))
        });
        let told = answer.as_ref().map(|(passed, _)| passed);
        self.watch.told(&self.place.name, self.place.guarded.slot, act, told);
        answer
    }
}
