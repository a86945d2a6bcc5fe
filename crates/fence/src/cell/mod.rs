//! A fenced value shared by the threads of one process.
//!
//! One mutex protects the mark and the value, so the check and the change are one step.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_fence::{Cluster, FenceId, Incarnation, Number, Token, TokenScope, resource_hash};
//! # let cluster = Cluster(*b"examples");
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: resource_hash("jobs/settle"),
//! #     scope: TokenScope::Slot(0), number: Number::FIRST }.to_string();
//! use leasehold_fence::cell::FencedCell;
//!
//! let paid = FencedCell::new(&FenceId::new(cluster, "jobs/settle")?, Vec::new());
//! let token = paid.verify(&token)?; // once per lease: later calls compare only numbers
//! paid.claim(&token)?; // before the first read
//! paid.write(&token, |paid| paid.push(7))?;
//! assert_eq!(paid.read(|paid| paid.len())?, 1);
//! # Ok(())
//! # }
//! ```

mod verified_token;

use std::sync::{Arc, Mutex, MutexGuard};

use leasehold_core::token::{Incarnation, Number};

use crate::admission::{Admission, PresentedToken};
use crate::fence_id::wall_clock;
use crate::mark_state::MarkState;
use crate::observer::EventSink;
use crate::seal_verifier::SealCheck;
use crate::{ApplyOnce, Counters, Error, FenceId, FenceRefusal, MarkInfo, Observer, Operation, SealVerifier};
use verified_token::{NameDigest, TokenSeal, name_digest};
pub use verified_token::{TokenInput, VerifiedToken};

/// A value that changes only under a token at or above its mark. Share it by reference or in an `Arc`.
#[derive(Debug)]
pub struct FencedCell<T> {
    id: FenceId,
    name: NameDigest,
    seals: SealCheck,
    state: Mutex<CellState<T>>,
    events: EventSink,
}

/// The contents of the mutex: neither mark nor value can change without the lock.
#[derive(Debug)]
struct CellState<T> {
    mark: MarkState,
    value: T,
}

impl<T> FencedCell<T> {
    /// Creates a fenced value, armed as fresh: the value is new, so no holder has written it.
    pub fn new(id: &FenceId, value: T) -> Self {
        let state = Mutex::new(CellState { mark: MarkState::FRESH, value });
        let (name, seals, events) = (name_digest(id), SealCheck::default(), EventSink::default());
        Self { id: id.clone(), name, seals, state, events }
    }

    /// Sets whether the fence rejects tokens of other incarnations until they are adopted (T5).
    pub fn strict(&self, enabled: bool) -> Result<(), Error> {
        self.lock()?.mark.set_strict(enabled)
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

    /// Makes all checks of a token that need no mark, once: its text, cluster, resource, slot, plausibility and seal.
    pub fn verify(&self, token: impl AsRef<str>) -> Result<VerifiedToken, Error> {
        let result = self.verified(token.as_ref()).map_err(Error::from);
        if let Err(refused) = &result {
            self.record(Operation::Write, Err(refused));
        }
        result
    }

    fn verified(&self, text: &str) -> Result<VerifiedToken, FenceRefusal> {
        let presented = self.seals.present(&self.id, text)?;
        let proof = self.seals.prove(&self.id, text, wall_clock())?;
        Ok(VerifiedToken { key: *self.id.key(), presented, seal: proof.map(|proof| TokenSeal::new(self.name, proof)) })
    }

    /// Seals the fence, permanently: without a [`SealVerifier`] it refuses every token from now on (A8).
    pub fn seal(&self) -> Result<(), Error> {
        self.lock()?.mark.seal()
    }

    /// Raises the mark. A new holder calls this before it reads.
    pub fn claim<'t>(&self, token: impl Into<TokenInput<'t>>) -> Result<Number, Error> {
        self.step(Operation::Claim, token.into(), None, |_| ()).map(|(admission, ..)| admission.number)
    }

    /// Changes the value under this token, in one step with the check. The lock is held while `change` runs: keep it short.
    pub fn write<'t, R>(&self, token: impl Into<TokenInput<'t>>, change: impl FnOnce(&mut T) -> R) -> Result<R, Error> {
        let (_, _, changed) = self.step(Operation::Write, token.into(), None, change)?;
        Ok(changed.expect("only a sequenced write can be a duplicate"))
    }

    /// Like [`write`](Self::write), with a sequence that the holder counts upward: a duplicate changes nothing.
    pub fn write_once<'t>(
        &self,
        token: impl Into<TokenInput<'t>>,
        sequence: u64,
        change: impl FnOnce(&mut T),
    ) -> Result<ApplyOnce, Error> {
        self.step(Operation::Write, token.into(), Some(sequence), change).map(|(_, once, _)| once)
    }

    /// Reads the value. After a claim no predecessor can change what is read.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> Result<R, Error> {
        Ok(read(&self.lock()?.value))
    }

    /// The mark; `None` if no token was admitted yet. A lost mark is a refusal.
    pub fn mark(&self) -> Result<Option<Number>, Error> {
        self.lock()?.mark.mark()
    }

    /// The mark with all that is known about it.
    pub fn mark_info(&self) -> Result<MarkInfo, Error> {
        Ok(self.lock()?.mark.info(&self.id))
    }

    /// Declares the mark lost: the value was reset to an earlier state. All tokens are rejected until [`FencedCell::rearm`].
    pub fn declare_lost(&self) -> Result<(), Error> {
        self.lock()?.mark.declare_lost()
    }

    /// Sets the mark to a floor that no earlier holder exceeds. A floor below the mark is an error. Also call this after a
    /// thread panicked inside a write, once you have inspected the value.
    pub fn rearm(&self, floor: Number) -> Result<(), Error> {
        let mut cell = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        cell.mark.rearm(floor)?;
        self.state.clear_poison();
        Ok(())
    }

    /// Makes a strict fence follow this incarnation.
    pub fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.lock()?.mark.adopt(incarnation)
    }

    fn step<R>(
        &self,
        operation: Operation,
        token: TokenInput<'_>,
        sequence: Option<u64>,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<(Admission, ApplyOnce, Option<R>), Error> {
        let result = self.presented(token).and_then(|presented| {
            let mut cell = self.lock()?;
            let (admission, once) = presented.admit(&cell.mark.stored_mark(), sequence)?;
            if let ApplyOnce::AlreadyApplied { .. } = once {
                return Ok((admission, once, None));
            }
            // The mark is raised first: if the change panics, no lower token can observe its partial result.
            cell.mark.raise(presented, sequence);
            Ok((admission, once, Some(change(&mut cell.value))))
        });
        self.record(operation, result.as_ref().map(|(admission, ..)| admission));
        result
    }

    fn presented(&self, token: TokenInput<'_>) -> Result<PresentedToken, Error> {
        match token {
            TokenInput::Text(text) => Ok(self.seals.present(&self.id, text)?),
            TokenInput::Verified(token) => token.for_fence(self.id.key(), &self.name, &self.seals),
        }
    }

    fn lock(&self) -> Result<MutexGuard<'_, CellState<T>>, Error> {
        self.state.lock().map_err(|_| {
            let message =
                "a thread panicked inside a write and may have left the value inconsistent; inspect it, then re-arm";
            Error::Storage(message.into())
        })
    }

    fn record(&self, operation: Operation, result: Result<&Admission, &Error>) {
        self.events.record(&self.id, operation, result);
    }
}
