//! The figures of a really started server: each stands on its page, and each counts what the page says.

mod http_client;
mod snapshot_support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use http_client::{field, http, on_a_free_port};
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
use snapshot_support::{Folded, now};
use tonic::transport::Endpoint;

async fn figures(at: SocketAddr) -> String {
    let (status, text) = http(at, "GET", "/metrics", "").await;
    assert_eq!(status, 200, "{text}");
    text
}

/// The value of one figure, with its labels.
#[track_caller]
fn value(figures: &str, name: &str) -> f64 {
    let found = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{name} is not told: {figures}")).parse().expect("a number")
}

/// Each figure that is told: its name, its type and the names of its labels.
fn told(figures: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut told = BTreeMap::new();
    for line in figures.lines() {
        let Some((base, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else { continue };
        let name = match kind {
            "counter" => format!("{base}_total"),
            "info" => format!("{base}_info"),
            _ => base.to_owned(),
        };
        let samples = figures.lines().filter_map(|line| line.strip_prefix(&name)?.strip_prefix('{'));
        let labels = samples.filter_map(|rest| rest.split_once('}')).flat_map(|(labels, _)| labels.split("\","));
        let labels = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned())).collect();
        told.insert(name, (kind.to_owned(), labels));
    }
    told
}

/// The same from the page.
fn written() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, _unit, means, _alert] = cells[..] else { panic!("not six cells: {line}") };
        assert!(!means.is_empty(), "{name} means nothing");
        let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (name.trim_matches('`').to_owned(), (kind.to_owned(), labels))
    };
    rows.map(row).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_figure_stands_on_the_page_and_back() {
    let running = start(Memory::default(), on_a_free_port()).await.expect("a server on a free port starts");
    let figures = figures(running.address).await;
    let samples = figures.lines().filter(|line| !line.starts_with('#'));
    assert!(samples.into_iter().all(|line| line.starts_with("leasehold_")), "{figures}");
    assert_eq!(told(&figures), written());
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for page in ["how-to/monitor-and-alert.md", "how-to/debug-a-lost-lease.md", "explanation/failure-modes.md"] {
        let page = std::fs::read_to_string(documents.join(page)).expect("the page is there");
        for name in page.split('`').filter(|word| word.starts_with("leasehold_")) {
            assert!(
                written().contains_key(name.split(['{', ' ', '[']).next().unwrap_or_default()),
                "{name} is no figure"
            );
        }
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_are_counted_apart_from_what_else_is_refused() {
    let running = start(Memory::default(), on_a_free_port()).await.expect("a server on a free port starts");
    let at = running.address;
    let acquire = r#"{"holder":"w1","ttl":"60s"}"#;
    let (_, granted) = http(at, "POST", "/v1/leases/a:acquire", acquire).await;
    let token = format!(r#"{{"token":"{}"}}"#, field(&granted, "token"));
    assert_eq!(http(at, "POST", "/v1/leases/a:release", &token).await.0, 200);
    assert_eq!(http(at, "POST", "/v1/leases/a:release", &token).await.0, 410, "it is over");
    let before = figures(at).await;
    let released = r#"leasehold_renewals_refused_total{reason="released"}"#;
    assert_eq!(value(&before, released), 0.0, "a release is no renewal");
    assert_eq!(http(at, "POST", "/v1/leases/a:renew", &token).await.0, 410);
    let after = figures(at).await;
    assert_eq!(value(&after, released), 1.0);
    assert_eq!(value(&after, r#"leasehold_requests_refused_total{code="LEASE_LOST"}"#), 2.0);
    assert_eq!(value(&after, r#"leasehold_leases_ended_total{state="expired",reason="released"}"#), 1.0);
    assert_eq!(value(&after, r#"leasehold_leases_ended_total{state="revoked",reason="operator"}"#), 0.0);
    assert!(value(&after, "leasehold_connections") >= 1.0, "the one that asks");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_and_progress_and_positions_are_told() {
    let running = start(Memory::default(), on_a_free_port()).await.expect("a server on a free port starts");
    let at = running.address;
    let progress = r#"{"holder":"w1","ttl":"60s","progress":"60s"}"#;
    assert_eq!(http(at, "POST", "/v1/leases/a:acquire", progress).await.0, 200);
    assert_eq!(http(at, "POST", "/v1/leases/b:acquire", r#"{"holder":"w","ttl":"60s","units":7}"#).await.0, 429);
    let text = figures(at).await;
    assert_eq!(value(&text, r#"leasehold_limits_reached_total{limit="units"}"#), 1.0);
    let age = value(&text, "leasehold_progress_age_seconds");
    assert!((0.0..60.0).contains(&age), "{age}");
    let before = value(&text, "leasehold_journal_position");
    assert_eq!(http(at, "POST", "/v1/leases/c:acquire", r#"{"holder":"w","ttl":"60s"}"#).await.0, 200);
    assert!(value(&figures(at).await, "leasehold_journal_position") > before);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_of_a_holder_is_compared_when_its_session_opens() {
    let running = start(Memory::default(), on_a_free_port()).await.expect("a server on a free port starts");
    let address = format!("http://{}", running.address);
    let channel = Endpoint::from_shared(address).expect("an address").connect().await.expect("the server listens");
    assert_eq!(value(&figures(running.address).await, "leasehold_holder_clock_skew_seconds"), 0.0);
    for hours in [1, -2] {
        let wall_ms = leasehold_server::clock::now().wall.0.saturating_add_signed(hours * 3_600_000);
        let open = v1::OpenSession { holder: "w1".into(), ttl_ms: 60_000, waits_only: false };
        let hello =
            v1::Hello { protocol: 1, wall_ms, session: Some(v1::hello::Session::Open(open)), ..Default::default() };
        let first = v1::ClientBatch { hello: Some(hello), ..Default::default() };
        let batches = futures::stream::iter([first]);
        let answer = LeaseholdClient::new(channel.clone()).session(batches).await.expect("a good hello");
        assert!(answer.into_inner().message().await.expect("a stream").is_some_and(|told| told.welcome.is_some()));
    }
    let skew = value(&figures(running.address).await, "leasehold_holder_clock_skew_seconds");
    assert!((-7_200.5..-7_100.0).contains(&skew), "the farther of the two: {skew}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_with_a_clock_before_the_last_record_is_told_and_serves() {
    let folder = tempfile::tempdir().expect("a directory");
    let place = || Directory::new(folder.path().join("journal"));
    // The year 2100: whoever wrote this had a clock that was wrong, or ours is.
    let then = Now { instant: Instant::from_millis(1_000), wall: WallClock(4_102_444_800_000) };
    let mut journal = place().open(&mut Folded::default()).await.expect("a new journal").journal;
    let opening = TenureOptions {
        cluster: Cluster(*b"the-year"),
        incarnation: Incarnation(1),
        generation: journal.generation(),
        validity: Validity::Session,
        max_ttl: 600_000,
        restore: None,
    };
    let mut grantor = RecoveredGrantor::empty(7).open(then, &opening).expect("a new cluster");
    let mut output = Output::default();
    grantor.take_output(&mut output);
    assert_eq!(now(journal.append(journal.next(), &output.batch)), Ok(AppendOutcome::Durable));
    let counter = grantor.status().counter;
    drop(journal);

    let running = start(place(), on_a_free_port()).await.expect("it serves all the same");
    let text = figures(running.address).await;
    assert_eq!(value(&text, r#"leasehold_clock_steps_total{direction="back"}"#), 1.0);
    assert!(value(&text, "leasehold_clock_step_seconds") < -1_000_000_000.0);
    let (status, granted) =
        http(running.address, "POST", "/v1/leases/a:acquire", r#"{"holder":"w","ttl":"60s"}"#).await;
    assert_eq!(status, 200, "{granted}");
    assert!(field(&granted, "token_number").parse::<u64>().expect("a number") > counter, "numbers go on");
    running.stop().await;
}
