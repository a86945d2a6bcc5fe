//! Two-person approval: a dangerous command becomes a proposal, and the approval of another identity executes it once (A14).

use super::Grantor;
use super::table::proposals::Proposal;
use crate::access::{Caller, DangerousAction, Rights, SAME_IDENTITY};
use crate::command::{Answer, Command, LeaseSelector, Request, Revoke};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::{Limit, Refusal, RefusalSubject};

/// A proposal that waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposalView {
    /// Its number.
    pub proposal: u64,
    /// What it does: the word of a dangerous action.
    pub action: &'static str,
    /// The resource or prefix that it concerns; empty if it concerns the whole cluster.
    pub resource: String,
    /// The lease that would be revoked, if it is named by its id.
    pub lease: Option<crate::ids::LeaseId>,
    /// The comment of the identity that proposed it.
    pub comment: String,
    /// The new longest ttl.
    pub max_ttl_ms: Option<u64>,
    /// The grace of a revocation.
    pub grace_ms: Option<u64>,
    /// The identity that proposed it.
    pub proposer: String,
    /// The digest of the exact command. An approval repeats it.
    pub digest: [u8; 32],
    /// Time until it expires.
    pub remaining_ms: u64,
}

impl Grantor {
    /// Refuses a dangerous command that needs a second identity, and proposes it instead. The command is checked first, so that what
    /// cannot be executed is not proposed.
    pub(super) fn check_approval(&mut self, request: &Request<'_>, command: &Command<'_>) -> Result<(), Refusal> {
        let rules = request.caller.rights.approval();
        let Some(action) = command.dangerous_action().filter(|action| rules.is_required(*action)) else {
            return Ok(());
        };
        let leases = self.check_dangerous(command)?;
        if action == DangerousAction::Revoke && leases <= rules.revoke_up_to {
            return Ok(());
        }
        let command = command.encode_proposed().expect("a dangerous command");
        let (now, principal) = (self.now(), request.caller.principal);
        let own = self.table.proposals.iter(now).filter(|(_, known)| *known.proposer == *principal);
        let mut count = 0;
        for (id, known) in own {
            count += 1;
            if *known.command == *command {
                return Err(Refusal::ApprovalRequired { proposal: id });
            }
        }
        if count >= limits::PROPOSALS_PER_IDENTITY {
            let max = limits::PROPOSALS_PER_IDENTITY as u64;
            return Err(Refusal::Exhausted { limit: Limit::IdentityProposals, max, got: max + 1 });
        }
        if self.table.proposals.iter(now).count() >= limits::PROPOSALS {
            let max = limits::PROPOSALS as u64;
            return Err(Refusal::Exhausted { limit: Limit::Proposals, max, got: max + 1 });
        }
        let proposal = self.table.proposals.last + 1;
        self.record(&Record::Proposed {
            proposal,
            proposer: principal,
            credential: request.origin.credential,
            command: &command,
            until: now.plus(limits::PROPOSAL_TTL),
        });
        Err(Refusal::ApprovalRequired { proposal })
    }

    /// Checks that a dangerous command could be executed now. Returns the number of leases that a revocation ends.
    fn check_dangerous(&self, command: &Command<'_>) -> Result<u64, Refusal> {
        match command {
            Command::Free { resource, comment } => self.check_free(resource, comment).map(|_| 0),
            Command::Revoke(revoke) => self.check_revoke(revoke).map(|leases| leases.len() as u64),
            Command::WaiveQuarantine { comment } => self.check_waive(comment).map(|()| 0),
            Command::RemoveCharter { prefix, comment } => self.check_remove_charter(prefix, comment).map(|_| 0),
            Command::SetMaxTtl { max_ttl_ms, comment } => self.check_max_ttl(*max_ttl_ms, comment).map(|()| 0),
            Command::StepDown => self.check_step_down().map(|()| 0),
            _ => Ok(0),
        }
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
        let command = proposal.command();
        if let Some(rights) = proposer {
            self.check_proposer(&proposal, rights, &command)?;
        }
        let answer = self.execute(request, &command)?;
        let approver = request.caller.principal;
        self.record(&Record::ProposalApproved { proposal: id, approver, credential });
        Ok(answer)
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
        let command = proposal.command();
        let (comment, max_ttl_ms, grace_ms) = match command {
            Command::Free { comment, .. }
            | Command::WaiveQuarantine { comment }
            | Command::RemoveCharter { comment, .. } => (comment, None, None),
            Command::Revoke(Revoke { comment, grace_ms, .. }) => (comment, None, Some(grace_ms)),
            Command::SetMaxTtl { max_ttl_ms, comment } => (comment, Some(max_ttl_ms), None),
            _ => ("", None, None),
        };
        let lease = match command {
            Command::Revoke(Revoke { selector: LeaseSelector::Id(id), .. }) => Some(id),
            _ => None,
        };
        ProposalView {
            proposal: id,
            action: command.dangerous_action().map_or("", DangerousAction::word),
            resource: self.table.proposed_name(&command).unwrap_or_default().to_owned(),
            lease,
            comment: comment.to_owned(),
            max_ttl_ms,
            grace_ms,
            proposer: proposal.proposer.to_string(),
            digest: proposal.digest(),
            remaining_ms: self.now().until(proposal.until),
        }
    }
}
