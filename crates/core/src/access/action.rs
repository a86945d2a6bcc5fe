//! Actions: everything that a caller can request, and the permission matrix.

use super::Role;

/// Whether a role may perform an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Not allowed.
    No,
    /// Allowed under the prefix of the grant.
    Yes,
    /// Allowed under the prefix of the grant, on leases, sessions, waits and receipts that the identity itself was given.
    Own,
}

/// What the prefix of a grant is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionScope {
    /// Every resource that the action concerns.
    Names,
    /// The names in the result: others are left out.
    Results,
    /// Nothing: a grant with any prefix is enough.
    AnyGrant,
    /// All names: only a grant with the empty prefix is enough.
    WholeCluster,
}

const N: Permission = Permission::No;
const Y: Permission = Permission::Yes;
const O: Permission = Permission::Own;

macro_rules! actions {
    ($($action:ident $word:literal $scope:ident [$($cell:ident)*],)*) => {
        /// Everything that a caller can request. Each command and each query is exactly one action.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the words of the protocol")]
        pub enum Action {
            $($action,)*
        }

        impl Action {
            /// All actions, in the order of the permission matrix.
            pub const ALL: &'static [Self] = &[$(Self::$action,)*];

            /// The name in metrics, logs and documents.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$action => $word,)*
                }
            }

            /// What the prefix of a grant is compared with.
            pub const fn scope(self) -> ActionScope {
                match self {
                    $(Self::$action => ActionScope::$scope,)*
                }
            }

            /// The row of the permission matrix, in the order of [`Role::ALL`].
            pub const fn row(self) -> [Permission; Role::ALL.len()] {
                match self {
                    $(Self::$action => [$($cell,)*],)*
                }
            }
        }
    };
}

impl Action {
    /// The cell of the permission matrix.
    pub const fn permission(self, role: Role) -> Permission {
        self.row()[role as usize]
    }

    /// The first role that allows the action.
    pub const fn required_role(self) -> Role {
        let mut at = 0;
        while at < Role::ALL.len() - 1 {
            if !matches!(self.permission(Role::ALL[at]), Permission::No) {
                return Role::ALL[at];
            }
            at += 1;
        }
        Role::Admin
    }

    /// Why a caller may not perform the action, and the next step.
    pub const fn missing_role(self) -> &'static str {
        match self.required_role() {
            Role::Holder => "the role holder is missing here; ask an administrator to grant it",
            Role::Observer => "the role observer is missing here; ask an administrator to grant it",
            Role::Operator => "the role operator is missing here; ask an administrator to grant it",
            Role::Reporter => "the role reporter is missing here; ask an administrator to grant it",
            Role::Approver => "the role approver is missing here; ask an administrator to grant it",
            Role::Admin => "the role admin is missing; ask an administrator to grant it",
        }
    }
}

/// Why a caller may not act on what another identity was given.
pub const NOT_OWNER: &str = "it belongs to another identity; only the identity that was granted it may do this";

/// Why a caller with the right identity may not act on a lease, a receipt or a cached key.
pub const NO_LEASE_PROOF: &str = "the lease's secret is missing or wrong; present the secret of its grant with the resource's \
                                  name, or use the session that holds it";

/// Why a caller with the right identity may not act in a session.
pub const NO_SESSION_PROOF: &str =
    "the session's secret is missing or wrong; present the secret from its opening, or resume the session on a stream";

/// Why a session cannot be resumed with a secret that is not its own.
pub const SECRET_DIFFERS: &str = "the secret does not match the session; open a new session";

/// Why an identity may not approve what it proposed itself.
pub const SAME_IDENTITY: &str =
    "the identity or the credential that proposed this cannot approve it; ask another approver";

/// Why an identity may not execute a dangerous command without a second one.
pub const MAY_NOT_ACT_ALONE: &str = "the access file does not let this identity act alone; run the command without --alone, and ask an \
                                     approver";

/// Why a proposal that does not record its subject cannot be approved.
pub const NOT_BOUND: &str =
    "it was proposed before an update of the server, which did not record what it named; propose it again";

// A lease whose owner may renew it may also be checked by its owner: one cached check serves both.
const _: () = {
    let mut at = 0;
    while at < Role::ALL.len() {
        let renews = !matches!(Action::Renew.permission(Role::ALL[at]), Permission::No);
        assert!(!renews || matches!(Action::Check.permission(Role::ALL[at]), Permission::Yes));
        at += 1;
    }
};

// Columns: holder, observer, operator, reporter, approver, admin.
actions! {
    OpenSession "open_session" AnyGrant [Y N N N N Y],
    OpenKeySession "open_key_session" AnyGrant [Y Y Y Y Y Y],
    ResumeSession "resume_session" AnyGrant [O N N N N O],
    RenewSession "renew_session" AnyGrant [O N N N N O],
    Reconcile "reconcile" AnyGrant [O N N N N O],
    CloseSession "close_session" AnyGrant [O N N N N O],
    ListSession "list_session" AnyGrant [O N N N N O],
    Acquire "acquire" Names [Y N N N N Y],
    AcquireAll "acquire_all" Names [Y N N N N Y],
    Cancel "cancel" AnyGrant [O N N N N O],
    Withdraw "withdraw" AnyGrant [O N N N N O],
    Renew "renew" Names [O N N N N O],
    Release "release" Names [O N N N N O],
    Check "check" Names [Y Y Y N N Y],
    Rotate "rotate" Names [O N N N N O],
    Progress "progress" Names [O N N N N O],
    Revoke "revoke" Names [N N Y N N Y],
    Free "free" Names [N N Y N N Y],
    Handoff "handoff" Names [O N Y N N Y],
    FinishDrain "finish_drain" Names [O N N N N O],
    SetCapacity "set_capacity" Names [N N Y N N Y],
    ConfirmHold "confirm_hold" Names [O N N N N O],
    ResizeHold "resize_hold" Names [O N N N N O],
    Veto "veto" Names [O N N N N O],
    Pin "pin" Names [O N N N N O],
    Collect "collect" Names [N N Y N N Y],
    Put "put" Names [O N N N N O],
    Enqueue "enqueue" Names [Y N N N N Y],
    Receive "receive" Names [Y N N N N Y],
    ExtendMessage "extend_message" Names [O N N N N O],
    AckMessage "ack_message" Names [O N N N N O],
    NackMessage "nack_message" Names [O N N N N O],
    RedriveMessage "redrive_message" Names [N N Y N N Y],
    DropMessage "drop_message" Names [N N Y N N Y],
    CacheRead "cache_read" Names [Y N N N N Y],
    CacheRenewRead "cache_renew_read" Names [O N N N N O],
    CacheInvalidated "cache_invalidated" Names [O N N N N O],
    CacheIntend "cache_intend" Names [Y N N N N Y],
    CacheCommit "cache_commit" Names [O N N N N O],
    CacheAbort "cache_abort" Names [O N N N N O],
    CacheGetOrFill "cache_get_or_fill" Names [Y N N N N Y],
    CacheFilled "cache_filled" Names [O N N N N O],
    SetCharter "set_charter" Names [N N Y N N Y],
    RemoveCharter "remove_charter" Names [N N Y N N Y],
    ReportFences "report_fences" Names [N N N Y N Y],
    ForgetTarget "forget_target" Names [N N Y N N Y],
    WaiveQuarantine "waive_quarantine" WholeCluster [N N N N N Y],
    SetMaxTtl "set_max_ttl" WholeCluster [N N N N N Y],
    StepDown "step_down" WholeCluster [N N N N N Y],
    ObserveToken "observe_token" AnyGrant [Y Y Y Y Y Y],
    Approve "approve" Names [N N N N Y Y],
    CancelProposal "cancel_proposal" Names [N N O N Y Y],
    Show "show" Names [Y Y Y N N Y],
    List "list" Results [Y Y Y N N Y],
    HeldBy "held_by" Results [Y Y Y N N Y],
    Waiters "waiters" Names [Y Y Y N N Y],
    Deadlocks "deadlocks" Results [N Y Y N N Y],
    EndedLeases "ended_leases" Names [N Y Y N N Y],
    State "state" Names [Y Y Y N N Y],
    Queue "queue" Names [Y Y Y N N Y],
    Usage "usage" WholeCluster [N Y Y N N Y],
    Status "status" AnyGrant [Y Y Y Y Y Y],
    Cluster "cluster" AnyGrant [Y Y Y Y Y Y],
    Keys "keys" AnyGrant [Y Y Y Y Y Y],
    Watch "watch" Results [Y Y Y N N Y],
    Charters "charters" Results [Y Y Y Y N Y],
    Coverage "coverage" Names [N Y Y Y N Y],
    Proposals "proposals" Results [N Y Y N Y Y],
    Audit "audit" Results [N Y Y N N Y],
    ExportAudit "export_audit" WholeCluster [N N N N N Y],
    VerifyAudit "verify_audit" WholeCluster [N N N N N Y],
    Backup "backup" WholeCluster [N N N N N Y],
    Metrics "metrics" WholeCluster [N Y Y N N Y],
}
