//! Evidence of a rollback: a token that anyone can write stops nothing, and a sealed token of a lost grant does (A9, T9).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use leasehold_core::token::{Number, Token};
use leasehold_seal::{SealKey, SealKeys, verify};
use leasehold_server::access::AccessFile;
use leasehold_server::sealing::{TokenSealer, key_file_name};
use leasehold_wire::headers::{TOKEN_SEEN, TOKEN_SEEN_RESOURCE};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, v1};
use tonic::Request;

use crate::access_server::{ADMIN, AccessServer, access_text, http_code};
use crate::transport_clients::{SessionStream, acquire, lease_ref};

const GRANTS: [(&str, &str, &str); 3] =
    [("uid:1", "holder", "jobs"), ("uid:2", "holder", "jobs"), ("uid:3", "reporter", "")];
const NAME: &str = "jobs/größe";

/// A directory with one seal key.
fn key_directory() -> (tempfile::TempDir, SealKey) {
    let directory = tempfile::tempdir().expect("a directory");
    let key = SealKey::generate(0).expect("a key");
    store(directory.path(), &key);
    (directory, key)
}

fn store(directory: &Path, key: &SealKey) {
    let path = directory.join(key_file_name(key.kid()));
    std::fs::write(&path, key.to_file_text().expect("a text").as_bytes()).expect("the file is writable");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the mode is set");
}

struct Scene {
    server: AccessServer,
    key: SealKey,
    /// A token that this journal issued.
    held: Token,
    directory: tempfile::TempDir,
}

impl Scene {
    async fn start() -> Self {
        let (directory, key) = key_directory();
        let sealer = TokenSealer::open(directory.path().to_owned()).expect("the key is active");
        let mut server = AccessServer::start_sealed(&GRANTS, Arc::new(sealer)).await;
        let mut client = server.client_as("uid:1").await;
        let grant = client.acquire(acquire(NAME, "w")).await.expect("the name is free").into_inner();
        let keys = SealKeys::new([key.public()]).expect("a set");
        let held = verify(&keys, &grant.token, NAME).expect("the server seals what it grants");
        Self { server, key, held, directory }
    }

    /// A token of a grant that this journal does not know, one hour ahead.
    fn lost(&self) -> Token {
        let number = Number::new(self.held.number.get() + (3_600_000 << 22)).expect("below the end of numbers");
        Token { number, ..self.held }
    }

    /// Texts of the lost token that no key of this cluster sealed for its resource.
    fn forgeries(&self) -> Vec<String> {
        let (lost, stranger) = (self.lost(), SealKey::generate(0).expect("a key"));
        let foreign = stranger.seal(&lost, NAME).to_string();
        let renamed = foreign.replacen(&stranger.kid().to_string(), &self.key.kid().to_string(), 1);
        let seal = self.key.seal(&self.held, NAME).seal;
        let moved = leasehold_seal::SealedToken { token: lost, seal }.to_string();
        vec![lost.to_string(), foreign, renamed, moved]
    }

    async fn proofs(&mut self) -> (f64, f64) {
        let proofs = self.server.metric("leasehold_rollback_proofs_total").await;
        (proofs, self.server.metric("leasehold_unproven_tokens_total").await)
    }

    /// Whether the cluster still grants.
    async fn grants(&mut self, name: &str) -> Result<(), String> {
        let mut client = self.server.client_as("uid:1").await;
        client.acquire(acquire(name, "w")).await.map(drop).map_err(|status| problem_from_status(&status).code)
    }

    /// Presents a text over HTTP: in the body, and as the highest token that was seen.
    async fn present_http(&mut self, text: &str) {
        let mut http = self.server.http_as("uid:2").await;
        let path = "POST /v1/leases/jobs/gr%C3%B6%C3%9Fe:check";
        let in_body = http.request(path, "", &format!(r#"{{"token":"{text}"}}"#)).await;
        assert_eq!(http_code(&in_body), "NOT_CURRENT", "{in_body:?}");
        let headers = format!("{TOKEN_SEEN}: {text}\r\n{TOKEN_SEEN_RESOURCE}: jobs/gr%C3%B6%C3%9Fe\r\n");
        let held = self.held;
        let in_header = http.request(path, &headers, &format!(r#"{{"token":"{held}"}}"#)).await;
        assert_eq!(http_code(&in_header), "OK", "the request itself is answered: {in_header:?}");
    }

    async fn present_grpc(&mut self, text: &str) {
        let mut client = self.server.client_as("uid:2").await;
        let checked = client.check(lease_ref(NAME, text)).await.expect_err("no such lease");
        assert_eq!(problem_from_status(&checked).code, "NOT_CURRENT");
        let mut request = Request::new(lease_ref(NAME, &self.held.to_string()));
        request.metadata_mut().insert(TOKEN_SEEN, text.parse().expect("plain text"));
        request.metadata_mut().insert(TOKEN_SEEN_RESOURCE, "jobs/gr%C3%B6%C3%9Fe".parse().expect("plain text"));
        client.check(request).await.expect("the request itself is answered");
    }

    /// Presents a text in the hello, with a batch of renewals, and by its own operation. Returns the answer to the operation.
    async fn present_stream(&mut self, text: &str) -> Answer {
        let open = v1::OpenSession { holder: "w".into(), ttl_ms: 60_000, waits_only: false };
        let hello = v1::Hello {
            protocol: 1,
            session: Some(v1::hello::Session::Open(open)),
            highest_token: text.into(),
            highest_token_resource: NAME.into(),
            ..Default::default()
        };
        let first = v1::ClientBatch { hello: Some(hello), ..Default::default() };
        let client = self.server.client_as("uid:2").await;
        let mut stream = SessionStream::start(client, first).await.expect("the hello is answered");
        assert!(stream.next().await.expect("the stream is open").welcome.is_some());
        let renewals = vec![v1::RenewBatch { sequence: 9, leases: vec![1 << 32], token_numbers: vec![5] }];
        let (highest_token, highest_token_resource) = (text.to_owned(), NAME.to_owned());
        stream.send(v1::ClientBatch { renewals, highest_token, highest_token_resource, ..Default::default() });
        stream.request(Operation::ObserveToken(v1::ObserveToken { token: text.into(), resource: NAME.into() })).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_token_is_answered_and_counted_and_stops_nothing_over_any_transport() {
    let mut scene = Scene::start().await;
    for (at, text) in scene.forgeries().into_iter().enumerate() {
        scene.present_http(&text).await;
        scene.present_grpc(&text).await;
        let Answer::Refused(problem) = scene.present_stream(&text).await else { panic!("it is no evidence") };
        assert_eq!(problem.code, "PERMISSION_DENIED");
        assert!(problem.message.contains("sealed"), "{problem:?}");
        let (proofs, unproven) = scene.proofs().await;
        assert_eq!((proofs, unproven), (0.0, 7.0 * (at + 1) as f64), "{text}");
        assert_eq!(scene.grants(&format!("jobs/after-{at}")).await, Ok(()));
    }
}

/// The session of the key is opened before the request, and refuses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_key_cannot_be_stored_proves_the_rollback_too() {
    let mut scene = Scene::start().await;
    let text = scene.key.seal(&scene.lost(), NAME).to_string();
    let grants = [&[(ADMIN, "admin", "")][..], &GRANTS].concat();
    let limits = AccessFile::parse(&format!("{}[limits]\nkeys = 0\n", access_text(&grants))).expect("a valid file");
    assert!(scene.server.handle.api().access.reload(&limits));
    let mut http = scene.server.http_as("uid:2").await;
    let body = r#"{"holder":"w","ttl":"60s"}"#;
    let shown = format!("{TOKEN_SEEN}: {text}\r\n{TOKEN_SEEN_RESOURCE}: jobs/gr%C3%B6%C3%9Fe\r\n");
    let keyed = format!("{shown}idempotency-key: 0c7f2c7e-8f9b-4b52-9f2e-6d1a5f0c9c11\r\n");
    let denied = http.request("POST /v1/leases/other/a:acquire", &keyed, body).await;
    assert_eq!(http_code(&denied), "PERMISSION_DENIED", "{denied:?}");
    assert_eq!(scene.proofs().await.0, 0.0, "a request that is not allowed proves nothing");
    let refused = http.request("POST /v1/leases/jobs/a:acquire", &keyed, body).await;
    assert_eq!(http_code(&refused), "RESOURCE_EXHAUSTED", "{refused:?}");
    assert_eq!(scene.grants("jobs/after").await, Err("ROLLED_BACK".to_owned()));
    assert_eq!(scene.proofs().await.0, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_token_of_a_lost_grant_proves_the_rollback_over_every_transport() {
    for transport in ["http", "grpc", "stream"] {
        let mut scene = Scene::start().await;
        let text = scene.key.seal(&scene.lost(), NAME).to_string();
        // With the name of another resource the seal proves nothing.
        let mut client = scene.server.client_as("uid:2").await;
        client.check(lease_ref("jobs/other", &text)).await.expect_err("a token of another resource");
        assert_eq!(scene.grants("jobs/before").await, Ok(()));
        match transport {
            "http" => scene.present_http(&text).await,
            "grpc" => scene.present_grpc(&text).await,
            _ => assert!(matches!(scene.present_stream(&text).await, Answer::Done(_))),
        }
        assert_eq!(scene.grants("jobs/after").await, Err("ROLLED_BACK".to_owned()), "{transport}");
        assert_eq!(scene.proofs().await.0, 1.0, "one proof is enough");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_a_key_that_ended_proves_nothing() {
    let mut scene = Scene::start().await;
    let text = scene.key.seal(&scene.lost(), NAME).to_string();
    // The key is replaced and has ended, as after a theft.
    let directory = scene.directory.path();
    let (next, key) = (SealKey::generate(0).expect("a key"), scene.key.to_file_text().expect("a text"));
    let ended = SealKey::from_file_text(&key).and_then(|key| key.with_end(Some(1))).expect("an end");
    store(directory, &ended);
    store(directory, &next);
    assert!(scene.server.handle.api().sealer.reload().expect("the keys are valid"), "the keys changed");
    scene.present_grpc(&text).await;
    assert_eq!(scene.grants("jobs/after").await, Ok(()));
    let mut client = scene.server.client_as("uid:1").await;
    let grant = client.acquire(acquire("jobs/next", "w")).await.expect("the name is free").into_inner();
    let keys = client.keys(v1::KeysRequest {}).await.expect("any grant is enough").into_inner().keys;
    let kids: Vec<_> = keys.iter().map(|key| (key.kid.clone(), key.end_ms)).collect();
    assert!(kids.contains(&(next.kid().to_string(), None)) && kids.contains(&(ended.kid().to_string(), Some(1))));
    assert!(verify(&SealKeys::new([next.public()]).expect("a set"), &grant.token, "jobs/next").is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_is_evidence_only_from_the_reporter_that_the_charter_names() {
    let mut scene = Scene::start().await;
    let target = |name: &str, reporter: Option<&str>| v1::Target {
        name: name.into(),
        at: "somewhere safe".into(),
        reporter: reporter.map(Into::into),
        mode: Some(v1::target::Mode::Forced(true)),
    };
    let targets = vec![target("ledger", Some("uid:3")), target("mail", None), target("disk", Some("uid:4"))];
    let charter = Some(v1::Charter { targets, ..Default::default() });
    let mut admin = scene.server.client_as(crate::access_server::ADMIN).await;
    let set = v1::SetCharter { prefix: "jobs".into(), charter, comment: String::new() };
    admin.set_charter(set).await.expect("the charter is valid");
    let (cluster, highest) = (scene.held.cluster.to_string(), Some(scene.lost().number.get()));
    let mut reporter = scene.server.client_as("uid:3").await;
    let mut report = async |target: &str| {
        let mode = v1::FenceMode::Forced.into();
        let report = v1::FenceReport {
            resource: NAME.into(),
            target: target.into(),
            mode,
            checks: 1,
            highest,
            ..Default::default()
        };
        let reports = v1::FenceReports { cluster: cluster.clone(), reports: vec![report] };
        reporter.report_fences(reports).await.map(drop).map_err(|status| problem_from_status(&status).code)
    };
    assert_eq!(report("disk").await, Err("PERMISSION_DENIED".to_owned()), "another identity reports for it");
    assert_eq!(report("mail").await, Ok(()), "the report counts for the coverage");
    assert_eq!(report("new").await, Ok(()));
    let outcome = scene.grants("jobs/before").await;
    assert_eq!((outcome, scene.proofs().await), (Ok(()), (0.0, 2.0)));
    assert_eq!(report("ledger").await, Ok(()));
    assert_eq!(scene.grants("jobs/after").await, Err("ROLLED_BACK".to_owned()));
    assert_eq!(scene.proofs().await, (1.0, 2.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_keeps_the_reporters_of_a_charter_and_an_administrator_sets_them() {
    let mut server = AccessServer::start(&[("uid:5", "operator", "jobs")]).await;
    let mut operator = server.client_as("uid:5").await;
    let mut admin = server.client_as(crate::access_server::ADMIN).await;
    let set = |prefix: &str, reporter: Option<&str>, capacity: u32| v1::SetCharter {
        prefix: prefix.into(),
        charter: Some(v1::Charter {
            capacity: Some(capacity),
            targets: vec![v1::Target {
                name: "ledger".into(),
                at: "somewhere safe".into(),
                reporter: reporter.map(Into::into),
                mode: Some(v1::target::Mode::Forced(true)),
            }],
            ..Default::default()
        }),
        comment: String::new(),
    };
    for (prefix, reporter) in [("jobs", Some("uid:5")), ("jobs/a", Some("uid:3"))] {
        let refused = operator.set_charter(set(prefix, reporter, 1)).await.expect_err("it is no administrator");
        let problem = problem_from_status(&refused);
        assert_eq!((problem.code.as_str(), problem.field.as_str()), ("PERMISSION_DENIED", "targets.reporter"));
        assert!(problem.message.contains("; keep those that apply here"), "{problem:?}");
    }
    admin.set_charter(set("jobs", Some("uid:3"), 1)).await.expect("an administrator names reporters");
    operator.set_charter(set("jobs", None, 1)).await.expect_err("the reporter is dropped");
    operator.set_charter(set("jobs", Some("uid:3"), 2)).await.expect("the reporter is kept");
    let mut http = server.http_as("uid:5").await;
    let removed = http.request("DELETE /v1/charters/jobs?comment=c", "", "").await;
    assert_eq!(http_code(&removed), "PERMISSION_DENIED", "{removed:?}");
    assert!(removed.1.contains("\"field\":\"targets.reporter\""), "{removed:?}");
    let denials = server.metric("leasehold_denied_total{action=\"set_charter\",reason=\"role\"}").await;
    assert_eq!(denials, 3.0, "each denial is counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_refuses_a_broken_seal_and_compares_the_number_of_a_plain_text() {
    let mut scene = Scene::start().await;
    let sealed = scene.key.seal(&scene.held, NAME).to_string();
    let stranger = SealKey::generate(0).expect("a key");
    let unknown = stranger.seal(&scene.held, NAME).to_string();
    let broken = unknown.replacen(&stranger.kid().to_string(), &scene.key.kid().to_string(), 1);
    let plain = scene.held.to_string();
    let mut http = scene.server.http_as("uid:2").await;
    let mut client = scene.server.client_as("uid:2").await;
    let open = v1::OpenSession { holder: "w".into(), ttl_ms: 60_000, waits_only: false };
    let hello = v1::Hello { protocol: 1, session: Some(v1::hello::Session::Open(open)), ..Default::default() };
    let first = v1::ClientBatch { hello: Some(hello), ..Default::default() };
    let mut stream = SessionStream::start(scene.server.client_as("uid:2").await, first).await.expect("it is answered");
    assert!(stream.next().await.expect("the stream is open").welcome.is_some());
    // Over a stream a holder checks the leases of its own session.
    let Answer::Granted(own) = stream.request(Operation::Acquire(acquire("jobs/own", ""))).await else {
        panic!("the lease is free");
    };
    let own_broken = format!("{}{}", &own.token[..own.token.len() - 86], "A".repeat(86));
    let own_texts = [(&own.token, None), (&own_broken, Some("signature"))];
    let texts = [(&sealed, None), (&plain, None), (&broken, Some("signature")), (&unknown, Some("unknown_key"))];
    let expected =
        |reason: Option<&str>| reason.map(|reason| ("TOKEN_INVALID".to_owned(), "token".to_owned(), reason.to_owned()));
    let shown = |problem: v1::Problem| (problem.code, problem.field, problem.reason);
    for (text, reason) in own_texts {
        let streamed = match stream.request(Operation::Check(lease_ref("jobs/own", text))).await {
            Answer::Current(_) => None,
            Answer::Refused(problem) => Some(shown(*problem)),
            other => panic!("{other:?}"),
        };
        assert_eq!(streamed, expected(reason), "{text}");
    }
    for (text, reason) in texts {
        let path = "POST /v1/leases/jobs/gr%C3%B6%C3%9Fe:check";
        let (status, body) = http.request(path, "", &format!(r#"{{"token":"{text}"}}"#)).await;
        assert_eq!(status, if reason.is_some() { 400 } else { 200 }, "{body}");
        let named = format!(r#""reason":"{}""#, reason.unwrap_or_default());
        assert_eq!(body.contains(&named) && body.contains("TOKEN_INVALID"), reason.is_some(), "{body}");
        let unary = client.check(lease_ref(NAME, text)).await.err();
        assert_eq!(unary.map(|status| shown(problem_from_status(&status))), expected(reason));
    }
    // A caller that may not see the lease learns nothing about the seal: the reply is that about a lease that does not exist (A5).
    let denied = scene.server.client_as("uid:9").await.check(lease_ref(NAME, &broken)).await.expect_err("no grant");
    assert_eq!(problem_from_status(&denied).code, "NOT_CURRENT");
    let invalid = r#"leasehold_request_seconds_count{operation="check",code="TOKEN_INVALID"}"#;
    assert_eq!(scene.server.metric(invalid).await, 5.0, "a refusal is counted as one");
}
