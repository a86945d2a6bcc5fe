//! Limits of identities against running servers: one that floods is refused, and another one notices nothing (A12).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_server::access::AccessFile;
use leasehold_wire::json::ResourcesBody;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, v1};
use tonic::Status;

use crate::access_server::{ADMIN, AccessServer, access_text, http_code};
use crate::transport_clients::{GrpcClient, HttpConnection, SessionStream, acquire, lease_ref, with_timeout};

const FLOODER: &str = "uid:1";
const WORKER: &str = "uid:2";

fn file(limits: &str) -> AccessFile {
    let grants = [(ADMIN, "admin", ""), (FLOODER, "holder", "jobs"), (WORKER, "holder", "jobs")];
    AccessFile::parse(&format!("{}{limits}", access_text(&grants))).expect("the file is valid")
}

/// Limits of the identity that floods.
fn flooder_limits(limits: &str) -> AccessFile {
    file(&format!("[[limit]]\nprincipal = {FLOODER:?}\n{limits}"))
}

fn open(holder: &str) -> v1::OpenSession {
    v1::OpenSession { holder: holder.into(), ttl_ms: 600_000, waits_only: false }
}

/// The limit that a refusal names, with its maximum and what was requested.
fn limit_of(status: &Status) -> (String, u64, u64) {
    let problem = problem_from_status(status);
    assert_eq!(problem.code, "RESOURCE_EXHAUSTED", "{problem:?}");
    assert!(problem.message.contains(';'), "the next step is missing: {problem:?}");
    (problem.limit, problem.max.expect("a maximum"), problem.got.expect("a count"))
}

/// Sends requests of every kind until it is stopped, and counts what was refused by limit.
async fn flood(mut client: GrpcClient, name: &'static str, stop: Arc<AtomicBool>) -> BTreeMap<String, u64> {
    let mut refused = BTreeMap::new();
    let mut watches = Vec::new();
    let count =
        |refused: &mut BTreeMap<String, u64>, status: Status| *refused.entry(limit_of(&status).0).or_insert(0) += 1;
    for number in 0u64.. {
        if let Err(status) = client.open_session(open("flood")).await {
            count(&mut refused, status);
        }
        if let Err(status) = client.acquire(acquire(&format!("jobs/flood/{name}/{number}"), "flood")).await {
            count(&mut refused, status);
        }
        match client.watch(v1::WatchRequest { prefix: "jobs".into() }).await {
            Ok(watch) => watches.push(watch),
            Err(status) => count(&mut refused, status),
        }
        if stop.load(Ordering::Relaxed) && refused.len() >= 4 {
            return refused;
        }
    }
    unreachable!("the numbers do not end")
}

/// A stream with one lease that is renewed in every way that a stream offers.
struct Renewer {
    stream: SessionStream,
    name: String,
    session: u64,
    grant: v1::Grant,
    batches: u64,
}

impl Renewer {
    async fn start(server: &mut AccessServer, principal: &str, name: &str) -> Self {
        let hello =
            v1::Hello { protocol: 1, session: Some(v1::hello::Session::Open(open("renewer"))), ..Default::default() };
        let first = v1::ClientBatch { hello: Some(hello), ..Default::default() };
        let mut stream = SessionStream::start(server.client_as(principal).await, first).await.expect("a session");
        let welcome = stream.next().await.expect("the stream is open").welcome.expect("a welcome");
        let Answer::Granted(grant) = stream.request(Operation::Acquire(acquire(name, ""))).await else {
            panic!("{name} is not granted");
        };
        Self { stream, name: name.to_owned(), session: welcome.session, grant, batches: 0 }
    }

    /// Renews the lease in a batch and by a request, and the session. Nothing of it is ever refused.
    async fn renew(&mut self) {
        self.batches += 1;
        let (sequence, leases) = (self.batches, vec![self.grant.lease]);
        let renewal = v1::RenewBatch { sequence, leases, token_numbers: vec![self.grant.token_number] };
        self.stream.send(v1::ClientBatch { renewals: vec![renewal], ..Default::default() });
        let renewed = loop {
            let batch = self.stream.next().await.expect("the stream is open");
            assert_eq!(batch.close, None);
            if let Some(renewed) = batch.renewals.into_iter().next() {
                break renewed;
            }
        };
        assert!(renewed.remaining_ms[0] > 0, "{renewed:?}");
        let renewal = v1::Renew { lease: Some(lease_ref(&self.name, &self.grant.token)), ..Default::default() };
        let answer = self.stream.request(Operation::Renew(renewal)).await;
        assert!(matches!(answer, Answer::Current(_)), "{answer:?}");
        let session = v1::RenewSession { session: Some(self.session), held: None };
        let answer = self.stream.request(Operation::RenewSession(session)).await;
        assert!(matches!(answer, Answer::Session(_)), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_identity_floods_another_one_acquires_and_loses_no_renewal() {
    let limits = "sessions = 3\nleases = 5\nwatches = 2\nrequests_per_second = 50\n";
    let mut server = AccessServer::start_with(&flooder_limits(limits)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut own = Renewer::start(&mut server, FLOODER, "jobs/own").await;
    let mut floods = Vec::new();
    for name in ["one", "other"] {
        floods.push(tokio::spawn(flood(server.client_as(FLOODER).await, name, stop.clone())));
    }
    // The other identity works on a stream, by single calls and over HTTP. None of its requests is refused.
    let mut worker = Renewer::start(&mut server, WORKER, "jobs/work").await;
    let (mut client, mut http) = (server.client_as(WORKER).await, server.http_as(WORKER).await);
    for round in 0..200 {
        worker.renew().await;
        let single = acquire(&format!("jobs/single/{round}"), "w");
        client.acquire(single).await.expect("the limits of another identity do not count");
        let path = format!("POST /v1/leases/jobs/http/{round}:acquire");
        assert_eq!(http_code(&http.request(&path, "", r#"{"holder":"w","ttl":"60s"}"#).await), "OK");
        // The renewals of the identity that floods are not counted either.
        own.renew().await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut refused = BTreeMap::new();
    for flood in floods {
        for (limit, count) in with_timeout(flood).await.expect("the flood ends") {
            *refused.entry(limit).or_insert(0) += count;
        }
    }
    for limit in ["identity_sessions", "identity_leases", "identity_watches", "identity_request_rate"] {
        assert!(refused.get(limit).is_some_and(|count| *count > 0), "{limit}: {refused:?}");
        let counted = server.metric(&format!("leasehold_limits_reached_total{{limit=\"{limit}\"}}")).await;
        assert_eq!(counted as u64, refused[limit], "{limit}");
    }
    assert_eq!(server.metric("leasehold_identity_limit_share{limit=\"identity_sessions\"}").await, 1.0);
    assert_eq!(server.metric("leasehold_identity_limit_share{limit=\"identity_leases\"}").await, 1.0);
    let shown = server.http_as(ADMIN).await.request("GET /v1/leases?prefix=jobs/flood&limit=100", "", "").await.1;
    let listed: ResourcesBody = serde_json::from_str(&shown).expect("a list");
    assert_eq!(listed.resources.len(), 4, "five leases with jobs/own: {shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_clients_have_a_limit_of_their_own_and_refuse_no_renewal_and_no_release() {
    let mut server = AccessServer::start_with(&flooder_limits("sessions = 1\nkeys = 2\n")).await;
    let mut http = server.http_as(FLOODER).await;
    let body = r#"{"holder":"w","ttl":"60s"}"#;
    let key = |number: u64| format!("Idempotency-Key: 0c7f2c7e-8f9b-4b52-9f2e-{number:012}\r\n");
    let granted = http.request("POST /v1/leases/jobs/a:acquire", &key(1), body).await;
    assert_eq!(http_code(&granted), "OK");
    assert_eq!(http_code(&http.request("POST /v1/leases/jobs/b:acquire", &key(2), body).await), "OK");
    let (status, refused) = http.request("POST /v1/leases/jobs/c:acquire", &key(3), body).await;
    assert_eq!(status, 429, "{refused}");
    for part in ["\"limit\":\"identity_keys\"", "\"max\":2", "\"got\":3"] {
        assert!(refused.contains(part), "{part} is missing in {refused}");
    }
    let repeated = http.request("POST /v1/leases/jobs/a:acquire", &key(1), body).await;
    let grant: serde_json::Value = serde_json::from_str(&granted.1).expect("a grant");
    let stored: serde_json::Value = serde_json::from_str(&repeated.1).expect("the stored grant");
    assert_eq!((&stored["token"], &stored["secret"]), (&grant["token"], &grant["secret"]), "{stored}");
    let text = |field: &str| grant[field].as_str().expect("a text").to_owned();
    let proof = format!("Lease-Token: {}\r\nLease-Secret: {}\r\n", text("token"), text("secret"));
    for (number, action) in [(4, "renew"), (5, "release")] {
        let path = format!("POST /v1/leases/jobs/a:{action}");
        assert_eq!(http_code(&http.request(&path, &format!("{proof}{}", key(number)), "").await), "OK", "{action}");
    }
    // What the access rules refuse stores no key, and writes nothing (A13).
    let position = server.metric("leasehold_journal_position").await;
    let denied = http.request("POST /v1/leases/other/x:acquire", &key(6), body).await;
    assert_eq!(http_code(&denied), "PERMISSION_DENIED", "{denied:?}");
    assert_eq!(server.metric("leasehold_journal_position").await, position);
    // Keys take no place of a session.
    assert_eq!(http_code(&http.request("POST /v1/sessions", "", body).await), "OK");
    assert_eq!(server.metric("leasehold_identity_limit_share{limit=\"identity_keys\"}").await, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_names_the_limit_its_maximum_and_the_count_over_every_transport() {
    let mut server = AccessServer::start_with(&flooder_limits("sessions = 2\nleases = 1\nwaiters = 0\n")).await;
    let (mut client, mut http) = (server.client_as(FLOODER).await, server.http_as(FLOODER).await);
    let mut stream = server.stream_as(FLOODER).await;
    client.open_session(open("second")).await.expect("two sessions are allowed");
    let refused = client.open_session(open("third")).await.expect_err("the limit is reached");
    assert_eq!(limit_of(&refused), ("identity_sessions".to_owned(), 2, 3));
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    client.acquire(acquire("jobs/a", "w")).await.expect("one lease is allowed");
    let (status, body) = http.request("POST /v1/leases/jobs/b:acquire", "", r#"{"holder":"w","ttl":"60s"}"#).await;
    assert_eq!(status, 429, "{body}");
    for part in ["\"limit\":\"identity_leases\"", "\"max\":1", "\"got\":2", "ask an administrator"] {
        assert!(body.contains(part), "{part} is missing in {body}");
    }
    let Answer::Refused(problem) = stream.request(Operation::Acquire(acquire("jobs/b", ""))).await else {
        panic!("the limit is reached");
    };
    assert_eq!((problem.limit.as_str(), problem.max, problem.got), ("identity_leases", Some(1), Some(2)));
    let wait = v1::AcquireOptions { wait_ms: 60_000, ..Default::default() };
    let Answer::Refused(problem) =
        stream.request(Operation::Acquire(v1::Acquire { options: Some(wait), ..acquire("jobs/a", "") })).await
    else {
        panic!("no wait is allowed");
    };
    assert!(["identity_waiters", "identity_leases"].contains(&problem.limit.as_str()), "{problem:?}");
    server.control.reload(&flooder_limits("sessions = 3\nleases = 2\n"));
    client.open_session(open("third")).await.expect("a reload raised the limit");
    client.acquire(acquire("jobs/b", "w")).await.expect("a reload raised the limit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_ends_makes_place_for_another_one() {
    let mut server = AccessServer::start_with(&flooder_limits("watches = 1\n")).await;
    let (mut client, mut other) = (server.client_as(FLOODER).await, server.client_as(WORKER).await);
    let watch = || v1::WatchRequest { prefix: "jobs".into() };
    let first = client.watch(watch()).await.expect("one watch is allowed");
    let refused = client.watch(watch()).await.expect_err("the limit is reached");
    assert_eq!(limit_of(&refused), ("identity_watches".to_owned(), 1, 2));
    let mut http = server.http_as(FLOODER).await;
    assert_eq!(http.request("GET /v1/events?prefix=jobs", "", "").await.0, 429, "over HTTP too");
    other.watch(watch()).await.expect("another identity has its own limit");
    drop(first);
    let again = async {
        while client.watch(watch()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    with_timeout(again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_an_identity_are_counted_by_address_and_an_idle_one_makes_room() {
    let limits = "[[limit]]\nprincipal = \"anonymous\"\nconnections = 2\n";
    let mut server = AccessServer::start_with(&file(limits)).await;
    let address = server.listen_as(WORKER).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut client = crate::transport_clients::connect(address).await;
        streams.push((client.watch(v1::WatchRequest { prefix: "jobs".into() }).await.expect("a watch"), client));
    }
    let mut third = HttpConnection::connect(address).await;
    let (status, body) = third.request("GET /v1/status", "", "").await;
    assert_eq!(status, 429, "{body}");
    assert!(body.contains("\"limit\":\"identity_connections\"") && body.contains("\"max\":2"), "{body}");
    drop(streams.pop());
    let served = async {
        while HttpConnection::connect(address).await.request("GET /v1/status", "", "").await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    with_timeout(served).await;
    // The idle connection of the last request makes room.
    assert_eq!(HttpConnection::connect(address).await.request("GET /v1/status", "", "").await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_access_rules_no_identity_has_limits() {
    use leasehold_server::journal::memory::Memory;
    use leasehold_server::server::{ServerConfig, start};
    let config = ServerConfig { listen: ([127, 0, 0, 1], 0).into(), ..ServerConfig::default() };
    let handle = start(Memory::default(), config).await.expect("a server starts on a free port");
    let mut client = crate::transport_clients::connect(handle.address).await;
    let mut watches = Vec::new();
    for _ in 0..100 {
        watches.push(client.watch(v1::WatchRequest { prefix: String::new() }).await.expect("no limit"));
    }
    for number in 0..1_001 {
        client.open_session(open("many")).await.unwrap_or_else(|status| panic!("session {number}: {status}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charters_and_reported_targets_of_an_identity_are_limited_until_it_removes_some() {
    let grants = [(ADMIN, "admin", ""), ("uid:3", "operator", "jobs"), ("uid:3", "reporter", "jobs")];
    let limits = "[[limit]]\nprincipal = \"uid:3\"\ncharters = 1\ntargets = 1\n";
    let file = AccessFile::parse(&format!("{}{limits}", access_text(&grants))).expect("the file is valid");
    let mut server = AccessServer::start_with(&file).await;
    let mut client = server.client_as("uid:3").await;
    let charter = |prefix: &str| v1::SetCharter {
        prefix: prefix.into(),
        charter: Some(v1::Charter::default()),
        comment: String::new(),
    };
    client.set_charter(charter("jobs/a")).await.expect("the first charter");
    let refused = client.set_charter(charter("jobs/b")).await.expect_err("above the limit");
    assert_eq!(limit_of(&refused), ("identity_charters".to_owned(), 1, 2));
    client.set_charter(charter("jobs/a")).await.expect("it replaces its own");
    let remove = v1::RemoveCharter { prefix: "jobs/a".into(), comment: "done".into() };
    client.remove_charter(remove).await.expect("it exists");
    client.set_charter(charter("jobs/b")).await.expect("there is a place again");

    let status = client.status(v1::StatusRequest {}).await.expect("any grant is enough").into_inner();
    let reports = |target: &str| v1::FenceReports {
        cluster: status.cluster.clone(),
        reports: vec![v1::FenceReport {
            resource: "jobs/a".into(),
            target: target.into(),
            mode: v1::FenceMode::Forced.into(),
            checks: 1,
            ..Default::default()
        }],
    };
    client.report_fences(reports("ledger")).await.expect("the first target");
    let refused = client.report_fences(reports("mail")).await.expect_err("above the limit");
    assert_eq!(limit_of(&refused), ("identity_targets".to_owned(), 1, 2));
    client.report_fences(reports("ledger")).await.expect("a known target");
    let share = server.metric("leasehold_identity_limit_share{limit=\"identity_targets\"}").await;
    assert_eq!(share, 1.0);
    let forget = v1::ForgetTarget { resource: "jobs/a".into(), target: "ledger".into(), comment: "moved".into() };
    client.forget_target(forget).await.expect("it exists");
    client.report_fences(reports("mail")).await.expect("there is a place again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_and_grants_of_cached_keys_are_limited_by_identity() {
    let limits = flooder_limits("messages = 2\nmessage_bytes = 64\ncache_grants = 1\n");
    let mut server = AccessServer::start_with(&limits).await;
    let (mut flooder, mut worker) = (server.stream_as(FLOODER).await, server.stream_as(WORKER).await);
    let enqueue = |bytes: usize| {
        let enqueue = v1::Enqueue { body: vec![7; bytes], ..Default::default() };
        let command = Some(v1::delivery_command::Command::Enqueue(enqueue));
        Operation::Delivery(v1::DeliveryCommand { queue: "jobs/q".into(), command })
    };
    let read = |key: &str| {
        let actor = v1::CacheActor { holder: "w".into(), ttl_ms: 60_000, ..Default::default() };
        Operation::Cache(v1::CacheCommand { key: key.into(), command: Some(v1::cache_command::Command::Read(actor)) })
    };
    let refused = |answer: Answer| match answer {
        Answer::Refused(problem) => {
            assert!(problem.message.contains(';'), "the next step is missing: {problem:?}");
            (problem.code, problem.limit, problem.max, problem.got)
        }
        other => panic!("{other:?}"),
    };
    let exhausted = |limit: &str, max, got| ("RESOURCE_EXHAUSTED".to_owned(), limit.to_owned(), Some(max), Some(got));
    assert_eq!(refused(flooder.request(enqueue(59)).await), exhausted("identity_message_bytes", 64, 65));
    for _ in 0..2 {
        assert!(matches!(flooder.request(enqueue(1)).await, Answer::Delivery(_)));
    }
    assert_eq!(refused(flooder.request(enqueue(1)).await), exhausted("identity_messages", 2, 3));
    assert!(matches!(flooder.request(read("jobs/k")).await, Answer::Cache(_)));
    assert_eq!(refused(flooder.request(read("jobs/l")).await), exhausted("identity_cache_grants", 1, 2));
    assert!(matches!(worker.request(enqueue(59)).await, Answer::Delivery(_)), "another identity is not affected");
    assert!(matches!(worker.request(read("jobs/l")).await, Answer::Cache(_)));
    for limit in ["identity_messages", "identity_cache_grants"] {
        let line = format!("leasehold_identity_limit_share{{limit=\"{limit}\"}}");
        assert!(server.metric(&line).await >= 1.0, "{limit}");
    }
}
