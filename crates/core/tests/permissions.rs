//! The permission matrix: every action, role and relation of names, tried against a grantor.
//!
//! A new action, role or relation does not compile until it has its command and its cells. Queries have no command; for them only
//! the rights are compared here, and the server's tests try them over every transport.

use leasehold_core::access::{
    AccessGrant, Action, ActionScope, ApprovalRules, Caller, DangerousAction, NO_LEASE_PROOF, NO_SESSION_PROOF,
    Permission, Replacement, ReplacementCase, Rights, Role,
};
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

const AT: Now = Now { instant: Instant(0), wall: WallClock::after_era(1_000_000_000) };
const CLUSTER: Cluster = Cluster(*b"cluster1");
const SECRET: [u8; 32] = [1; 32];
const ME: &str = "spiffe://example/me";
const THEM: &str = "spiffe://example/them";

/// How the name of a request relates to the prefix of the only grant, and whose the lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameRelation {
    /// The name is the prefix.
    Own,
    /// The name is below the prefix.
    Child,
    /// The name starts with the bytes of the prefix, and not with its segments.
    Sibling,
    /// The prefix is below the name.
    Parent,
    /// Neither has to do with the other.
    Other,
    /// The prefix is empty.
    Everything,
    /// By id: the caller's own, below the prefix.
    OwnById,
    /// By id: another identity's, below the prefix.
    OthersById,
    /// By id: another identity's, outside of the prefix.
    OutsideById,
}

impl NameRelation {
    const ALL: [Self; 9] = [
        Self::Own,
        Self::Child,
        Self::Sibling,
        Self::Parent,
        Self::Other,
        Self::Everything,
        Self::OwnById,
        Self::OthersById,
        Self::OutsideById,
    ];

    /// The prefix of the grant, the name, whether the prefix covers it, whether it is the caller's, and whether it is named by id.
    const fn scene(self) -> (&'static str, &'static str, bool, bool, bool) {
        match self {
            Self::Own => ("team/a", "team/a", true, true, false),
            Self::Child => ("team/a", "team/a/x", true, true, false),
            Self::Sibling => ("team/a", "team/ab", false, true, false),
            Self::Parent => ("team/a", "team", false, true, false),
            Self::Other => ("team/a", "rest/z", false, true, false),
            Self::Everything => ("", "rest/z", true, true, false),
            Self::OwnById => ("team/a", "team/a/x", true, true, true),
            Self::OthersById => ("team/a", "team/a/x", true, false, true),
            Self::OutsideById => ("team/a", "rest/z", false, false, true),
        }
    }
}

/// What the matrix says about a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// It is done.
    Yes,
    /// It is denied.
    No,
    /// It is answered like what does not exist.
    Unseen,
}

/// How an action names its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// A lease, a session, a message or a charter that must exist, by name or, where it has one, by id.
    Existing { has_id: bool },
    /// A proposal, by its number.
    Proposal,
    /// A name that need not exist: the reply depends on the request only.
    AnyName,
}

fn subject(action: Action) -> Subject {
    use Action as A;
    match action {
        A::ResumeSession | A::RenewSession | A::Reconcile | A::CloseSession | A::Cancel | A::Withdraw => {
            Subject::Existing { has_id: true }
        }
        A::Renew
        | A::Release
        | A::Check
        | A::Rotate
        | A::Progress
        | A::Revoke
        | A::Handoff
        | A::FinishDrain
        | A::ConfirmHold
        | A::ResizeHold
        | A::Veto
        | A::Pin
        | A::Put => Subject::Existing { has_id: true },
        A::Free
        | A::RemoveCharter
        | A::ForgetTarget
        | A::ExtendMessage
        | A::AckMessage
        | A::NackMessage
        | A::RedriveMessage
        | A::DropMessage
        | A::CacheRenewRead
        | A::CacheInvalidated
        | A::CacheCommit
        | A::CacheAbort
        | A::CacheFilled => Subject::Existing { has_id: false },
        A::Approve | A::CancelProposal => Subject::Proposal,
        A::OpenSession
        | A::OpenKeySession
        | A::ListSession
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
        | A::ObserveToken
        | A::Show
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
        | A::Metrics => Subject::AnyName,
    }
}

/// The cell, from the table of permissions and the rules of the threat model alone.
fn expected(action: Action, role: Role, relation: NameRelation) -> Cell {
    let (prefix, _, covered, own, by_id) = relation.scene();
    let permission = action.permission(role);
    let may_own = permission == Permission::Yes || (permission == Permission::Own && own);
    match action.scope() {
        ActionScope::AnyGrant => match subject(action) {
            _ if permission == Permission::No => Cell::No,
            Subject::AnyName => Cell::Yes,
            Subject::Existing { .. } | Subject::Proposal => {
                if may_own {
                    Cell::Yes
                } else {
                    Cell::Unseen
                }
            }
        },
        ActionScope::WholeCluster => {
            if permission != Permission::No && prefix.is_empty() {
                Cell::Yes
            } else {
                Cell::No
            }
        }
        ActionScope::Names | ActionScope::Results => {
            let seen = covered && Action::Show.permission(role) != Permission::No;
            match subject(action) {
                _ if covered && may_own => Cell::Yes,
                Subject::AnyName => Cell::No,
                Subject::Proposal if permission == Permission::No || seen => Cell::No,
                Subject::Proposal => Cell::Unseen,
                // Who may do this nowhere learns nothing about ids.
                Subject::Existing { has_id: true } if by_id && permission == Permission::No => Cell::No,
                Subject::Existing { .. } if seen => Cell::No,
                Subject::Existing { .. } => Cell::Unseen,
            }
        }
    }
}

/// A grantor with what the action needs, under one name and of one identity.
struct Fixture {
    grantor: Grantor,
    name: &'static str,
    owner: &'static str,
    session: SessionId,
    lease: Option<(LeaseId, Number)>,
    item: u64,
    number: Number,
}

impl Fixture {
    fn new(name: &'static str, owner: &'static str) -> Self {
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
    fn proof(&self) -> Proof {
        let lease = self.lease.map_or(self.number, |(_, number)| number);
        Proof { stream: Some(self.session), session: None, lease: Some(lease) }
    }

    fn step(&mut self, caller: Caller<'_>, id: Option<RequestId>, command: Command<'_>) -> (Answer, Vec<Denial>) {
        self.step_with(caller, id, self.proof(), command)
    }

    fn step_with(
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
    fn set_up(&mut self, command: Command<'_>) -> Answer {
        let caller = Caller { principal: self.owner, rights: Rights::UNRESTRICTED };
        let (answer, _) = self.step(caller, None, command);
        assert!(!matches!(answer, Answer::Refused(_)), "set up: {answer:?}");
        answer
    }

    fn open_session(&mut self) {
        let open = OpenSession { holder: "app", ttl_ms: 60_000, secret: SECRET.into(), waits_only: false };
        match self.set_up(Command::OpenSession(open)) {
            Answer::Session(grant) => self.session = grant.session,
            other => panic!("{other:?}"),
        }
    }

    fn hold(&mut self, access: Access) {
        let acquire = Acquire { access, ..Acquire::exclusive(self.name, "worker", 60_000) };
        match self.set_up(Command::Acquire(acquire)) {
            Answer::Granted(grant) => self.lease = Some((grant.lease, grant.number)),
            other => panic!("{other:?}"),
        }
    }

    fn wait_in_session(&mut self, id: Option<u64>) {
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

    fn receive(&mut self) {
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

    fn bury(&mut self) {
        self.receive();
        let (queue, item, receipt, delay_ms) = (self.name, self.item, self.number, 0);
        self.set_up(Command::Delivery(DeliveryCommand::Nack { queue, item, receipt, delay_ms }));
    }

    fn cache(&mut self, command: CacheCommand<'_>) {
        let Answer::Cache(answer) = self.set_up(Command::Cache(command)) else { panic!("no cache answer") };
        self.number = match *answer {
            CacheAnswer::Reading { lease: number, .. }
            | CacheAnswer::Intended { intent: number, .. }
            | CacheAnswer::Fill { token: number, .. } => number,
            other => panic!("{other:?}"),
        };
    }

    fn set_charter(&mut self, after_revocation: AfterRevocation) {
        let charter = Box::new(Charter { after_revocation, ..Charter::default() });
        self.set_up(Command::SetCharter { prefix: self.name, charter, comment: "" });
    }

    fn revoke(&mut self) {
        let selector = LeaseSelector::Resource(self.name);
        self.set_up(Command::Revoke(Revoke { selector, reason: EndReason::Operator, comment: "", grace_ms: 0 }));
    }

    /// Lets an identity propose to revoke the lease.
    fn propose(&mut self, proposer: &str) {
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
    fn prepare(&mut self, action: Action) -> bool {
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
    fn run(&mut self, action: Action, by_id: bool, caller: Caller<'_>) -> (Answer, Vec<Denial>) {
        self.run_with(action, by_id, self.proof(), caller)
    }

    fn run_with(&mut self, action: Action, by_id: bool, proof: Proof, caller: Caller<'_>) -> (Answer, Vec<Denial>) {
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
            A::OpenKeySession => Command::OpenKeySession { key: SECRET.into() },
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

/// Tries one cell; the error says what differs.
fn try_cell(action: Action, role: Role, relation: NameRelation) -> Result<Cell, String> {
    let (prefix, name, _, own, by_id) = relation.scene();
    let rights = Rights::new(1, vec![AccessGrant { role, prefix: prefix.into() }]);
    let caller = Caller { principal: ME, rights: &rights };
    let cell = expected(action, role, relation);
    let mut fixture = Fixture::new(name, if own { ME } else { THEM });
    if !fixture.prepare(action) {
        let permission = match action.scope() {
            ActionScope::Names | ActionScope::Results => rights.permission(action, name),
            ActionScope::AnyGrant => rights.permission_anywhere(action),
            ActionScope::WholeCluster => rights.permission_everywhere(action),
        };
        let allowed = permission != Permission::No;
        return if allowed == (cell == Cell::Yes) { Ok(cell) } else { Err(format!("rights say {permission:?}")) };
    }
    let before = fixture.grantor.snapshot();
    let (answer, denials) = fixture.run(action, by_id, caller);
    let unchanged = fixture.grantor.snapshot() == before;
    let denial = |hidden| [Denial { tag: 7, action, hidden }];
    match cell {
        Cell::Yes => {
            // There is no quarantine to waive, and the name of a role that may do it anywhere must not matter.
            let done = action == Action::WaiveQuarantine || !matches!(answer, Answer::Refused(_));
            if !done || !denials.is_empty() {
                return Err(format!("allowed, but answered {answer:?}"));
            }
        }
        Cell::No => {
            let denied = matches!(&answer, Answer::Refused(Refusal::Denied(_)));
            if !denied || !unchanged || denials != denial(false) {
                return Err(format!("denied, but answered {answer:?}, unchanged {unchanged}, {denials:?}"));
            }
        }
        Cell::Unseen => {
            let (like_nothing, _) = Fixture::new(name, THEM).run(action, by_id, caller);
            if answer != like_nothing || !unchanged || denials != denial(true) {
                return Err(format!("unseen, but answered {answer:?} and without it {like_nothing:?}"));
            }
            if matches!(answer, Answer::Refused(Refusal::Denied(_))) || !matches!(answer, Answer::Refused(_)) {
                return Err(format!("unseen, but answered {answer:?}"));
            }
        }
    }
    Ok(cell)
}

#[test]
fn every_cell_of_the_permission_matrix_holds() {
    let (mut wrong, mut counts) = (Vec::new(), [0; 3]);
    for action in Action::ALL {
        for role in Role::ALL {
            for relation in NameRelation::ALL {
                match try_cell(*action, role, relation) {
                    Ok(cell) => counts[cell as usize] += 1,
                    Err(error) => wrong.push(format!("{} {role} {relation:?}: {error}", action.word())),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let cells = Action::ALL.len() * Role::ALL.len() * NameRelation::ALL.len();
    assert_eq!(counts.iter().sum::<usize>(), cells);
    assert!(counts.iter().all(|count| *count > cells / 20), "a kind of cell is missing: {counts:?}");
}

#[test]
fn what_is_the_callers_own_needs_a_proof_for_every_action_and_role() {
    let mut tried = 0;
    for action in Action::ALL {
        for role in Role::ALL {
            // Resuming compares the secret that the command carries. A proposal is only its identity's: it grants nothing.
            let is_proven_otherwise = [Action::ResumeSession, Action::CancelProposal].contains(action);
            if action.permission(role) != Permission::Own || is_proven_otherwise {
                continue;
            }
            let rights = Rights::new(1, vec![AccessGrant { role, prefix: "".into() }]);
            let caller = Caller { principal: ME, rights: &rights };
            let other_session = SessionId { slot: 9, reuse: 0 };
            let other = Proof {
                stream: Some(other_session),
                session: Some([2; 32].into()),
                lease: Number::new(Number::FIRST.get() + 12_345),
            };
            for (by_id, proof) in [(true, Proof::NONE), (false, Proof::NONE), (true, other), (false, other)] {
                let mut fixture = Fixture::new("team/a", ME);
                assert!(fixture.prepare(*action), "only commands act on what is owned");
                let before = fixture.grantor.snapshot();
                let (answer, denials) = fixture.run_with(*action, by_id, proof, caller);
                let expected =
                    [NO_LEASE_PROOF, NO_SESSION_PROOF].map(|reason| Answer::Refused(Refusal::Denied(reason)));
                assert!(expected.contains(&answer), "{} {role} {proof:?}: {answer:?}", action.word());
                assert_eq!(denials, [Denial { tag: 7, action: *action, hidden: false }]);
                assert!(fixture.grantor.snapshot() == before, "{}: the state changed", action.word());
                let (answer, denials) = fixture.run(*action, by_id, caller);
                assert!(!matches!(answer, Answer::Refused(_)), "{} with its proof: {answer:?}", action.word());
                assert!(denials.is_empty());
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "{tried} cases");
}

#[test]
fn without_a_grant_every_command_is_denied() {
    let rights = Rights::new(1, Vec::new());
    for action in Action::ALL {
        let mut fixture = Fixture::new("team/a", ME);
        if !fixture.prepare(*action) {
            continue;
        }
        let before = fixture.grantor.snapshot();
        let (answer, _) = fixture.run(*action, true, Caller { principal: ME, rights: &rights });
        let refused =
            matches!(&answer, Answer::Refused(Refusal::Denied(_) | Refusal::NotFound(_) | Refusal::NotCurrent(_)));
        assert!(refused && fixture.grantor.snapshot() == before, "{}: {answer:?}", action.word());
    }
}

#[test]
fn a_caller_without_restrictions_does_everything_on_everything() {
    for action in Action::ALL {
        let mut fixture = Fixture::new("team/a", THEM);
        if fixture.prepare(*action) {
            let (answer, denials) = fixture.run(*action, true, Caller::LOCAL);
            let done = *action == Action::WaiveQuarantine || !matches!(answer, Answer::Refused(_));
            assert!(done && denials.is_empty(), "{}: {answer:?}", action.word());
        }
    }
}

/// An administrator where these actions need an approval.
fn with_approvals(actions: &[DangerousAction]) -> Rights {
    let mut approval = ApprovalRules::NONE;
    actions.iter().for_each(|action| approval.require(*action));
    let grants = [Role::Admin, Role::Operator, Role::Holder].map(|role| AccessGrant { role, prefix: "".into() });
    Rights::new(1, grants.into()).with_approval(approval)
}

#[test]
fn an_action_needs_the_approval_of_every_dangerous_action_that_it_can_replace() {
    let mut proposed = 0;
    for action in Action::ALL {
        for dangerous in DangerousAction::ALL {
            let rights = with_approvals(&[dangerous]);
            // Who proves nothing: the lease is another's.
            let mut fixture = Fixture::new("team/a", THEM);
            if !fixture.prepare(*action) || *action == Action::WaiveQuarantine || *action == Action::Approve {
                continue;
            }
            let (answer, _) = fixture.run(*action, false, Caller { principal: ME, rights: &rights });
            let is_proposed = matches!(answer, Answer::Refused(Refusal::ApprovalRequired { .. }));
            let replaces = action.replacements().iter().any(|one| one.replaces == dangerous);
            assert_eq!(is_proposed, replaces, "{} where {} is listed: {answer:?}", action.word(), dangerous.word());
            proposed += u32::from(is_proposed);
        }
    }
    assert!(proposed > 10, "{proposed} are proposed");
}

#[test]
fn no_command_of_another_identity_ends_a_lease_where_revocations_need_two() {
    let rights = with_approvals(&[DangerousAction::Revoke]);
    let mut tried = 0;
    for (action, by_id) in Action::ALL.iter().flat_map(|action| [(action, false), (action, true)]) {
        // Waiters of another identity are part of some commands: their own leases and sessions may end.
        let mut fixture = Fixture::new("team/a", THEM);
        if !fixture.prepare(*action) || *action == Action::Approve {
            continue;
        }
        let Some((lease, _)) = fixture.lease.filter(|(lease, _)| fixture.grantor.owner_of_lease(*lease).is_some())
        else {
            continue;
        };
        let was_draining = *action == Action::FinishDrain;
        fixture.run(*action, by_id, Caller { principal: ME, rights: &rights });
        // Below the ttl of the lease, and above every drain period and grace of the commands.
        for second in 1..50 {
            let now = Now { instant: Instant::from_millis(second * 1_000), ..AT };
            fixture.grantor.step(now, &Input::Tick);
            fixture.grantor.take_output(&mut Output::default());
        }
        let is_held = fixture.grantor.owner_of_lease(lease) == Some(THEM);
        assert_eq!(is_held, !was_draining, "{} by id: {by_id}", action.word());
        tried += 1;
    }
    assert!(tried > 20, "{tried} commands were tried");
}

/// Which actions need the approval of which dangerous ones, from the table of replacements.
fn two_persons() -> String {
    let mut text = String::from(
        "\n## Two persons\n\n\
         Where the access file lists a dangerous action, another action that can have its effect needs the same approval of a second \
         identity.\n\n| action | needs an approval where this is listed | because |\n|---|---|---|\n",
    );
    for action in Action::ALL {
        for Replacement { replaces, case, reason } in action.replacements() {
            let when = match case {
                ReplacementCase::Always => "",
                ReplacementCase::LeaseOfAnother => " of a lease that the caller does not prove to hold",
            };
            let reason = if reason.is_empty() { "it is this action" } else { reason };
            text.push_str(&format!("| `{}`{when} | `{}` | {reason} |\n", action.word(), replaces.word()));
        }
    }
    text
}

/// The page of the matrix, from the table of permissions.
fn page() -> String {
    let mut text = String::from(
        "# Permissions\n\n\
         With this page you can choose the role of an identity, and see what a caller without a role learns. A grant is a role \
         under a prefix of\nwhole segments: `team/a` covers `team/a` and `team/a/b`, and not `team/ab`. Without a grant \
         nothing is allowed, and there are no deny rules.\nThis page is generated; see `CONTRIBUTING.md`, \"Regenerate \
         pages\".\n\n\
         ## Actions and roles\n\n\
         - **yes**: allowed under the prefix of the grant.\n\
         - **own**: allowed under the prefix of the grant, on what the identity itself was granted. The caller also proves that it was: by \
         the stream\n  of its session, or by the secret of the session or the lease.\n\
         - **no**: not allowed.\n\n\
         The scope says what the prefix is compared with: every *name* of the request, with ids resolved to the resource \
         that they belong to; the\n*results*, of which others are left out; nothing, so that a grant with *any* prefix is \
         enough; or the *cluster*, so that the prefix must be\nempty. The role `admin` requires the empty prefix.\n\n| action | scope |",
    );
    Role::ALL.iter().for_each(|role| text.push_str(&format!(" {role} |")));
    text.push_str(&format!("\n|---|---|{}\n", "---|".repeat(Role::ALL.len())));
    for action in Action::ALL {
        let scope = match action.scope() {
            ActionScope::Names => "names",
            ActionScope::Results => "results",
            ActionScope::AnyGrant => "any",
            ActionScope::WholeCluster => "cluster",
        };
        let cells = action.row().map(|cell| match cell {
            Permission::Yes => " **yes** |",
            Permission::Own => " own |",
            Permission::No => " no |",
        });
        text.push_str(&format!("| `{}` | {scope} |{}\n", action.word(), cells.concat()));
    }
    text.push_str(&two_persons());
    text.push_str(
        "\n## What a caller learns\n\n\
         A holder with the only grant `team/a`, and an action on a lease:\n\n\
         | the lease is | renew | acquire |\n|---|---|---|\n",
    );
    for relation in NameRelation::ALL {
        let (prefix, name, _, own, by_id) = relation.scene();
        let subject = if by_id { format!("on `{name}`, named by id") } else { format!("on `{name}`") };
        let grant = if prefix.is_empty() { ", with the grant of all names" } else { "" };
        let whose = if own { "the caller's" } else { "another identity's" };
        let word = |action| match expected(action, Role::Holder, relation) {
            Cell::Yes => "yes",
            Cell::No => "`PERMISSION_DENIED`",
            Cell::Unseen => "as if it did not exist",
        };
        let (renew, acquire) = (word(Action::Renew), word(Action::Acquire));
        text.push_str(&format!("| {subject}, {whose}{grant} | {renew} | {acquire} |\n"));
    }
    text.push_str(
        "\nWhat a caller may not see is answered like what does not exist. What it may see and not change is denied, and the \
         reply names the missing role.\nA command that needs nothing that exists, such as `acquire`, is denied: that reply \
         follows from the request alone.\n",
    );
    text
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test writes its page; the core writes no file")]
fn the_page_shows_the_matrix() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/permissions.md");
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(path, page()).expect("the page can be written");
    }
    let current = std::fs::read_to_string(path).expect("the page exists");
    assert!(current == page(), "the page differs; rewrite it with LEASEHOLD_BLESS=1");
}
