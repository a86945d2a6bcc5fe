//! Two-person approval: a dangerous command becomes a proposal, and the approval of another identity executes it once, on the subject
//! that it was proposed for (A14).

use sha2::{Digest, Sha256};

use super::Grantor;
use super::authorize::action;
use super::operator::check_audit_text;
use super::table::proposals::Proposal;
use crate::access::{
    Action, Caller, DangerousAction, MAY_NOT_ACT_ALONE, NOT_BOUND, ReplacementCase, Rights, SAME_IDENTITY,
};
use crate::charter::{Charter, HandoffMode};
use crate::codec::Write;
use crate::command::{Answer, Command, Handoff, LeaseSelector, ProposedCommand, ProposedSubject, Request, Revoke};
use crate::lease::LeaseState;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::{Limit, Refusal, RefusalSubject};

/// A proposal that waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposalView {
    /// Its number.
    pub proposal: u64,
    /// What it does: the word of its action.
    pub action: &'static str,
    /// The resource or prefix that it concerns; empty if it concerns the whole cluster.
    pub resource: String,
    /// The lease that would end, if it is named by its id.
    pub lease: Option<crate::ids::LeaseId>,
    /// The comment of the identity that proposed it.
    pub comment: String,
    /// The new longest ttl.
    pub max_ttl_ms: Option<u64>,
    /// The grace of a revocation.
    pub grace_ms: Option<u64>,
    /// The number of leases that it named when it was proposed. It is executed only while they are the same.
    pub leases: Option<u64>,
    /// The successor that a handoff names.
    pub to: String,
    /// Gap or overlap, if a handoff says it; otherwise the charter does.
    pub handoff_mode: Option<HandoffMode>,
    /// The drain period, if a handoff says it; otherwise the charter does.
    pub drain_ms: Option<u64>,
    /// The charter that it sets.
    pub charter: Option<Box<Charter>>,
    /// The identity that proposed it.
    pub proposer: String,
    /// The digest of the exact command and its subject. An approval repeats it.
    pub digest: [u8; 32],
    /// Time until it expires.
    pub remaining_ms: u64,
}

/// A dangerous command that was executed without a second identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActAlone {
    /// The tag of the request.
    pub tag: u64,
    /// What was executed.
    pub action: Action,
    /// The resource or prefix that it concerns; empty if it concerns the whole cluster.
    pub resource: Box<str>,
    /// Why the caller acted alone.
    pub reason: Box<str>,
}

/// What a dangerous command would change now.
struct DangerousSubject {
    subject: ProposedSubject,
    /// The leases that it ends; `None` if it can end others.
    leases: Option<Vec<u32>>,
}

impl Grantor {
    /// Refuses a dangerous command that needs a second identity, and proposes it instead. The command is checked first, so that what
    /// cannot be executed is not proposed. With a full journal nothing is proposed: no approval could follow (V4).
    pub(super) fn check_approval(&mut self, request: &Request<'_>, command: &Command<'_>) -> Result<(), Refusal> {
        let Some(subject) = self.required_approval(request, command)? else { return Ok(()) };
        if let Some(reason) = request.alone {
            return self.act_alone(request, command, reason);
        }
        if self.only_endings && !mutants::on(Mutant::FullJournalProposes) {
            return Err(Refusal::StorageFull);
        }
        let command = ProposedCommand { command: command.clone(), subject: Some(subject) };
        self.propose(request, &command.encode().expect("a dangerous command"))
    }

    /// Whether a command needs a second identity, because it is listed or can have the effect of what is listed. Returns its subject.
    fn required_approval(
        &mut self,
        request: &Request<'_>,
        command: &Command<'_>,
    ) -> Result<Option<ProposedSubject>, Refusal> {
        let (rules, action) = (request.caller.rights.approval(), action(command));
        let mut replaced = rules.replaced_by(action).filter(|_| !is_replacement_ignored(action, rules)).peekable();
        if replaced.peek().is_none() {
            return Ok(None);
        }
        let DangerousSubject { subject, leases } = self.check_dangerous(command)?;
        let is_small = leases.as_ref().is_some_and(|leases| leases.len() as u64 <= rules.revoke_up_to);
        let is_required = replaced.any(|replacement| {
            let applies = match replacement.case {
                ReplacementCase::Always => true,
                ReplacementCase::LeaseOfAnother => {
                    leases.iter().flatten().any(|slot| !self.is_holder(request, command, *slot))
                }
            };
            applies && !(is_small && replacement.replaces == DangerousAction::Revoke)
        });
        Ok(is_required.then_some(subject))
    }

    /// Executes a dangerous command without a second identity, if the access rules let the caller. The reason is recorded before the
    /// effect.
    fn act_alone(&mut self, request: &Request<'_>, command: &Command<'_>, reason: &str) -> Result<(), Refusal> {
        let (tag, action) = (request.tag, action(command));
        if !request.caller.rights.approval().may_act_alone && !mutants::on(Mutant::AnyoneActsAlone) {
            self.out.denials.push(super::Denial { tag, action, hidden: false });
            return Err(Refusal::Denied(MAY_NOT_ACT_ALONE));
        }
        if reason.trim().is_empty() {
            return Err(Refusal::Invalid { field: "alone", reason: "required to act alone; explain why" });
        }
        check_audit_text("alone", reason)?;
        let resource: Box<str> = self.table.proposed_name(command).unwrap_or_default().into();
        if !mutants::on(Mutant::ActAloneNotRecorded) {
            self.record(&Record::ActedAlone { action: action.word(), resource: &resource, reason });
        }
        self.out.acts_alone.push(ActAlone { tag, action, resource, reason: reason.into() });
        Ok(())
    }

    /// Records a proposal, unless the identity proposed the same already.
    fn propose(&mut self, request: &Request<'_>, command: &[u8]) -> Result<(), Refusal> {
        let (now, principal) = (self.now(), request.caller.principal);
        let own = self.table.proposals.iter(now).filter(|(_, known)| *known.proposer == *principal);
        let (mut count, mut own_bytes) = (0, command.len());
        for (id, known) in own {
            count += 1;
            own_bytes += known.command.len();
            if *known.command == *command {
                return Err(Refusal::ApprovalRequired { proposal: id });
            }
        }
        if count >= limits::PROPOSALS_PER_IDENTITY {
            let max = limits::PROPOSALS_PER_IDENTITY as u64;
            return Err(Refusal::Exhausted { limit: Limit::IdentityProposals, max, got: max + 1 });
        }
        if own_bytes > limits::PROPOSAL_BYTES_PER_IDENTITY {
            let (max, got) = (limits::PROPOSAL_BYTES_PER_IDENTITY as u64, own_bytes as u64);
            return Err(Refusal::Exhausted { limit: Limit::ProposalBytes, max, got });
        }
        if self.table.proposals.iter(now).count() >= limits::PROPOSALS {
            let max = limits::PROPOSALS as u64;
            return Err(Refusal::Exhausted { limit: Limit::Proposals, max, got: max + 1 });
        }
        let bytes = command.len() + self.table.proposals.iter(now).map(|(_, known)| known.command.len()).sum::<usize>();
        if bytes > limits::PROPOSAL_BYTES {
            let (max, got) = (limits::PROPOSAL_BYTES as u64, bytes as u64);
            return Err(Refusal::Exhausted { limit: Limit::ProposalBytes, max, got });
        }
        let proposal = self.table.proposals.last + 1;
        self.record(&Record::Proposed {
            proposal,
            proposer: principal,
            credential: request.origin.credential,
            command,
            until: now.plus(limits::PROPOSAL_TTL),
        });
        Err(Refusal::ApprovalRequired { proposal })
    }

    /// Checks that a dangerous command could be executed now. Returns what it would change.
    fn check_dangerous(&self, command: &Command<'_>) -> Result<DangerousSubject, Refusal> {
        let mut exact = Vec::new();
        // A proposal in a backup, or in a state that was rolled back, is of another incarnation than its approval.
        exact.num(self.table.identity.map_or(0, |identity| u64::from(identity.incarnation.0)));
        let (value, leases) = match command {
            Command::Revoke(revoke) => self.lease_subject(&mut exact, self.check_revoke(revoke)?),
            Command::Handoff(handoff) => self.lease_subject(&mut exact, vec![self.check_handoff(handoff)?]),
            Command::Free { resource, comment } => {
                let name = self.check_free(resource, comment)?;
                // The revocation that blocked it: freed and blocked again, it is another block.
                let revoked = |reason: crate::lease::EndReason| reason.state() == LeaseState::Revoked;
                let last = self.table.ended_leases.of_resource(name).find(|ended| revoked(ended.reason));
                exact.num(last.map_or(0, |ended| ended.number));
                (1, None)
            }
            Command::WaiveQuarantine { comment } => {
                self.check_waive(comment)?;
                let until = self.table.quarantine.map_or(0, |quarantine| quarantine.until.0);
                exact.num(until);
                (until, None)
            }
            Command::SetCharter { prefix, charter, comment } => {
                (self.charter_subject(&mut exact, self.check_set_charter(prefix, charter, comment)?), None)
            }
            Command::RemoveCharter { prefix, comment } => {
                (self.charter_subject(&mut exact, self.check_remove_charter(prefix, comment)?), None)
            }
            Command::SetMaxTtl { max_ttl_ms, comment } => {
                self.check_max_ttl(*max_ttl_ms, comment)?;
                exact.num(self.table.max_ttl());
                (self.table.max_ttl(), None)
            }
            Command::StepDown => {
                self.check_step_down()?;
                let generation = self.table.generation;
                exact.num(generation);
                (generation, None)
            }
            _ => unreachable!("not a dangerous command"),
        };
        Ok(DangerousSubject { subject: ProposedSubject { value, digest: Sha256::digest(&exact).into() }, leases })
    }

    /// Leases are named by their ids, which are not reused: a rotation of the token changes nothing.
    fn lease_subject(&self, exact: &mut Vec<u8>, leases: Vec<u32>) -> (u64, Option<Vec<u32>>) {
        for id in leases.iter().map(|slot| self.table.lease_id(*slot)) {
            exact.num(u64::from(id.slot));
            exact.num(u64::from(id.reuse));
        }
        (leases.len() as u64, Some(leases))
    }

    /// The charter that applies to a prefix, whether it is its own or that of a shorter one.
    fn charter_subject(&self, exact: &mut Vec<u8>, prefix: &str) -> u64 {
        let Some((of, charter)) = self.table.charters.find(prefix) else { return 0 };
        exact.text(of);
        exact.bytes(&charter.encode());
        1
    }

    /// Executes a proposal of another identity. `proposer` has the rights that the proposer has now.
    pub(super) fn approve(
        &mut self,
        request: &Request<'_>,
        id: u64,
        digest: &[u8; 32],
        proposer: Option<&Rights>,
    ) -> Result<Answer, Refusal> {
        let known = self.table.proposals.get(id, self.now());
        let proposal = known.ok_or(Refusal::NotFound(RefusalSubject::Proposal))?.clone();
        if proposal.digest() != *digest && !mutants::on(Mutant::ApprovedAnother) {
            return Err(Refusal::Conflict(RefusalSubject::Proposal));
        }
        let credential = request.origin.credential;
        let is_same = *proposal.proposer == *request.caller.principal
            || (!credential.is_empty() && *proposal.credential == *credential);
        if is_same && !mutants::on(Mutant::OneIsTwo) {
            return Err(Refusal::Denied(SAME_IDENTITY));
        }
        let ProposedCommand { command, subject } = proposal.proposed();
        if let Some(rights) = proposer {
            self.check_proposer(&proposal, rights, &command)?;
        }
        self.check_same_subject(&command, subject)?;
        self.execute(request, &command)?;
        let approver = request.caller.principal;
        self.record(&Record::ProposalApproved { proposal: id, approver, credential });
        Ok(Answer::Done)
    }

    /// Checks that a command would change now what it would have changed when it was proposed.
    fn check_same_subject(&self, command: &Command<'_>, proposed: Option<ProposedSubject>) -> Result<(), Refusal> {
        let proposed = proposed.ok_or(Refusal::Denied(NOT_BOUND))?;
        let found = self.check_dangerous(command)?.subject;
        if found.digest == proposed.digest || mutants::on(Mutant::ApprovedOtherSubject) {
            return Ok(());
        }
        Err(Refusal::SubjectChanged { subject: subject_word(command), proposed: proposed.value, found: found.value })
    }

    /// Checks that the identity that proposed a command still may execute it.
    fn check_proposer(&mut self, proposal: &Proposal, rights: &Rights, command: &Command<'_>) -> Result<(), Refusal> {
        let caller = Caller { principal: &proposal.proposer, rights };
        let request = Request { caller, ..Request::tagged(0) };
        let lost =
            |_| Refusal::Denied("the identity that proposed this may no longer do it; ask another one to propose it");
        self.may(&request, command).map_err(lost)
    }

    /// Withdraws a proposal.
    pub(super) fn cancel_proposal(&mut self, request: &Request<'_>, id: u64) -> Result<Answer, Refusal> {
        self.table.proposals.get(id, self.now()).ok_or(Refusal::NotFound(RefusalSubject::Proposal))?;
        self.record(&Record::ProposalCanceled { proposal: id, by: request.caller.principal });
        Ok(Answer::Done)
    }

    /// The identity that made a proposal.
    pub fn proposer_of(&self, id: u64) -> Option<&str> {
        self.table.proposals.get(id, self.now()).map(|proposal| &*proposal.proposer)
    }

    /// All proposals that wait for an approval, by number.
    pub fn proposals(&self) -> impl Iterator<Item = ProposalView> {
        self.table.proposals.iter(self.now()).map(|(id, proposal)| self.proposal_view(id, proposal))
    }

    fn proposal_view(&self, id: u64, proposal: &Proposal) -> ProposalView {
        let ProposedCommand { command, subject } = proposal.proposed();
        let (max_ttl_ms, grace_ms) = match command {
            Command::Revoke(Revoke { grace_ms, .. }) => (None, Some(grace_ms)),
            Command::SetMaxTtl { max_ttl_ms, .. } => (Some(max_ttl_ms), None),
            _ => (None, None),
        };
        let (handoff_mode, drain_ms) = match command {
            Command::Handoff(Handoff { mode, drain_ms, .. }) => (mode, drain_ms),
            _ => (None, None),
        };
        let ends_leases = matches!(command, Command::Revoke(_) | Command::Handoff(_));
        ProposalView {
            proposal: id,
            action: action(&command).word(),
            resource: self.table.proposed_name(&command).unwrap_or_default().to_owned(),
            lease: command.proposed_lease(),
            comment: command.proposed_comment().to_owned(),
            max_ttl_ms,
            grace_ms,
            leases: subject.filter(|_| ends_leases).map(|subject| subject.value),
            to: command.proposed_successor().to_owned(),
            handoff_mode,
            drain_ms,
            charter: match command {
                Command::SetCharter { charter, .. } => Some(charter),
                _ => None,
            },
            proposer: proposal.proposer.to_string(),
            digest: proposal.digest(),
            remaining_ms: self.now().until(proposal.until),
        }
    }
}

impl<'a> Command<'a> {
    /// The comment of a command that can be proposed.
    pub(super) const fn proposed_comment(&self) -> &'a str {
        match self {
            Self::Free { comment, .. }
            | Self::WaiveQuarantine { comment }
            | Self::RemoveCharter { comment, .. }
            | Self::SetCharter { comment, .. }
            | Self::SetMaxTtl { comment, .. }
            | Self::Revoke(Revoke { comment, .. }) => comment,
            _ => "",
        }
    }

    /// The lease that it ends, if it is named by its id.
    pub(super) const fn proposed_lease(&self) -> Option<crate::ids::LeaseId> {
        match self {
            Self::Revoke(Revoke { selector: LeaseSelector::Id(id), .. })
            | Self::Handoff(Handoff { selector: LeaseSelector::Id(id), .. }) => Some(*id),
            _ => None,
        }
    }

    /// The successor that it names.
    pub(super) const fn proposed_successor(&self) -> &'a str {
        match self {
            Self::Handoff(Handoff { to: Some(to), .. }) => to,
            _ => "",
        }
    }
}

/// What a dangerous command changes.
const fn subject_word(command: &Command<'_>) -> RefusalSubject {
    match command {
        Command::Revoke(_) | Command::Handoff(_) => RefusalSubject::Lease,
        Command::Free { .. } => RefusalSubject::Hold,
        Command::WaiveQuarantine { .. } => RefusalSubject::Quarantine,
        Command::SetCharter { .. } | Command::RemoveCharter { .. } => RefusalSubject::Charter,
        Command::SetMaxTtl { .. } => RefusalSubject::MaxTtl,
        _ => RefusalSubject::Tenure,
    }
}

/// Whether a mutant forgets that an action has the effect of another one.
fn is_replacement_ignored(action: Action, rules: &crate::access::ApprovalRules) -> bool {
    let is_listed = DangerousAction::parse(action.word()).is_some_and(|dangerous| rules.is_required(dangerous));
    let mutant = match action {
        Action::SetCharter | Action::RemoveCharter => Mutant::CharterReplacesRevocation,
        Action::Handoff => Mutant::HandoffReplacesRevocation,
        Action::WaiveQuarantine => Mutant::QuarantineWaivedAlone,
        _ => return false,
    };
    mutants::on(mutant) && !is_listed
}
