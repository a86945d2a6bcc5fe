//! The permission matrix: every action, role and relation of names, tried against a grantor.
//!
//! A new action, role or relation does not compile until it has its command and its cells. Queries have no command; for them only
//! the rights are compared here, and the server's tests try them over every transport.

#[path = "permissions/fixture.rs"]
mod fixture;

use leasehold_core::access::{
    AccessGrant, Action, ActionScope, ApprovalRules, Caller, DangerousAction, NO_LEASE_PROOF, NO_SESSION_PROOF,
    Permission, Replacement, ReplacementCase, Rights, Role,
};
use leasehold_core::command::{Answer, Input, Proof};
use leasehold_core::grantor::{Denial, Output, Query, QueryOutcome};
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::{Instant, Now};
use leasehold_core::token::Number;

use fixture::{AT, Fixture, SECRET};

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
fn the_leases_of_a_session_are_listed_only_for_its_owner_with_its_secret() {
    let rights = Rights::new(1, vec![AccessGrant { role: Role::Holder, prefix: "".into() }]);
    let mut fixture = Fixture::new("team/a", ME);
    fixture.open_session();
    let listed = |principal, secret| {
        let caller = Caller { principal, rights: &rights };
        let secret: Option<[u8; 32]> = secret;
        let query =
            Query::SessionLeases { session: fixture.session, secret: secret.map(Into::into), after: None, limit: 9 };
        matches!(fixture.grantor.query(&caller, &query), QueryOutcome::Answered(_))
    };
    assert!(listed(ME, Some(SECRET)));
    assert!(!listed(ME, None), "without a proof");
    assert!(!listed(ME, Some([2; 32])), "with another secret");
    assert!(!listed(THEM, Some(SECRET)), "another identity");
}

#[test]
fn what_is_the_callers_own_needs_a_proof_for_every_action_and_role() {
    let mut tried = 0;
    for action in Action::ALL {
        for role in Role::ALL {
            // Resuming compares the secret that the command carries. A proposal is only its identity's: it grants nothing. A query
            // has a test of its own.
            let is_proven_otherwise =
                [Action::ResumeSession, Action::CancelProposal, Action::ListSession].contains(action);
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
