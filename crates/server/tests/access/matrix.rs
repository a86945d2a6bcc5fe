//! The permission matrix, cell by cell, over unary gRPC, the session stream and HTTP.

use leasehold_core::access::{Action, ActionScope, Permission, Role};
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;

use crate::access_server::{ADMIN, AccessServer, access_file, identity};
use crate::every_action::{Attempt, EMPTY, SEEN, Subject, Transport, is_about_name, is_query};
use crate::transport_clients::{HttpConnection, SessionStream, acquire, connect};

/// How the name of a request relates to the prefix of the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Own,
    Child,
    Sibling,
    Parent,
    Other,
}

const RELATIONS: [Relation; 5] = [Relation::Own, Relation::Child, Relation::Sibling, Relation::Parent, Relation::Other];

impl Relation {
    /// The name, for a grant with the prefix `t<number>/a`.
    fn name(self, number: usize) -> String {
        match self {
            Self::Own => format!("t{number}/a"),
            Self::Child => format!("t{number}/a/child"),
            // The same bytes, and another segment.
            Self::Sibling => format!("t{number}/ab"),
            Self::Parent => format!("t{number}"),
            Self::Other => format!("other{number}/a"),
        }
    }

    fn is_covered(self) -> bool {
        matches!(self, Self::Own | Self::Child)
    }
}

/// Whether a role under `t<number>/a` (an administrator: everywhere) may perform an action, by the published matrix.
fn is_allowed(action: Action, role: Role, relation: Relation, is_own: bool) -> bool {
    let covered = match action.scope() {
        ActionScope::Names | ActionScope::Results => relation.is_covered() || role == Role::Admin,
        ActionScope::AnyGrant => true,
        ActionScope::WholeCluster => role == Role::Admin,
    };
    covered
        && match action.row()[role as usize] {
            Permission::No => false,
            Permission::Yes => true,
            Permission::Own => is_own,
        }
}

/// Actions whose requests need more than the subject has, so that they may be refused for their state when they are allowed.
fn depends_on_more(action: Action) -> bool {
    use Action::*;
    matches!(
        action,
        Cancel
            | Rotate
            | FinishDrain
            | ConfirmHold
            | ResizeHold
            | Veto
            | Handoff
            | Free
            | RemoveCharter
            | WaiveQuarantine
            | Approve
            | CancelProposal
            | ExtendMessage
            | AckMessage
            | NackMessage
            | RedriveMessage
            | DropMessage
            | CacheRenewRead
            | CacheInvalidated
            | CacheCommit
            | CacheAbort
            | CacheFilled
            | Progress
            | Reconcile
            | Collect
            | Pin
    )
}

/// Whether an action is about a session.
fn names_session(action: Action) -> bool {
    use Action::{Cancel, CloseSession, ListSession, Reconcile, RenewSession, ResumeSession};
    matches!(action, RenewSession | ResumeSession | Reconcile | CloseSession | ListSession | Cancel)
}

/// Replies for what does not exist.
const ABSENT: [&str; 3] = ["NOT_FOUND", "NOT_CURRENT", EMPTY];

struct Checks {
    cells: usize,
    allowed: usize,
    wrong: Vec<String>,
}

impl Checks {
    fn compare(&mut self, cell: &str, action: Action, allowed: bool, anywhere: bool, code: &str) {
        self.cells += 1;
        self.allowed += usize::from(allowed);
        let ok = match (allowed, is_query(action)) {
            (true, true) => code == SEEN,
            // On a stream a lease is of the stream's session.
            (true, false) if action == Action::Check && cell.starts_with("Stream") => code != "PERMISSION_DENIED",
            (true, false) if depends_on_more(action) => code != "PERMISSION_DENIED",
            (true, false) => code == "OK",
            // A query that is allowed elsewhere answers as for a name that does not exist.
            (false, true) if anywhere => ABSENT.contains(&code) || (code == SEEN && !is_about_name(action)),
            (false, true) => code == "PERMISSION_DENIED",
            // A stream speaks only for its own session.
            (false, false) if names_session(action) && code == "INVALID_ARGUMENT" => cell.starts_with("Stream"),
            (false, false) => code == "PERMISSION_DENIED" || ABSENT.contains(&code),
        };
        if !ok {
            self.wrong.push(format!("{cell}: {code}, and it is {}allowed", if allowed { "" } else { "not " }));
        }
    }
}

async fn check_transport(transport: Transport) {
    let mut server = AccessServer::start(&[]).await;
    let mut admin = server.client_as(ADMIN).await;
    let (address, current) = server.listen_with(identity(ADMIN)).await;
    let mut client = connect(address).await;
    let mut http = HttpConnection::connect(address).await;
    let mut checks = Checks { cells: 0, allowed: 0, wrong: Vec::new() };
    // One principal and one part of the names for each action and role, so that no attempt meets the traces of another.
    let pairs: Vec<_> = Action::ALL.iter().flat_map(|action| Role::ALL.map(|role| (*action, role))).collect();
    let principals: Vec<_> = (0..pairs.len()).map(|number| format!("uid:{}", number + 1)).collect();
    let mut text = Vec::new();
    for (number, (_, role)) in pairs.iter().enumerate() {
        let prefix = if *role == Role::Admin { String::new() } else { format!("t{number}/a") };
        text.push((principals[number].clone(), role.word(), prefix));
        if transport == Transport::Stream && !matches!(role, Role::Holder | Role::Admin) {
            // Only a holder opens sessions; this one holds nothing that the test is about.
            text.push((principals[number].clone(), Role::Holder.word(), format!("home{number}")));
        }
    }
    let grants: Vec<_> = text.iter().map(|(who, role, prefix)| (who.as_str(), *role, prefix.as_str())).collect();
    assert!(server.control.reload(&access_file(&grants)));
    for (number, (action, role)) in pairs.into_iter().enumerate() {
        // An administrator that steps the server down ends the test.
        if action == Action::StepDown && role == Role::Admin {
            continue;
        }
        *current.write().expect("no test panicked") = std::sync::Arc::new(identity(&principals[number]));
        // What the extra grant of a stream allows without a name is not what the cell is about.
        let extra = transport == Transport::Stream && matches!(action.scope(), ActionScope::AnyGrant);
        for relation in RELATIONS {
            let mut stream = match transport {
                Transport::Stream => Some(SessionStream::open(client.clone()).await),
                Transport::Unary | Transport::Http => None,
            };
            if extra && !matches!(role, Role::Holder | Role::Admin) {
                continue;
            }
            let name = relation.name(number);
            let subject = Subject::create(&mut admin, &name, server.handle.issuer.cluster).await;
            let attempt = Attempt { action, name: &name, subject: &subject, own: None };
            let sent = attempt.code(&mut client, stream.as_mut(), Some(&mut http), transport);
            let Some(code) = sent.await else { break };
            // Events and exports use up a connection.
            http = HttpConnection::connect(address).await;
            let anywhere =
                action.row()[role as usize] == Permission::Yes && action.scope() != ActionScope::WholeCluster;
            let cell = format!("{transport:?} {action:?} {role} {relation:?}");
            checks.compare(&cell, action, is_allowed(action, role, relation, false), anywhere, &code);
            let has_own = action.row()[role as usize] == Permission::Own;
            if has_own && is_allowed(Action::Acquire, role, relation, false) {
                let name = format!("{name}/mine");
                let (grant, session) = match &mut stream {
                    Some(stream) => {
                        let request = v1::Acquire { ttl_ms: None, ..acquire(&name, "") };
                        let answer = stream.request(Operation::Acquire(request)).await;
                        let Answer::Granted(grant) = answer else { panic!("a holder acquires: {answer:?}") };
                        (grant, None)
                    }
                    None => {
                        let granted = client.acquire(acquire(&name, "w")).await;
                        let open = v1::OpenSession { holder: "w".into(), ttl_ms: 600_000, waits_only: false };
                        let opened = client.open_session(open).await.expect("a holder opens a session").into_inner();
                        let granted = granted.expect("a holder acquires").into_inner();
                        server.present(&granted.secret, &opened.secret);
                        (granted, Some(opened.session))
                    }
                };
                let attempt = Attempt { action, name: &name, subject: &subject, own: Some((&grant, session)) };
                let code = attempt.code(&mut client, stream.as_mut(), Some(&mut http), transport).await;
                let code = code.expect("the transport has this request");
                http = HttpConnection::connect(address).await;
                server.present(&[], &[]);
                checks.compare(&format!("{cell}, its own"), action, true, anywhere, &code);
            }
        }
    }
    let Checks { cells, allowed, wrong } = checks;
    assert!(wrong.is_empty(), "{} of {cells} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
    // Both sides of the matrix are tried.
    assert!(cells > 400 && allowed > 80 && cells - allowed > 200, "{cells} cells, {allowed} allowed");
    println!("{transport:?}: {cells} cells, {allowed} allowed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cell_holds_over_unary_grpc() {
    check_transport(Transport::Unary).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cell_holds_over_the_session_stream() {
    check_transport(Transport::Stream).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cell_holds_over_http() {
    check_transport(Transport::Http).await;
}
