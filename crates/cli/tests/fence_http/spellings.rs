//! Spellings of requests against real services that read them differently.
//!
//! Each service reports how it read a request. A request may reach it only unchanged, and only with the token of the resource
//! that guards what the service read. Each cell of the table (rules, service, spelling, credential) has a recorded outcome.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use leasehold_core::name::resource_hash;
use leasehold_core::token::Token;
use leasehold_fence::conformance::token;
use leasehold_testkit::ports::unused_address;
use leasehold_testkit::process::TIMEOUT;
use leasehold_testkit::third_party_server::ThirdPartyServer;

use crate::child::start_printing;
use crate::proxy::{Proxy, ProxySetup, Service};

/// Resource of the rules below.
const OTHER: &str = "shop/other";

/// The rules of a proxy, as its flags and as a table: methods (none: all that can change data), path, whether the path is
/// exempt or guarded by [`OTHER`].
struct RuleSet {
    flags: &'static [&'static str],
    table: &'static [(&'static [&'static str], &'static str, Guard)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// No token is needed.
    Free,
    /// The resource of the proxy.
    Main,
    /// [`OTHER`].
    Other,
}

const RULE_SETS: [RuleSet; 3] = [
    RuleSet {
        flags: &["--exempt", "/public", "--scope", "/public/admin=shop/other"],
        table: &[(&[], "/public", Guard::Free), (&[], "/public/admin", Guard::Other)],
    },
    RuleSet {
        flags: &["--scope", "/orders=shop/other", "--exempt", "/search"],
        table: &[(&[], "/orders", Guard::Other), (&[], "/search", Guard::Free)],
    },
    RuleSet {
        flags: &[
            "--scope",
            "GET /export=shop/other",
            "--scope",
            "DELETE /orders=shop/other",
            "--exempt",
            "POST /search",
        ],
        table: &[
            (&["GET", "HEAD"], "/export", Guard::Other),
            (&["DELETE"], "/orders", Guard::Other),
            (&["POST"], "/search", Guard::Free),
        ],
    },
];

impl RuleSet {
    /// What guards the request that a service read. It ignores case, as some services do.
    fn guard(&self, method: &str, path: &str) -> Guard {
        let path = path.to_ascii_lowercase();
        let safe = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
        let default = if safe { Guard::Free } else { Guard::Main };
        let matches = self.table.iter().filter(|(methods, prefix, _)| {
            let below = path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            below && if methods.is_empty() { !safe } else { methods.contains(&method) }
        });
        matches.max_by_key(|(_, prefix, _)| prefix.len()).map_or(default, |(_, _, guard)| *guard)
    }
}

/// A service that reports how it reads a request.
struct ReportingService {
    name: &'static str,
    address: String,
    /// Runs until it is dropped.
    _process: Box<dyn Any + Send + Sync>,
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fence_http/upstreams").join(name)
}

fn upstreams() -> Vec<ReportingService> {
    let script = |name, program: &str, script: &str| {
        let process = start_printing(program, &[file(script).display().to_string()]);
        let address = process.stdout().wait_for_rest("upstream on ");
        ReportingService { name, address, _process: Box::new(process) }
    };
    let nginx = || {
        let address = unused_address();
        let config = std::fs::read_to_string(file("nginx.conf")).expect("a file");
        let config = config.replace("ADDRESS", &address.to_string());
        let server = ThirdPartyServer::start("nginx", move |dir| {
            std::fs::write(dir.join("nginx.conf"), &config).expect("written");
            let dir = dir.display();
            vec!["-p".to_owned(), format!("{dir}/"), "-c".to_owned(), format!("{dir}/nginx.conf")]
        });
        crate::process_faults::run(server.retry(|| async { TcpStream::connect(address).map(drop) }));
        ReportingService { name: "nginx", address: address.to_string(), _process: Box::new(server) }
    };
    let hyper = Service::start();
    vec![
        script("wsgi", "python3", "wsgi.py"),
        script("node", "node", "node.js"),
        nginx(),
        ReportingService { name: "hyper", address: hyper.address.clone(), _process: Box::new(hyper) },
    ]
}

/// One way to write a request.
#[derive(Clone, Debug)]
struct Spelling {
    method: &'static str,
    target: String,
    header: &'static str,
}

/// All spellings: each path in each form with the usual methods, and some forms with unusual methods and headers.
fn spellings() -> Vec<Spelling> {
    let mut all = Vec::new();
    for path in ["/orders/7", "/public/admin/del", "/export", "/search/x", "/else"] {
        for target in forms(path) {
            let deletes = path.starts_with("/orders").then_some("DELETE");
            for method in ["GET", "POST"].into_iter().chain(deletes) {
                all.push(Spelling { method, target: target.clone(), header: "" });
            }
        }
        for target in [path.to_owned(), encode_first(path, "%")] {
            for method in ["HEAD", "PUT", "post", "Get", "OPTIONS", "SETTLE"] {
                all.push(Spelling { method, target: target.clone(), header: "" });
            }
            for header in [
                "x-http-method-override: DELETE\r\n",
                "X_HTTP_METHOD_OVERRIDE: DELETE\r\n",
                "x_http-method_override: POST\r\n",
                "x-original-url: /orders/7\r\n",
                "x_original_url: /public/admin\r\n",
                "script_name: /public\r\n",
                "script-name: /search\r\n",
            ] {
                for method in ["GET", "POST"] {
                    all.push(Spelling { method, target: target.clone(), header });
                }
            }
        }
    }
    // The path below another one, by way of each form of a parent.
    for parent in [
        "..",
        "%2e%2e",
        "%2E.",
        "..;",
        "..;a=b",
        "..%3b",
        "..%20",
        "..%09",
        "..%00",
        "%252e%252e",
        "%25%32%65%252e",
        "%c0%ae%c0%ae",
        "..\\..",
        "..%5c..",
        "%u002e%u002e",
        "x/..",
        "x;/..;",
        ".",
        "",
        ";",
        "%20",
    ] {
        for from in ["/search", "/public"] {
            for to in ["/orders/7", "/public/admin/del", "/admin/del"] {
                let separators = if parent.ends_with('.') { &["/", "%2f", "%5c", "%252f"][..] } else { &["/"] };
                for separator in separators {
                    let target = format!("{from}/{parent}{}", to.replacen('/', separator, 1));
                    all.push(Spelling { method: "POST", target, header: "" });
                }
            }
        }
    }
    all
}

/// The forms of a path that some service reads as the same path.
fn forms(path: &str) -> Vec<String> {
    let mut forms: Vec<String> =
        ["", "/", "?x=1", "?/../orders", "#x", ";x=1", "%3bx", ".", "%20", "%00", "%3fx", "%23x", "%0a"]
            .into_iter()
            .map(|suffix| format!("{path}{suffix}"))
            .collect();
    forms.extend([encode_first(path, "%"), encode_first(path, "%25"), encode_all(path), path.to_ascii_uppercase()]);
    let (head, rest) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    for head in [
        format!("{head};a=b"),
        format!("{head}."),
        format!("{head}%20"),
        format!("%20{head}"),
        head.to_ascii_uppercase(),
    ] {
        forms.push(format!("/{head}/{rest}"));
    }
    forms.extend([
        format!("/{path}"),
        format!("/.{path}"),
        format!("/x/..{path}"),
        format!("/%2e{path}"),
        format!("/;{path}"),
    ]);
    forms.extend([
        path.replacen('/', "/\\", 1),
        format!("http://service{path}"),
        path.replace('/', "//"),
        path.replace('/', "/./"),
    ]);
    forms.push(path.replacen('e', "\u{e9}", 1));
    forms
}

/// Encodes the first letter of each segment: as `%6f`, or twice as `%256f`.
fn encode_first(path: &str, percent: &str) -> String {
    let encode = |segment: &str| format!("{percent}{:02x}{}", segment.as_bytes()[0], &segment[1..]);
    path[1..].split('/').map(|segment| format!("/{}", encode(segment))).collect()
}

fn encode_all(path: &str) -> String {
    let encode = |byte: u8| if byte == b'/' { "/".to_owned() } else { format!("%{byte:02X}") };
    path.bytes().map(encode).collect()
}

/// What became of a request.
#[derive(Debug)]
enum Outcome {
    /// The proxy refused it.
    Refused,
    /// The service read it as this method and path; it received this target.
    Reached { method: String, path: String, target: String },
    /// The proxy or the service refused to read it.
    Unreadable,
}

/// Sends a request as it is written.
fn send(address: &str, spelling: &Spelling, credential: Option<&str>) -> Outcome {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a bound");
    let Spelling { method, target, header } = spelling;
    let token = credential.map_or_else(String::new, |token| format!("lease-token: {token}\r\n"));
    let request = format!(
        "{method} {target} HTTP/1.1\r\nhost: service\r\nconnection: close\r\ncontent-length: 0\r\n{header}{token}\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap_or_else(|error| panic!("{spelling:?} is not answered: {error}"));
    let response = String::from_utf8_lossy(&response).into_owned();
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{spelling:?}: {response:?}"));
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<String, &str> = lines.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    let status = head.split(' ').nth(1).unwrap_or_default();
    if let (Some(method), Some(path), Some(target)) =
        (headers.get("x-method"), headers.get("x-path"), headers.get("x-target"))
    {
        let (method, path, target) = ((*method).to_owned(), decode(path), (*target).to_owned());
        return Outcome::Reached { method, path, target };
    }
    if headers.get("content-type").is_some_and(|kind| *kind == "application/problem+json") {
        let code = body.split("\"code\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let expected = ["INVALID_ARGUMENT", "TOKEN_INVALID"];
        // The response to HEAD has no body.
        assert!(status == "400" && (body.is_empty() || expected.contains(&code)), "{spelling:?}: {response}");
        return Outcome::Refused;
    }
    assert_eq!(status, "400", "{spelling:?}: neither refused nor forwarded: {response}");
    Outcome::Unreadable
}

/// Decodes what the service encoded for its header.
fn decode(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match code {
            Some(code) if *first == b'%' => {
                bytes.push(code);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a service receives of a target: without the fragment, and without the address of the absolute form.
fn forwarded(target: &str) -> &str {
    let target = target.strip_prefix("http://service").unwrap_or(target);
    target.split('#').next().unwrap_or(target)
}

/// The cells of one service.
#[derive(Default)]
struct Cells {
    sent: usize,
    reached: usize,
    failures: Vec<String>,
}

fn judge(upstream: &ReportingService, spellings: &[Spelling], credentials: &[(Guard, Option<&str>)]) -> Cells {
    let mut cells = Cells::default();
    for rules in &RULE_SETS {
        let setup = ProxySetup::new(rules.flags);
        let proxy: Proxy = setup.start(&upstream.address);
        for spelling in spellings {
            for (credential, text) in credentials {
                cells.sent += 1;
                let Outcome::Reached { method, path, target } = send(&proxy.address, spelling, *text) else { continue };
                cells.reached += 1;
                let needed = rules.guard(&method, &path);
                let passes = needed == Guard::Free || needed == *credential;
                if !passes || target != forwarded(&spelling.target) {
                    cells.failures.push(format!(
                        "{} {:?}: {spelling:?} with the token of {credential:?} was read as {method} {path} ({target}), \
                         which needs {needed:?}",
                        upstream.name, rules.flags
                    ));
                }
            }
        }
        // Plain requests pass.
        for (method, path) in
            [("POST", "/else"), ("DELETE", "/orders/7"), ("GET", "/search/a%20b"), ("HEAD", "/export")]
        {
            let spelling = Spelling { method, target: path.to_owned(), header: "" };
            let needed = rules.guard(method, path);
            let text = credentials.iter().find(|(credential, _)| *credential == needed).expect("one of them").1;
            let outcome = send(&proxy.address, &spelling, text);
            assert!(matches!(outcome, Outcome::Reached { .. }), "{} {spelling:?}: {outcome:?}", upstream.name);
        }
    }
    cells
}

pub fn corpus() {
    let main = token(5);
    let other = Token { resource: resource_hash(OTHER), ..Token::parse(&main).expect("a token") }.to_string();
    let credentials = [(Guard::Free, None), (Guard::Main, Some(main.as_str())), (Guard::Other, Some(other.as_str()))];
    let (upstreams, spellings) = (upstreams(), spellings());
    let per_service: Vec<Cells> = std::thread::scope(|scope| {
        let judges: Vec<_> =
            upstreams.iter().map(|upstream| scope.spawn(|| judge(upstream, &spellings, &credentials))).collect();
        judges.into_iter().map(|judge| judge.join().expect("every cell is answered")).collect()
    });
    for (upstream, cells) in upstreams.iter().zip(&per_service) {
        println!("{}: {} cells, {} reached it", upstream.name, cells.sent, cells.reached);
        assert_eq!(cells.sent, RULE_SETS.len() * spellings.len() * credentials.len());
        assert!(cells.reached > cells.sent / 50, "the proxy refuses nearly everything");
    }
    let failures: Vec<_> = per_service.iter().flat_map(|cells| &cells.failures).collect();
    let shown: Vec<_> = failures.iter().step_by(1 + failures.len() / 20).map(|failure| failure.as_str()).collect();
    assert!(
        failures.is_empty(),
        "{} cells passed as another request, for example:\n{}",
        failures.len(),
        shown.join("\n")
    );
}
