//! Operator commands: revoke leases with or without grace, free blocked resources, set charters, waive a quarantine.

use super::Grantor;
use super::table::lease::{NONE, StoredDrainCause};
use crate::access::{Caller, IdentityUsage, recorded_owner};
use crate::charter::Charter;
use crate::command::{Answer, LeaseSelector, Revoke, SessionEvent};
use crate::lease::EndReason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::{Name, Prefix};
use crate::record::{DrainCause, Record};
use crate::refusal::{Limit, NotCurrent, Refusal, RefusalSubject};
use crate::unicode::is_misleading;

/// Largest record of an end or of its announcement, without the comment.
const ENDED_BYTES: usize = 64;
const _: () = assert!(limits::READERS as usize * ENDED_BYTES < limits::STEP_BYTES, "a short comment always fits");

impl Grantor {
    /// Checks a revocation. Returns the leases that it ends.
    pub(super) fn check_revoke(&self, revoke: &Revoke<'_>) -> Result<Vec<u32>, Refusal> {
        if !matches!(revoke.reason, EndReason::Operator | EndReason::Policy) {
            return Err(Refusal::Invalid { field: "reason", reason: "operator or policy" });
        }
        check_comment(revoke.comment)?;
        if revoke.grace_ms > limits::GRACE_MAX {
            return Err(Refusal::Invalid { field: "grace", reason: "at most 10 minutes" });
        }
        let leases = self.leases_of(&revoke.selector)?;
        if leases.len() * (revoke.comment.len() + ENDED_BYTES) > limits::STEP_BYTES {
            return Err(Refusal::Invalid {
                field: "comment",
                reason: "too long, because it is recorded for each lease; shorten it",
            });
        }
        Ok(leases)
    }

    pub(super) fn revoke(&mut self, revoke: &Revoke<'_>) -> Result<Answer, Refusal> {
        let leases = self.check_revoke(revoke)?;
        if mutants::on(Mutant::RevokeForgotten) {
            return Ok(Answer::Done);
        }
        for slot in leases {
            if revoke.grace_ms == 0 {
                self.end_lease(slot, revoke.reason, revoke.comment);
            } else {
                let cause = DrainCause::Revoked { reason: revoke.reason, comment: revoke.comment };
                self.announce(slot, cause, revoke.grace_ms);
            }
        }
        Ok(Answer::Done)
    }

    /// The leases that an operator selects, in slot order.
    pub(super) fn leases_of(&self, selector: &LeaseSelector<'_>) -> Result<Vec<u32>, Refusal> {
        match *selector {
            LeaseSelector::Id(id) if self.table.live(id).is_some() => Ok(vec![id.slot]),
            LeaseSelector::Id(id) => Err(match self.table.leases.tombstone(id.slot, id.reuse) {
                Some(ended) => Refusal::Lost(ended.end_reason()),
                None => Refusal::NotCurrent(NotCurrent::Unknown),
            }),
            LeaseSelector::Resource(name) => {
                let name = Name::parse(name)?;
                let leases = self.on_resource(name.as_str());
                if leases.is_empty() { Err(Refusal::NotFound(RefusalSubject::Lease)) } else { Ok(leases) }
            }
        }
    }

    /// All leases on a resource, in slot order.
    pub(super) fn on_resource(&self, name: &str) -> Vec<u32> {
        let Some(resource) = self.table.resources.find(name) else {
            return Vec::new();
        };
        let sole = self.table.resources.sole(resource);
        let state = self.table.resources.state(resource).map_or(&[][..], |state| &state.leases);
        let mut leases: Vec<u32> = state.iter().copied().chain((sole != NONE).then_some(sole)).collect();
        leases.sort_unstable();
        leases
    }

    /// Schedules the end of a lease after a grace period and notifies the holder. An earlier scheduled end stays. A preemption
    /// can be canceled again, so it never replaces another cause, and any other cause replaces it (L6, H3).
    pub(super) fn announce(&mut self, slot: u32, cause: DrainCause<'_>, grace_ms: u64) {
        let until = self.now().plus(grace_ms);
        let pending = self.table.extra(slot).and_then(|extra| extra.drain.as_ref());
        let until = match pending.map(|drain| (drain.until, drain.cause == StoredDrainCause::Priority)) {
            Some((sooner, true)) if cause != DrainCause::Priority => until.min(sooner),
            Some((_, false)) if cause == DrainCause::Priority => return,
            Some((sooner, _)) if sooner <= until => return,
            _ => until,
        };
        self.record(&Record::Draining { lease: slot, cause, until });
        let session = self.table.actors[self.table.lease(slot).actor].session;
        let to = (session != NONE).then(|| self.session_id(session));
        let lease = self.table.lease_id(slot);
        self.notify(to, SessionEvent::Draining { lease, until });
    }

    /// Checks that a resource is blocked for an operator. Returns its name.
    pub(super) fn check_free<'a>(&self, resource: &'a str, comment: &str) -> Result<&'a str, Refusal> {
        let name = Name::parse(resource)?.as_str();
        check_comment(comment)?;
        let held = self.table.resources.find(name).and_then(|at| self.table.resources.state(at));
        if !held.is_some_and(|state| state.for_operator) {
            return Err(Refusal::NotFound(RefusalSubject::Hold));
        }
        Ok(name)
    }

    pub(super) fn free(&mut self, resource: &str, comment: &str) -> Result<Answer, Refusal> {
        let name = self.check_free(resource, comment)?;
        self.record(&Record::Freed { resource: name, comment });
        Ok(Answer::Done)
    }

    /// Checks that a charter could be set now. Returns its prefix.
    pub(super) fn check_set_charter<'a>(
        &self,
        prefix: &'a str,
        charter: &Charter,
        comment: &str,
    ) -> Result<&'a str, Refusal> {
        let prefix = Prefix::parse(prefix)?.as_str();
        check_comment(comment)?;
        charter
            .validate(self.table.max_ttl())
            .map_err(|wrong| Refusal::Invalid { field: wrong.field, reason: wrong.reason })?;
        if let Some(validity) = charter.validity
            && validity != crate::lease::Validity::Issuer
            && validity > self.validity
        {
            return Err(Refusal::Invalid { field: "validity", reason: "this cluster offers only session validity" });
        }
        let is_new = self.table.charters.get(prefix).is_none();
        if is_new && self.table.charters.len() >= limits::CHARTERS {
            let max = limits::CHARTERS as u64;
            return Err(Refusal::Exhausted { limit: Limit::Charters, max, got: max + 1 });
        }
        Ok(prefix)
    }

    pub(super) fn set_charter(
        &mut self,
        caller: &Caller<'_>,
        prefix: &str,
        charter: &Charter,
        comment: &str,
    ) -> Result<Answer, Refusal> {
        let prefix = self.check_set_charter(prefix, charter, comment)?;
        let is_new = self.table.charters.get(prefix).is_none();
        if is_new && !mutants::on(Mutant::ChartersNotCounted) {
            self.check_identity_limits(caller, IdentityUsage::CHARTER)?;
        }
        let owner = if is_new { recorded_owner(caller)? } else { None };
        self.record(&Record::CharterSet { prefix, charter: &charter.encode(), comment, owner });
        self.after_charter_change();
        Ok(Answer::Done)
    }

    /// Checks that a prefix has a charter of its own. Returns the prefix.
    pub(super) fn check_remove_charter<'a>(&self, prefix: &'a str, comment: &str) -> Result<&'a str, Refusal> {
        let prefix = Prefix::parse(prefix)?.as_str();
        check_comment(comment)?;
        if self.table.charters.get(prefix).is_none() {
            return Err(Refusal::NotFound(RefusalSubject::Charter));
        }
        Ok(prefix)
    }

    pub(super) fn remove_charter(&mut self, prefix: &str, comment: &str) -> Result<Answer, Refusal> {
        let prefix = self.check_remove_charter(prefix, comment)?;
        self.record(&Record::CharterRemoved { prefix, comment });
        self.after_charter_change();
        Ok(Answer::Done)
    }

    /// Offers all resources again, because capacities may have changed.
    fn after_charter_change(&mut self) {
        self.offer_all();
        self.suspect_all_actors();
    }

    /// Checks that there is a quarantine to waive; a comment is required (T5).
    pub(super) fn check_waive(&self, comment: &str) -> Result<(), Refusal> {
        if comment.trim().is_empty() {
            return Err(Refusal::Invalid { field: "comment", reason: "required to waive a quarantine; explain why" });
        }
        check_comment(comment)?;
        if self.check_quarantine().is_ok() {
            return Err(Refusal::NotFound(RefusalSubject::Quarantine));
        }
        Ok(())
    }

    /// Ends a quarantine early (T5).
    pub(super) fn waive_quarantine(&mut self, comment: &str) -> Result<Answer, Refusal> {
        self.check_waive(comment)?;
        self.record(&Record::QuarantineWaived { comment });
        self.offer_all();
        Ok(Answer::Done)
    }

    /// The reason of a lease's scheduled end, if any.
    pub(super) fn announced(&self, slot: u32) -> Option<EndReason> {
        self.table.extra(slot)?.drain.as_ref().map(|drain| drain.cause.reason())
    }
}

/// Checks an operator's comment.
pub(super) fn check_comment(comment: &str) -> Result<(), Refusal> {
    check_audit_text("comment", comment)
}

/// Checks an operator's text: a later reader of the audit log sees it as it was written.
pub(super) fn check_audit_text(field: &'static str, text: &str) -> Result<(), Refusal> {
    if text.len() > limits::COMMENT_BYTES {
        return Err(Refusal::Invalid { field, reason: "at most 512 bytes" });
    }
    if text.chars().any(|c| is_misleading(c) && c != '\n') {
        let reason = "no control characters except line breaks, and no text-direction characters";
        return Err(Refusal::Invalid { field, reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_comment;

    #[test]
    fn a_comment_is_prose_without_characters_that_mislead_its_reader() {
        for comment in ["", "the books agree", "line one\nline two", "überprüft ✔\u{fe0f}"] {
            assert_eq!(check_comment(comment), Ok(()), "{comment:?}");
        }
        for comment in
            ["\u{1b}[2J", "\u{9b}31m", "a\rb", "a\0b", "\u{202e}txt", "\u{2066}x", "a\u{2028}b", &"w".repeat(513)]
        {
            assert!(check_comment(comment).is_err(), "{comment:?}");
        }
    }
}
