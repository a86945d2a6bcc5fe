//! A grantor with the subject of each action, and the command that tries the action on it.

use leasehold_core::access::{AccessGrant, Action, ApprovalRules, Caller, DangerousAction, Rights, Role};
use leasehold_core::charter::{AfterRevocation, Charter};
use leasehold_core::command::{
    Acquire, AcquireAll, AcquireOptions, Answer, Command, Handoff, HandoffMode, IdRange, Input, LeaseRef,
    LeaseSelector, OpenSession, Proof, Renew, Request, RequestId, Revoke,
};
use leasehold_core::coverage::{FenceMode, FenceReport};
use leasehold_core::grantor::{Denial, Grantor, Output, RecoveredGrantor, TenureOptions};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, EndReason, Validity};
use leasehold_core::payload::cache::{CacheAnswer, CacheCommand};
use leasehold_core::payload::delivery::{DeliveryAnswer, DeliveryCommand};
use leasehold_core::refusal::Refusal;
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation, Number};

pub const AT: Now = Now { instant: Instant(0), wall: WallClock::after_era(1_000_000_000) };
const CLUSTER: Cluster = Cluster(*b"cluster1");
pub const SECRET: [u8; 32] = [1; 32];

/// A grantor with what the action needs, under one name and of one identity.
pub struct Fixture {
    pub grantor: Grantor,
    pub name: &'static str,
    pub owner: &'static str,
    pub session: SessionId,
    pub lease: Option<(LeaseId, Number)>,
    pub item: u64,
    pub number: Number,
}

impl Fixture {
    pub fn new(name: &'static str, owner: &'static str) -> Self {
        let opening = TenureOptions {
            cluster: CLUSTER,
            incarnation: Incarnation(1),
            generation: 1,
            validity: Validity::Quorum,
            max_ttl: 600_000,
            restore: None,
        };
        let mut grantor = RecoveredGrantor::empty(1).open(AT, &opening).expect("a new cluster opens");
        grantor.take_output(&mut Output::default());
        grantor.serve(AT);
        let session = SessionId { slot: 0, reuse: 0 };
        Self { grantor, name, owner, session, lease: None, item: 0, number: Number::FIRST }
    }

    /// What the one who was granted the subject proves: its session, and the number of its lease, receipt or cached key.
    pub fn proof(&self) -> Proof {
        let lease = self.lease.map_or(self.number, |(_, number)| number);
        Proof { stream: Some(self.session), session: None, lease: Some(lease) }
    }

    pub fn step(&mut self, caller: Caller<'_>, id: Option<RequestId>, command: Command<'_>) -> (Answer, Vec<Denial>) {
        self.step_with(caller, id, self.proof(), command)
    }

    pub fn step_with(
        &mut self,
        caller: Caller<'_>,
        id: Option<RequestId>,
        proof: Proof,
        command: Command<'_>,
    ) -> (Answer, Vec<Denial>) {
        let request = Request { caller, id, proof, ..Request::tagged(7) };
        self.grantor.step(AT, &Input::Request(request, command));
        let mut out = Output::default();
        self.grantor.take_output(&mut out);
        let answer = out.replies.into_iter().rfind(|reply| reply.tag == 7).expect("an answer").answer;
        (answer, out.denials)
    }

    /// Runs a command of the owner without restrictions.
    pub fn set_up(&mut self, command: Command<'_>) -> Answer {
        let caller = Caller { principal: self.owner, rights: Rights::UNRESTRICTED };
        let (answer, _) = self.step(caller, None, command);
        assert!(!matches!(answer, Answer::Refused(_)), "set up: {answer:?}");
        answer
    }

    pub fn open_session(&mut self) {
        let open = OpenSession { holder: "app", ttl_ms: 60_000, secret: SECRET.into(), waits_only: false };
        match self.set_up(Command::OpenSession(open)) {
            Answer::Session(grant) => self.session = grant.session,
            other => panic!("{other:?}"),
        }
    }

    pub fn hold(&mut self, access: Access) {
        let acquire = Acquire { access, ..Acquire::exclusive(self.name, "worker", 60_000) };
        match self.set_up(Command::Acquire(acquire)) {
            Answer::Granted(grant) => self.lease = Some((grant.lease, grant.number)),
            other => panic!("{other:?}"),
        }
    }

    pub fn wait_in_session(&mut self, id: Option<u64>) {
        self.hold(Access::Exclusive);
        self.open_session();
        let options = AcquireOptions { wait_ms: 60_000, ..AcquireOptions::DEFAULT };
        let (session, holder) = (Some(self.session), "");
        let acquire = Acquire { session, holder, options, ttl_ms: None, ..Acquire::exclusive(self.name, "", 0) };
        let session = self.session;
        let id = id.map(|sequence| RequestId { session, sequence, lowest: 1, digest: 0 });
        let caller = Caller { principal: self.owner, rights: Rights::UNRESTRICTED };
        let (answer, _) = self.step(caller, id, Command::Acquire(acquire));
        assert!(matches!(answer, Answer::Waiting { .. }), "{answer:?}");
    }

    pub fn receive(&mut self) {
        let queue = self.name;
        self.set_up(Command::Delivery(DeliveryCommand::Enqueue {
            queue,
            body: b"m",
            delay_ms: 0,
            max_attempts: Some(1),
        }));
        let (session, holder, visibility_ms, limit) = (None, "worker", 60_000, 1);
        let receive = DeliveryCommand::Receive { queue, session, holder, visibility_ms, limit };
        let Answer::Delivery(answer) = self.set_up(Command::Delivery(receive)) else { panic!("no delivery") };
        let DeliveryAnswer::Received(messages) = *answer else { panic!("no message") };
        (self.item, self.number) = (messages[0].item, messages[0].receipt);
    }

    pub fn bury(&mut self) {
        self.receive();
        let (queue, item, receipt, delay_ms) = (self.name, self.item, self.number, 0);
        self.set_up(Command::Delivery(DeliveryCommand::Nack { queue, item, receipt, delay_ms }));
    }

    pub fn cache(&mut self, command: CacheCommand<'_>) {
        let Answer::Cache(answer) = self.set_up(Command::Cache(command)) else { panic!("no cache answer") };
        self.number = match *answer {
            CacheAnswer::Reading { lease: number, .. }
            | CacheAnswer::Intended { intent: number, .. }
            | CacheAnswer::Fill { token: number, .. } => number,
            other => panic!("{other:?}"),
        };
    }

    pub fn set_charter(&mut self, after_revocation: AfterRevocation) {
        let charter = Box::new(Charter { after_revocation, ..Charter::default() });
        self.set_up(Command::SetCharter { prefix: self.name, charter, comment: "" });
    }

    pub fn revoke(&mut self) {
        let selector = LeaseSelector::Resource(self.name);
        self.set_up(Command::Revoke(Revoke { selector, reason: EndReason::Operator, comment: "", grace_ms: 0 }));
    }

    /// Lets an identity propose to revoke the lease.
    pub fn propose(&mut self, proposer: &str) {
        self.hold(Access::Exclusive);
        let mut approval = ApprovalRules::NONE;
        approval.require(DangerousAction::Revoke);
        let rights =
            Rights::new(1, vec![AccessGrant { role: Role::Operator, prefix: "".into() }]).with_approval(approval);
        let selector = LeaseSelector::Resource(self.name);
        let revoke = Command::Revoke(Revoke { selector, reason: EndReason::Operator, comment: "", grace_ms: 0 });
        let (answer, _) = self.step(Caller { principal: proposer, rights: &rights }, None, revoke);
        assert_eq!(answer, Answer::Refused(Refusal::ApprovalRequired { proposal: 1 }));
    }

    /// Prepares what the action needs; false if it is a query.
    pub fn prepare(&mut self, action: Action) -> bool {
        use Action as A;
        let (key, session, reader, writer, ttl_ms) = (self.name, None, "reader", "writer", 60_000);
        match action {
            A::OpenSession
            | A::OpenKeySession
            | A::Acquire
            | A::AcquireAll
            | A::SetCapacity
            | A::Collect
            | A::Enqueue
            | A::Receive
            | A::CacheRead
            | A::CacheIntend
            | A::CacheGetOrFill
            | A::SetCharter
            | A::ReportFences
            | A::WaiveQuarantine
            | A::SetMaxTtl
            | A::StepDown
            | A::ObserveToken => {}
            A::Approve => self.propose("spiffe://example/proposer"),
            A::CancelProposal => self.propose(self.owner),
            A::ResumeSession | A::RenewSession | A::Reconcile | A::CloseSession => self.open_session(),
            A::Cancel => self.wait_in_session(Some(1)),
            A::Withdraw => self.wait_in_session(None),
            A::Renew | A::Release | A::Check | A::Rotate | A::Progress | A::Revoke | A::Handoff | A::Put => {
                self.hold(Access::Exclusive);
            }
            A::FinishDrain => {
                self.hold(Access::Exclusive);
                let selector = LeaseSelector::Resource(self.name);
                let (number, to, mode) = (None, None, Some(HandoffMode::Gap));
                self.set_up(Command::Handoff(Handoff { selector, number, to, mode, drain_ms: Some(10_000) }));
            }
            A::ConfirmHold | A::ResizeHold | A::Veto => {
                self.set_up(Command::SetCapacity { resource: self.name, units: 8 });
                self.hold(Access::Units(2));
            }
            A::Pin => self.hold(Access::Shared),
            A::Free => {
                self.set_charter(AfterRevocation::HoldForOperator);
                self.hold(Access::Exclusive);
                self.revoke();
            }
            A::RemoveCharter => self.set_charter(AfterRevocation::HoldForOperator),
            A::ForgetTarget => {
                let reports = [report(self.name)];
                self.set_up(Command::Report { cluster: CLUSTER, reports: &reports });
            }
            A::ExtendMessage | A::AckMessage | A::NackMessage => self.receive(),
            A::RedriveMessage | A::DropMessage => self.bury(),
            A::CacheRenewRead | A::CacheInvalidated => self.cache(CacheCommand::Read { key, session, reader, ttl_ms }),
            A::CacheCommit | A::CacheAbort => self.cache(CacheCommand::Intend { key, session, writer, ttl_ms }),
            A::CacheFilled => self.cache(CacheCommand::GetOrFill { key, session, reader, ttl_ms, missing: None }),
            A::Show
            | A::List
            | A::HeldBy
            | A::Waiters
            | A::Deadlocks
            | A::EndedLeases
            | A::State
            | A::Queue
            | A::Usage
            | A::Status
            | A::Cluster
            | A::Keys
            | A::Watch
            | A::Charters
            | A::Coverage
            | A::Proposals
            | A::Audit
            | A::ExportAudit
            | A::VerifyAudit
            | A::Backup
            | A::ListSession
            | A::Metrics => return false,
        }
        true
    }

    /// Runs the action as a caller, on what was prepared.
    pub fn run(&mut self, action: Action, by_id: bool, caller: Caller<'_>) -> (Answer, Vec<Denial>) {
        self.run_with(action, by_id, self.proof(), caller)
    }

    pub fn run_with(&mut self, action: Action, by_id: bool, proof: Proof, caller: Caller<'_>) -> (Answer, Vec<Denial>) {
        use Action as A;
        let (name, session, item, number) = (self.name, self.session, self.item, self.number);
        let (id, lease_number) = self.lease.unwrap_or((LeaseId { slot: 0, reuse: 0 }, Number::FIRST));
        let lease = if by_id { LeaseRef::by_id(id, lease_number) } else { LeaseRef::by_name(name, lease_number) };
        let selector = lease.selector;
        let (queue, key, receipt, none) = (name, name, number, None);
        let (reader, writer, holder, ttl_ms) = ("reader", "writer", "worker", 60_000);
        let leaves = [("team/a/first", Access::Exclusive), (name, Access::Exclusive)];
        // With an empty prefix everything is covered; otherwise the first leaf is, and the second one decides.
        let reports = [report("team/a/first"), report(name)];
        let options = AcquireOptions::DEFAULT;
        let command = match action {
            A::OpenSession => Command::OpenSession(OpenSession {
                holder: "app",
                ttl_ms: 60_000,
                secret: SECRET.into(),
                waits_only: false,
            }),
            A::OpenKeySession => Command::OpenKeySession { key: SECRET.into(), command: Some(&Command::ObserveToken) },
            A::ResumeSession => Command::ResumeSession { session, secret: SECRET.into() },
            A::RenewSession => Command::RenewSession { session, held: None },
            A::Reconcile => Command::Reconcile { session, leases: &[], range: IdRange::ALL },
            A::CloseSession => Command::CloseSession { session },
            A::Acquire => Command::Acquire(Acquire::exclusive(name, "worker", 60_000)),
            A::AcquireAll => Command::AcquireAll(AcquireAll {
                resources: &leaves,
                holder: "worker",
                session: None,
                ttl_ms: Some(60_000),
                options,
            }),
            A::Cancel => Command::Cancel { session, sequence: 1 },
            A::Withdraw => Command::Withdraw { session, tag: 7 },
            A::Renew => Command::Renew(Renew { lease, ttl_ms: None, progress: None }),
            A::Release => Command::Release(lease),
            A::Check => Command::Confirm(lease),
            A::Rotate => Command::Rotate(lease),
            A::Progress => Command::Progress { lease, at: 7 },
            A::Revoke => Command::Revoke(Revoke { selector, reason: EndReason::Operator, comment: "", grace_ms: 0 }),
            A::Free => Command::Free { resource: name, comment: "" },
            A::Handoff => Command::Handoff(Handoff {
                selector,
                number: None,
                to: None,
                mode: Some(HandoffMode::Gap),
                drain_ms: Some(10_000),
            }),
            A::FinishDrain => Command::Drained(lease),
            A::SetCapacity => Command::SetCapacity { resource: name, units: 3 },
            A::ConfirmHold => Command::ConfirmHold(lease),
            A::ResizeHold => Command::ResizeHold { lease, units: 3 },
            A::Veto => Command::Veto { lease, for_ms: 1_000 },
            A::Pin => Command::Pin { lease, at: 7 },
            A::Collect => Command::Collect { resource: name, below: 7 },
            A::Put => Command::Put { lease, key: "k", bytes: Some(b"v"), expect: None },
            A::Enqueue => {
                Command::Delivery(DeliveryCommand::Enqueue { queue, body: b"m", delay_ms: 0, max_attempts: None })
            }
            A::Receive => {
                let (session, visibility_ms, limit) = (none, 60_000, 1);
                Command::Delivery(DeliveryCommand::Receive { queue, session, holder, visibility_ms, limit })
            }
            A::ExtendMessage => {
                Command::Delivery(DeliveryCommand::Extend { queue, item, receipt, visibility_ms: 60_000 })
            }
            A::AckMessage => Command::Delivery(DeliveryCommand::Ack { queue, item, receipt }),
            A::NackMessage => Command::Delivery(DeliveryCommand::Nack { queue, item, receipt, delay_ms: 0 }),
            A::RedriveMessage => Command::Delivery(DeliveryCommand::Redrive { queue, item }),
            A::DropMessage => Command::Delivery(DeliveryCommand::Drop { queue, item }),
            A::CacheRead => Command::Cache(CacheCommand::Read { key, session: none, reader, ttl_ms }),
            A::CacheRenewRead => Command::Cache(CacheCommand::RenewRead { key, lease: number }),
            A::CacheInvalidated => Command::Cache(CacheCommand::Invalidated { key, lease: number }),
            A::CacheIntend => Command::Cache(CacheCommand::Intend { key, session: none, writer, ttl_ms }),
            A::CacheCommit => Command::Cache(CacheCommand::Commit { key, intent: number }),
            A::CacheAbort => Command::Cache(CacheCommand::Abort { key, number }),
            A::CacheGetOrFill => {
                Command::Cache(CacheCommand::GetOrFill { key, session: none, reader, ttl_ms, missing: None })
            }
            A::CacheFilled => Command::Cache(CacheCommand::Filled { key, token: number }),
            A::SetCharter => {
                let charter = Box::new(Charter::default());
                Command::SetCharter { prefix: name, charter, comment: "" }
            }
            A::RemoveCharter => Command::RemoveCharter { prefix: name, comment: "" },
            A::ReportFences => Command::Report { cluster: CLUSTER, reports: &reports },
            A::ForgetTarget => Command::ForgetTarget { resource: name, target: "ledger", comment: "" },
            A::WaiveQuarantine => Command::WaiveQuarantine { comment: "because" },
            A::SetMaxTtl => Command::SetMaxTtl { max_ttl_ms: 700_000, comment: "slow batches" },
            A::StepDown => Command::StepDown,
            A::Approve => {
                let digest = self.grantor.proposals().next().map_or([0; 32], |proposal| proposal.digest);
                Command::Approve { proposal: 1, digest, proposer: None }
            }
            A::CancelProposal => Command::CancelProposal { proposal: 1 },
            A::ObserveToken => Command::ObserveToken,
            A::Show
            | A::List
            | A::HeldBy
            | A::Waiters
            | A::Deadlocks
            | A::EndedLeases
            | A::State
            | A::Queue
            | A::Usage
            | A::Status
            | A::Cluster
            | A::Keys
            | A::Watch
            | A::Charters
            | A::Coverage
            | A::Proposals
            | A::Audit
            | A::ExportAudit
            | A::VerifyAudit
            | A::Backup
            | A::ListSession
            | A::Metrics => unreachable!("a query has no command"),
        };
        self.step_with(caller, None, proof, command)
    }
}

fn report(resource: &str) -> FenceReport<'_> {
    FenceReport {
        resource,
        slot: 0,
        target: "ledger",
        mode: FenceMode::Cooperative,
        checks: 1,
        refusals: 0,
        checked_ago_ms: 0,
        highest: None,
        zombie: None,
    }
}
