//! Authority taken away, at once or with notice; what is left to an operator; and the rules that charters set.

use super::Grantor;
use super::table::lease::{DrainCause, NONE};
use crate::charter::Charter;
use crate::command::{Answer, Event, Revoke, Which};
use crate::lease::Reason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::{Name, Prefix};
use crate::record::{Cause, Record};
use crate::refusal::{Limit, NotCurrent, Refusal, What};

/// What an end or its announcement puts on record besides the words, at most.
const ENDED_BYTES: usize = 64;
const _: () = assert!(limits::READERS as usize * ENDED_BYTES < limits::STEP_BYTES, "a few words always fit");

impl Grantor {
    pub(super) fn revoke(&mut self, revoke: &Revoke<'_>) -> Result<Answer, Refusal> {
        if !matches!(revoke.reason, Reason::Operator | Reason::Policy) {
            return Err(Refusal::Invalid { field: "reason", reason: "operator or policy" });
        }
        check_words("why", revoke.why)?;
        if revoke.grace_ms > limits::GRACE_MAX {
            return Err(Refusal::Invalid { field: "grace", reason: "at most 10 minutes" });
        }
        let leases = self.leases_of(&revoke.which)?;
        if leases.len() * (revoke.why.len() + ENDED_BYTES) > limits::STEP_BYTES {
            return Err(Refusal::Invalid {
                field: "why",
                reason: "shorter: it is put on record for each of the leases",
            });
        }
        if mutants::on(Mutant::RevokeForgotten) {
            return Ok(Answer::Done);
        }
        for slot in leases {
            if revoke.grace_ms == 0 {
                self.end_lease(slot, revoke.reason, revoke.why);
            } else {
                let cause = Cause::Revoked { reason: revoke.reason, why: revoke.why };
                self.announce(slot, cause, revoke.grace_ms);
            }
        }
        Ok(Answer::Done)
    }

    /// The leases that somebody with authority means, in order of places.
    pub(super) fn leases_of(&self, which: &Which<'_>) -> Result<Vec<u32>, Refusal> {
        match *which {
            Which::Id(id) if self.table.live(id).is_some() => Ok(vec![id.slot]),
            Which::Id(id) => Err(match self.table.leases.tombstone(id.slot, id.reuse) {
                Some(ended) => Refusal::Lost(ended.buried()),
                None => Refusal::NotCurrent(NotCurrent::Unknown),
            }),
            Which::Resource(name) => {
                let name = Name::parse(name)?;
                let leases = self.on_resource(name.as_str());
                if leases.is_empty() { Err(Refusal::NotFound(What::Lease)) } else { Ok(leases) }
            }
        }
    }

    /// Every lease on a resource, in order of places.
    pub(super) fn on_resource(&self, name: &str) -> Vec<u32> {
        let Some(resource) = self.table.resources.find(name) else {
            return Vec::new();
        };
        let sole = self.table.resources.sole(resource);
        let crowd = self.table.resources.crowd(resource).map_or(&[][..], |crowd| &crowd.leases);
        let mut leases: Vec<u32> = crowd.iter().copied().chain((sole != NONE).then_some(sole)).collect();
        leases.sort_unstable();
        leases
    }

    /// Notice and grace: the holder is told, and the end comes by its deadline. An earlier announced end stands. A
    /// pre-emption may be off again, so it takes no other's place and leaves its own to any other (L6, H3).
    pub(super) fn announce(&mut self, slot: u32, cause: Cause<'_>, grace_ms: u64) {
        let until = self.now().plus(grace_ms);
        let pending = self.table.extra(slot).and_then(|extra| extra.drain.as_ref());
        let until = match pending.map(|drain| (drain.until, drain.cause == DrainCause::Priority)) {
            Some((sooner, true)) if cause != Cause::Priority => until.min(sooner),
            Some((_, false)) if cause == Cause::Priority => return,
            Some((sooner, _)) if sooner <= until => return,
            _ => until,
        };
        self.record(&Record::Draining { lease: slot, cause, until });
        let session = self.table.parties[self.table.lease(slot).party].session;
        let to = (session != NONE).then(|| self.session_id(session));
        let lease = self.table.lease_id(slot);
        self.notify(to, Event::Draining { lease, until });
    }

    pub(super) fn free(&mut self, resource: &str, why: &str) -> Result<Answer, Refusal> {
        let name = Name::parse(resource)?.as_str();
        check_words("why", why)?;
        let held = self.table.resources.find(name).and_then(|at| self.table.resources.crowd(at));
        if !held.is_some_and(|crowd| crowd.for_operator) {
            return Err(Refusal::NotFound(What::Hold));
        }
        self.record(&Record::Freed { resource: name, why });
        Ok(Answer::Done)
    }

    pub(super) fn set_charter(&mut self, prefix: &str, charter: &Charter, why: &str) -> Result<Answer, Refusal> {
        let prefix = Prefix::parse(prefix)?.as_str();
        check_words("why", why)?;
        charter
            .validate(self.table.max_ttl())
            .map_err(|wrong| Refusal::Invalid { field: wrong.field, reason: wrong.reason })?;
        if let Some(rung) = charter.rung
            && rung != crate::lease::Rung::Issuer
            && rung > self.rung
        {
            return Err(Refusal::Invalid { field: "rung", reason: "this cluster stands on a lower one" });
        }
        if self.table.charters.get(prefix).is_none() && self.table.charters.len() >= limits::CHARTERS {
            let max = limits::CHARTERS as u64;
            return Err(Refusal::Exhausted { limit: Limit::Charters, max, got: max + 1 });
        }
        self.record(&Record::CharterSet { prefix, charter: &charter.encode(), why });
        self.charters_changed();
        Ok(Answer::Done)
    }

    pub(super) fn remove_charter(&mut self, prefix: &str, why: &str) -> Result<Answer, Refusal> {
        let prefix = Prefix::parse(prefix)?.as_str();
        check_words("why", why)?;
        if self.table.charters.get(prefix).is_none() {
            return Err(Refusal::NotFound(What::Charter));
        }
        self.record(&Record::CharterRemoved { prefix, why });
        self.charters_changed();
        Ok(Answer::Done)
    }

    /// There may be more units than before, or fewer.
    fn charters_changed(&mut self) {
        self.offer_everything();
        self.suspect_everybody();
    }

    /// Ends a quarantine before its time: in writing, or not at all (T5).
    pub(super) fn waive_quarantine(&mut self, why: &str) -> Result<Answer, Refusal> {
        if why.trim().is_empty() {
            return Err(Refusal::Invalid { field: "why", reason: "a quarantine is waived in writing: say why" });
        }
        check_words("why", why)?;
        if self.check_quarantine().is_ok() {
            return Err(Refusal::NotFound(What::Quarantine));
        }
        self.record(&Record::QuarantineWaived { why });
        self.offer_everything();
        Ok(Answer::Done)
    }

    /// Whether a lease was announced to end for this reason.
    pub(super) fn announced(&self, slot: u32) -> Option<Reason> {
        self.table.extra(slot)?.drain.as_ref().map(|drain| drain.cause.reason())
    }
}

/// Words of an operator, short enough to keep.
fn check_words(field: &'static str, words: &str) -> Result<(), Refusal> {
    if words.len() > limits::REASON_BYTES {
        return Err(Refusal::Invalid { field, reason: "at most 512 bytes" });
    }
    Ok(())
}
