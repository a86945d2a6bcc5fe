//! Operators: identities whose dangerous commands need a second identity (A14). They propose, approve, and try to do without: alone,
//! with one person as two, with the digest of another proposal, after the subject changed, and after the proposal expired.
//!
//! Like impostors they step the grantor inside a turn and draw from their own numbers.

use std::collections::BTreeMap;

use leasehold_core::access::{AccessGrant, ApprovalRules, Caller, DangerousAction, RequestOrigin, Rights, Role, Via};
use leasehold_core::charter::Charter;
use leasehold_core::command::{Answer, Command, Handoff, Input, LeaseSelector, Request, Revoke};
use leasehold_core::grantor::{Grantor, Output, ProposalView};
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::EndReason;
use leasehold_core::limits::PROPOSAL_TTL;
use leasehold_core::time::Now;

use crate::rng::SimRng;
use crate::run_constants::EXCLUSIVE;

/// Tags of operators start here, above those of impostors.
const FIRST_TAG: u64 = 3 << 61;

/// Proposals that are open at the same time.
const OPEN_PROPOSALS: usize = 6;

/// The start of the identities of all operators.
pub const OPERATORS: &str = "spiffe://sim/operator-";
const PROPOSER: &str = "spiffe://sim/operator-a";
const APPROVER: &str = "spiffe://sim/operator-b";
/// May act without a second identity.
const LONER: &str = "spiffe://sim/operator-c";
/// The proposer under another name: it has the same credential.
const ALIAS: &str = "spiffe://sim/operator-d";

/// A prefix without resources, whose charter changes nothing.
const DRILL: &str = "drill";

/// What an operator did, and whether it was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorAct {
    /// The identity.
    pub by: &'static str,
    /// The generation of the server.
    pub generation: u64,
    /// What was requested.
    pub kind: OperatorActKind,
    /// Whether it was executed.
    pub executed: bool,
}

/// What an operator requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorActKind {
    /// A dangerous command without an approval.
    Direct {
        /// Whether it gave a reason to act alone.
        alone: bool,
        /// Whether the access rules let it act alone.
        may_act_alone: bool,
    },
    /// The approval of a proposal.
    Approve {
        /// The proposal.
        proposal: u64,
        /// Whether the approver is another identity with another credential.
        by_another: bool,
        /// Whether it named the exact command that was proposed.
        exact: bool,
        /// Whether the leases that it ends are those for which it was proposed.
        same_subject: bool,
        /// Whether its time was over.
        expired: bool,
    },
}

/// The operators of a run.
pub struct Operators {
    rng: SimRng,
    rights: Rights,
    loner_rights: Rights,
    /// The leases that the command of each proposal named, by the digest of the proposal.
    subjects: BTreeMap<[u8; 32], Vec<LeaseId>>,
    last_tag: u64,
}

impl Operators {
    /// The operators of a seed; a third of all runs has some.
    pub fn of_seed(seed: u64) -> Option<Self> {
        let mut rng = SimRng::new(seed ^ 0x0a14_0a14);
        let mut approval = ApprovalRules::NONE;
        approval.require(DangerousAction::Revoke);
        approval.require(DangerousAction::Free);
        let mut alone = approval;
        alone.may_act_alone = true;
        let grants = vec![AccessGrant { role: Role::Admin, prefix: "".into() }];
        let rights = Rights::new(1, grants);
        rng.one_in(3).then(|| Self {
            rng,
            loner_rights: rights.clone().with_approval(alone),
            rights: rights.with_approval(approval),
            subjects: BTreeMap::new(),
            last_tag: FIRST_TAG,
        })
    }

    /// Acts in a turn, sometimes. Its replies have tags that are filtered like those of impostors.
    pub fn act(&mut self, grantor: &mut Grantor, now: Now, generation: u64) -> Option<PendingAct> {
        if !self.rng.one_in(8) {
            return None;
        }
        let proposals: Vec<ProposalView> = grantor.proposals().collect();
        match self.rng.below(10) {
            0..=3 if proposals.len() < OPEN_PROPOSALS => Some(self.command(grantor, now, generation, PROPOSER, None)),
            4 => Some(self.command(grantor, now, generation, PROPOSER, Some("no one else is here"))),
            5 => Some(self.command(grantor, now, generation, LONER, Some("the site is down"))),
            6 if !proposals.is_empty() => {
                let by = *self.rng.pick(&[PROPOSER, ALIAS]);
                let proposal = self.rng.pick(&proposals).clone();
                Some(self.approve(grantor, now, generation, by, &proposal, Approval::Exact))
            }
            7 if !proposals.is_empty() => {
                let proposal = self.rng.pick(&proposals).clone();
                Some(self.approve(grantor, now, generation, APPROVER, &proposal, Approval::OtherDigest))
            }
            8..=9 if !proposals.is_empty() => {
                let proposal = self.rng.pick(&proposals).clone();
                Some(self.approve(grantor, now, generation, APPROVER, &proposal, Approval::Exact))
            }
            _ => None,
        }
    }

    /// Approves every open proposal after its time, at the end of a run.
    pub fn approve_late(&mut self, grantor: &mut Grantor, mut now: Now, generation: u64) -> Vec<OperatorAct> {
        now.instant = now.instant.plus_millis(PROPOSAL_TTL);
        let proposals: Vec<ProposalView> = grantor.proposals().collect();
        let mut output = Output::default();
        let approve = |proposal: &ProposalView| {
            let pending = self.approve(grantor, now, generation, APPROVER, proposal, Approval::Late);
            grantor.take_output(&mut output);
            pending.finish(&output)
        };
        proposals.iter().map(approve).collect()
    }

    /// Sends a dangerous command.
    fn command(
        &mut self,
        grantor: &mut Grantor,
        now: Now,
        generation: u64,
        by: &'static str,
        alone: Option<&str>,
    ) -> PendingAct {
        let resource = *self.rng.pick(&EXCLUSIVE);
        let selector = LeaseSelector::Resource(resource);
        let grace_ms = self.rng.below(3) * 400;
        let comment = "drill";
        let (command, ends_leases) = match self.rng.below(6) {
            0..=2 => (Command::Revoke(Revoke { selector, reason: EndReason::Operator, comment, grace_ms }), true),
            3 => {
                let (mode, drain_ms) = (None, Some(300 + grace_ms));
                (Command::Handoff(Handoff { selector, number: None, to: None, mode, drain_ms }), true)
            }
            // Waived quarantines are not approved here; none may be waived alone.
            4 if alone.is_none() => (Command::WaiveQuarantine { comment }, false),
            _ => {
                let charter = Box::new(Charter { capacity: Some(2), ..Charter::default() });
                (Command::SetCharter { prefix: DRILL, charter, comment }, false)
            }
        };
        let leases = if ends_leases { leases_on(grantor, resource) } else { Vec::new() };
        let before: Vec<[u8; 32]> = grantor.proposals().map(|proposal| proposal.digest).collect();
        let tag = self.step(grantor, now, by, alone, command);
        for digest in grantor.proposals().map(|proposal| proposal.digest).filter(|digest| !before.contains(digest)) {
            self.subjects.insert(digest, leases.clone());
        }
        let kind = OperatorActKind::Direct { alone: alone.is_some(), may_act_alone: by == LONER };
        PendingAct { tag, act: OperatorAct { by, generation, kind, executed: false } }
    }

    fn approve(
        &mut self,
        grantor: &mut Grantor,
        now: Now,
        generation: u64,
        by: &'static str,
        proposal: &ProposalView,
        approval: Approval,
    ) -> PendingAct {
        let leases = if proposal.leases.is_some() { leases_on(grantor, &proposal.resource) } else { Vec::new() };
        let same_subject = self.subjects.get(&proposal.digest).is_none_or(|proposed| *proposed == leases);
        let mut digest = proposal.digest;
        digest[0] ^= u8::from(approval == Approval::OtherDigest);
        let is_waiver = proposal.action == "waive_quarantine" && approval != Approval::Late;
        digest[1] ^= u8::from(is_waiver);
        let proposer = self.rights.clone();
        let command = Command::Approve { proposal: proposal.proposal, digest, proposer: Some(&proposer) };
        let tag = self.step(grantor, now, by, None, command);
        let kind = OperatorActKind::Approve {
            proposal: proposal.proposal,
            by_another: credential_of(by) != credential_of(&proposal.proposer),
            exact: digest == proposal.digest,
            same_subject,
            expired: approval == Approval::Late,
        };
        PendingAct { tag, act: OperatorAct { by, generation, kind, executed: false } }
    }

    fn step(
        &mut self,
        grantor: &mut Grantor,
        now: Now,
        by: &'static str,
        alone: Option<&str>,
        command: Command<'_>,
    ) -> u64 {
        self.last_tag += 1;
        let rights = if by == LONER { &self.loner_rights } else { &self.rights };
        let origin = RequestOrigin { via: Via::Certificate, credential: credential_of(by), ..RequestOrigin::LOCAL };
        let request =
            Request { caller: Caller { principal: by, rights }, origin, alone, ..Request::tagged(self.last_tag) };
        grantor.step(now, &Input::Request(request, command));
        self.last_tag
    }
}

/// How a proposal is approved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Approval {
    Exact,
    OtherDigest,
    Late,
}

/// An act whose reply is in the output of the turn.
#[derive(Debug)]
pub struct PendingAct {
    tag: u64,
    act: OperatorAct,
}

impl PendingAct {
    /// The act with its reply.
    pub fn finish(self, output: &Output) -> OperatorAct {
        let reply = output.replies.iter().find(|reply| reply.tag == self.tag).expect("every request is answered");
        OperatorAct { executed: !matches!(reply.answer, Answer::Refused(_)), ..self.act }
    }
}

/// Two names of one person have one credential.
fn credential_of(identity: &str) -> &str {
    let name = if identity == ALIAS { PROPOSER } else { identity };
    name.strip_prefix(OPERATORS).unwrap_or_default()
}

fn leases_on(grantor: &Grantor, resource: &str) -> Vec<LeaseId> {
    let mut leases: Vec<LeaseId> =
        grantor.show(resource).map_or_else(Vec::new, |view| view.leases.iter().map(|lease| lease.lease).collect());
    leases.sort_unstable_by_key(|lease| (lease.slot, lease.reuse));
    leases
}
