//! Two-person approval against a grantor: a proposal is executed once, by another identity, as it was proposed (A14).

use leasehold_core::access::{AccessGrant, ApprovalRules, Caller, DangerousAction, RequestOrigin, Rights, Role, Via};
use leasehold_core::command::{Acquire, Answer, Command, Input, LeaseSelector, Request, Revoke};
use leasehold_core::grantor::{Grantor, Output, RecoveredGrantor, TenureOptions, recover};
use leasehold_core::lease::{EndReason, Validity};
use leasehold_core::limits::{PROPOSAL_TTL, PROPOSALS_PER_IDENTITY};
use leasehold_core::refusal::{Limit, Refusal, RefusalSubject};
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation};

const ANN: &str = "spiffe://example/ann";
const BOB: &str = "spiffe://example/bob";

/// A grantor, its journal and a clock.
struct Scene {
    grantor: Grantor,
    batches: Vec<Vec<u8>>,
    ms: u64,
    approval: ApprovalRules,
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
        let mut scene =
            Self { grantor: open(RecoveredGrantor::empty(1), 1, 0).0, batches: Vec::new(), ms: 0, approval };
        let (grantor, batch) = open(RecoveredGrantor::empty(1), 1, 0);
        scene.grantor = grantor;
        scene.batches.push(batch);
        scene
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
        out.replies
    }

    fn run(&mut self, caller: Caller<'_>, credential: &str, command: Command<'_>) -> Answer {
        let origin = RequestOrigin { via: Via::Certificate, credential, ..RequestOrigin::LOCAL };
        let request = Request { caller, origin, ..Request::tagged(1) };
        self.grantor.step(now(self.ms), &Input::Request(request, command));
        self.end_turn().into_iter().find(|reply| reply.tag == 1).expect("an answer").answer
    }

    /// Runs a command as an administrator with this name.
    fn by(&mut self, principal: &str, credential: &str, command: Command<'_>) -> Answer {
        let grants = vec![AccessGrant { role: Role::Admin, prefix: "".into() }];
        let rights = Rights::new(1, grants).with_approval(self.approval);
        self.run(Caller { principal, rights: &rights }, credential, command)
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
        let (grantor, batch) = open(recovered, generation, self.ms);
        self.grantor = grantor;
        self.batches.push(batch);
        Ok(())
    }
}

fn open(recovered: RecoveredGrantor, generation: u64, ms: u64) -> (Grantor, Vec<u8>) {
    let options = TenureOptions {
        cluster: Cluster(*b"cluster1"),
        incarnation: Incarnation(1),
        generation,
        validity: Validity::Session,
        max_ttl: 600_000,
        restore: None,
    };
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
    only_what_could_be_executed_is_proposed()
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
