//! `leasehold restore`: a backup of a running server becomes a data directory that can be served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use leasehold_testkit::process::TestProcess;

struct Server {
    _process: TestProcess,
    address: String,
}

impl Server {
    fn start(data: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        let process = TestProcess::spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
        let process = process.expect("the binary was built for this test");
        let rest = process.stderr().wait_for_rest("serving on ");
        let address = rest.split(',').next().expect("an address").to_owned();
        Self { address, _process: process }
    }

    /// Sends one request and returns the status line and the body.
    fn request(&self, method: &str, path: &str, body: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let length = body.len();
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{kind}");
        write!(stream, "{head}content-length: {length}\r\n\r\n{body}").expect("the server reads");
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("the server responds");
        let end = response.windows(4).position(|four| four == b"\r\n\r\n").expect("the headers end");
        let head = String::from_utf8_lossy(&response[..end]).into_owned();
        (head.lines().next().unwrap_or_default().to_owned(), response.split_off(end + 4))
    }
}

fn restore(args: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["restore", "--json"]).arg(args[0]).arg("--data").arg(args[1]);
    command.output().expect("the binary was built for this test")
}

/// Decodes a chunked body.
fn decode_chunks(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&body[..end]).expect("a chunk size is text");
        let size = usize::from_str_radix(size, 16).expect("a chunk size is a number");
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
    whole
}

#[test]
fn a_backup_of_a_running_server_is_restored_once_and_serves_in_quarantine() {
    let dir = tempfile::tempdir().expect("a directory");
    let folder = dir.path();
    let server = Server::start(&folder.join("data"));
    let (status, _) = server.request("POST", "/v1/leases/jobs/settle:acquire", r#"{"holder":"w1","ttl":"60s"}"#);
    assert!(status.contains("200"), "{status}");
    let (status, bytes) = server.request("GET", "/v1/backup", "");
    assert!(status.contains("200"), "{status}");
    let file = folder.join("a.backup");
    std::fs::write(&file, &bytes).expect("a temporary file");

    let result = restore(&[&file, &folder.join("restored")]);
    assert!(result.status.success(), "{result:?}");
    let result: serde_json::Value = serde_json::from_slice(&result.stdout).expect("one JSON document");
    assert_eq!(result["quarantine_ms"], 600_000);
    assert_ne!(result["incarnation"], result["incarnation_before"]);

    let again = restore(&[&file, &folder.join("restored")]);
    assert_eq!(again.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&again.stderr).contains("not empty"), "{again:?}");

    let cut = folder.join("cut.backup");
    std::fs::write(&cut, &bytes[..bytes.len() - 1]).expect("a temporary file");
    let refused = restore(&[&cut, &folder.join("other")]);
    assert_eq!(refused.status.code(), Some(65));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cut.backup"), "{refused:?}");
    assert!(!folder.join("other").exists(), "nothing was created");

    let (status, lines) = server.request("GET", "/v1/audit", "");
    assert!(status.contains("200"), "{status}");
    let lines = decode_chunks(&lines);
    let verify = |lines: &[u8]| {
        let file = folder.join("audit.jsonl");
        std::fs::write(&file, lines).expect("a temporary file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["audit", "verify", "--json"]).arg(&file).output().expect("the binary was built for this test")
    };
    let whole = verify(&lines);
    let found: serde_json::Value = serde_json::from_slice(&whole.stdout).expect("one JSON document");
    assert_eq!((whole.status.code(), &found["entries"]), (Some(0), &3.into()), "created, opened, granted: {found}");
    let forged = String::from_utf8(lines).expect("text").replace("\"w1\"", "\"w2\"");
    let found = verify(forged.as_bytes());
    assert_eq!(found.status.code(), Some(65));
    let result: serde_json::Value = serde_json::from_slice(&found.stderr).expect("one JSON document");
    assert_eq!(result["line"], 4, "the grant follows the header and two entries: {result}");

    let second = Server::start(&folder.join("restored"));
    let (status, body) = second.request("POST", "/v1/leases/jobs/settle:acquire", r#"{"holder":"w1","ttl":"60s"}"#);
    assert!(status.contains("503"), "{status} {}", String::from_utf8_lossy(&body));
}

#[test]
fn missing_files_and_invalid_options_are_rejected_with_their_exit_codes() {
    let dir = tempfile::tempdir().expect("a directory");
    let folder = dir.path();
    let missing = restore(&[&folder.join("none.backup"), &folder.join("data")]);
    assert_eq!(missing.status.code(), Some(78));
    let result: serde_json::Value = serde_json::from_slice(&missing.stderr).expect("one JSON document");
    assert_eq!(result["code"], "CONFIG");
    let zero = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["restore", "none.backup", "--token-floor", "0"])
        .output()
        .expect("the binary was built for this test");
    assert_eq!(zero.status.code(), Some(2));
}
