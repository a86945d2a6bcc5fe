//! Every gRPC method and every HTTP endpoint has an action, and nothing but health and the API document answers a stranger.

use std::collections::BTreeSet;
use std::path::Path;

use leasehold_core::access::Action;
use leasehold_server::api::served;
use leasehold_wire::problem_from_status;

use crate::access_server::{ADMIN, AccessServer, http_code};
use crate::every_action::{Attempt, Subject, Transport, http_request};
use crate::transport_clients::{HttpConnection, connect};

/// The action of every gRPC method. The session stream is opened by a hello, and carries one action per request.
pub const METHODS: [(&str, Action); 75] = [
    ("Session", Action::OpenSession),
    ("OpenSession", Action::OpenSession),
    ("RenewSession", Action::RenewSession),
    ("CloseSession", Action::CloseSession),
    ("Reconcile", Action::Reconcile),
    ("Cancel", Action::Cancel),
    ("SessionLeases", Action::ListSession),
    ("RenewLeases", Action::Renew),
    ("Progress", Action::Progress),
    ("Rotate", Action::Rotate),
    ("Put", Action::Put),
    ("Pin", Action::Pin),
    ("Collect", Action::Collect),
    ("Delivery", Action::Enqueue),
    ("Delivery", Action::Receive),
    ("Delivery", Action::ExtendMessage),
    ("Delivery", Action::AckMessage),
    ("Delivery", Action::NackMessage),
    ("Delivery", Action::RedriveMessage),
    ("Delivery", Action::DropMessage),
    ("Cache", Action::CacheRead),
    ("Cache", Action::CacheRenewRead),
    ("Cache", Action::CacheInvalidated),
    ("Cache", Action::CacheIntend),
    ("Cache", Action::CacheCommit),
    ("Cache", Action::CacheAbort),
    ("Cache", Action::CacheGetOrFill),
    ("Cache", Action::CacheFilled),
    ("ObserveToken", Action::ObserveToken),
    ("Acquire", Action::Acquire),
    ("AcquireAll", Action::AcquireAll),
    ("Renew", Action::Renew),
    ("Release", Action::Release),
    ("Check", Action::Check),
    ("Revoke", Action::Revoke),
    ("Handoff", Action::Handoff),
    ("FinishDrain", Action::FinishDrain),
    ("Free", Action::Free),
    ("SetCapacity", Action::SetCapacity),
    ("ConfirmHold", Action::ConfirmHold),
    ("ResizeHold", Action::ResizeHold),
    ("Veto", Action::Veto),
    ("WaiveQuarantine", Action::WaiveQuarantine),
    ("SetMaxTtl", Action::SetMaxTtl),
    ("StepDown", Action::StepDown),
    ("Approve", Action::Approve),
    ("CancelProposal", Action::CancelProposal),
    ("Proposals", Action::Proposals),
    ("Show", Action::Show),
    ("List", Action::List),
    ("ListLeases", Action::List),
    ("HeldBy", Action::HeldBy),
    ("Waiters", Action::Waiters),
    ("Deadlocks", Action::Deadlocks),
    ("History", Action::EndedLeases),
    ("State", Action::State),
    ("Queue", Action::Queue),
    ("Usage", Action::Usage),
    ("Status", Action::Status),
    ("Cluster", Action::Cluster),
    ("Keys", Action::Keys),
    ("Watch", Action::Watch),
    ("Charters", Action::Charters),
    ("SetCharter", Action::SetCharter),
    ("RemoveCharter", Action::RemoveCharter),
    ("ReportFences", Action::ReportFences),
    ("Coverage", Action::Coverage),
    ("ForgetTarget", Action::ForgetTarget),
    ("Audit", Action::Audit),
    ("ExportAudit", Action::ExportAudit),
    ("VerifyAudit", Action::VerifyAudit),
    ("ListAuditHeads", Action::VerifyAudit),
    ("ListDenials", Action::ExportAudit),
    ("Backup", Action::Backup),
    // A resume is a hello on the session stream too.
    ("Session", Action::ResumeSession),
];

/// The action of every HTTP endpoint; none for those that answer anyone.
pub const ENDPOINTS: [(&str, &str, Option<Action>); 78] = [
    ("get", "/v1/leases", Some(Action::List)),
    ("post", "/v1/leases/{name}:acquire", Some(Action::Acquire)),
    ("post", "/v1/leases/{name}:renew", Some(Action::Renew)),
    ("post", "/v1/leases/{name}:release", Some(Action::Release)),
    ("post", "/v1/leases/{name}:check", Some(Action::Check)),
    ("post", "/v1/leases/{name}:handoff", Some(Action::Handoff)),
    ("post", "/v1/leases/{name}:revoke", Some(Action::Revoke)),
    ("post", "/v1/leases/{name}:free", Some(Action::Free)),
    ("post", "/v1/leases/{name}:capacity", Some(Action::SetCapacity)),
    ("post", "/v1/leases/{name}:progress", Some(Action::Progress)),
    ("post", "/v1/leases/{name}:rotate", Some(Action::Rotate)),
    ("post", "/v1/leases/{name}:drained", Some(Action::FinishDrain)),
    ("post", "/v1/leases/{name}:confirm", Some(Action::ConfirmHold)),
    ("post", "/v1/leases/{name}:resize", Some(Action::ResizeHold)),
    ("post", "/v1/leases/{name}:veto", Some(Action::Veto)),
    ("post", "/v1/leases/{name}:put", Some(Action::Put)),
    ("post", "/v1/leases/{name}:pin", Some(Action::Pin)),
    ("post", "/v1/leases/{name}:collect", Some(Action::Collect)),
    ("post", "/v1/leases:acquire_all", Some(Action::AcquireAll)),
    ("post", "/v1/leases:renew", Some(Action::Renew)),
    ("get", "/v1/leases/{name}", Some(Action::Show)),
    ("post", "/v1/sessions", Some(Action::OpenSession)),
    ("post", "/v1/sessions/{session}:renew", Some(Action::RenewSession)),
    ("post", "/v1/sessions/{session}:reconcile", Some(Action::Reconcile)),
    ("post", "/v1/sessions/{session}:cancel", Some(Action::Cancel)),
    ("post", "/v1/sessions/{session}:close", Some(Action::CloseSession)),
    ("get", "/v1/sessions/{session}/leases", Some(Action::ListSession)),
    ("get", "/v1/sessions/{session}/events", Some(Action::ResumeSession)),
    ("post", "/v1/queues/{name}:send", Some(Action::Enqueue)),
    ("post", "/v1/queues/{name}:receive", Some(Action::Receive)),
    ("post", "/v1/queues/{name}:ack", Some(Action::AckMessage)),
    ("post", "/v1/queues/{name}:nack", Some(Action::NackMessage)),
    ("post", "/v1/queues/{name}:extend", Some(Action::ExtendMessage)),
    ("post", "/v1/queues/{name}:redrive", Some(Action::RedriveMessage)),
    ("post", "/v1/queues/{name}:drop", Some(Action::DropMessage)),
    ("get", "/v1/queues/{name}", Some(Action::Queue)),
    ("post", "/v1/cache/{key}:read", Some(Action::CacheRead)),
    ("post", "/v1/cache/{key}:renew", Some(Action::CacheRenewRead)),
    ("post", "/v1/cache/{key}:invalidated", Some(Action::CacheInvalidated)),
    ("post", "/v1/cache/{key}:intend", Some(Action::CacheIntend)),
    ("post", "/v1/cache/{key}:commit", Some(Action::CacheCommit)),
    ("post", "/v1/cache/{key}:abort", Some(Action::CacheAbort)),
    ("post", "/v1/cache/{key}:get_or_fill", Some(Action::CacheGetOrFill)),
    ("post", "/v1/cache/{key}:filled", Some(Action::CacheFilled)),
    ("get", "/v1/state/{name}", Some(Action::State)),
    ("get", "/v1/events", Some(Action::Watch)),
    ("get", "/v1/held-leases", Some(Action::List)),
    ("get", "/v1/holders/{holder}", Some(Action::HeldBy)),
    ("get", "/v1/waiters/{name}", Some(Action::Waiters)),
    ("get", "/v1/ended-leases/{name}", Some(Action::EndedLeases)),
    ("get", "/v1/history", Some(Action::Audit)),
    ("get", "/v1/history/{name}", Some(Action::Audit)),
    ("get", "/v1/audit", Some(Action::ExportAudit)),
    ("get", "/v1/audit:verify", Some(Action::VerifyAudit)),
    ("get", "/v1/audit-heads", Some(Action::VerifyAudit)),
    ("get", "/v1/denials", Some(Action::ExportAudit)),
    ("get", "/v1/deadlocks", Some(Action::Deadlocks)),
    ("get", "/v1/usage", Some(Action::Usage)),
    ("get", "/v1/status", Some(Action::Status)),
    ("get", "/v1/charters", Some(Action::Charters)),
    ("put", "/v1/charters/{prefix}", Some(Action::SetCharter)),
    ("delete", "/v1/charters/{prefix}", Some(Action::RemoveCharter)),
    ("post", "/v1/coverage", Some(Action::ReportFences)),
    ("get", "/v1/coverage/{name}", Some(Action::Coverage)),
    ("delete", "/v1/coverage/{name}", Some(Action::ForgetTarget)),
    ("post", "/v1/quarantine:waive", Some(Action::WaiveQuarantine)),
    ("get", "/v1/proposals", Some(Action::Proposals)),
    ("post", "/v1/proposals/{proposal}:approve", Some(Action::Approve)),
    ("post", "/v1/proposals/{proposal}:cancel", Some(Action::CancelProposal)),
    ("get", "/v1/cluster", Some(Action::Cluster)),
    ("post", "/v1/cluster:set_max_ttl", Some(Action::SetMaxTtl)),
    ("post", "/v1/cluster:step_down", Some(Action::StepDown)),
    ("get", "/v1/keys", Some(Action::Keys)),
    ("get", "/v1/backup", Some(Action::Backup)),
    ("get", "/v1/openapi.json", None),
    ("get", "/healthz", None),
    ("get", "/readyz", None),
    ("get", "/metrics", Some(Action::Metrics)),
];

#[test]
fn every_method_of_the_proto_has_an_action() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/proto/leasehold/v1/leasehold.proto");
    let text = std::fs::read_to_string(proto).expect("the proto file exists");
    let served: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next())
        .map(str::to_owned)
        .collect();
    let listed: BTreeSet<_> = METHODS.iter().map(|(method, _)| (*method).to_owned()).collect();
    assert_eq!(served, listed);
}

#[test]
fn every_http_endpoint_has_an_action() {
    let served: BTreeSet<_> = served().into_iter().collect();
    let listed: BTreeSet<_> = ENDPOINTS.iter().map(|(method, path, _)| (*method, (*path).to_owned())).collect();
    assert_eq!(served, listed);
}

#[test]
fn every_action_is_requested_over_some_transport() {
    let over_http = ENDPOINTS.iter().filter_map(|(.., action)| *action);
    let over_grpc = METHODS.iter().map(|(_, action)| *action);
    let requested: BTreeSet<_> = over_http.chain(over_grpc).collect();
    for action in Action::ALL {
        // The session of an idempotency key is opened for any request that carries one.
        let only_inside = matches!(action, Action::Withdraw | Action::OpenKeySession);
        let on_stream = crate::every_action::is_stream_action(*action);
        assert!(only_inside || on_stream || requested.contains(action), "{action:?} is requested by no transport");
    }
}

/// Refusals that a stranger gets: what it names as existing is not there.
const REFUSED: [&str; 3] = ["PERMISSION_DENIED", "NOT_CURRENT", "NOT_FOUND"];

/// Without a grant, every endpoint but three refuses, without a name in the response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_refused_everywhere() {
    let mut server = AccessServer::start(&[]).await;
    let mut admin = server.client_as(ADMIN).await;
    let subject = Subject::create(&mut admin, "secret/name", server.handle.issuer.cluster).await;
    for principal in ["uid:7", "local", "anonymous", ""] {
        let address = server.listen_as(principal).await;
        let mut client = connect(address).await;
        for (_, action) in METHODS {
            let attempt = Attempt { action, name: "secret/name", subject: &subject, own: None };
            let Some(code) = attempt.code(&mut client, None, None, Transport::Unary).await else { continue };
            assert!(REFUSED.contains(&code.as_str()), "{principal:?} {action:?}: {code}");
        }
        for (method, path, action) in ENDPOINTS {
            let mut http = HttpConnection::connect(address).await;
            let Some(action) = action else {
                let (status, body) = http.request(&format!("{} {path}", method.to_uppercase()), "", "").await;
                assert_eq!(status, 200, "{path}: {body}");
                assert!(path.ends_with("json") || body.split_whitespace().count() == 1, "{path}: {body}");
                continue;
            };
            let attempt = Attempt { action, name: "secret/name", subject: &subject, own: None };
            let Some((request, body)) = http_request(&attempt) else { panic!("{action:?} has no HTTP request") };
            let response = http.request(&request, "", &body).await;
            assert!(REFUSED.contains(&http_code(&response).as_str()), "{principal:?} {request}: {response:?}");
            assert!(!response.1.contains("secret/name"), "{request}: {}", response.1);
        }
        let hello = leasehold_wire::v1::Hello {
            protocol: 1,
            session: Some(leasehold_wire::v1::hello::Session::Open(leasehold_wire::v1::OpenSession {
                holder: "w".into(),
                ttl_ms: 60_000,
                waits_only: false,
            })),
            ..Default::default()
        };
        let first = leasehold_wire::v1::ClientBatch { hello: Some(hello), ..Default::default() };
        let refused = crate::transport_clients::SessionStream::start(client, first).await.err().expect("refused");
        assert_eq!(problem_from_status(&refused).code, "PERMISSION_DENIED", "{principal:?}");
    }
    assert!(server.metric("leasehold_denied_total{action=\"show\",reason=\"role\"}").await >= 8.0);
}

/// A plain connection to a server with an access file is anonymous, also from this machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_connection_is_anonymous_once_there_are_access_rules() {
    let server = AccessServer::start(&[("anonymous", "observer", "public")]).await;
    let mut http = HttpConnection::connect(server.handle.address).await;
    assert_eq!(http_code(&http.request("GET /v1/status", "", "").await), "OK");
    assert_eq!(http_code(&http.request("GET /v1/leases?prefix=public", "", "").await), "OK");
    let acquire = http.request("POST /v1/leases/public/a:acquire", "", r#"{"holder":"w","ttl":"60s"}"#).await;
    assert_eq!(http_code(&acquire), "PERMISSION_DENIED");
    assert_eq!(http_code(&http.request("GET /metrics", "", "").await), "PERMISSION_DENIED");
    assert_eq!(http_code(&http.request("GET /v1/backup", "", "").await), "PERMISSION_DENIED");
}
