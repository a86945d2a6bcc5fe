//! A target in memory, right by default, and wrong in one way where asked.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::fence::{Follow, Sequenced, Verdict, admit, admit_sequenced, follow};
use leasehold_core::token::{Guarded, Incarnation, Number, Token, plausible};
use leasehold_fence::conformance::{Applied, CLUSTER, Inside, RESOURCE, Subject, Writer, name};
use leasehold_fence::{Error, Kept, Lost, Mark, Once, Refusal};

/// What is wrong with a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    Unfenced,
    LowerAdmitted,
    EqualRefused,
    ClaimRaisesNothing,
    WriteRaisesNothing,
    CheckThenAct,
    RefusalNamesTheWrongMark,
    AnyResource,
    AnyCluster,
    Implausible,
    AbsentPasses,
    MissingIsFresh,
    LostIsFresh,
    FloorBelowTheMark,
    MarkForgottenInACrash,
    EffectForgottenInACrash,
    DuplicatesApplied,
    SequencesForgottenInACrash,
    StrictFollowsAnybody,
    SurveyTellsNothing,
    ClaimWaitsForEver,
    ClaimPassesWhoIsInside,
    BlockedNamesNobody,
    BlockedRaisesTheMark,
}

/// Who is inside, if somebody is.
const WHO: u32 = 4711;

/// What the target keeps.
#[derive(Clone)]
struct State {
    mark: Mark,
    armed: bool,
    seen: u64,
    incarnation: Option<Incarnation>,
    strict: bool,
    last: Option<u64>,
    log: Vec<Applied>,
    inside: bool,
    /// How often it crashed; connections of before are gone.
    life: u64,
}

const FRESH: State = State {
    mark: Mark::Fresh,
    armed: true,
    seen: 0,
    incarnation: None,
    strict: false,
    last: None,
    log: Vec::new(),
    inside: false,
    life: 0,
};

#[derive(Clone)]
pub struct Shelf {
    fault: Fault,
    /// Whether a claim ends who is inside.
    evicting: bool,
    life: u64,
    state: Arc<Mutex<State>>,
}

/// One who is inside until this is dropped.
struct Leaves(Shelf);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.state().inside = false;
    }
}

impl Shelf {
    pub fn with(fault: Fault) -> Self {
        Self { fault, evicting: false, life: 0, state: Arc::new(Mutex::new(FRESH)) }
    }

    pub fn evicting() -> Self {
        Self { evicting: true, ..Self::with(Fault::None) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics in it")
    }

    fn read(&self, text: &str) -> Result<Token, Error> {
        if self.fault == Fault::AbsentPasses && text.is_empty() {
            return self.read(&leasehold_fence::conformance::token(1_000));
        }
        let token = Token::parse(text).map_err(Refusal::Token)?;
        let mut guarded = Guarded::new(CLUSTER, name(), 0);
        if self.fault == Fault::AnyResource {
            guarded.resource = token.resource;
        }
        if self.fault == Fault::AnyCluster {
            guarded.cluster = token.cluster;
        }
        let number = token.for_target(&guarded).map_err(Refusal::Token)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis();
        if self.fault != Fault::Implausible
            && !plausible(number, leasehold_core::time::Wall(u64::try_from(now).expect("soon")))
        {
            return Err(Refusal::Implausible { presented: number }.into());
        }
        Ok(token)
    }

    /// The rule, or what is wrong with it.
    fn ask(&self, state: &State, token: &Token) -> Result<(), Error> {
        if state.life != self.life {
            return Err(std::io::Error::other("the connection is gone").into());
        }
        let shown = token.number;
        let mut mark = state.mark;
        if (!state.armed && self.fault == Fault::MissingIsFresh)
            || (mark == Mark::Lost && self.fault == Fault::LostIsFresh)
        {
            mark = Mark::Fresh;
        } else if !state.armed {
            return Err(Refusal::Lost(Lost::Missing).into());
        }
        let verdict = match (self.fault, mark) {
            (Fault::Unfenced | Fault::LowerAdmitted, _) => Verdict::Admitted { mark: shown },
            (Fault::EqualRefused, Mark::Armed(mark)) if mark == shown => Verdict::Stale { presented: shown, mark },
            _ => admit(mark, shown),
        };
        match verdict {
            Verdict::Admitted { .. } => {}
            Verdict::Stale { presented, .. } if self.fault == Fault::RefusalNamesTheWrongMark => {
                return Err(Refusal::Stale { presented, mark: presented }.into());
            }
            Verdict::Stale { presented, mark } => return Err(Refusal::Stale { presented, mark }.into()),
            Verdict::Lost => return Err(Refusal::Lost(Lost::Declared).into()),
        }
        let strict = state.strict && self.fault != Fault::StrictFollowsAnybody;
        if follow(state.incarnation, strict, token.incarnation) == Follow::NotAdopted {
            return Err(Refusal::NotAdopted { presented: shown, incarnation: token.incarnation }.into());
        }
        Ok(())
    }

    fn raise(&self, state: &mut State, token: &Token) {
        if state.mark != Mark::Armed(token.number) {
            state.last = None;
        }
        state.mark = Mark::Armed(token.number);
        state.seen = state.seen.max(token.number.get());
        state.incarnation = Some(token.incarnation);
    }
}

impl Subject for Shelf {
    type Writer = Self;

    async fn fresh(&self) {
        *self.state() = FRESH;
    }

    async fn writer(&self) -> Self {
        Self { life: self.state().life, ..self.clone() }
    }

    async fn applied(&self) -> Vec<Applied> {
        self.state().log.clone()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        let state = self.state();
        match state.mark {
            _ if !state.armed => Err(Refusal::Lost(Lost::Missing).into()),
            Mark::Armed(mark) => Ok(Some(mark)),
            Mark::Fresh => Ok(None),
            Mark::Lost => Err(Refusal::Lost(Lost::Declared).into()),
        }
    }

    async fn unarmed(&self) -> bool {
        *self.state() = State { armed: false, ..FRESH };
        true
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        self.state().mark = Mark::Lost;
        Ok(true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        let mut state = self.state();
        if floor.get() < state.seen && self.fault != Fault::FloorBelowTheMark {
            return Err(Error::Conflict("below what was seen"));
        }
        state.mark = Mark::Armed(floor);
        Ok(true)
    }

    async fn make_strict(&self) -> Result<bool, Error> {
        self.state().strict = true;
        Ok(true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.state().incarnation = Some(incarnation);
        Ok(true)
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        if self.fault == Fault::SurveyTellsNothing {
            return Ok(Some(Vec::new()));
        }
        let state = self.state();
        let guarded = Guarded::new(CLUSTER, name(), 0);
        Ok(Some(vec![Kept {
            cluster: CLUSTER,
            resource: format!("{:016x}", u64::from_be_bytes(guarded.resource)),
            name: Some(RESOURCE.to_owned()),
            slot: 0,
            mark: state.mark,
            incarnation: state.incarnation,
            strict: state.strict,
        }]))
    }

    async fn crash(&self) -> bool {
        let mut state = self.state();
        let but_one = state.log.len().saturating_sub(1);
        state.life += 1;
        match self.fault {
            Fault::MarkForgottenInACrash => state.mark = Mark::Fresh,
            Fault::EffectForgottenInACrash => state.log.truncate(but_one),
            Fault::SequencesForgottenInACrash => state.last = None,
            _ => {}
        }
        true
    }

    async fn occupied(&self, token: &str, value: &str) -> Option<Inside<Self>> {
        let token = self.read(token).expect("the suite shows a whole one");
        self.state().inside = true;
        let (inside, value) = (Leaves(self.clone()), value.to_owned());
        let goes_on = Box::pin(async move {
            let mut state = inside.0.state();
            if !state.inside {
                return Err(std::io::Error::other("the connection was ended").into());
            }
            state.log.push(Applied { number: token.number, value });
            drop(state);
            Ok(())
        });
        // Any bound catches who waits for ever, so that the test need not; whoever is right ends at once.
        let bound =
            if self.fault == Fault::ClaimWaitsForEver { Duration::from_millis(50) } else { Duration::from_secs(60) };
        Some(Inside { who: Some(WHO), bound, successor: self.writer().await, goes_on })
    }
}

impl Writer for Shelf {
    async fn claim(&mut self, text: &str) -> Result<Number, Error> {
        let token = self.read(text)?;
        while self.fault == Fault::ClaimWaitsForEver && self.state().inside {
            tokio::task::yield_now().await;
        }
        let mut state = self.state();
        self.ask(&state, &token)?;
        if self.evicting {
            state.inside = false;
        }
        if state.inside && self.fault != Fault::ClaimPassesWhoIsInside {
            if self.fault == Fault::BlockedRaisesTheMark {
                self.raise(&mut state, &token);
            }
            let by = if self.fault == Fault::BlockedNamesNobody { Vec::new() } else { vec![WHO] };
            return Err(Error::Blocked { waited: Duration::ZERO, by });
        }
        if !matches!(self.fault, Fault::ClaimRaisesNothing | Fault::Unfenced) {
            self.raise(&mut state, &token);
        }
        Ok(token.number)
    }

    async fn write(&mut self, text: &str, value: &str) -> Result<(), Error> {
        let token = self.read(text)?;
        self.ask(&self.state(), &token)?;
        if self.fault == Fault::CheckThenAct {
            // Whoever is to come between comes between here; the bound is for who is alone.
            let checked = self.state().mark;
            for _ in 0..2_000 {
                if self.state().mark != checked {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let mut state = self.state();
        if self.fault != Fault::CheckThenAct {
            self.ask(&state, &token)?;
        }
        if !matches!(self.fault, Fault::WriteRaisesNothing | Fault::Unfenced) {
            self.raise(&mut state, &token);
        }
        state.log.push(Applied { number: token.number, value: value.to_owned() });
        Ok(())
    }

    async fn write_sequenced(&mut self, text: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        let token = self.read(text)?;
        let mut state = self.state();
        self.ask(&state, &token)?;
        if self.fault != Fault::DuplicatesApplied
            && let Sequenced::AlreadyApplied { last } = admit_sequenced(state.mark, state.last, token.number, sequence)
        {
            return Ok(Some(Once::AlreadyApplied { last }));
        }
        self.raise(&mut state, &token);
        state.last = Some(sequence);
        state.log.push(Applied { number: token.number, value: value.to_owned() });
        Ok(Some(Once::Applied))
    }
}
