//! Invalid HTTP requests: paths, methods, queries, headers and JSON bodies.

use std::net::SocketAddr;

use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerConfig, start};
use leasehold_wire::v1::leasehold_client::LeaseholdClient;
use leasehold_wire::{problem_from_status, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;

use crate::test_server::{ExpectedRefusal, refusal, start_server};
use crate::transport_clients::HttpConnection;

const ACQUIRE: &str = "POST /v1/leases/jobs/a:acquire";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_body_is_refused() {
    let nested = format!(r#"{{"holder":{}1{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let nested_deeper = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    let body = |field, message| refusal("INVALID_ARGUMENT", field, message);
    let table: Vec<(&str, &str, ExpectedRefusal)> = vec![
        ("not JSON", "holder=w", body("body", "not an object")),
        ("an array", "[]", body("body", "not an object")),
        ("truncated", r#"{"holder":"w""#, body("body", "ends too early")),
        ("two bodies", r#"{"holder":"w"}{}"#, body("body", "characters after its end")),
        ("one key twice", r#"{"holder":"w","holder":"v","ttl":"60s"}"#, body("holder", "duplicate field")),
        ("an unknown key", r#"{"holder":"w","ttl":"60s","owner":"v"}"#, body("owner", "unknown field")),
        ("a key without a name", r#"{"holder":"w","ttl":"60s","":"v"}"#, body("body", "body: unknown field ``")),
        ("ten thousand nested arrays", &nested, body("holder", "")),
        ("ten thousand nested objects", &nested_deeper, body("a", "")),
        ("a number above the range of floats", r#"{"holder":"w","units":1e400}"#, body("units", "")),
        ("minus zero", r#"{"holder":"w","units":-0}"#, body("units", "")),
        ("more than 2^53", r#"{"holder":"w","units":9007199254740993}"#, body("units", "")),
        ("a fraction", r#"{"holder":"w","units":1.5}"#, body("units", "")),
        ("a string for a number", r#"{"holder":"w","units":"1"}"#, body("units", "")),
        ("NaN", r#"{"holder":"w","units":NaN}"#, body("units", "")),
        ("half a surrogate pair", r#"{"holder":"\ud800"}"#, body("holder", "")),
    ];
    let mut server = start_server().await;
    for (case, text, mut expected) in table {
        expected.unknown_field = ["owner", "a"].contains(&expected.field);
        if case == "minus zero" {
            // serde reads it as a float, which is not a number of units.
            expected.message = "units";
        }
        server.http_refuses(case, ACQUIRE, "", text, expected).await;
    }
    let token = server.acquire_lease("jobs/p", 60_000).await.token;
    let exact = format!(r#"{{"token":"{token}","progress":9007199254740993}}"#);
    let renew = "POST /v1/leases/jobs/p:renew";
    server.http_refuses("a large number without quotes", renew, "", &exact, body("progress", "string")).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_body_about_a_session_a_queue_or_a_cached_key_is_refused() {
    let field = |field, message| refusal("INVALID_ARGUMENT", field, message);
    let decimal = "must be a text of decimal digits";
    let table = [
        ("POST /v1/sessions/1.0:renew", r#"{"held":{"count":1,"digest":"x"}}"#, field("digest", decimal)),
        ("POST /v1/sessions/1.0:reconcile", r#"{"leases":["seventeen"]}"#, field("leases", "not an id")),
        ("POST /v1/sessions/1.0:reconcile", r#"{"leases":[],"from":"x"}"#, field("from", "not an id")),
        ("POST /v1/sessions/1.0:cancel", r#"{"sequence":"-1"}"#, field("sequence", decimal)),
        ("POST /v1/sessions/1.0:cancel", "{}", field("sequence", "missing field")),
        (
            "POST /v1/leases:acquire_all",
            r#"{"resources":[{"resource":"a","shared":true,"slot":true}]}"#,
            field("shared", "only one"),
        ),
        ("POST /v1/leases:renew", r#"{"session":"x","leases":[]}"#, field("session", "not an id")),
        ("POST /v1/leases:renew", r#"{"session":"1.0","leases":[]}"#, field("leases", "1 to 1000")),
        (
            "POST /v1/leases:renew",
            r#"{"session":"1.0","leases":[{"lease":"1","token_number":"1"}]}"#,
            field("lease", "not an id"),
        ),
        ("POST /v1/leases/a:progress", r#"{"progress":"1e3"}"#, field("progress", decimal)),
        ("POST /v1/leases/a:put", r#"{"key":"k","value_base64":"?"}"#, field("value_base64", "base64")),
        ("POST /v1/leases/a:pin", r#"{"position":7}"#, field("position", "must be a string")),
        ("POST /v1/leases/a:collect", r#"{"below":""}"#, field("below", decimal)),
        ("POST /v1/leases/a:veto", r#"{"duration":"soon"}"#, field("duration", "")),
        ("POST /v1/queues/q:send", "{}", field("body", "required")),
        ("POST /v1/queues/q:send", r#"{"body":"a","body_base64":"YQ=="}"#, field("body", "not both")),
        ("POST /v1/queues/q:receive", r#"{"holder":"w"}"#, field("visibility", "missing field")),
        ("POST /v1/queues/q:receive", r#"{"holder":"w","visibility":"1s","wait":"25h"}"#, field("wait", "")),
        ("POST /v1/queues/q:ack", r#"{"item":"x","receipt":"1"}"#, field("item", decimal)),
        (
            "POST /v1/queues/q:ack",
            r#"{"item":"1","receipt":"0"}"#,
            refusal("TOKEN_INVALID", "token", "not a token number"),
        ),
        ("POST /v1/cache/k:commit", r#"{"intent":"x"}"#, field("intent", decimal)),
        (
            "POST /v1/cache/k:get_or_fill",
            r#"{"holder":"w","ttl":"1s","missing_version":"x"}"#,
            field("missing_version", decimal),
        ),
    ];
    let mut server = start_server().await;
    for (request, body, expected) in table {
        server.http_refuses(&format!("{request} {body}"), request, "", body, expected).await;
    }
    for (request, verbs) in [
        ("POST /v1/queues/q:steal", "send, receive"),
        ("POST /v1/cache/k:steal", "read, renew"),
        ("POST /v1/sessions/1.0:steal", "renew, reconcile"),
    ] {
        server.http_refuses(request, request, "", "{}", refusal("NOT_FOUND", "", verbs)).await;
    }
    for (case, request, expected) in [
        ("an invalid cursor", "GET /v1/sessions/1.0/leases?cursor=x", field("cursor", "17.0")),
        ("an invalid session", "GET /v1/sessions/x/leases", field("session", "17.0")),
        ("an invalid session", "GET /v1/sessions/x/events", field("session", "17.0")),
        ("an invalid item", "GET /v1/queues/q?after=x", field("after", "message")),
    ] {
        server.http_refuses(case, request, "", "", expected).await;
    }
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_fields_share_one_counter() {
    let mut server = start_server().await;
    for made_up in 0..50 {
        let body = format!(r#"{{"holder":"w","made_up_{made_up}":1}}"#);
        let (status, _) = server.http.request(ACQUIRE, "", &body).await;
        assert_eq!(status, 400);
    }
    let (_, text) = server.http.request("GET /metrics", "", "").await;
    assert!(!text.contains("made_up"), "{text}");
    let line = r#"leasehold_invalid_requests_total{code="INVALID_ARGUMENT",field="other"} 50"#;
    assert!(text.contains(line), "{text}");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_path_method_or_verb_is_refused() {
    let mut server = start_server().await;
    let path = refusal("NOT_FOUND", "", "unknown path");
    server.http_refuses("an unknown path", "GET /v2/leases", "", "", path).await;
    let method = refusal("METHOD_NOT_ALLOWED", "method", "DELETE is not allowed at this path; use GET, HEAD");
    server.http_refuses("an unsupported method", "DELETE /v1/leases", "", "", method).await;
    let method = refusal("METHOD_NOT_ALLOWED", "method", "use POST");
    server.http_refuses("a query of a command", "GET /v1/quarantine:waive", "", "", method).await;
    server.http_refuses("a query of a command on a lease", "GET /v1/leases/jobs/a:acquire", "", "", method).await;
    server.http_refuses("an unsupported method with a body", "PATCH /v1/quarantine:waive", "", "{}", method).await;
    let verb = refusal("NOT_FOUND", "", "acquire, renew, release");
    server.http_refuses("an unknown verb", "POST /v1/leases/jobs/a:steal", "", "{}", verb).await;
    server.http_refuses("a missing verb", "POST /v1/leases/jobs/a", "", "{}", verb).await;
    let large = format!(r#"{{"holder":"{}"}}"#, "x".repeat(leasehold_wire::MAX_TRANSPORT_BYTES));
    let (status, body) = server.http.request(ACQUIRE, "", &large).await;
    assert_eq!(status, 413, "{body}");
    assert!(body.contains("RESOURCE_EXHAUSTED") && body.contains("1048576"), "{body}");
    server.handle.stop().await;
}

/// Before, the server waited for the body, and replied that it did not arrive in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_length_above_the_limit_is_refused_before_the_body_arrives() {
    let server = start_server().await;
    let mut connection = TcpStream::connect(server.handle.address).await.expect("the server listens");
    let length = leasehold_wire::MAX_TRANSPORT_BYTES * 100;
    let head = format!(
        "{ACQUIRE} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.expect("the server reads");
    let mut response = [0; 12];
    connection.read_exact(&mut response).await.expect("a response");
    assert_eq!(&response, b"HTTP/1.1 413");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_query_is_refused() {
    let invalid = |field, message| refusal("INVALID_ARGUMENT", field, message);
    let table = [
        ("a parameter without a name", "GET /v1/leases?=1", invalid("query", "query: unknown field; allowed are")),
        ("a negative number", "GET /v1/leases?limit=-1", invalid("limit", "limit: must be a whole number")),
        (
            "an overflowing number",
            "GET /v1/leases?cursor=4294967296",
            invalid("cursor", "cursor: the number is too large"),
        ),
        ("text for a number", "GET /v1/history?before=yesterday", invalid("before", "before: must be a whole number")),
        (
            "a number for a boolean",
            "GET /v1/history?oldest_first=1",
            invalid("oldest_first", "oldest_first: must be true or false"),
        ),
        (
            "one key twice",
            "GET /v1/leases?prefix=a&prefix=b",
            invalid("prefix", "prefix: duplicate field; send it once"),
        ),
        ("a truncated escape", "GET /v1/leases?prefix=%f", invalid("query", "%25")),
        ("a bare percent sign", "GET /v1/leases?prefix=100%", invalid("query", "%25")),
        ("not UTF-8", "GET /v1/leases?prefix=%ff", invalid("query", "UTF-8")),
        ("not UTF-8 in a key", "GET /v1/leases?%c3%28=1", invalid("query", "UTF-8")),
        ("an empty number", "GET /v1/leases?limit=", invalid("limit", "limit: must be a whole number")),
        ("a missing key", "DELETE /v1/coverage/a?comment=x", invalid("target", "target: required")),
        ("an invalid escape in a path", "GET /v1/leases/a%zz", invalid("path", "%25")),
        ("a truncated escape in a path", "GET /v1/leases/a%2", invalid("path", "%25")),
        ("a path that is not UTF-8", "GET /v1/leases/a%ff", invalid("path", "UTF-8")),
        ("an invalid token number", "GET /v1/holders/w1?after=x", invalid("after", "token number")),
    ];
    let mut server = start_server().await;
    for (case, request, expected) in table {
        server.http_refuses(case, request, "", "", expected).await;
    }
    // Unknown keys are named in the refusal, and share one counter.
    for (request, body) in [
        ("GET /v1/leases?prefx=a", ""),
        ("GET /v1/backup?prefx=a", ""),
        ("POST /v1/leases/jobs/a:acquire?prefx=a", r#"{"holder":"w","ttl":"60s"}"#),
        ("POST /v1/sessions?prefx", r#"{"holder":"w","ttl":"60s"}"#),
        ("DELETE /v1/charters/jobs?prefx=a", ""),
    ] {
        let expected = ExpectedRefusal { unknown_field: true, ..invalid("prefx", "prefx: unknown field") };
        server.http_refuses(request, request, "", body, expected).await;
    }
    let (status, _) = server.http.request("GET /v1/leases?prefix=w%C3%B6rter%2Fa&limit=1&", "", "").await;
    assert_eq!(status, 200, "a valid query is accepted");
    server.handle.stop().await;
}

/// A form that is sent by a page which this server could have sent.
const OWN_FORM: &str = "content-type: application/x-www-form-urlencoded\r\norigin: http://localhost\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_not_json_is_refused() {
    let body = r#"{"holder":"w","ttl":"60s"}"#;
    let kind = |message| refusal("INVALID_ARGUMENT", "content-type", message);
    let table = [
        ("XML", "content-type: text/xml\r\n", kind("application/json")),
        ("text", "content-type: text/plain\r\n", kind("application/json")),
        ("multipart", "content-type: multipart/form-data; boundary=x\r\n", kind("application/json")),
        ("an empty type", "content-type: \r\n", kind("application/json")),
        ("another charset", "content-type: application/json; charset=latin1\r\n", kind("UTF-8")),
        ("gRPC", "content-type: application/grpc\r\n", kind("application/json")),
        ("a form of a page of this server", OWN_FORM, kind("use --json")),
        (
            "a form of a browser",
            "content-type: application/x-www-form-urlencoded\r\nsec-fetch-site: none\r\n",
            kind("use --json"),
        ),
        ("two types", "content-type: application/json\r\ncontent-type: text/xml\r\n", kind("repeated")),
    ];
    let mut server = start_server().await;
    for (case, headers, expected) in table {
        server.http_refuses(case, ACQUIRE, headers, body, expected).await;
    }
    let untyped = format!("{ACQUIRE} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    server.http.send(untyped.as_bytes()).await.expect("the server reads");
    let (status, response) = server.http.response().await.expect("the connection stays open");
    assert!(status == 400 && response.contains(r#""field":"content-type""#), "{status}: {response}");
    for encoding in ["gzip", "br", "gzip, identity", "identity\r\ncontent-encoding: deflate"] {
        let headers = format!("content-encoding: {encoding}\r\n");
        let expected = refusal("INVALID_ARGUMENT", "content-encoding", "uncompressed");
        server.http_refuses(encoding, ACQUIRE, &headers, body, expected).await;
    }
    let curl = "application/x-www-form-urlencoded";
    let kinds = ["application/json", "Application/JSON; charset=\"UTF-8\"", "application/problem+json", curl];
    for (index, kind) in kinds.into_iter().enumerate() {
        let request = format!("POST /v1/leases/{index}:acquire");
        let (status, response) = server.http.request(&request, &format!("content-type: {kind}\r\n"), body).await;
        assert_eq!(status, 200, "{kind}: {response}");
    }
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_header_is_refused() {
    let mut server = start_server().await;
    let token = server.acquire_lease("jobs/a", 60_000).await.token;
    let other = server.acquire_lease("jobs/b", 60_000).await.token;
    let twice = |name: &str, one: &str, two: &str| format!("{name}: {one}\r\n{name}: {two}\r\n");
    let renew = "POST /v1/leases/jobs/a:renew";
    let tokens = refusal("INVALID_ARGUMENT", "lease-token", "repeated");
    server.http_refuses("two tokens", renew, &twice("Lease-Token", &token, &other), "", tokens).await;
    let keys = refusal("INVALID_ARGUMENT", "idempotency-key", "repeated");
    let headers = format!("Lease-Token: {token}\r\n{}", twice("Idempotency-Key", "0.0:1", "0.0:2"));
    server.http_refuses("two keys", renew, &headers, "", keys).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_where_none_is_taken_is_refused() {
    let mut server = start_server().await;
    let body = refusal("INVALID_ARGUMENT", "body", "without a body");
    for request in [
        "DELETE /v1/charters/jobs?comment=x",
        "DELETE /v1/coverage/a?target=t",
        "GET /v1/leases",
        "GET /v1/status",
        "GET /healthz",
        "GET /metrics",
    ] {
        server.http_refuses(request, request, "", r#"{"comment":"x"}"#, body).await;
    }
    let unknown = ExpectedRefusal { unknown_field: true, ..refusal("INVALID_ARGUMENT", "ttl2", "unknown field") };
    server.http_refuses("a field of a renewal", "POST /v1/sessions/1.0:renew", "", r#"{"ttl2":1}"#, unknown).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_and_wrong_methods_name_the_allowed_methods() {
    let server = start_server().await;
    let head = async |request: &str| {
        let mut http = HttpConnection::connect(server.handle.address).await;
        let text = format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        http.send(text.as_bytes()).await.expect("the server reads");
        String::from_utf8(http.read_to_end().await).expect("the response is UTF-8")
    };
    for (request, status, allow) in [
        ("OPTIONS /v1/leases", "204", "GET,HEAD"),
        ("OPTIONS /v1/leases/a", "204", "GET,HEAD,POST"),
        ("OPTIONS *", "204", "GET,HEAD,POST,PUT,DELETE"),
        ("POST /v1/leases", "405", "GET,HEAD"),
        ("HEAD /v1/quarantine:waive", "405", "POST"),
    ] {
        let response = head(request).await.to_lowercase();
        assert!(response.starts_with(&format!("http/1.1 {status}")), "{request}: {response}");
        let line = response.lines().find_map(|line| line.strip_prefix("allow: ")).unwrap_or_default().to_uppercase();
        let mut methods: Vec<&str> = line.split(',').collect();
        methods.sort_unstable();
        let mut expected: Vec<&str> = allow.split(',').collect();
        expected.sort_unstable();
        assert_eq!(methods, expected, "{request}: {response}");
        assert!(!response.contains("access-control-allow"), "no page of another origin is allowed: {response}");
    }
    let response = head("HEAD /v1/status").await;
    assert!(
        response.starts_with("HTTP/1.1 200") && response.ends_with("\r\n\r\n"),
        "a head without a body: {response}"
    );
    assert!(head("OPTIONS /v2/leases").await.starts_with("HTTP/1.1 404"));
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_page_of_another_origin_and_an_unknown_host_are_refused() {
    let mut server = start_server().await;
    let body = r#"{"holder":"w","ttl":"60s"}"#;
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let origin = refusal("PERMISSION_DENIED", "origin", "another origin");
    let site = refusal("PERMISSION_DENIED", "sec-fetch-site", "another site");
    let evil = "origin: http://evil.test\r\n";
    let cases = [
        ("a form", ACQUIRE, format!("{form}{evil}"), body, origin),
        ("a page with JSON", ACQUIRE, evil.to_owned(), body, origin),
        ("a page without an origin", ACQUIRE, "origin: null\r\n".to_owned(), body, origin),
        ("another port", ACQUIRE, "origin: http://localhost:8080\r\n".to_owned(), body, origin),
        ("a query by a page", "GET /v1/leases", evil.to_owned(), "", origin),
        ("a preflight", "OPTIONS /v1/leases/a", evil.to_owned(), "", origin),
        ("an image", "GET /v1/status", "sec-fetch-site: cross-site\r\n".to_owned(), "", site),
        ("an image of this machine", "GET /healthz", "sec-fetch-site: same-site\r\n".to_owned(), "", site),
    ];
    for (case, request, headers, body, expected) in cases {
        // The connection is closed if its body was not read.
        server.http = HttpConnection::connect(server.handle.address).await;
        server.http_refuses(case, request, &headers, body, expected).await;
    }
    for host in ["evil.test", "evil.test:7421", "localhost.evil.test"] {
        let before = server.state().await;
        let mut http = HttpConnection::connect(server.handle.address).await;
        let head =
            format!("{ACQUIRE} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n");
        let text = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        http.send(text.as_bytes()).await.expect("the server reads");
        let response = String::from_utf8(http.read_to_end().await).expect("the response is UTF-8");
        assert!(response.starts_with("HTTP/1.1 403") && response.contains("--allowed-hosts"), "{response}");
        server.assert_counted_once(host, ("PERMISSION_DENIED", "host"), &before).await;
    }
    // As curl and a browser's address bar send them.
    server.http = HttpConnection::connect(server.handle.address).await;
    let (status, response) = server.http.request("GET /v1/leases", "sec-fetch-site: none\r\n", "").await;
    assert_eq!(status, 200, "{response}");
    let (status, response) = server.http.request(ACQUIRE, "origin: http://localhost\r\n", body).await;
    assert_eq!(status, 200, "{response}");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grpc_authority_must_be_a_name_of_the_server() {
    let config = ServerConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        allowed_hosts: vec!["leases.example".into(), "lease-1.example:7421".into()],
        ..ServerConfig::default()
    };
    let handle = start(Memory::default(), config).await.expect("a server starts on a free port");
    let status = async |name: &str| {
        let origin = format!("http://{name}").parse().expect("an origin");
        let endpoint = Endpoint::from_shared(format!("http://{}", handle.address)).expect("an address").origin(origin);
        let channel = endpoint.connect().await.expect("the server listens");
        LeaseholdClient::new(channel).status(v1::StatusRequest {}).await.map(|_| ())
    };
    for name in ["leases.example", "leases.example:1234", "LEASE-1.example", "localhost:1"] {
        status(name).await.expect(name);
    }
    let refused = problem_from_status(&status("evil.test").await.expect_err("an unknown name"));
    assert_eq!((refused.code.as_str(), refused.field.as_str()), ("PERMISSION_DENIED", "host"));
    assert!(refused.message.contains("allowed_hosts (--allowed-hosts)"), "{}", refused.message);
    handle.stop().await;
}
