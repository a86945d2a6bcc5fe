//! Two processes with one identity: what one was granted, the other cannot touch without its secret (A6).
//!
//! The thief knows everything that listings, events and targets show: names, numbers, ids, and so the whole token.

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Number, Token, TokenScope};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, session_id, v1};
use tonic::{Request, Response, Status};

use crate::access_server::{ADMIN, AccessServer, hex, http_code};
use crate::transport_clients::{GrpcClient, SessionStream, acquire, lease_ref};

const GRANTS: [(&str, &str, &str); 1] = [("uid:1", "holder", "jobs")];

/// A message with secrets in its metadata.
fn presenting<M>(message: M, headers: &[(&'static str, &[u8])]) -> Request<M> {
    let mut request = Request::new(message);
    for (name, secret) in headers {
        request.metadata_mut().insert(*name, hex(secret).parse().expect("hexadecimal digits"));
    }
    request
}

fn lease_secret<M>(message: M, secret: &[u8]) -> Request<M> {
    presenting(message, &[("lease-secret", secret)])
}

fn session_secret<M>(message: M, secret: &[u8]) -> Request<M> {
    presenting(message, &[("session-secret", secret)])
}

fn open() -> v1::OpenSession {
    v1::OpenSession { holder: "w".into(), ttl_ms: 600_000, waits_only: false }
}

#[track_caller]
fn denied<T: std::fmt::Debug>(result: Result<Response<T>, Status>, what: &str) {
    let problem = problem_from_status(&result.expect_err(what));
    assert_eq!(problem.code, "PERMISSION_DENIED", "{what}: {problem:?}");
    assert!(problem.message.contains("secret is missing or wrong"), "{what}: {problem:?}");
}

#[track_caller]
fn denied_on_stream(answer: Answer, what: &str) {
    let Answer::Refused(problem) = answer else { panic!("{what}: {answer:?}") };
    assert_eq!(problem.code, "PERMISSION_DENIED", "{what}: {problem:?}");
}

/// The token of a held lease, made from what a listing shows.
async fn forged_token(server: &AccessServer, thief: &mut GrpcClient, name: &str) -> (v1::LeaseView, String) {
    let list = thief.list(v1::ListRequest { prefix: name.into(), ..Default::default() }).await.expect("a holder lists");
    let resource = list.into_inner().resources.into_iter().next().expect("it is listed");
    assert_eq!(resource.resource, name);
    let shown = thief.show(v1::ShowRequest { resource: name.into(), min_position: 0 }).await.expect("a holder sees it");
    let lease = shown.into_inner().leases.into_iter().next().expect("it is held");
    let token = Token {
        cluster: server.handle.issuer.cluster,
        incarnation: server.handle.issuer.incarnation,
        resource: resource_hash(name),
        scope: TokenScope::Slot(0),
        number: Number::new(lease.token_number).expect("a number"),
    };
    (lease, token.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_forged_from_a_listing_is_refused_and_the_secret_passes() {
    let mut server = AccessServer::start(&GRANTS).await;
    let (mut owner, mut thief) = (server.client_as("uid:1").await, server.client_as("uid:1").await);
    let grant = owner.acquire(acquire("jobs/a", "w")).await.expect("the name is free").into_inner();
    let other = thief.acquire(acquire("jobs/b", "w")).await.expect("the name is free").into_inner();
    assert_eq!((grant.secret.len(), other.secret.len()), (16, 16));
    assert_ne!(grant.secret, other.secret);
    let (view, token) = forged_token(&server, &mut thief, "jobs/a").await;
    assert_eq!(token, grant.token, "a listing is enough to make the token");

    let by_name = lease_ref("jobs/a", &token);
    let by_number = v1::LeaseRef { token: String::new(), token_number: view.token_number, ..by_name.clone() };
    let by_id = v1::LeaseRef { selector: Some(v1::lease_ref::Selector::Lease(view.lease)), ..by_number.clone() };
    let guess: Vec<u8> = vec![0; 16];
    for lease in [&by_name, &by_number, &by_id] {
        for secret in [None, Some(&other.secret), Some(&guess)] {
            let what = format!("{lease:?} {secret:?}");
            let with = |message: v1::LeaseRef| match secret {
                Some(secret) => lease_secret(message, secret),
                None => Request::new(message),
            };
            let renew = v1::Renew { lease: Some(lease.clone()), ..Default::default() };
            denied(thief.renew(with(lease.clone()).map(|_| renew)).await, &what);
            denied(thief.release(with(lease.clone())).await, &what);
            denied(thief.finish_drain(with(lease.clone())).await, &what);
            denied(thief.confirm_hold(with(lease.clone())).await, &what);
            let resize = v1::ResizeHold { lease: Some(lease.clone()), units: 1 };
            denied(thief.resize_hold(with(lease.clone()).map(|_| resize)).await, &what);
            let veto = v1::Veto { lease: Some(lease.clone()), duration_ms: 1_000 };
            denied(thief.veto(with(lease.clone()).map(|_| veto)).await, &what);
            let selector = Some(v1::handoff::Selector::Resource("jobs/a".into()));
            let handoff = v1::Handoff { selector, token: token.clone(), ..Default::default() };
            denied(thief.handoff(with(lease.clone()).map(|_| handoff)).await, &what);
            thief.check(with(lease.clone())).await.expect("who sees the resource may check it");
        }
    }

    let mut http = server.http_as("uid:1").await;
    let body = format!(r#"{{"token":"{token}"}}"#);
    for verb in ["renew", "release", "handoff"] {
        let path = format!("POST /v1/leases/jobs/a:{verb}");
        for headers in [String::new(), format!("Lease-Secret: {}\r\n", hex(&other.secret))] {
            let refused = http.request(&path, &headers, &body).await;
            assert_eq!(http_code(&refused), "PERMISSION_DENIED", "{verb} {headers:?}: {refused:?}");
        }
    }

    let mut stream = server.stream_as("uid:1").await;
    denied_on_stream(stream.request(Operation::Release(by_name.clone())).await, "release");
    denied_on_stream(stream.request(Operation::Rotate(by_id.clone())).await, "rotate");
    let put = v1::Put { lease: Some(by_name.clone()), key: "k".into(), value: Some(vec![1]), expected_revision: None };
    denied_on_stream(stream.request(Operation::Put(put)).await, "put");
    let selector = Some(v1::handoff::Selector::Lease(view.lease));
    let handoff = v1::Handoff { selector, token_number: Some(view.token_number), ..Default::default() };
    denied_on_stream(stream.request(Operation::Handoff(handoff)).await, "handoff");
    let renewals =
        vec![v1::RenewBatch { sequence: 9, leases: vec![view.lease], token_numbers: vec![view.token_number] }];
    stream.send(v1::ClientBatch { renewals, lowest_pending: 1, ..Default::default() });
    let result = loop {
        let batch = stream.next().await.expect("the stream is open");
        if let Some(result) = batch.renewals.into_iter().next() {
            break result;
        }
    };
    let Some(v1::renew_detail::Outcome::Refused(refusal)) = &result.details[0].outcome else { panic!("{result:?}") };
    assert_eq!(refusal.code, "PERMISSION_DENIED");

    let renew = v1::Renew { lease: Some(by_name.clone()), ..Default::default() };
    owner.renew(lease_secret(renew, &grant.secret)).await.expect("the owner has the secret");
    let by_number = v1::Renew { lease: Some(by_number), ..Default::default() };
    owner.renew(lease_secret(by_number, &grant.secret)).await.expect("the number and the secret are enough");
    let headers = format!("Lease-Secret: {}\r\n", hex(&grant.secret));
    let renewed = http.request("POST /v1/leases/jobs/a:renew", &headers, &body).await;
    assert_eq!(http_code(&renewed), "OK", "{renewed:?}");
    assert!(server.metric("leasehold_denied_total{action=\"renew\",reason=\"secret\"}").await >= 9.0);
    owner.release(lease_secret(by_name, &grant.secret)).await.expect("the owner releases");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_not_closed_renewed_or_used_by_its_id() {
    let mut server = AccessServer::start(&GRANTS).await;
    let (mut owner, mut thief) = (server.client_as("uid:1").await, server.client_as("uid:1").await);
    let session = owner.open_session(open()).await.expect("a holder opens a session").into_inner();
    let other = thief.open_session(open()).await.expect("a holder opens a session").into_inner();
    let id = Some(session.session);
    let inside = || v1::Acquire { session: id, ttl_ms: None, ..acquire("jobs/a", "") };
    let held = owner.acquire(session_secret(inside(), &session.secret)).await.expect("with the secret").into_inner();
    for secret in [&other.secret, &vec![7; 32]] {
        let close = v1::CloseSession { session: id };
        denied(thief.close_session(close).await, "close by id");
        denied(thief.close_session(session_secret(close, secret)).await, "close with another secret");
        denied(thief.renew_session(v1::RenewSession { session: id, held: None }).await, "renew by id");
        let renew = v1::RenewSession { session: id, held: None };
        denied(thief.renew_session(session_secret(renew, secret)).await, "renew with another secret");
        denied(thief.acquire(inside()).await, "acquire by id");
        denied(thief.acquire(session_secret(inside(), secret)).await, "acquire with another secret");
        let release = lease_ref("jobs/a", &held.token);
        denied(thief.release(session_secret(release, secret)).await, "release with the secret of another session");
    }
    let mut http = server.http_as("uid:1").await;
    let at = |rest: &str| format!("/v1/sessions/{}{rest}", session_id(session.session));
    for (request, body) in [
        (format!("POST {}", at(":renew")), "{}"),
        (format!("POST {}", at(":reconcile")), r#"{"leases":[]}"#),
        (format!("POST {}", at(":cancel")), r#"{"sequence":"1"}"#),
        (format!("POST {}", at(":close")), "{}"),
        (format!("GET {}", at("/leases")), ""),
        (format!("GET {}", at("/events")), ""),
    ] {
        for headers in [String::new(), format!("Session-Secret: {}\r\n", hex(&other.secret))] {
            let refused = http.request(&request, &headers, body).await;
            assert_eq!(http_code(&refused), "PERMISSION_DENIED", "{request} {headers:?}: {refused:?}");
        }
    }
    let lease = leasehold_wire::lease_id(held.lease);
    let batch = format!(
        r#"{{"session":"{}","leases":[{{"lease":"{lease}","token_number":"{}"}}]}}"#,
        session_id(session.session),
        held.token_number
    );
    for (secret, result) in [(&other.secret, r#""code":"PERMISSION_DENIED""#), (&session.secret, r#""remaining_ms":"#)]
    {
        let headers = format!("Session-Secret: {}\r\n", hex(secret));
        let (status, renewed) = http.request("POST /v1/leases:renew", &headers, &batch).await;
        assert!(status == 200 && renewed.contains(result), "{renewed}");
    }
    let headers = format!("Session-Secret: {}\r\n", hex(&session.secret));
    let (status, listed) = http.request(&format!("GET {}", at("/leases")), &headers, "").await;
    assert!(status == 200 && listed.contains("jobs/a"), "{listed}");
    let resume = |secret: &[u8]| {
        let resume = v1::ResumeSession { session: session.session, secret: secret.to_vec() };
        let hello = v1::Hello { protocol: 1, session: Some(v1::hello::Session::Resume(resume)), ..Default::default() };
        v1::ClientBatch { hello: Some(hello), ..Default::default() }
    };
    let stolen = SessionStream::start(thief.clone(), resume(&other.secret)).await.err().expect("refused");
    assert_eq!(problem_from_status(&stolen).code, "PERMISSION_DENIED");

    let headers = format!("Session-Secret: {}\r\n", hex(&session.secret));
    let renewed =
        http.request(&format!("POST /v1/sessions/{}:renew", session_id(session.session)), &headers, "{}").await;
    assert_eq!(http_code(&renewed), "OK", "{renewed:?}");
    let renew = v1::Renew { lease: Some(lease_ref("jobs/a", &held.token)), ..Default::default() };
    owner.renew(session_secret(renew.clone(), &session.secret)).await.expect("the session's secret proves its leases");
    owner.renew(lease_secret(renew, &held.secret)).await.expect("so does the lease's");
    let mut stream = SessionStream::start(owner.clone(), resume(&session.secret)).await.expect("the owner resumes");
    assert!(stream.next().await.expect("the stream is open").welcome.is_some());
    let released = stream.request(Operation::Release(lease_ref("jobs/a", &held.token))).await;
    assert!(matches!(released, Answer::Done(_)), "a stream needs no secret: {released:?}");
    owner
        .close_session(session_secret(v1::CloseSession { session: id }, &session.secret))
        .await
        .expect("the owner closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_reply_and_its_secret_are_given_only_with_the_secret_of_the_session() {
    let mut server = AccessServer::start(&GRANTS).await;
    let (mut owner, mut thief) = (server.client_as("uid:1").await, server.client_as("uid:1").await);
    let session = owner.open_session(open()).await.expect("a holder opens a session").into_inner();
    let other = thief.open_session(open()).await.expect("a holder opens a session").into_inner();
    let mut http = server.http_as("uid:1").await;
    let key = format!("Idempotency-Key: {}:1\r\n", session_id(session.session));
    let proven = format!("{key}Session-Secret: {}\r\n", hex(&session.secret));
    let (path, body) = ("POST /v1/leases/jobs/a:acquire", r#"{"holder":"w","ttl":"60s"}"#);
    let first = http.request(path, &proven, body).await;
    assert_eq!(http_code(&first), "OK", "{first:?}");
    let secret = |(_, body): &(u16, String)| crate::http_client::field(body, "secret");
    assert_eq!(secret(&first).len(), 32, "{first:?}");
    for headers in [key.clone(), format!("{key}Session-Secret: {}\r\n", hex(&other.secret))] {
        let stolen = http.request(path, &headers, body).await;
        assert_eq!(http_code(&stolen), "PERMISSION_DENIED", "{stolen:?}");
        assert!(!stolen.1.contains("token") && !stolen.1.contains(&secret(&first)), "{stolen:?}");
    }
    let keyed = |secret: Option<&[u8]>| {
        let mut request = presenting(acquire("jobs/a", "w"), &[]);
        let key = format!("{}:1", session_id(session.session)).parse().expect("a key");
        request.metadata_mut().insert("idempotency-key", key);
        if let Some(secret) = secret {
            request.metadata_mut().insert("session-secret", hex(secret).parse().expect("hexadecimal digits"));
        }
        request
    };
    denied(thief.acquire(keyed(None)).await, "a replay without the secret");
    denied(thief.acquire(keyed(Some(&other.secret))).await, "a replay with another secret");
    let retry = http.request(path, &proven, body).await;
    assert_eq!((http_code(&retry), secret(&retry)), ("OK".to_owned(), secret(&first)), "the same grant and secret");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raised_token_has_a_new_secret_and_the_old_one_ends() {
    let mut server = AccessServer::start(&GRANTS).await;
    let mut admin = server.http_as(ADMIN).await;
    let charter = r#"{"comment":"rotate","charter":{"token_on_renewal":"rotate"}}"#;
    let set = admin.request("PUT /v1/charters/jobs", "", charter).await;
    assert_eq!(http_code(&set), "OK", "{set:?}");
    let mut owner = server.client_as("uid:1").await;
    let grant = owner.acquire(acquire("jobs/a", "w")).await.expect("the name is free").into_inner();
    let renew = |token: &str| v1::Renew { lease: Some(lease_ref("jobs/a", token)), ..Default::default() };
    let raised = owner.renew(lease_secret(renew(&grant.token), &grant.secret)).await.expect("renewed").into_inner();
    assert!(raised.token_number > grant.token_number && raised.secret.len() == 16 && raised.secret != grant.secret);
    let current = v1::LeaseRef { token_number: raised.token_number, token: String::new(), ..lease_ref("jobs/a", "") };
    denied(owner.release(lease_secret(current.clone(), &grant.secret)).await, "the old secret");
    owner.release(lease_secret(current, &raised.secret)).await.expect("the new secret");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_of_waits_and_of_several_leases_have_their_own_secrets() {
    let mut server = AccessServer::start(&GRANTS).await;
    let (mut first, mut second) = (server.client_as("uid:1").await, server.client_as("uid:1").await);
    let held = first.acquire(acquire("jobs/a", "first")).await.expect("the name is free").into_inner();
    // A wait without a session: the server opens one for it, and proves it.
    let options = Some(v1::AcquireOptions { wait_ms: 60_000, ..Default::default() });
    let wait = tokio::spawn(async move {
        second
            .acquire(v1::Acquire { options, ..acquire("jobs/a", "second") })
            .await
            .expect("it is granted")
            .into_inner()
    });
    let mut admin = server.client_as(ADMIN).await;
    for _ in 0..600 {
        let waiters = admin.waiters(v1::WaitersRequest { resource: "jobs/a".into(), ..Default::default() }).await;
        if !waiters.expect("an administrator lists").into_inner().waiters.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    first.release(lease_secret(lease_ref("jobs/a", &held.token), &held.secret)).await.expect("released");
    let granted = wait.await.expect("the wait ends");
    assert!(granted.secret.len() == 16 && granted.secret != held.secret);
    first.release(lease_secret(lease_ref("jobs/a", &granted.token), &granted.secret)).await.expect("the secret passes");

    let wanted = |resource: &str| v1::ResourceAccess { resource: resource.into(), ..Default::default() };
    let resources = vec![wanted("jobs/b"), wanted("jobs/c")];
    let all = v1::AcquireAll { resources, holder: "w".into(), ttl_ms: Some(60_000), ..Default::default() };
    let grants = first.acquire_all(all).await.expect("both are free").into_inner().grants;
    denied(first.release(lease_secret(lease_ref("jobs/b", &grants[0].token), &grants[1].secret)).await, "exchanged");
    for (name, grant) in ["jobs/b", "jobs/c"].into_iter().zip(&grants) {
        first.release(lease_secret(lease_ref(name, &grant.token), &grant.secret)).await.expect("its own secret");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_secret_is_refused_by_the_name_of_its_header() {
    let mut server = AccessServer::start(&GRANTS).await;
    let mut http = server.http_as("uid:1").await;
    for (header, digits) in [("lease-secret", 32), ("session-secret", 64)] {
        for value in ["".to_owned(), "00".to_owned(), "A".repeat(digits), "0".repeat(digits + 1), "g".repeat(digits)] {
            let headers = format!("{header}: {value}\r\n");
            let (status, body) = http.request("POST /v1/leases/jobs/a:renew", &headers, r#"{"token":"x"}"#).await;
            assert!(status == 400 && body.contains(header), "{headers:?}: {body}");
            assert!(value.is_empty() || value.len() < 8 || !body.contains(&value), "the value is not repeated: {body}");
        }
        let twice = format!("{header}: {0}\r\n{header}: {0}\r\n", "0".repeat(digits));
        let (status, body) = http.request("POST /v1/leases/jobs/a:renew", &twice, r#"{"token":"x"}"#).await;
        assert!(status == 400 && body.contains("repeated"), "{body}");
    }
}
