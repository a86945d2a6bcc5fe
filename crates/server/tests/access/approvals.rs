//! Two-person approval against a running server, over gRPC, the session stream and HTTP (A14).

use leasehold_server::access::AccessFile;
use leasehold_server::identity::Identity;
use leasehold_wire::json::{ProblemBody, ProposalBody};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, v1};

use crate::access_server::{ADMIN, AccessServer, access_text, http_code, identity};
use crate::every_action::grpc_code;
use crate::transport_clients::{HttpConnection, acquire};

const OPERATOR: &str = "uid:1";
const APPROVER: &str = "uid:2";
const ELSEWHERE: &str = "uid:3";
const HOLDER: &str = "uid:4";

fn file(two_person: &str) -> AccessFile {
    let grants = [
        (ADMIN, "admin", ""),
        (OPERATOR, "operator", "jobs"),
        (APPROVER, "approver", "jobs"),
        (ELSEWHERE, "approver", "disks"),
        (HOLDER, "holder", "jobs"),
        // The stream of a test needs a session.
        (APPROVER, "holder", "home"),
        (OPERATOR, "holder", "home"),
    ];
    AccessFile::parse(&format!("{}{two_person}", access_text(&grants))).expect("the file is valid")
}

const RULES: &str = "[two_person]\nactions = [\"revoke\", \"set_max_ttl\", \"remove_charter\"]\n";

fn revoke(name: &str) -> v1::Revoke {
    v1::Revoke {
        selector: Some(v1::revoke::Selector::Resource(name.into())),
        reason: v1::EndReason::Operator.into(),
        comment: "it hangs".into(),
        grace_ms: 0,
    }
}

async fn proposals(http: &mut HttpConnection) -> Vec<ProposalBody> {
    let (status, body) = http.request("GET /v1/proposals", "", "").await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("a list of proposals")
}

async fn is_held(http: &mut HttpConnection, name: &str) -> bool {
    let (_, body) = http.request(&format!("GET /v1/leases/{name}"), "", "").await;
    body.contains("\"held\":1")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dangerous_command_waits_for_another_identity_and_is_executed_once() {
    let mut server = AccessServer::start_with(&file(RULES)).await;
    let mut holder = server.client_as(HOLDER).await;
    for name in ["jobs/a", "jobs/b"] {
        holder.acquire(acquire(name, "w")).await.expect("a lease");
    }
    let (mut operator, mut operator_http) = (server.client_as(OPERATOR).await, server.http_as(OPERATOR).await);
    let mut http = server.http_as(APPROVER).await;
    let refused = operator.revoke(revoke("jobs/a")).await.expect_err("it needs an approval");
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    let problem = problem_from_status(&refused);
    assert_eq!((problem.code.as_str(), problem.proposal), ("APPROVAL_REQUIRED", Some(1)));
    assert!(problem.message.contains("leasehold approve 1"), "{problem:?}");
    let (status, body) = operator_http.request("POST /v1/leases/jobs/b:revoke", "", r#"{"comment":"it hangs"}"#).await;
    let problem: ProblemBody = serde_json::from_str(&body).expect("a problem");
    assert_eq!((status, problem.code.as_str(), problem.proposal), (428, "APPROVAL_REQUIRED", Some(2)));
    assert!(is_held(&mut operator_http, "jobs/a").await && is_held(&mut operator_http, "jobs/b").await);
    let known = proposals(&mut http).await;
    assert_eq!(known.iter().map(|one| one.resource.as_str()).collect::<Vec<_>>(), ["jobs/a", "jobs/b"]);
    assert_eq!((known[0].proposer.as_str(), known[0].comment.as_str()), (OPERATOR, "it hangs"));
    // Neither who proposed it, nor an approver of other names, nor a holder.
    let approve = |proposal: &ProposalBody| {
        (format!("POST /v1/proposals/{}:approve", proposal.proposal), format!(r#"{{"digest":"{}"}}"#, proposal.digest))
    };
    let (path, body) = approve(&known[0]);
    for (who, code) in [(OPERATOR, "PERMISSION_DENIED"), (ELSEWHERE, "NOT_FOUND"), (HOLDER, "PERMISSION_DENIED")] {
        let response = server.http_as(who).await.request(&path, "", &body).await;
        assert_eq!(http_code(&response), code, "{who}: {response:?}");
    }
    let mut elsewhere = server.http_as(ELSEWHERE).await;
    assert_eq!(proposals(&mut elsewhere).await, [], "an approver of other names sees nothing");
    // Another command than the one that was read.
    let (_, other) = approve(&known[1]);
    assert_eq!(http_code(&http.request(&path, "", &other).await), "CONFLICT");
    assert!(is_held(&mut operator_http, "jobs/a").await, "nothing was executed");
    assert_eq!(http_code(&http.request(&path, "", &body).await), "OK");
    assert!(!is_held(&mut operator_http, "jobs/a").await && is_held(&mut operator_http, "jobs/b").await);
    holder.acquire(acquire("jobs/a", "w")).await.expect("it is free again");
    assert_eq!(http_code(&http.request(&path, "", &body).await), "NOT_FOUND", "it is executed once");
    assert!(is_held(&mut operator_http, "jobs/a").await);
    // Over the session stream, with the right of the approver.
    let digest = v1::Approve { proposal: 2, digest: hex(&known[1].digest) };
    let answer = server.stream_as(APPROVER).await.request(Operation::Approve(digest)).await;
    assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    assert!(!is_held(&mut operator_http, "jobs/b").await);
    // Both identities are on record.
    let (_, history) = server.http_as(ADMIN).await.request("GET /v1/history/jobs/b", "", "").await;
    for part in ["\"kind\":\"proposed\"", "\"kind\":\"proposal_approved\"", "uid:1", "uid:2", "\"proposal\":2"] {
        assert!(history.contains(part), "{part} is missing in {history}");
    }
}

fn hex(digits: &str) -> Vec<u8> {
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_credential_one_principal_and_who_lost_its_rights_are_not_two() {
    let mut server = AccessServer::start_with(&file(RULES)).await;
    let as_with = |principal: &str, credential: &str| Identity { credential: credential.into(), ..identity(principal) };
    let (address, current) = server.listen_with(as_with(ADMIN, "cert-1")).await;
    let set = v1::SetMaxTtl { max_ttl_ms: 700_000, comment: "slow batches".into() };
    let mut client = crate::transport_clients::connect(address).await;
    assert_eq!(grpc_code(client.set_max_ttl(set.clone()).await), "APPROVAL_REQUIRED");
    let known = client.proposals(v1::ProposalsRequest {}).await.expect("a list").into_inner().proposals;
    let approve = v1::Approve { proposal: known[0].proposal, digest: known[0].digest.clone() };
    for identity in [as_with(ADMIN, "cert-2"), as_with(ADMIN, "cert-1")] {
        *current.write().expect("no test panicked") = std::sync::Arc::new(identity);
        assert_eq!(
            grpc_code(client.approve(approve.clone()).await),
            "PERMISSION_DENIED",
            "one principal is one person"
        );
    }
    let second = "[[grant]]\nprincipal = \"uid:9\"\nrole = \"admin\"\nprefix = \"\"\n";
    server.control.reload(&file(&format!("{RULES}{second}")));
    *current.write().expect("no test panicked") = std::sync::Arc::new(as_with("uid:9", "cert-1"));
    assert_eq!(grpc_code(client.approve(approve.clone()).await), "PERMISSION_DENIED", "one credential is one person");
    *current.write().expect("no test panicked") = std::sync::Arc::new(as_with("uid:9", "cert-9"));
    // An operator proposes, and loses its grant before the approval.
    let mut operator = server.client_as(OPERATOR).await;
    server.client_as(HOLDER).await.acquire(acquire("jobs/a", "w")).await.expect("a lease");
    assert_eq!(grpc_code(operator.revoke(revoke("jobs/a")).await), "APPROVAL_REQUIRED");
    let known = client.proposals(v1::ProposalsRequest {}).await.expect("a list").into_inner().proposals;
    let of_operator = known.iter().find(|one| one.proposer == OPERATOR).expect("the proposal of the operator");
    let grants = [(ADMIN, "admin", ""), ("uid:9", "admin", ""), (HOLDER, "holder", "jobs")];
    server.control.reload(&AccessFile::parse(&format!("{}{RULES}", access_text(&grants))).expect("a valid file"));
    let revoked = v1::Approve { proposal: of_operator.proposal, digest: of_operator.digest.clone() };
    assert_eq!(grpc_code(client.approve(revoked).await), "PERMISSION_DENIED", "who was removed proposes nothing");
    assert_eq!(grpc_code(client.approve(approve).await), "OK", "another principal with another credential");
    let status = client.status(v1::StatusRequest {}).await.expect("a status").into_inner();
    assert_eq!(status.max_ttl_ms, 700_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_is_withdrawn_by_who_made_it_and_without_rules_nothing_is_proposed() {
    let mut server = AccessServer::start_with(&file(RULES)).await;
    let mut holder = server.client_as(HOLDER).await;
    holder.acquire(acquire("jobs/a", "w")).await.expect("a lease");
    let mut operator = server.client_as(OPERATOR).await;
    assert_eq!(grpc_code(operator.revoke(revoke("jobs/a")).await), "APPROVAL_REQUIRED");
    let cancel = v1::CancelProposal { proposal: 1 };
    assert_eq!(grpc_code(holder.cancel_proposal(cancel).await), "PERMISSION_DENIED");
    assert_eq!(grpc_code(operator.cancel_proposal(cancel).await), "OK");
    assert_eq!(grpc_code(operator.cancel_proposal(cancel).await), "NOT_FOUND");
    assert_eq!(proposals(&mut server.http_as(APPROVER).await).await, []);
    server.control.reload(&file(""));
    assert_eq!(grpc_code(operator.revoke(revoke("jobs/a")).await), "OK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charter_and_a_handoff_of_anothers_lease_wait_and_who_may_act_alone_says_why() {
    let rules = format!("[two_person]\nactions = [\"revoke\"]\nalone = [{OPERATOR:?}]\n");
    let mut server = AccessServer::start_with(&file(&rules)).await;
    let mut holder = server.client_as(HOLDER).await;
    for name in ["jobs/a", "jobs/b", "jobs/c"] {
        holder.acquire(acquire(name, "w")).await.expect("a lease");
    }
    let (mut operator, mut http) = (server.client_as(OPERATOR).await, server.http_as(OPERATOR).await);
    let mut admin = server.http_as(ADMIN).await;
    // Every way in: a unary call, HTTP, the stream of a session.
    let selector = Some(v1::handoff::Selector::Resource("jobs/a".into()));
    let handoff = v1::Handoff { selector, ..Default::default() };
    assert_eq!(grpc_code(operator.handoff(handoff.clone()).await), "APPROVAL_REQUIRED");
    assert_eq!(http_code(&http.request("POST /v1/leases/jobs/a:handoff", "", "{}").await), "APPROVAL_REQUIRED");
    let answer = server.stream_as(ADMIN).await.request(Operation::Handoff(handoff)).await;
    assert!(matches!(&answer, Answer::Refused(problem) if problem.code == "APPROVAL_REQUIRED"), "{answer:?}");
    let charter = r#"{"charter":{"preemption":{"rule":"lower_priority","grace_ms":1}},"comment":"faster"}"#;
    assert_eq!(http_code(&http.request("PUT /v1/charters/jobs", "", charter).await), "APPROVAL_REQUIRED");
    let known = proposals(&mut server.http_as(APPROVER).await).await;
    let set = known.iter().find(|one| one.action == "set_charter").expect("the charter is proposed");
    let terms = set.charter.as_ref().and_then(|charter| charter.preemption.as_ref());
    assert_eq!(terms.map(|terms| terms.rule.as_str()), Some("lower_priority"), "who approves it sees its terms");
    let of_lease = known.iter().find(|one| one.action == "handoff").expect("the handoff is proposed");
    assert_eq!(of_lease.leases, Some(1));
    // Alone: only the identity of the file, and only with a reason.
    let revoke_a = r#"{"comment":"it hangs"}"#;
    for (by_admin, header, code) in [
        (true, "leasehold-alone: the site is down\r\n", "PERMISSION_DENIED"),
        (false, "leasehold-alone: %zz\r\n", "INVALID_ARGUMENT"),
        (false, "leasehold-alone: %20\r\n", "INVALID_ARGUMENT"),
        (false, "leasehold-alone: a\r\nleasehold-alone: b\r\n", "INVALID_ARGUMENT"),
    ] {
        let connection = if by_admin { &mut admin } else { &mut http };
        let response = connection.request("POST /v1/leases/jobs/a:revoke", header, revoke_a).await;
        assert_eq!(http_code(&response), code, "{header}: {response:?}");
    }
    assert!(is_held(&mut http, "jobs/a").await, "nothing happened");
    let header = "leasehold-alone: the site is down %E2%80%93 no one answers\r\n";
    assert_eq!(http_code(&http.request("POST /v1/leases/jobs/a:revoke", header, revoke_a).await), "OK");
    assert!(!is_held(&mut http, "jobs/a").await);
    let mut alone = tonic::Request::new(revoke("jobs/b"));
    alone.metadata_mut().insert("leasehold-alone", "it is on fire".parse().expect("plain text"));
    assert_eq!(grpc_code(operator.revoke(alone).await), "OK");
    assert!(!is_held(&mut http, "jobs/b").await && is_held(&mut http, "jobs/c").await);
    // The same over the stream of a session.
    for (principal, reason, code) in
        [(ADMIN, "the site is down", "PERMISSION_DENIED"), (OPERATOR, " ", "INVALID_ARGUMENT")]
    {
        let answer = server.stream_as(principal).await.request_alone(Operation::Revoke(revoke("jobs/c")), reason).await;
        assert!(matches!(&answer, Answer::Refused(problem) if problem.code == code), "{principal}: {answer:?}");
    }
    assert!(is_held(&mut http, "jobs/c").await, "nothing happened");
    let revoke_c = Operation::Revoke(revoke("jobs/c"));
    let answer = server.stream_as(OPERATOR).await.request_alone(revoke_c, "it smokes").await;
    assert!(!matches!(answer, Answer::Refused(_)), "{answer:?}");
    assert!(!is_held(&mut http, "jobs/c").await);
    // The approval of what was ended alone finds nothing, and not the next holder.
    holder.acquire(acquire("jobs/a", "w")).await.expect("it is free again");
    let body = format!(r#"{{"digest":"{}"}}"#, of_lease.digest);
    let path = format!("POST /v1/proposals/{}:approve", of_lease.proposal);
    let (status, body) = server.http_as(APPROVER).await.request(&path, "", &body).await;
    let problem: ProblemBody = serde_json::from_str(&body).expect("a problem");
    assert_eq!((status, problem.code.as_str(), problem.subject.as_deref()), (409, "CONFLICT", Some("lease")));
    assert!(is_held(&mut http, "jobs/a").await);
    let acts = [("jobs/a", "the site is down – no one answers"), ("jobs/b", "it is on fire"), ("jobs/c", "it smokes")];
    for (name, reason) in acts {
        let (_, history) = admin.request(&format!("GET /v1/history/{name}"), "", "").await;
        for part in ["\"kind\":\"acted_alone\"", reason, OPERATOR] {
            assert!(history.contains(part), "{part} is missing in {history}");
        }
    }
    let (_, metrics) = admin.request("GET /metrics", "", "").await;
    assert!(metrics.contains("leasehold_acts_alone_total{action=\"revoke\"} 3"), "{metrics}");
}
