//! The metrics of a running server: all of them are documented, and each counts what its page says.

mod http_client;
mod snapshot_support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use http_client::{field, free_port_config, http};
use leasehold_core::grantor::{Output, RecoveredGrantor, TenureOptions};
use leasehold_core::lease::Validity;
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation};
use leasehold_server::journal::file::Directory;
use leasehold_server::journal::memory::Memory;
use leasehold_server::journal::{AppendOutcome, Journal, JournalLocation};
use leasehold_server::server::start;
use leasehold_wire::v1;
use leasehold_wire::v1::leasehold_client::LeaseholdClient;
use snapshot_support::{ReplayedState, poll_ready};
use tonic::transport::Endpoint;

async fn scrape(address: SocketAddr) -> String {
    let (status, text) = http(address, "GET", "/metrics", "").await;
    assert_eq!(status, 200, "{text}");
    text
}

/// The value of one sample, by name and labels.
#[track_caller]
fn value(text: &str, name: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {name}: {text}")).parse().expect("the value is a number")
}

/// Type and label names of each exported metric, by name.
fn exported(text: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut metrics = BTreeMap::new();
    for line in text.lines() {
        let Some((base, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else { continue };
        let name = match kind {
            "counter" => format!("{base}_total"),
            "info" => format!("{base}_info"),
            _ => base.to_owned(),
        };
        let sample = if kind == "histogram" { format!("{name}_count") } else { name.clone() };
        let samples = text.lines().filter_map(|line| line.strip_prefix(&sample)?.strip_prefix('{'));
        let labels = samples.filter_map(|rest| rest.split_once('}')).flat_map(|(labels, _)| labels.split("\","));
        let labels = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned())).collect();
        metrics.insert(name, (kind.to_owned(), labels));
    }
    metrics
}

/// Type and label names of each documented metric, by name.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(path).expect("the page exists");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, _unit, means, _alert] = cells[..] else { panic!("expected six cells: {line}") };
        assert!(!means.is_empty(), "{name} has no description");
        let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (name.trim_matches('`').to_owned(), (kind.to_owned(), labels))
    };
    rows.map(row).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exported_and_documented_metrics_are_equal() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    // A family has labels only after its first sample.
    assert_eq!(http(server.address, "POST", "/v1/leases/a:acquire", r#"{"holder":"w1","ttl":"60s"}"#).await.0, 200);
    let wait = r#"{"holder":"w2","ttl":"60s","wait":"1ms"}"#;
    assert_eq!(http(server.address, "POST", "/v1/leases/a:acquire", wait).await.0, 408);
    let text = scrape(server.address).await;
    let mut samples = text.lines().filter(|line| !line.starts_with('#'));
    assert!(samples.all(|line| line.starts_with("leasehold_") || line.starts_with("process_")), "{text}");
    let mut expected = documented();
    // Only a server with TLS has a certificate.
    assert!(expected.remove("leasehold_certificate_expiry_seconds").is_some());
    assert_eq!(exported(&text), expected);
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for page in [
        "how-to/monitor-and-alert.md",
        "how-to/runbook.md",
        "how-to/debug-a-lost-lease.md",
        "explanation/failure-modes.md",
    ] {
        let page = std::fs::read_to_string(documents.join(page)).expect("the page exists");
        for name in page.split('`').filter(|word| word.starts_with("leasehold_")) {
            assert!(
                documented().contains_key(name.split(['{', ' ', '[']).next().unwrap_or_default()),
                "{name} is not a metric"
            );
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_waits_grants_and_hold_times_are_counted() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    let address = server.address;
    let (_, granted) = http(address, "POST", "/v1/leases/a:acquire", r#"{"holder":"w1","ttl":"60s"}"#).await;
    assert_eq!(http(address, "POST", "/v1/leases/a:acquire", r#"{"holder":"w2","ttl":"60s"}"#).await.0, 423);
    let wait = r#"{"holder":"w2","ttl":"60s","wait":"20ms"}"#;
    assert_eq!(http(address, "POST", "/v1/leases/a:acquire", wait).await.0, 408);
    assert_eq!(http(address, "GET", "/v1/leases/a", "").await.0, 200);
    assert_eq!(http(address, "GET", "/v1/leases/none", "").await.0, 404);
    let token = format!(r#"{{"token":"{}"}}"#, field(&granted, "token"));
    assert_eq!(http(address, "POST", "/v1/leases/a:release", &token).await.0, 200);
    let text = scrape(address).await;
    let requests = |operation: &str, code: &str| {
        value(&text, &format!(r#"leasehold_request_seconds_count{{operation="{operation}",code="{code}"}}"#))
    };
    assert_eq!(
        (requests("acquire", "OK"), requests("acquire", "BUSY"), requests("acquire", "TIMEOUT")),
        (1.0, 1.0, 1.0)
    );
    assert_eq!((requests("show", "OK"), requests("release", "OK")), (2.0, 1.0), "a missing resource is an answer");
    let waited = value(&text, r#"leasehold_wait_seconds_sum{code="TIMEOUT"}"#);
    assert!(waited > 0.0, "{waited}");
    let latency = value(&text, r#"leasehold_request_seconds_sum{operation="acquire",code="TIMEOUT"}"#);
    assert!(latency >= 0.0, "{latency}");
    assert_eq!(value(&text, "leasehold_leases_granted_total"), 1.0);
    let held = value(&text, r#"leasehold_lease_held_seconds_total{state="released",reason="released"}"#);
    assert!((0.02..60.0).contains(&held), "it was held during the wait: {held}");
    assert!(value(&text, "process_resident_memory_bytes") > 1e6 && value(&text, "process_open_fds") >= 3.0);
    assert!(value(&text, "process_cpu_seconds_total") > 0.0 && value(&text, "process_start_time_seconds") > 1.6e9);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_renewals_are_counted_separately() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    let address = server.address;
    let acquire = r#"{"holder":"w1","ttl":"60s"}"#;
    let (_, granted) = http(address, "POST", "/v1/leases/a:acquire", acquire).await;
    let token = format!(r#"{{"token":"{}"}}"#, field(&granted, "token"));
    assert_eq!(http(address, "POST", "/v1/leases/a:release", &token).await.0, 200);
    assert_eq!(http(address, "POST", "/v1/leases/a:release", &token).await.0, 410, "the lease ended");
    let before = scrape(address).await;
    let released = r#"leasehold_renewals_refused_total{reason="released"}"#;
    assert_eq!(value(&before, released), 0.0, "a release is not a renewal");
    assert_eq!(http(address, "POST", "/v1/leases/a:renew", &token).await.0, 410);
    let after = scrape(address).await;
    assert_eq!(value(&after, released), 1.0);
    assert_eq!(value(&after, r#"leasehold_requests_refused_total{code="LEASE_LOST"}"#), 2.0);
    assert_eq!(value(&after, r#"leasehold_leases_ended_total{state="released",reason="released"}"#), 1.0);
    assert_eq!(value(&after, r#"leasehold_leases_ended_total{state="revoked",reason="operator"}"#), 0.0);
    assert!(value(&after, "leasehold_connections") >= 1.0, "at least the scraping connection");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_progress_and_positions_are_exported() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    let address = server.address;
    let progress = r#"{"holder":"w1","ttl":"60s","progress":"60s"}"#;
    assert_eq!(http(address, "POST", "/v1/leases/a:acquire", progress).await.0, 200);
    assert_eq!(http(address, "POST", "/v1/leases/b:acquire", r#"{"holder":"w","ttl":"60s","units":7}"#).await.0, 429);
    let text = scrape(address).await;
    assert_eq!(value(&text, r#"leasehold_limits_reached_total{limit="units"}"#), 1.0);
    let age = value(&text, "leasehold_progress_age_seconds");
    assert!((0.0..60.0).contains(&age), "{age}");
    let before = value(&text, "leasehold_journal_position");
    assert_eq!(http(address, "POST", "/v1/leases/c:acquire", r#"{"holder":"w","ttl":"60s"}"#).await.0, 200);
    assert!(value(&scrape(address).await, "leasehold_journal_position") > before);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_clock_skew_is_measured_when_a_session_opens() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    let address = format!("http://{}", server.address);
    let channel =
        Endpoint::from_shared(address).expect("the address is valid").connect().await.expect("the server listens");
    assert_eq!(value(&scrape(server.address).await, "leasehold_holder_clock_skew_seconds"), 0.0);
    for hours in [1, -2] {
        let wall_ms = leasehold_server::clock::now().wall.0.saturating_add_signed(hours * 3_600_000);
        let open = v1::OpenSession { holder: "w1".into(), ttl_ms: 60_000, waits_only: false };
        let hello =
            v1::Hello { protocol: 1, wall_ms, session: Some(v1::hello::Session::Open(open)), ..Default::default() };
        let first = v1::ClientBatch { hello: Some(hello), ..Default::default() };
        let batches = futures::stream::iter([first]);
        let answer = LeaseholdClient::new(channel.clone()).session(batches).await.expect("the hello is valid");
        assert!(
            answer
                .into_inner()
                .message()
                .await
                .expect("the stream is open")
                .is_some_and(|batch| batch.welcome.is_some())
        );
    }
    let skew = value(&scrape(server.address).await, "leasehold_holder_clock_skew_seconds");
    assert!((-7_200.5..-7_100.0).contains(&skew), "the larger of the two: {skew}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_with_a_clock_behind_the_journal_is_counted_and_serves() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let location = || Directory::new(folder.path().join("journal"));
    // The year 2100: the clock of the writer was wrong, or this machine's is.
    let future = Now { instant: Instant::from_millis(1_000), wall: WallClock(4_102_444_800_000) };
    let mut journal = location().open(&mut ReplayedState::default()).await.expect("a new journal opens").journal;
    let options = TenureOptions {
        cluster: Cluster(*b"the-year"),
        incarnation: Incarnation(1),
        generation: journal.generation(),
        validity: Validity::Session,
        max_ttl: 600_000,
        restore: None,
    };
    let mut grantor = RecoveredGrantor::empty(7).open(future, &options).expect("a new cluster starts");
    let mut output = Output::default();
    grantor.take_output(&mut output);
    assert_eq!(poll_ready(journal.append(journal.next(), &output.batch)), Ok(AppendOutcome::Durable));
    let counter = grantor.status().counter;
    drop(journal);

    let server = start(location(), free_port_config()).await.expect("the server starts");
    let text = scrape(server.address).await;
    assert_eq!(value(&text, r#"leasehold_clock_steps_total{direction="back"}"#), 1.0);
    assert!(value(&text, "leasehold_clock_step_seconds") < -1_000_000_000.0);
    let (status, granted) = http(server.address, "POST", "/v1/leases/a:acquire", r#"{"holder":"w","ttl":"60s"}"#).await;
    assert_eq!(status, 200, "{granted}");
    assert!(
        field(&granted, "token_number").parse::<u64>().expect("the token number is a number") > counter,
        "token numbers keep increasing"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holes_in_coverage_are_counted_by_kind() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    let address = server.address;
    let hole = |text: &str, kind: &str| value(text, &format!(r#"leasehold_coverage_holes{{hole="{kind}"}}"#));
    let charter = r#"{"charter":{"targets":[{"name":"ledger","at":"the ledger","mode":"forced"},
        {"name":"printer","at":"the printer","mode":"none"}]},"comment":"a test"}"#;
    assert_eq!(http(address, "PUT", "/v1/charters/jobs", charter).await.0, 200);
    let before = scrape(address).await;
    assert_eq!(
        (hole(&before, "never_reported"), hole(&before, "unfenced"), hole(&before, "undeclared")),
        (1.0, 1.0, 0.0)
    );
    assert!(!before.contains("no_target"), "a lease without declared targets is not counted");
    let (_, cluster) = http(address, "GET", "/v1/status", "").await;
    let cluster = field(&cluster, "cluster");
    let report = |target: &str, mode: &str| {
        format!(
            r#"{{"cluster":"{cluster}","reports":[{{"resource":"jobs/a","target":"{target}","mode":"{mode}","checks":1}}]}}"#
        )
    };
    assert_eq!(http(address, "POST", "/v1/coverage", &report("ledger", "cooperative")).await.0, 200);
    assert_eq!(http(address, "POST", "/v1/coverage", &report("queue", "forced")).await.0, 200);
    let after = scrape(address).await;
    let found = ["never_reported", "weaker", "undeclared", "no_mode", "unfenced"].map(|kind| hole(&after, kind));
    assert_eq!(found, [0.0, 1.0, 1.0, 0.0, 1.0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_the_last_complete_backup_is_exported() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    let address = server.address;
    assert_eq!(value(&scrape(address).await, "leasehold_last_backup_timestamp_seconds"), 0.0);
    let channel = Endpoint::from_shared(format!("http://{address}")).expect("the address is valid");
    let channel = channel.connect().await.expect("the server listens");
    let started = leasehold_server::clock::now().wall.0 as f64 / 1_000.0;
    let mut chunks =
        LeaseholdClient::new(channel).backup(v1::BackupRequest {}).await.expect("a backup starts").into_inner();
    while chunks.message().await.expect("the backup continues").is_some() {}
    let taken = value(&scrape(address).await, "leasehold_last_backup_timestamp_seconds");
    assert!((started..started + 600.0).contains(&taken), "started at {started}, taken at {taken}");
    server.stop().await;
}
