//! A target in memory with an optional fault.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::fence::{Follow, Sequenced, Verdict, admit, admit_sequenced, follow};
use leasehold_core::name::Name;
use leasehold_core::token::{FenceKey, Incarnation, Number, Token, plausible};
use leasehold_fence::conformance::{
    AppliedEntry, CLUSTER, FenceWriter, RESOURCE, StuckHolder, Subject, fence_id, forged_tokens,
};
use leasehold_fence::{ApplyOnce, Error, FenceRefusal, Mark, MarkInfo, MarkLoss, SealError, SealVerifier, TokenError};

/// A fault of the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    Unfenced,
    LowerAdmitted,
    EqualRefused,
    ClaimRaisesNothing,
    WriteRaisesNothing,
    CheckThenAct,
    WrongMarkInRefusal,
    ResourceNotChecked,
    ClusterNotChecked,
    ImplausibleAdmitted,
    AbsentTokenAdmitted,
    UnarmedIsFresh,
    LostIsFresh,
    FloorBelowMarkAccepted,
    MarkLostInCrash,
    EffectLostInCrash,
    DuplicatesApplied,
    SequenceLostInCrash,
    StrictIgnored,
    NoMarksListed,
    ClaimNeverReturns,
    ClaimIgnoresBlocker,
    BlockerNotReported,
    BlockedClaimRaisesMark,
    SealedTextRefused,
    SealOptional,
    UnknownKidPlain,
    EndedKeyAccepted,
    NameHashOnly,
    SignatureNotChecked,
    SealNotStored,
}

/// Process id of the stuck holder.
const BLOCKER: u32 = 4711;

/// TargetState of the target.
#[derive(Clone)]
struct TargetState {
    mark: Mark,
    armed: bool,
    highest: u64,
    incarnation: Option<Incarnation>,
    strict: bool,
    sealed: bool,
    last: Option<u64>,
    log: Vec<AppliedEntry>,
    stuck: bool,
    /// Number of crashes. Connections from before a crash are broken.
    crashes: u64,
}

const FRESH: TargetState = TargetState {
    mark: Mark::Fresh,
    armed: true,
    highest: 0,
    incarnation: None,
    strict: false,
    sealed: false,
    last: None,
    log: Vec::new(),
    stuck: false,
    crashes: 0,
};

#[derive(Clone)]
pub struct MemoryTarget {
    fault: Fault,
    /// Whether a claim terminates a stuck holder.
    terminate_blockers: bool,
    crashes: u64,
    verifier: Option<SealVerifier>,
    state: Arc<Mutex<TargetState>>,
}

/// A stuck holder, until this is dropped.
struct StuckGuard(MemoryTarget);

impl Drop for StuckGuard {
    fn drop(&mut self) {
        self.0.state().stuck = false;
    }
}

impl MemoryTarget {
    pub fn with(fault: Fault) -> Self {
        let state = Arc::new(Mutex::new(FRESH));
        Self { fault, terminate_blockers: false, crashes: 0, verifier: None, state }
    }

    pub fn terminating_blockers() -> Self {
        Self { terminate_blockers: true, ..Self::with(Fault::None) }
    }

    fn state(&self) -> MutexGuard<'_, TargetState> {
        self.state.lock().expect("not poisoned")
    }

    fn parse(&self, text: &str) -> Result<Token, Error> {
        if self.fault == Fault::AbsentTokenAdmitted && text.is_empty() {
            return self.parse(&leasehold_fence::conformance::token(1_000));
        }
        let token = Token::parse(text).map_err(FenceRefusal::Token)?;
        let mut key = FenceKey::new(CLUSTER, Name::parse(RESOURCE).expect("a name"), 0);
        if self.fault == Fault::ResourceNotChecked {
            key.resource = token.resource;
        }
        if self.fault == Fault::ClusterNotChecked {
            key.cluster = token.cluster;
        }
        let number = token.for_target(&key).map_err(FenceRefusal::Token)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis();
        if self.fault != Fault::ImplausibleAdmitted
            && !plausible(number, leasehold_core::time::WallClock(u64::try_from(now).expect("soon")))
        {
            return Err(FenceRefusal::Implausible { presented: number }.into());
        }
        self.check_seal(text)?;
        Ok(token)
    }

    /// Verifies the seal of a token, with the fault.
    fn check_seal(&self, text: &str) -> Result<(), FenceRefusal> {
        let is_sealed_text = text.starts_with("lh2-");
        if self.fault == Fault::SealedTextRefused && is_sealed_text {
            return Err(FenceRefusal::Token(TokenError::Version { have: 2 }));
        }
        let Some(verifier) = &self.verifier else {
            return match self.state().sealed && self.fault != Fault::SealNotStored {
                true if is_sealed_text => Err(FenceRefusal::NoSealKeys),
                true => Err(SealError::Unsealed.into()),
                false => Ok(()),
            };
        };
        let is_for_another_name = || {
            let mut all = forged_tokens(50).into_iter();
            all.any(|(what, forged, _)| what == "a token signed for another name" && forged == text)
        };
        match (verifier.verify_token(&fence_id(), text), self.fault) {
            (Err(FenceRefusal::Seal(SealError::Unsealed)), Fault::SealOptional)
            | (Err(FenceRefusal::Seal(SealError::UnknownKey { .. })), Fault::UnknownKidPlain)
            | (Err(FenceRefusal::Seal(SealError::EndedKey { .. })), Fault::EndedKeyAccepted)
            | (Err(FenceRefusal::Seal(SealError::Signature { .. })), Fault::SignatureNotChecked) => Ok(()),
            (Err(FenceRefusal::Seal(_)), Fault::NameHashOnly) if is_for_another_name() => Ok(()),
            (verified, _) => verified.map(drop),
        }
    }

    /// Applies the rule, with the fault.
    fn check(&self, state: &TargetState, token: &Token) -> Result<(), Error> {
        if state.crashes != self.crashes {
            return Err(std::io::Error::other("the connection is broken").into());
        }
        let number = token.number;
        let mut mark = state.mark;
        if (!state.armed && self.fault == Fault::UnarmedIsFresh)
            || (mark == Mark::Lost && self.fault == Fault::LostIsFresh)
        {
            mark = Mark::Fresh;
        } else if !state.armed {
            return Err(FenceRefusal::MarkLost(MarkLoss::Missing).into());
        }
        let verdict = match (self.fault, mark) {
            (Fault::Unfenced | Fault::LowerAdmitted, _) => Verdict::Admitted { mark: number },
            (Fault::EqualRefused, Mark::Armed(mark)) if mark == number => Verdict::Stale { presented: number, mark },
            _ => admit(mark, number),
        };
        match verdict {
            Verdict::Admitted { .. } => {}
            Verdict::Stale { presented, .. } if self.fault == Fault::WrongMarkInRefusal => {
                return Err(FenceRefusal::Stale { presented, mark: presented }.into());
            }
            Verdict::Stale { presented, mark } => return Err(FenceRefusal::Stale { presented, mark }.into()),
            Verdict::Lost => return Err(FenceRefusal::MarkLost(MarkLoss::Declared).into()),
        }
        let strict = state.strict && self.fault != Fault::StrictIgnored;
        if follow(state.incarnation, strict, token.incarnation) == Follow::NotAdopted {
            return Err(FenceRefusal::NotAdopted { presented: number, incarnation: token.incarnation }.into());
        }
        Ok(())
    }

    fn raise(&self, state: &mut TargetState, token: &Token) {
        if state.mark != Mark::Armed(token.number) {
            state.last = None;
        }
        state.mark = Mark::Armed(token.number);
        state.highest = state.highest.max(token.number.get());
        state.incarnation = Some(token.incarnation);
    }
}

impl Subject for MemoryTarget {
    type Writer = Self;

    async fn fresh(&self) {
        *self.state() = FRESH;
    }

    async fn writer(&self) -> Self {
        Self { crashes: self.state().crashes, ..self.clone() }
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        self.state().log.clone()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        let state = self.state();
        match state.mark {
            _ if !state.armed => Err(FenceRefusal::MarkLost(MarkLoss::Missing).into()),
            Mark::Armed(mark) => Ok(Some(mark)),
            Mark::Fresh => Ok(None),
            Mark::Lost => Err(FenceRefusal::MarkLost(MarkLoss::Declared).into()),
        }
    }

    async fn unarmed(&self) -> bool {
        *self.state() = TargetState { armed: false, ..FRESH };
        true
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        self.state().mark = Mark::Lost;
        Ok(true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        let mut state = self.state();
        if floor.get() < state.highest && self.fault != Fault::FloorBelowMarkAccepted {
            return Err(Error::Conflict("below the mark"));
        }
        state.mark = Mark::Armed(floor);
        Ok(true)
    }

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        self.state().strict = enabled;
        Ok(true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.state().incarnation = Some(incarnation);
        Ok(true)
    }

    async fn seal(&self) -> Result<bool, Error> {
        self.state().sealed = true;
        Ok(true)
    }

    async fn sealed_writer(&self, verifier: &SealVerifier) -> Option<Self> {
        Some(Self { verifier: Some(verifier.clone()), ..self.writer().await })
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        if self.fault == Fault::NoMarksListed {
            return Ok(Some(Vec::new()));
        }
        let state = self.state();
        let mut info = MarkInfo::new(&fence_id(), state.mark);
        (info.incarnation, info.strict, info.sealed) = (state.incarnation, state.strict, state.sealed);
        Ok(Some(vec![info]))
    }

    async fn crash(&self) -> bool {
        let mut state = self.state();
        let all_but_last = state.log.len().saturating_sub(1);
        state.crashes += 1;
        match self.fault {
            Fault::MarkLostInCrash => state.mark = Mark::Fresh,
            Fault::EffectLostInCrash => state.log.truncate(all_but_last),
            Fault::SequenceLostInCrash => state.last = None,
            _ => {}
        }
        true
    }

    async fn stuck_holder(&self, token: &str, value: &str) -> Option<StuckHolder<Self>> {
        let token = self.parse(token).expect("a valid token");
        self.state().stuck = true;
        let (stuck, value) = (StuckGuard(self.clone()), value.to_owned());
        let resume = Box::pin(async move {
            let mut state = stuck.0.state();
            if !state.stuck {
                return Err(std::io::Error::other("the connection was terminated").into());
            }
            state.log.push(AppliedEntry { number: token.number, value });
            drop(state);
            Ok(())
        });
        // A short limit detects the claim that never returns. Correct claims return immediately.
        let max_claim_time =
            if self.fault == Fault::ClaimNeverReturns { Duration::from_millis(50) } else { Duration::from_secs(60) };
        Some(StuckHolder { blocker: Some(BLOCKER), max_claim_time, successor: self.writer().await, resume })
    }
}

impl FenceWriter for MemoryTarget {
    async fn claim(&mut self, text: &str) -> Result<Number, Error> {
        let token = self.parse(text)?;
        while self.fault == Fault::ClaimNeverReturns && self.state().stuck {
            tokio::task::yield_now().await;
        }
        let mut state = self.state();
        self.check(&state, &token)?;
        if self.terminate_blockers {
            state.stuck = false;
        }
        if state.stuck && self.fault != Fault::ClaimIgnoresBlocker {
            if self.fault == Fault::BlockedClaimRaisesMark {
                self.raise(&mut state, &token);
            }
            let blockers = if self.fault == Fault::BlockerNotReported { Vec::new() } else { vec![BLOCKER] };
            return Err(Error::Blocked { waited: Duration::ZERO, blockers });
        }
        if !matches!(self.fault, Fault::ClaimRaisesNothing | Fault::Unfenced) {
            self.raise(&mut state, &token);
        }
        Ok(token.number)
    }

    async fn write(&mut self, text: &str, value: &str) -> Result<(), Error> {
        let token = self.parse(text)?;
        self.check(&self.state(), &token)?;
        if self.fault == Fault::CheckThenAct {
            // Gives another holder time to claim; the limit is for a single holder.
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
            self.check(&state, &token)?;
        }
        if !matches!(self.fault, Fault::WriteRaisesNothing | Fault::Unfenced) {
            self.raise(&mut state, &token);
        }
        state.log.push(AppliedEntry { number: token.number, value: value.to_owned() });
        Ok(())
    }

    async fn write_once(&mut self, text: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        let token = self.parse(text)?;
        let mut state = self.state();
        self.check(&state, &token)?;
        if self.fault != Fault::DuplicatesApplied
            && let Sequenced::AlreadyApplied { last } = admit_sequenced(state.mark, state.last, token.number, sequence)
        {
            return Ok(Some(ApplyOnce::AlreadyApplied { last }));
        }
        self.raise(&mut state, &token);
        state.last = Some(sequence);
        state.log.push(AppliedEntry { number: token.number, value: value.to_owned() });
        Ok(Some(ApplyOnce::Applied))
    }
}
