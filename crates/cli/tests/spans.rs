//! Spans of `leasehold serve` at a collector, and the trace that commands name in `TRACEPARENT`.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_testkit::collector::{CollectorStub, StatusCode};
use leasehold_testkit::etcd::EtcdCluster;
use support::{Server, TEST_TIMEOUT, leasehold, run, text};
use tempfile::TempDir;

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_ID: &str = "00f067aa0ba902b7";

fn traceparent() -> String {
    format!("00-{TRACE_ID}-{PARENT_ID}-01")
}

/// A server with a journal in this directory.
fn serve(data: &TempDir, flags: &[&str]) -> Command {
    let mut command = leasehold(&["serve", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(data.path().join("journal")).args(flags);
    command
}

fn start(flags: &[&str]) -> Server {
    let data = tempfile::tempdir().expect("a directory");
    Server::spawn(&mut serve(&data, flags), data)
}

fn acquire_traced(server: &Server, resource: &str) -> String {
    let args = ["acquire", resource, "--holder", "worker-1", "--ttl", "60s", "--json"];
    text(&run(server.command(&args).env("TRACEPARENT", traceparent())).ok().json()["token"])
}

#[test]
fn a_hold_that_outlives_a_killed_server_gives_one_span_and_the_audit_log_verifies() {
    let collector = CollectorStub::start();
    let data = tempfile::tempdir().expect("a directory");
    let url = collector.url();
    let flags = ["--otlp-endpoint", &*url];
    let mut first = Server::spawn(&mut serve(&data, &flags), tempfile::tempdir().expect("a directory"));
    assert!(first.find_log("exporting spans to").contains(&url));
    let token = acquire_traced(&first, "jobs/settle");
    first.signal("KILL");
    first.wait();
    assert_eq!(collector.spans().len(), 0, "it is still held");
    let second = Server::spawn(&mut serve(&data, &flags), tempfile::tempdir().expect("a directory"));
    second.run(&["release", "jobs/settle", "--token", &token]).ok();
    let [span] = &collector.wait_for_spans(1)[..] else { panic!("one span") };
    assert_eq!((&*span.trace_id, &*span.parent_span_id), (TRACE_ID, PARENT_ID));
    assert_eq!((span.attribute("leasehold.end_reason"), span.status), ("released", StatusCode::Unset));
    let history = second.run(&["history", "jobs/settle", "--json"]).ok();
    assert_eq!(history.out.matches(&format!("\"traceparent\":\"{}\"", traceparent())).count(), 1, "{}", history.out);
    second.run(&["audit", "verify"]).ok();
    second.signal("TERM");
}

#[test]
fn a_command_that_runs_under_a_lease_belongs_to_the_trace_of_its_wrapper() {
    let collector = CollectorStub::start();
    let server = start(&["--otlp-endpoint", &collector.url()]);
    let mut wrapped = server.command(&["run", "jobs/settle", "--", "sh", "-c", "echo $TRACEPARENT"]);
    let printed = run(wrapped.env("TRACEPARENT", traceparent())).ok();
    assert_eq!(printed.out.trim(), traceparent(), "the command gets it too");
    let [span] = &collector.wait_for_spans(1)[..] else { panic!("one span") };
    assert_eq!((&*span.trace_id, &*span.parent_span_id), (TRACE_ID, PARENT_ID));
    let history = server.run(&["history", "--json"]).ok();
    // The session, its lease, and the end of both.
    assert!(history.out.matches(&traceparent()).count() >= 3, "{}", history.out);
    let mut invalid = server.command(&["acquire", "jobs/b", "--holder", "w", "--ttl", "60s"]);
    run(invalid.env("TRACEPARENT", "nonsense")).ok();
}

#[test]
fn the_standard_variables_of_opentelemetry_are_respected() {
    let collector = CollectorStub::start();
    let data = tempfile::tempdir().expect("a directory");
    let mut command = serve(&data, &[]);
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/base/", collector.url()))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=a%20b")
        .env("OTEL_SERVICE_NAME", "locks")
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=not-this");
    let server = Server::spawn(&mut command, data);
    let token = server.acquire("jobs/settle", "worker-1");
    server.run(&["release", "jobs/settle", "--token", &token]).ok();
    let [span] = &collector.wait_for_spans(1)[..] else { panic!("one span") };
    assert_eq!(span.resource["service.name"], "locks");
    assert_eq!(span.resource["deployment.environment.name"], "test");
    let exports = collector.exports();
    assert_eq!((&*exports[0].path, exports[0].header("x-api-key")), ("/base/v1/traces", Some("a b")));
}

#[test]
fn settings_override_the_variables_and_headers_come_from_a_private_file() {
    let (collector, other) = (CollectorStub::start(), CollectorStub::start());
    let data = tempfile::tempdir().expect("a directory");
    let headers = data.path().join("headers");
    std::fs::write(&headers, "# of the vendor\nAuthorization: Bearer secret\n").expect("the file is writable");
    std::fs::set_permissions(&headers, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    let config = data.path().join("leasehold.toml");
    let settings = format!("otlp_endpoint = {:?}\notlp_headers_file = {headers:?}\n", collector.url());
    std::fs::write(&config, settings).expect("the file is writable");
    let config = config.to_str().expect("a UTF-8 path").to_owned();
    let mut command = serve(&data, &["--config", &config]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", other.url()).env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=no");
    let server = Server::spawn(&mut command, data);
    let token = server.acquire("jobs/settle", "worker-1");
    server.run(&["release", "jobs/settle", "--token", &token]).ok();
    collector.wait_for_spans(1);
    assert_eq!(collector.exports()[0].header("authorization"), Some("Bearer secret"));
    assert_eq!(other.connections(), 0);
    server.signal("TERM");
    let mut server = server;
    server.wait();
    assert!(!server.all_log_lines().iter().any(|line| line.contains("secret")), "a header is never logged");
}

#[test]
fn a_wrong_setting_stops_the_start_with_its_name_and_the_next_step() {
    let folder = tempfile::tempdir().expect("a directory");
    let headers = folder.path().join("headers");
    std::fs::write(&headers, "x-api-key: secret\n").expect("the file is writable");
    std::fs::set_permissions(&headers, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    let headers = headers.to_str().expect("a UTF-8 path");
    let refused = |flags: &[&str], variables: &[(&str, &str)], code: &str, next_step: &str| {
        let data = tempfile::tempdir().expect("a directory");
        let mut command = serve(&data, flags);
        command.envs(variables.iter().copied());
        let refused = run(&mut command);
        assert!(refused.err.contains(code) && refused.err.contains(next_step), "{flags:?}: {refused:?}");
        assert!(refused.exit != 0 && !refused.err.contains("secret"), "{refused:?}");
    };
    let local = ["--otlp-endpoint", "http://127.0.0.1:4318"];
    refused(&["--otlp-endpoint", "collector:4318"], &[], "--otlp-endpoint", "write, for example");
    refused(&["--otlp-endpoint", "https://127.0.0.1:4318"], &[], "CONFIG{otlp_ca}", "set it to the CA certificates");
    refused(&["--otlp-headers-file", headers], &[], "CONFIG{otlp_headers_file}", "set otlp_endpoint too");
    refused(&[&local[..], &["--otlp-headers-file", headers]].concat(), &[], "CONFIG{otlp_headers_file}", "chmod 0600");
    let variable = "OTEL_EXPORTER_OTLP_ENDPOINT";
    refused(&[], &[(variable, "collector")], "CONFIG{OTEL_EXPORTER_OTLP_ENDPOINT}", "write, for example");
    let protocol = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    refused(&local, &protocol, "CONFIG{OTEL_EXPORTER_OTLP_PROTOCOL}", "set it to http/protobuf");
    let headers = [("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=secret")];
    let remote = ["--otlp-endpoint", "http://collector.example:4318"];
    refused(&remote, &headers, "CONFIG{OTEL_EXPORTER_OTLP_HEADERS}", "use https://");
}

#[test]
fn a_hold_that_outlives_a_failover_gives_one_span_from_the_new_leader() {
    let collector = CollectorStub::start();
    let etcd = EtcdCluster::single();
    let (journal, url) = (format!("etcd://{}/cluster", etcd.endpoints().join(",")), collector.url());
    let start = |name: &str| {
        let data = etcd.dir().join(name);
        let data = data.to_str().expect("a UTF-8 path");
        let flags = ["--journal", &journal, "--listen", "127.0.0.1:0", "--data", data, "--etcd-lease", "2"];
        Server::with_flags(&[&flags[..], &["--otlp-endpoint", &url]].concat())
    };
    let mut first = start("first");
    first.find_log("serving on");
    let second = start("second");
    let token = acquire_traced(&first, "jobs/settle");
    first.signal("KILL");
    first.wait();
    second.find_log("serving on");
    second.run(&["release", "jobs/settle", "--token", &token]).ok();
    let [span] = &collector.wait_for_spans(1)[..] else { panic!("one span") };
    assert_eq!((&*span.trace_id, &*span.parent_span_id), (TRACE_ID, PARENT_ID));
    assert_eq!(span.resource["service.instance.id"], second.address);
}

/// Runs a server while a lease is granted and released; returns the file in which a tracer lists its calls of `connect`.
fn trace_connections(folder: &TempDir, flags: &[&str]) -> std::path::PathBuf {
    let calls = folder.path().join(format!("calls-{}", flags.len()));
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect", "-o"]).arg(&calls);
    command.arg(env!("CARGO_BIN_EXE_leasehold")).args(["serve", "--listen", "127.0.0.1:0", "--ephemeral"]).args(flags);
    command.env("OTEL_SERVICE_NAME", "locks").env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
    let mut server = Server::spawn(&mut command, tempfile::tempdir().expect("a directory"));
    let token = acquire_traced(&server, "jobs/settle");
    server.run(&["release", "jobs/settle", "--token", &token]).ok();
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    calls
}

#[test]
fn a_server_without_a_collector_connects_to_nothing() {
    let folder = tempfile::tempdir().expect("a directory");
    let collector = CollectorStub::start();
    let calls = |flags: &[&str]| trace_connections(&folder, flags);
    let (without, with) = (calls(&[]), calls(&["--otlp-endpoint", &collector.url()]));
    let read = |file: &std::path::Path| std::fs::read_to_string(file).expect("the tracer created it");
    let port = format!("htons({})", collector.address().port());
    // The tracer may write after the server has ended.
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !read(&with).contains(&port) {
        assert!(Instant::now() < deadline, "{}", read(&with));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!read(&without).contains("AF_INET"), "{}", read(&without));
}
