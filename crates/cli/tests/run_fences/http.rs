//! `--fence http://…`: a forwarder that adds the token to the requests of an unchanged program.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::IntoResponse;
use leasehold_testkit::process::TestProcess;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::RESOURCE;
use crate::harness::{Fixture, WrapperProcess};
use crate::support::{CommandRun, leasehold, run, spawn_piped, text};

/// A service that replies with what it received. It has no fence.
async fn service() -> SocketAddr {
    async fn reply(method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
        let headers: Vec<Value> =
            headers.iter().map(|(name, value)| json!([name.as_str(), value.to_str().unwrap()])).collect();
        let body = String::from_utf8_lossy(&body).into_owned();
        let received = json!({ "method": method.as_str(), "uri": uri.to_string(), "headers": headers, "body": body });
        let status = if uri.path() == "/-/claim" { StatusCode::NOT_FOUND } else { StatusCode::ACCEPTED };
        (status, [("x-service", "own")], received.to_string())
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(reply)).await });
    address
}

/// `leasehold fence http` in front of a service.
struct Proxy {
    url: String,
    _process: TestProcess,
    _dir: tempfile::TempDir,
}

impl Proxy {
    fn start(fixture: &Fixture, upstream: SocketAddr) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let marks = dir.path().join("settle.marks");
        let (marks, upstream) = (marks.to_str().expect("plain"), format!("http://{upstream}"));
        let cluster = text(&fixture.server.json(&["status"])["cluster"]);
        let args = ["fence", "http", "--upstream", &upstream, "--resource", RESOURCE, "--marks", marks, "--arm"];
        let more = ["--cluster", &cluster, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
        let process = TestProcess::from(spawn_piped(&mut leasehold(&[&args[..], &more].concat())));
        let output = process.stderr().wait_for_rest("fencing on ");
        let url = format!("http://{}", output.split(',').next().expect("an address"));
        Self { url, _process: process, _dir: dir }
    }
}

fn run_script(fixture: &Fixture, fences: &[&str], script: &str) -> CommandRun {
    let mut args = vec!["run", RESOURCE];
    args.extend(fences.iter().flat_map(|fence| ["--fence", fence]));
    args.extend(["--", "sh", "-c", script]);
    run(fixture.command(&args).env_remove("HTTP_PROXY").env_remove("http_proxy"))
}

/// Values of a header that the service received.
fn received<'a>(reply: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = reply["headers"].as_array().expect("headers").iter();
    headers.filter(|header| header[0] == name).filter_map(|header| header[1].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_forwarder_adds_the_token_and_passes_everything_else_through() {
    let (fixture, address) = (Fixture::new(), service().await);
    let proxy = Proxy::start(&fixture, address);
    let script = "curl -sS -i -X PUT -H 'Lease-Token: forged' -H 'lease_token: forged' -H 'Lease_Token: again' -H 'X-Own: 1' -H 'Transfer-Encoding: chunked' -d 'a body' \
                  \"$LEASEHOLD_FENCE_URL/orders/7?x=%20y\"; echo; echo \"$LEASEHOLD_TOKEN\"";
    let output = run_script(&fixture, &[&proxy.url], script).ok();
    assert_eq!(output.err, "");
    let (head, rest) = output.out.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 202") && head.contains("x-service: own"), "{head}");
    let (body, token) = rest.trim().split_once('\n').expect("body and token");
    let reply: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(
        (&reply["method"], &reply["uri"], &reply["body"]),
        (&json!("PUT"), &json!("/orders/7?x=%20y"), &json!("a body"))
    );
    assert_eq!(received(&reply, "lease-token"), [token]);
    assert_eq!(received(&reply, "lease_token"), [""; 0], "CGI reads it as the same header");
    assert_eq!(received(&reply, "x-own"), ["1"]);
    assert_eq!(received(&reply, "host"), [proxy.url.trim_start_matches("http://")], "the name of the service");
    let without = format!("curl -sS -o /dev/null -w '%{{http_code}}' -X PUT -d x {}/orders", proxy.url);
    assert_eq!(run_script(&fixture, &[], &without).ok().out, "400", "the fence refuses a request without a token");
    fixture.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_late_request_of_an_unchanged_program_is_refused_by_the_fence() {
    let (fixture, address) = (Fixture::new(), service().await);
    let proxy = Proxy::start(&fixture, address);
    let post = "curl -sS -X POST -d paid \"$LEASEHOLD_FENCE_URL/orders\"";
    let script = format!("{post}; echo first; read line; {post}; echo late");
    // It outlives its lease, so that only the fence can stop it.
    let args = ["run", RESOURCE, "--on-lost", "warn", "--fence", &proxy.url, "--", "sh", "-c", &script];
    let mut first = WrapperProcess::start(&mut fixture.command(&args));
    first.wait_text("first");
    fixture.server.run(&["revoke", RESOURCE, "--comment", "a test"]).ok();
    let successor = run_script(&fixture, &[&proxy.url], "true");
    successor.ok();
    first.write_stdin("go on\n");
    let refused = first.wait_line("{");
    assert!(refused.contains("STALE_TOKEN"), "{refused}");
    first.wait_exit();
    fixture.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_claims_gets_a_warning_and_several_services_get_a_variable_each() {
    let (fixture, address) = (Fixture::new(), service().await);
    let proxy = Proxy::start(&fixture, address);
    let plain = format!("http://{address}");
    let script =
        "echo \"$LEASEHOLD_FENCE_URL\"; echo \"$LEASEHOLD_FENCE_URL_2\"; curl -sS \"$LEASEHOLD_FENCE_URL_2/x\"";
    let output = run_script(&fixture, &[&proxy.url, &plain], script).ok();
    assert!(output.err.contains("has no endpoint for claims") && output.err.contains(&plain), "{output:?}");
    let lines: Vec<&str> = output.out.lines().collect();
    assert!(lines[..2].iter().all(|url| url.starts_with("http://127.0.0.1:")) && lines[0] != lines[1], "{lines:?}");
    let reply: Value = serde_json::from_str(lines[2]).expect("JSON");
    assert_eq!(received(&reply, "lease-token").len(), 1);

    fixture.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_without_a_fence_is_named_with_a_next_step_before_the_command_starts() {
    let fixture = Fixture::new();
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = other.local_addr().expect("an address").to_string();
    // A server of another protocol.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = other.accept().await {
            let _ = stream.write_all(b"-ERR unknown command\r\n").await;
        }
    });
    for address in ["127.0.0.1:1", &address] {
        let stopped =
            run_script(&fixture, &[&format!("http://{address}")], "echo ran").fails(5, "leasehold: UNAVAILABLE: ");
        let named = format!("{address} did not answer over HTTP");
        assert!(stopped.err.contains(&named) && stopped.err.contains("leasehold fence http"), "{stopped:?}");
        assert_eq!(stopped.out, "");
    }
    // A page larger than any reply of a fence is the response of a service without claims.
    let large = Router::new().fallback(|| async { (StatusCode::NOT_FOUND, "x".repeat(200_000)) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, large).await });
    let warned = run_script(&fixture, &[&url], "echo ran").ok();
    assert!(warned.err.contains("has no endpoint for claims"), "{warned:?}");
    fixture.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_and_another_user_cannot_write_with_the_token() {
    let (fixture, address) = (Fixture::new(), service().await);
    let proxy = Proxy::start(&fixture, address);
    let status =
        |options: &str| format!("curl -sS -o /dev/null -w '%{{http_code}}\\n' {options} -d x \"$LEASEHOLD_FENCE_URL\"");
    let script = [
        status(""),
        status("-H 'Origin: http://evil.example'"),
        status("-H 'Sec-Fetch-Site: cross-site'"),
        status("-H 'Host: rebound.example'"),
        status("-H 'Host:'"),
        status("--http1.0 -H 'Host:'"),
    ];
    let output = run_script(&fixture, &[&proxy.url], &script.join(";")).ok();
    assert_eq!(output.out.lines().collect::<Vec<_>>(), ["202", "403", "403", "403", "400", "202"]);
    if rustix::process::geteuid().is_root() {
        let other = format!(
            "setpriv --reuid=65534 --clear-groups sh -c '{}'",
            status("").replace('\'', "\"").replace("\\n", "")
        );
        let refused = run_script(&fixture, &[&proxy.url], &other);
        assert!(refused.exit != 0 && !refused.out.contains("202"), "{refused:?}");
    }
}
