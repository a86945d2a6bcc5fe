//! A value for the threads of one process that refuses the zombie among them: check and change are one step.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_core::{name::{Name, resource_hash}, token::{Cluster, Incarnation, Number, Reach, Token}};
//! # let (cluster, name) = (Cluster(*b"examples"), Name::parse("jobs/settle")?);
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: resource_hash("jobs/settle"),
//! #     reach: Reach::Slot(0), number: Number::FIRST }.to_string();
//! use leasehold_fence::cell::Fenced;
//!
//! let paid = Fenced::new(cluster, name, 0, Vec::new());
//! let token = paid.check(&token)?; // once for a hold: from here on only numbers are compared
//! paid.claim(&token)?; // a new holder's first act, before it reads
//! paid.write(&token, |paid| paid.push(7))?;
//! assert_eq!(paid.read(|paid| paid.len())?, 1);
//! # Ok(())
//! # }
//! ```

mod checked;

use std::sync::{Arc, Mutex, MutexGuard};

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Incarnation, Number};

use crate::observer::Watch;
use crate::place::{Passed, Place, Shown};
use crate::state::State;
use crate::{Act, Counters, Error, Kept, Observer, Once};
pub use checked::{Checked, Presented};

/// A value that changes only under a token at or above its mark. Share it by reference or in an `Arc`.
#[derive(Debug)]
pub struct Fenced<T> {
    place: Place,
    inside: Mutex<Inside<T>>,
    watch: Watch,
}

/// What the mutex keeps together: the mark cannot change without the value's lock, nor the value without the mark's.
#[derive(Debug)]
struct Inside<T> {
    state: State,
    value: T,
}

impl<T> Fenced<T> {
    /// A fence before this value, armed as fresh: the value was made just now, so nobody was here.
    pub fn new(cluster: Cluster, resource: Name<'_>, slot: u32, value: T) -> Self {
        let inside = Mutex::new(Inside { state: State::FRESH, value });
        Self { place: Place::new(cluster, resource, slot), inside, watch: Watch::default() }
    }

    /// From here on a token of an incarnation that it does not know is refused until it is adopted (T5).
    pub fn make_strict(&self) -> Result<(), Error> {
        self.enter()?.state.make_strict()
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

    /// Checks all of a token that needs no mark, once: its text, whose it is, what it is for, and whether the clock
    /// believes it.
    pub fn check(&self, token: &str) -> Result<Checked, Error> {
        let answer = self.place.read(token).map_err(Error::from);
        if let Err(refused) = &answer {
            self.tell(Act::Write, Err(refused));
        }
        answer.map(|shown| Checked { guarded: self.place.guarded, shown })
    }

    /// A new holder's first act, before it reads: raises the mark.
    pub fn claim<'t>(&self, token: impl Into<Presented<'t>>) -> Result<Number, Error> {
        self.step(Act::Claim, token.into(), None, |_| ()).map(|(passed, ..)| passed.number)
    }

    /// Changes the value under this token, in one step with the check. Nothing else is inside meanwhile: keep it short.
    pub fn write<'t, R>(&self, token: impl Into<Presented<'t>>, change: impl FnOnce(&mut T) -> R) -> Result<R, Error> {
        let (_, _, changed) = self.step(Act::Write, token.into(), None, change)?;
        Ok(changed.expect("only a numbered write can have been applied before"))
    }

    /// The same, numbered inside the hold: a late duplicate changes nothing.
    pub fn write_once<'t>(
        &self,
        token: impl Into<Presented<'t>>,
        sequence: u64,
        change: impl FnOnce(&mut T),
    ) -> Result<Once, Error> {
        self.step(Act::Write, token.into(), Some(sequence), change).map(|(_, once, _)| once)
    }

    /// Looks at the value. What is read after a claim, no predecessor changes any more.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> Result<R, Error> {
        Ok(look(&self.enter()?.value))
    }

    /// The mark that is kept. What is lost is told as a refusal.
    pub fn mark(&self) -> Result<Option<Number>, Error> {
        self.enter()?.state.mark()
    }

    /// What is kept, for a survey.
    pub fn kept(&self) -> Result<Kept, Error> {
        Ok(self.enter()?.state.kept(&self.place))
    }

    /// From now on everything is refused until [`Fenced::rearm`]: the value was put back to what it was earlier.
    pub fn declare_lost(&self) -> Result<(), Error> {
        self.enter()?.state.declare_lost()
    }

    /// Arms it again from a floor that no holder of before lies above; after a thread panicked inside a write too, by
    /// whoever has looked at the value and answers for it. A floor below what was seen is refused.
    pub fn rearm(&self, floor: Number) -> Result<(), Error> {
        let mut inside = self.inside.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        inside.state.rearm(floor)?;
        self.inside.clear_poison();
        Ok(())
    }

    /// A strict fence follows this incarnation from now on.
    pub fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.enter()?.state.adopt(incarnation)
    }

    fn step<R>(
        &self,
        act: Act,
        token: Presented<'_>,
        sequence: Option<u64>,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<(Passed, Once, Option<R>), Error> {
        let answer = self.shown(token).and_then(|shown| {
            let mut inside = self.enter()?;
            let (passed, once) = shown.pass(&inside.state.standing(), sequence)?;
            if let Once::AlreadyApplied { .. } = once {
                return Ok((passed, once, None));
            }
            // The mark first: if the change panics, nobody below this token finds what it left.
            inside.state.raise(shown, sequence);
            Ok((passed, once, Some(change(&mut inside.value))))
        });
        self.tell(act, answer.as_ref().map(|(passed, ..)| passed));
        answer
    }

    fn shown(&self, token: Presented<'_>) -> Result<Shown, Error> {
        match token {
            Presented::Text(text) => Ok(self.place.read(text)?),
            Presented::Checked(checked) => checked.at(&self.place.guarded),
        }
    }

    fn enter(&self) -> Result<MutexGuard<'_, Inside<T>>, Error> {
        self.inside.lock().map_err(|_| {
            let what = "a thread panicked inside its write, and the value may be half changed; look at it, then re-arm";
            Error::Storage(what.into())
        })
    }

    fn tell(&self, act: Act, answer: Result<&Passed, &Error>) {
        self.watch.told(&self.place.name, self.place.guarded.slot, act, answer);
    }
}
