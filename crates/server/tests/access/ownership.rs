//! Numbers, ids and stored replies give no authority: only the identity that was given something acts on it (A6).

use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, session_id};

use crate::access_server::{AccessServer, http_code};
use crate::transport_clients::{SessionStream, acquire, connect, lease_ref};

const GRANTS: [(&str, &str, &str); 2] = [("uid:1", "holder", "jobs"), ("uid:2", "holder", "jobs")];

fn open() -> v1::OpenSession {
    v1::OpenSession { holder: "w".into(), ttl_ms: 600_000, waits_only: false }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_not_closed_renewed_or_resumed_by_another_identity() {
    let mut server = AccessServer::start(&GRANTS).await;
    let (mut owner, mut thief) = (server.client_as("uid:1").await, server.client_as("uid:2").await);
    let session = owner.open_session(open()).await.expect("a holder opens a session").into_inner();
    let (id, secret) = (Some(session.session), session.secret);
    server.present(&[], &secret);
    let held = owner.acquire(v1::Acquire { session: id, ttl_ms: None, ..acquire("jobs/a", "") }).await;
    held.expect("the session holds a lease");
    let refused = thief.close_session(v1::CloseSession { session: id }).await.expect_err("it is another's session");
    assert_eq!(problem_from_status(&refused).code, "NOT_FOUND");
    let refused = thief.renew_session(v1::RenewSession { session: id, held: None }).await.expect_err("another's");
    assert_eq!(problem_from_status(&refused).code, "NOT_FOUND");
    let inside = v1::Acquire { session: id, ttl_ms: None, ..acquire("jobs/b", "") };
    assert!(thief.acquire(inside).await.is_err(), "a lease in another's session");
    let resume = v1::ResumeSession { session: session.session, secret };
    let hello =
        |resume| v1::Hello { protocol: 1, session: Some(v1::hello::Session::Resume(resume)), ..Default::default() };
    let batch = |resume| v1::ClientBatch { hello: Some(hello(resume)), ..Default::default() };
    let stolen = SessionStream::start(thief.clone(), batch(resume.clone())).await.err().expect("refused");
    assert_eq!(problem_from_status(&stolen).code, "NOT_FOUND", "the secret alone is not enough");
    let mut stream = SessionStream::start(owner.clone(), batch(resume)).await.expect("the owner resumes");
    assert!(stream.next().await.expect("the stream is open").welcome.is_some());
    let shown = owner.show(v1::ShowRequest { resource: "jobs/a".into(), min_position: 0 }).await.expect("it is held");
    assert_eq!(shown.into_inner().held, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_reply_is_not_repeated_to_another_identity() {
    let mut server = AccessServer::start(&GRANTS).await;
    let (mut owner, mut thief) = (server.http_as("uid:1").await, server.http_as("uid:2").await);
    let mut client = connect(server.listen_as("uid:1").await).await;
    let session = client.open_session(open()).await.expect("a holder opens a session").into_inner();
    server.present(&[], &session.secret);
    let key = format!("idempotency-key: {}:1\r\n", session_id(session.session));
    let body = r#"{"holder":"w","ttl":"60s"}"#;
    let first = owner.request("POST /v1/leases/jobs/a:acquire", &key, body).await;
    assert_eq!(http_code(&first), "OK");
    let stolen = thief.request("POST /v1/leases/jobs/a:acquire", &key, body).await;
    assert_eq!(http_code(&stolen), "NOT_FOUND", "{stolen:?}");
    assert!(!stolen.1.contains("token"), "{stolen:?}");
    let retry = owner.request("POST /v1/leases/jobs/a:acquire", &key, body).await;
    let token = |(_, body): &(u16, String)| crate::http_client::field(body, "token");
    assert_eq!((http_code(&retry), token(&retry)), ("OK".to_owned(), token(&first)), "the owner gets the stored reply");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_not_a_credential() {
    let mut server = AccessServer::start(&GRANTS).await;
    let (mut owner, mut thief) = (server.client_as("uid:1").await, server.client_as("uid:2").await);
    let grant = owner.acquire(acquire("jobs/a", "w")).await.expect("the name is free").into_inner();
    // Not even with the secret.
    server.present(&grant.secret, &[]);
    let stolen = lease_ref("jobs/a", &grant.token);
    let by_id = v1::LeaseRef {
        selector: Some(v1::lease_ref::Selector::Lease(grant.lease)),
        token_number: grant.token_number,
        ..Default::default()
    };
    let mut stream = server.stream_as("uid:2").await;
    for lease in [stolen, by_id] {
        let released = thief.release(lease.clone()).await.expect_err("another identity holds it");
        assert_eq!(problem_from_status(&released).code, "PERMISSION_DENIED");
        let renewed = thief.renew(v1::Renew { lease: Some(lease.clone()), ..Default::default() }).await;
        assert_eq!(problem_from_status(&renewed.expect_err("another's")).code, "PERMISSION_DENIED");
        let put = v1::Put { lease: Some(lease), key: "k".into(), value: Some(vec![1]), expected_revision: None };
        let Answer::Refused(problem) = stream.request(Operation::Put(put)).await else { panic!("it is refused") };
        assert_eq!(problem.code, "PERMISSION_DENIED");
    }
    let batch = v1::RenewBatch { sequence: 7, leases: vec![grant.lease], token_numbers: vec![grant.token_number] };
    stream.send(v1::ClientBatch { renewals: vec![batch], lowest_pending: 1, ..Default::default() });
    let result = loop {
        let batch = stream.next().await.expect("the stream is open");
        if let Some(result) = batch.renewals.into_iter().next() {
            break result;
        }
    };
    let refused = result.details.into_iter().find_map(|detail| match detail.outcome {
        Some(v1::renew_detail::Outcome::Refused(refusal)) => Some(refusal.code),
        _ => None,
    });
    assert_eq!(refused.as_deref(), Some("PERMISSION_DENIED"));
    assert!(server.metric("leasehold_denied_total{action=\"renew\",reason=\"owner\"}").await >= 3.0);
    owner.check(lease_ref("jobs/a", &grant.token)).await.expect("the owner still holds it");
}
