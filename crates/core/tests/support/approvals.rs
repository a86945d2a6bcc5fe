//! Two-person approval against a grantor: a proposal is executed once, by another identity, as it was proposed (A14).

use leasehold_core::access::{
    AccessGrant, Action, ApprovalRules, Caller, DangerousAction, RequestOrigin, Rights, Role, Via,
};
use leasehold_core::charter::{AfterRevocation, Charter, Preemption, Target};
use leasehold_core::command::{
    Acquire, Answer, Command, Handoff, HandoffMode, Input, LeaseSelector, OpenSession, Proof, Request, Revoke,
};
use leasehold_core::grantor::{
    ActAlone, AuditChange, Grantor, Output, RecoveredGrantor, RestoreSpec, TenureOptions, recover,
};
use leasehold_core::lease::{Access, EndReason, Validity};
use leasehold_core::limits::{PROPOSAL_BYTES_PER_IDENTITY, PROPOSAL_TTL, PROPOSALS_PER_IDENTITY};
use leasehold_core::record::BatchHeader;
use leasehold_core::refusal::{Limit, Refusal, RefusalSubject};
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};

const ANN: &str = "spiffe://example/ann";
const BOB: &str = "spiffe://example/bob";

/// A grantor, its journal and a clock.
struct Scene {
    grantor: Grantor,
    batches: Vec<Vec<u8>>,
    ms: u64,
    approval: ApprovalRules,
    /// Commands of the last turn that were executed without a second identity.
    acts_alone: Vec<ActAlone>,
}

fn now(ms: u64) -> Now {
    Now { instant: Instant::from_millis(ms), wall: WallClock::after_era(1_000_000_000 + ms) }
}

fn revoke(name: &str) -> Command<'_> {
    let selector = LeaseSelector::Resource(name);
    Command::Revoke(Revoke { selector, reason: EndReason::Operator, comment: "it hangs", grace_ms: 0 })
}

impl Scene {
    fn new(actions: &[DangerousAction]) -> Self {
        let mut approval = ApprovalRules::NONE;
        actions.iter().for_each(|action| approval.require(*action));
        let (grantor, batch) = open_with(RecoveredGrantor::empty(1), options(1), 0);
        Self { grantor, batches: vec![batch], ms: 0, approval, acts_alone: Vec::new() }
    }

    /// Lets time pass with turns.
    fn wait(&mut self, ms: u64) {
        let end = self.ms + ms;
        while self.ms < end {
            self.ms = (self.ms + 50).min(end);
            self.grantor.step(now(self.ms), &Input::Tick);
            self.end_turn();
        }
    }

    fn end_turn(&mut self) -> Vec<leasehold_core::command::Reply> {
        let mut out = Output::default();
        self.grantor.take_output(&mut out);
        self.batches.extend((!out.batch.is_empty()).then_some(out.batch));
        self.acts_alone = out.acts_alone;
        out.replies
    }

    fn run(&mut self, caller: Caller<'_>, credential: &str, command: Command<'_>) -> Answer {
        let origin = RequestOrigin { via: Via::Certificate, credential, ..RequestOrigin::LOCAL };
        self.request(Request { caller, origin, ..Request::tagged(1) }, command)
    }

    fn request(&mut self, request: Request<'_>, command: Command<'_>) -> Answer {
        self.grantor.step(now(self.ms), &Input::Request(request, command));
        self.end_turn().into_iter().find(|reply| reply.tag == 1).expect("an answer").answer
    }

    /// Runs a command as an administrator with this name.
    fn by(&mut self, principal: &str, credential: &str, command: Command<'_>) -> Answer {
        let rights = self.admin();
        self.run(Caller { principal, rights: &rights }, credential, command)
    }

    fn admin(&self) -> Rights {
        let grants = vec![AccessGrant { role: Role::Admin, prefix: "".into() }];
        Rights::new(1, grants).with_approval(self.approval)
    }

    /// Runs a command as an administrator that acts alone for this reason.
    fn alone(&mut self, reason: &str, command: Command<'_>) -> Answer {
        let rights = self.admin();
        let caller = Caller { principal: ANN, rights: &rights };
        self.request(Request { caller, alone: Some(reason), ..Request::tagged(1) }, command)
    }

    /// Runs a command without access rules.
    fn local(&mut self, command: Command<'_>) -> Answer {
        self.run(Caller::LOCAL, "", command)
    }

    /// Every audit entry: its kind, resource, action, comment and proposal.
    fn audit(&self) -> Vec<String> {
        let mut recovered = RecoveredGrantor::empty(9);
        let mut entries = Vec::new();
        let mut each = |_: &BatchHeader, change: &AuditChange<'_>| {
            let proposal = change.proposal.map_or_else(String::new, |id| id.to_string());
            let parts = [change.kind, change.resource, change.mode, change.comment, change.by, &proposal];
            entries.push(parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "));
        };
        for batch in &self.batches {
            recovered.apply_with_changes(batch, Some(&mut each)).expect("the journal is valid");
        }
        entries
    }

    /// Restores the journal as a backup, which starts a quarantine.
    fn restore(&mut self, generation: u64) {
        let recovered = recover(4, None, self.batches.iter().map(Vec::as_slice)).expect("the journal is valid");
        let restore = Some(RestoreSpec { incarnation: Incarnation(2), floor: None, uid: Some(7) });
        let (grantor, batch) = open_with(recovered, TenureOptions { restore, ..options(generation) }, self.ms);
        self.grantor = grantor;
        self.batches.push(batch);
    }

    fn hold(&mut self, name: &str) {
        let answer = self.run(Caller::LOCAL, "", Command::Acquire(Acquire::exclusive(name, "worker", 600_000)));
        assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
    }

    fn is_held(&self, name: &str) -> bool {
        self.grantor.show(name).is_some_and(|view| !view.leases.is_empty())
    }

    fn digest(&self, proposal: u64) -> [u8; 32] {
        let found = self.grantor.proposals().find(|known| known.proposal == proposal);
        found.map_or([0; 32], |proposal| proposal.digest)
    }

    fn approve<'a>(&self, proposal: u64) -> Command<'a> {
        Command::Approve { proposal, digest: self.digest(proposal), proposer: None }
    }

    /// Replaces the grantor by one that is recovered from the journal, and compares it with one from a snapshot.
    fn fail_over(&mut self, generation: u64) -> Result<(), String> {
        let snapshot = self.grantor.snapshot();
        let from_snapshot = RecoveredGrantor::from_snapshot(&snapshot, 2).map_err(|error| error.to_string())?;
        let recovered = recover(3, None, self.batches.iter().map(Vec::as_slice)).map_err(|error| error.to_string())?;
        expect("replay and snapshot agree", from_snapshot.snapshot(), recovered.snapshot())?;
        let (grantor, batch) = open_with(recovered, options(generation), self.ms);
        self.grantor = grantor;
        self.batches.push(batch);
        Ok(())
    }
}

fn options(generation: u64) -> TenureOptions {
    TenureOptions {
        cluster: Cluster(*b"cluster1"),
        incarnation: Incarnation(1),
        generation,
        validity: Validity::Session,
        max_ttl: 600_000,
        restore: None,
    }
}

fn open_with(recovered: RecoveredGrantor, options: TenureOptions, ms: u64) -> (Grantor, Vec<u8>) {
    let mut grantor = recovered.open(now(ms), &options).expect("it opens");
    let mut out = Output::default();
    grantor.take_output(&mut out);
    grantor.serve(now(ms));
    (grantor, out.batch)
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, actual: T, expected: T) -> Result<(), String> {
    if actual == expected { Ok(()) } else { Err(format!("A14: {what}: {actual:?} instead of {expected:?}")) }
}

fn required(proposal: u64) -> Answer {
    Answer::Refused(Refusal::ApprovalRequired { proposal })
}

fn is_denied(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(Refusal::Denied(_)))
}

const NOT_FOUND: Answer = Answer::Refused(Refusal::NotFound(RefusalSubject::Proposal));
const CONFLICT: Answer = Answer::Refused(Refusal::Conflict(RefusalSubject::Proposal));

/// Every rule of two-person approval.
pub fn check() -> Result<(), String> {
    one_identity_alone_does_nothing()?;
    another_identity_executes_it_once()?;
    what_was_approved_is_what_is_executed()?;
    a_proposal_expires_and_can_be_withdrawn()?;
    proposals_survive_a_failover()?;
    only_what_could_be_executed_is_proposed()?;
    one_identity_does_not_fill_the_list_of_proposals()?;
    a_charter_needs_the_approval_of_what_it_replaces()?;
    a_handoff_of_anothers_lease_is_a_revocation()?;
    a_quarantine_is_not_waived_or_shortened_alone()?;
    an_approval_executes_only_what_was_named()?;
    who_may_act_alone_leaves_a_reason()?;
    a_full_journal_proposes_nothing()
}

pub fn one_identity_alone_does_nothing() -> Result<(), String> {
    let mut scene = Scene::new(&[DangerousAction::Revoke]);
    scene.hold("jobs/a");
    expect("a dangerous command is proposed", scene.by(ANN, "cert-a", revoke("jobs/a")), required(1))?;
    expect("the same command is the same proposal", scene.by(ANN, "cert-a", revoke("jobs/a")), required(1))?;
    expect("nothing happened", scene.is_held("jobs/a"), true)?;
    let approve = scene.approve(1);
    for (principal, credential) in [(ANN, "cert-a"), (ANN, "cert-b"), (BOB, "cert-a")] {
        let answer = scene.by(principal, credential, approve.clone());
        expect(&format!("{principal} with {credential} is refused: {answer:?}"), is_denied(&answer), true)?;
    }
    expect("nothing happened", scene.is_held("jobs/a"), true)?;
    expect(
        "other actions need no approval",
        scene.by(ANN, "cert-a", Command::SetMaxTtl { max_ttl_ms: 700_000, comment: "more" }),
        Answer::Done,
    )
}

pub fn another_identity_executes_it_once() -> Result<(), String> {
    let mut scene = Scene::new(&[DangerousAction::Revoke]);
    scene.hold("jobs/a");
    expect("a dangerous command is proposed", scene.by(ANN, "cert-a", revoke("jobs/a")), required(1))?;
    let approve = scene.approve(1);
    expect("another identity approves", scene.by(BOB, "cert-b", approve.clone()), Answer::Done)?;
    expect("it is executed", scene.is_held("jobs/a"), false)?;
    scene.hold("jobs/a");
    expect("it is executed once", scene.by(BOB, "cert-b", approve), NOT_FOUND)?;
    expect("the new lease is held", scene.is_held("jobs/a"), true)
}

pub fn what_was_approved_is_what_is_executed() -> Result<(), String> {
    let mut scene = Scene::new(&[DangerousAction::Revoke, DangerousAction::SetMaxTtl]);
    scene.hold("jobs/a");
    scene.hold("jobs/b");
    expect("the first proposal", scene.by(ANN, "", revoke("jobs/a")), required(1))?;
    expect("the second proposal", scene.by(ANN, "", revoke("jobs/b")), required(2))?;
    let of_another = Command::Approve { proposal: 2, digest: scene.digest(1), proposer: None };
    expect("the digest of another command", scene.by(BOB, "", of_another), CONFLICT)?;
    expect("nothing happened", (scene.is_held("jobs/a"), scene.is_held("jobs/b")), (true, true))?;
    let nothing = Rights::new(1, Vec::new());
    let approve = Command::Approve { proposal: 1, digest: scene.digest(1), proposer: Some(&nothing) };
    let answer = scene.by(BOB, "", approve);
    expect("who lost its rights proposes nothing", is_denied(&answer), true)?;
    let approve = scene.approve(2);
    expect("the second is approved", scene.by(BOB, "", approve), Answer::Done)?;
    expect("only the second is executed", (scene.is_held("jobs/a"), scene.is_held("jobs/b")), (true, false))
}

pub fn a_proposal_expires_and_can_be_withdrawn() -> Result<(), String> {
    let mut scene = Scene::new(&[DangerousAction::SetMaxTtl]);
    let set = || Command::SetMaxTtl { max_ttl_ms: 900_000, comment: "slow batches" };
    expect("it is proposed", scene.by(ANN, "", set()), required(1))?;
    let approve = scene.approve(1);
    scene.wait(PROPOSAL_TTL);
    expect("an expired proposal", scene.by(BOB, "", approve), NOT_FOUND)?;
    expect("it is proposed again", scene.by(ANN, "", set()), required(2))?;
    let approve = scene.approve(2);
    expect("it is withdrawn", scene.by(ANN, "", Command::CancelProposal { proposal: 2 }), Answer::Done)?;
    expect("a withdrawn proposal", scene.by(BOB, "", approve), NOT_FOUND)?;
    expect("nothing is left", scene.grantor.proposals().count(), 0)?;
    expect("nothing happened", scene.grantor.status().max_ttl_ms, 600_000)
}

pub fn proposals_survive_a_failover() -> Result<(), String> {
    let mut scene = Scene::new(&[DangerousAction::SetMaxTtl]);
    let set = |max_ttl_ms| Command::SetMaxTtl { max_ttl_ms, comment: "slow batches" };
    expect("it is proposed", scene.by(ANN, "cert-a", set(700_000)), required(1))?;
    expect("and another", scene.by(ANN, "cert-a", set(800_000)), required(2))?;
    let approve = scene.approve(1);
    scene.fail_over(2)?;
    let answer = scene.by(BOB, "cert-a", approve.clone());
    expect("the credential is still known", is_denied(&answer), true)?;
    expect("it is approved", scene.by(BOB, "cert-b", approve.clone()), Answer::Done)?;
    expect("it is executed", scene.grantor.status().max_ttl_ms, 700_000)?;
    scene.fail_over(3)?;
    expect("it is executed once", scene.by(BOB, "cert-b", approve), NOT_FOUND)?;
    expect("numbers are not reused", scene.by(ANN, "cert-a", set(900_000)), required(3))?;
    scene.fail_over(4)
}

pub fn only_what_could_be_executed_is_proposed() -> Result<(), String> {
    let mut scene = Scene::new(&DangerousAction::ALL);
    let held = |subject| Answer::Refused(Refusal::NotFound(subject));
    let free = Command::Free { resource: "jobs/a", comment: "checked" };
    expect("free", scene.by(ANN, "", free), held(RefusalSubject::Hold))?;
    expect("revoke", scene.by(ANN, "", revoke("jobs/a")), held(RefusalSubject::Lease))?;
    let waive = Command::WaiveQuarantine { comment: "all are off" };
    expect("waive", scene.by(ANN, "", waive), held(RefusalSubject::Quarantine))?;
    let remove = Command::RemoveCharter { prefix: "jobs", comment: "" };
    expect("remove a charter", scene.by(ANN, "", remove), held(RefusalSubject::Charter))?;
    expect("step down", scene.by(ANN, "", Command::StepDown), held(RefusalSubject::Standby))?;
    scene.approval.revoke_up_to = 1;
    scene.hold("jobs/a");
    expect("a small revocation needs no approval", scene.by(ANN, "", revoke("jobs/a")), Answer::Done)?;
    for number in 0..PROPOSALS_PER_IDENTITY as u64 {
        let set = Command::SetMaxTtl { max_ttl_ms: 700_000 + number, comment: "more" };
        expect("it is proposed", scene.by(ANN, "", set), required(number + 1))?;
    }
    let max = PROPOSALS_PER_IDENTITY as u64;
    let full = Answer::Refused(Refusal::Exhausted { limit: Limit::IdentityProposals, max, got: max + 1 });
    let set = |max_ttl_ms| Command::SetMaxTtl { max_ttl_ms, comment: "more" };
    expect("an identity has a limited number of proposals", scene.by(ANN, "", set(1_000_000)), full)?;
    expect("another identity is not affected", scene.by(BOB, "", set(1_000_000)), required(max + 1))
}

pub fn one_identity_does_not_fill_the_list_of_proposals() -> Result<(), String> {
    let mut scene = Scene::new(&[DangerousAction::Revoke]);
    let target = |number| Target { name: format!("t{number}"), at: "x".repeat(1_000), mode: None, reporter: None };
    let large = Charter { targets: (0..10).map(target).collect(), ..Charter::default() };
    for number in 1..=6 {
        let answer = scene.by(ANN, "", set_charter(&format!("jobs/{number}"), large.clone()));
        expect("it is proposed", answer, required(number))?;
    }
    let answer = scene.by(ANN, "", set_charter("jobs/7", large.clone()));
    let is_full = |answer: &Answer| {
        let limit = |refusal: &Refusal| matches!(refusal, Refusal::Exhausted { limit: Limit::ProposalBytes, max, .. } if *max == PROPOSAL_BYTES_PER_IDENTITY as u64);
        matches!(answer, Answer::Refused(refusal) if limit(refusal))
    };
    expect("an identity has a share of the bytes", is_full(&answer), true)?;
    expect("another identity is not affected", scene.by(BOB, "", set_charter("jobs/7", large)), required(7))
}

fn set_charter(prefix: &str, charter: Charter) -> Command<'_> {
    Command::SetCharter { prefix, charter: Box::new(charter), comment: "new terms" }
}

fn preempting() -> Charter {
    Charter { preemption: Preemption::LowerPriority { grace_ms: 1 }, ..Charter::default() }
}

fn is_proposed(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(Refusal::ApprovalRequired { .. }))
}

pub fn a_charter_needs_the_approval_of_what_it_replaces() -> Result<(), String> {
    let remove = || Command::RemoveCharter { prefix: "jobs", comment: "" };
    for action in
        [DangerousAction::Revoke, DangerousAction::Free, DangerousAction::RemoveCharter, DangerousAction::SetMaxTtl]
    {
        let mut scene = Scene::new(&[action]);
        let answer = scene.by(ANN, "", set_charter("jobs", Charter::default()));
        expect(&format!("a charter where {} is listed", action.word()), is_proposed(&answer), true)?;
        expect("nothing happened", scene.grantor.charters().count(), 0)?;
        scene.local(set_charter("jobs", preempting()));
        let answer = scene.by(ANN, "", remove());
        let expected = action != DangerousAction::SetMaxTtl;
        expect(&format!("no charter where {} is listed", action.word()), is_proposed(&answer), expected)?;
    }
    let mut scene = Scene::new(&[DangerousAction::StepDown]);
    expect("a charter replaces nothing else", scene.by(ANN, "", set_charter("jobs", preempting())), Answer::Done)?;
    let mut scene = Scene::new(&[DangerousAction::Revoke]);
    expect("it is proposed", scene.by(ANN, "", set_charter("jobs", preempting())), required(1))?;
    let view = scene.grantor.proposals().next().ok_or("A14: no proposal")?;
    expect("who approves it sees its terms", view.charter.as_deref() == Some(&preempting()), true)?;
    expect("and what it is", (view.action, view.resource.as_str()), ("set_charter", "jobs"))?;
    let approve = scene.approve(1);
    expect("it is approved", scene.by(BOB, "", approve), Answer::Done)?;
    expect("it is executed", scene.grantor.charters().count(), 1)?;
    scene.approval.revoke_up_to = 100;
    let answer = scene.by(ANN, "", set_charter("jobs", Charter::default()));
    expect("a charter is never a small revocation", is_proposed(&answer), true)
}

fn handoff(selector: LeaseSelector<'_>, number: Option<Number>) -> Command<'_> {
    Command::Handoff(Handoff { selector, number, to: None, mode: Some(HandoffMode::Gap), drain_ms: Some(100) })
}

pub fn a_handoff_of_anothers_lease_is_a_revocation() -> Result<(), String> {
    let mut scene = Scene::new(&[DangerousAction::Revoke]);
    scene.hold("jobs/a");
    let by_name = || handoff(LeaseSelector::Resource("jobs/a"), None);
    expect("a handoff of another's lease", scene.by(ANN, "", by_name()), required(1))?;
    let lease = scene.grantor.show("jobs/a").expect("it is held").leases[0].clone();
    for command in [
        handoff(LeaseSelector::Id(lease.lease), None),
        handoff(LeaseSelector::Resource("jobs/a"), Some(lease.number)),
        handoff(LeaseSelector::Id(lease.lease), Some(lease.number)),
    ] {
        let answer = scene.by(ANN, "", command);
        expect("however it is named", is_proposed(&answer), true)?;
    }
    let is_draining = |scene: &Scene| scene.audit().iter().any(|entry| entry.starts_with("handoff"));
    expect("nothing happened", is_draining(&scene), false)?;
    let approve = scene.approve(1);
    expect("another identity approves it", scene.by(BOB, "", approve), Answer::Done)?;
    expect("it is executed", is_draining(&scene), true)?;

    // Its own lease, with and without the proof that the caller is its holder.
    let mut scene = Scene::new(&[DangerousAction::Revoke]);
    let Answer::Granted(grant) = scene.by(ANN, "", Command::Acquire(Acquire::exclusive("jobs/b", "w", 60_000))) else {
        return Err("A14: no grant".into());
    };
    let own = || handoff(LeaseSelector::Resource("jobs/b"), Some(grant.number));
    let answer = scene.by(ANN, "", own());
    expect("who shares the identity of the holder is not the holder", is_proposed(&answer), true)?;
    let rights = scene.admin();
    let proof = Proof { lease: Some(grant.number), ..Proof::NONE };
    let caller = Caller { principal: ANN, rights: &rights };
    let answer = scene.request(Request { caller, proof, ..Request::tagged(1) }, own());
    expect("the holder needs no approval", matches!(answer, Answer::Current(_)), true)?;

    let mut scene = Scene::new(&[DangerousAction::Revoke]);
    scene.approval.revoke_up_to = 1;
    scene.hold("jobs/a");
    let answer = scene.by(ANN, "", by_name());
    expect("a handoff ends one lease", matches!(answer, Answer::Current(_)), true)
}

pub fn a_quarantine_is_not_waived_or_shortened_alone() -> Result<(), String> {
    let waive = || Command::WaiveQuarantine { comment: "all are off" };
    for action in DangerousAction::ALL {
        let mut scene = Scene::new(&[action]);
        scene.restore(2);
        let answer = scene.by(ANN, "", waive());
        expect(&format!("a restore where {} is listed", action.word()), is_proposed(&answer), true)?;
        expect("the quarantine lasts", scene.grantor.status().quarantine.is_some(), true)?;
        let approve = scene.approve(1);
        expect("two waive it", scene.by(BOB, "", approve), Answer::Done)?;
        expect("it is over", scene.grantor.status().quarantine.is_some(), false)?;
        let restored = scene.audit().into_iter().find(|entry| entry.starts_with("restored"));
        expect("the restore is on record", restored.as_deref(), Some("restored uid:7"))?;
    }
    // Evidence of a rollback starts a quarantine of the longest ttl, which was lowered since: it does not end sooner.
    let mut scene = Scene::new(&[DangerousAction::WaiveQuarantine]);
    scene.restore(2);
    let remaining = |scene: &Scene| scene.grantor.status().quarantine.map(|(ms, _)| ms);
    let before = remaining(&scene);
    let recovered = recover(5, None, scene.batches.iter().map(Vec::as_slice)).map_err(|error| error.to_string())?;
    let (grantor, batch) = open_with(recovered, TenureOptions { max_ttl: 0, ..options(3) }, scene.ms);
    scene.grantor = grantor;
    scene.batches.push(batch);
    expect("it is lowered", scene.local(Command::SetMaxTtl { max_ttl_ms: 100, comment: "less" }), Answer::Done)?;
    let number = Number::new(scene.grantor.status().counter + 5).expect("a number");
    let (cluster, incarnation) = (Cluster(*b"cluster1"), Incarnation(2));
    let token = Token { cluster, incarnation, resource: [0; 8], scope: TokenScope::Slot(0), number };
    scene.request(Request { observed: Some(token), ..Request::tagged(1) }, Command::ObserveToken);
    expect("the token proves a rollback", scene.grantor.rollback_proofs(), 1)?;
    expect("the quarantine lasts as long as before", remaining(&scene), before)
}

fn changed(subject: RefusalSubject, proposed: u64, found: u64) -> Answer {
    Answer::Refused(Refusal::SubjectChanged { subject, proposed, found })
}

pub fn an_approval_executes_only_what_was_named() -> Result<(), String> {
    let mut scene = Scene::new(&[DangerousAction::Revoke, DangerousAction::Free, DangerousAction::SetMaxTtl]);
    // Another holder came after the proposal.
    scene.hold("jobs/a");
    expect("a revocation", scene.by(ANN, "", revoke("jobs/a")), required(1))?;
    scene.local(revoke("jobs/a"));
    scene.hold("jobs/a");
    let approve = scene.approve(1);
    expect("of another holder", scene.by(BOB, "", approve.clone()), changed(RefusalSubject::Lease, 1, 1))?;
    expect("who holds it still", scene.is_held("jobs/a"), true)?;
    expect("the same command names another lease", scene.by(ANN, "", revoke("jobs/a")), required(2))?;
    let approve = scene.approve(2);
    expect("which is revoked", scene.by(BOB, "", approve), Answer::Done)?;
    // A further reader.
    let shared = || Command::Acquire(Acquire { access: Access::Shared, ..Acquire::exclusive("docs", "r", 60_000) });
    scene.local(shared());
    expect("a revocation of readers", scene.by(ANN, "", revoke("docs")), required(3))?;
    let view = scene.grantor.proposals().find(|one| one.proposal == 3).ok_or("A14: no proposal")?;
    expect("the proposal names one lease", view.leases, Some(1))?;
    scene.local(shared());
    let approve = scene.approve(3);
    expect("with one more", scene.by(BOB, "", approve), changed(RefusalSubject::Lease, 1, 2))?;
    // A charter that was changed.
    expect("a charter", scene.by(ANN, "", set_charter("jobs", preempting())), required(4))?;
    scene.local(set_charter("jobs", Charter { capacity: Some(2), ..Charter::default() }));
    let approve = scene.approve(4);
    expect("instead of another one", scene.by(BOB, "", approve), changed(RefusalSubject::Charter, 0, 1))?;
    // The longest ttl.
    let set = |max_ttl_ms| Command::SetMaxTtl { max_ttl_ms, comment: "more" };
    expect("a longest ttl", scene.by(ANN, "", set(700_000)), required(5))?;
    scene.local(set(800_000));
    let approve = scene.approve(5);
    expect("instead of another one", scene.by(BOB, "", approve), changed(RefusalSubject::MaxTtl, 600_000, 800_000))?;
    // A resource that was freed and blocked again.
    let after_revocation = AfterRevocation::HoldForOperator;
    scene.local(set_charter("tills", Charter { after_revocation, ..Charter::default() }));
    let free = || Command::Free { resource: "tills/1", comment: "counted" };
    scene.hold("tills/1");
    scene.local(revoke("tills/1"));
    expect("to free it", scene.by(ANN, "", free()), required(6))?;
    scene.local(free());
    scene.hold("tills/1");
    scene.local(revoke("tills/1"));
    let approve = scene.approve(6);
    expect("after another revocation", scene.by(BOB, "", approve), changed(RefusalSubject::Hold, 1, 1))?;
    // A proposal of a backup.
    scene.hold("jobs/z");
    expect("a longest ttl again", scene.by(ANN, "", set(900_000)), required(7))?;
    let approve = scene.approve(7);
    scene.restore(2);
    expect("in another incarnation", scene.by(BOB, "", approve), changed(RefusalSubject::MaxTtl, 800_000, 800_000))?;
    expect("a quarantine", scene.by(ANN, "", Command::WaiveQuarantine { comment: "off" }), required(8))?;
    scene.wait(1_000);
    scene.restore(3);
    let approve = scene.approve(8);
    let answer = scene.by(BOB, "", approve);
    let is_changed = |answer: &Answer, of| matches!(answer, Answer::Refused(Refusal::SubjectChanged { subject, .. }) if *subject == of);
    expect("is not waived by the approval of an earlier one", is_changed(&answer, RefusalSubject::Quarantine), true)?;
    // A rotation of the token is no other lease.
    let mut scene = Scene::new(&[DangerousAction::Revoke]);
    let open = OpenSession { holder: "app", ttl_ms: 60_000, secret: [1; 32].into(), waits_only: false };
    let Answer::Session(session) = scene.local(Command::OpenSession(open)) else { return Err("no session".into()) };
    let in_session = Acquire { session: Some(session.session), ttl_ms: None, ..Acquire::exclusive("jobs/r", "", 0) };
    let Answer::Granted(grant) = scene.local(Command::Acquire(in_session)) else { return Err("no grant".into()) };
    expect("a revocation", scene.by(ANN, "", revoke("jobs/r")), required(1))?;
    let rotate = leasehold_core::command::LeaseRef::by_id(grant.lease, grant.number);
    scene.local(Command::Rotate(rotate));
    let approve = scene.approve(1);
    expect("after a rotation", scene.by(BOB, "", approve), Answer::Done)?;
    expect("ends the lease", scene.is_held("jobs/r"), false)
}

pub fn who_may_act_alone_leaves_a_reason() -> Result<(), String> {
    let mut scene = Scene::new(&[DangerousAction::Revoke]);
    scene.hold("jobs/a");
    let answer = scene.alone("the site is down", revoke("jobs/a"));
    expect("who may not act alone", is_denied(&answer), true)?;
    expect("does nothing", (scene.is_held("jobs/a"), scene.grantor.proposals().count()), (true, 0))?;
    scene.approval.may_act_alone = true;
    for (reason, allowed) in [("", "required to act alone; explain why"), (" \n", "required to act alone; explain why")]
    {
        let invalid = Answer::Refused(Refusal::Invalid { field: "alone", reason: allowed });
        expect("a reason is required", scene.alone(reason, revoke("jobs/a")), invalid)?;
    }
    for reason in ["a\u{202e}b", &"x".repeat(513)] {
        let answer = scene.alone(reason, revoke("jobs/a"));
        let invalid = matches!(answer, Answer::Refused(Refusal::Invalid { field: "alone", .. }));
        expect("a reason is readable", invalid, true)?;
    }
    expect("without a reason it is proposed", scene.by(ANN, "", revoke("jobs/a")), required(1))?;
    expect("with one it is executed", scene.alone("the site is down", revoke("jobs/a")), Answer::Done)?;
    let (action, resource, reason) = (Action::Revoke, "jobs/a".into(), "the site is down".into());
    expect("the driver logs it", scene.acts_alone.clone(), vec![ActAlone { tag: 1, action, resource, reason }])?;
    expect("the lease ended", scene.is_held("jobs/a"), false)?;
    let audit = scene.audit();
    let from = audit.iter().position(|entry| entry.starts_with("acted_alone"));
    let from = from.ok_or_else(|| format!("A14: acting alone is not on record: {audit:?}"))?;
    let entries: Vec<_> = audit[from..].iter().map(String::as_str).collect();
    let alone = format!("acted_alone jobs/a revoke the site is down {ANN}");
    expect("the reason precedes the effect", entries, vec![alone.as_str(), &format!("ended jobs/a it hangs {ANN}")])?;
    let proposed = format!("proposed jobs/a revoke it hangs {ANN} 1");
    expect("a proposal has its number", audit.contains(&proposed), true)?;
    let wrong = Command::Free { resource: "jobs/a", comment: "" };
    let answer = scene.alone("why not", wrong);
    let free = Answer::Refused(Refusal::NotFound(RefusalSubject::Hold));
    expect("what needs no approval is executed as always", answer, free)?;
    expect("and leaves no reason", scene.acts_alone.len(), 0)
}

/// V4: with a full journal a revocation that needs approval is refused; one that needs none ends its lease.
pub fn a_full_journal_proposes_nothing() -> Result<(), String> {
    let mut scene = Scene::new(&[DangerousAction::Revoke]);
    scene.approval.may_act_alone = true;
    scene.hold("jobs/a");
    scene.hold("jobs/b");
    expect("with space it is proposed", scene.by(ANN, "", revoke("jobs/a")), required(1))?;
    let approve = scene.approve(1);
    let recorded = scene.batches.len();
    scene.grantor.set_endings_only(true);
    let full = || Answer::Refused(Refusal::StorageFull);
    expect("with a full journal it is refused", scene.by(ANN, "", revoke("jobs/b")), full())?;
    expect("also if it was proposed before", scene.by(ANN, "", revoke("jobs/a")), full())?;
    expect("an approval is refused", scene.by(BOB, "", approve.clone()), full())?;
    expect("nothing is recorded", (scene.batches.len(), scene.grantor.proposals().count()), (recorded, 1))?;
    let held = Answer::Refused(Refusal::NotFound(RefusalSubject::Lease));
    expect("a missing lease is missing", scene.by(ANN, "", revoke("jobs/c")), held)?;
    expect("alone it ends the lease", scene.alone("the disk is full", revoke("jobs/b")), Answer::Done)?;
    expect("only that one", (scene.is_held("jobs/a"), scene.is_held("jobs/b")), (true, false))?;
    scene.grantor.set_endings_only(false);
    expect("with space again it is approved", scene.by(BOB, "", approve), Answer::Done)?;
    expect("and executed", scene.is_held("jobs/a"), false)
}
