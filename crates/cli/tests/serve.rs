//! `leasehold serve` as a process: kill −9, SIGTERM, and data directories that cannot be served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold_testkit::process::TestProcess;
use rustix::process::Signal;

/// A server process on a free port.
struct Server {
    process: TestProcess,
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
        Self { address, process }
    }

    fn post(&self, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        let kind = "content-type: application/json\r\n";
        write!(stream, "{head}{kind}content-length: {}\r\n\r\n{body}", body.len()).expect("the server reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("the server responds");
        response
    }
}

#[test]
fn a_grant_survives_kill_9_and_sigterm_exits_with_0() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let mut server = Server::start(&data);
    let granted = server.post("/v1/leases/jobs/settle:acquire", r#"{"holder":"w1","ttl":"60s"}"#);
    assert!(granted.starts_with("HTTP/1.1 200"), "{granted}");
    let token = granted.split("\"token\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a token");
    server.process.kill();

    let mut server = Server::start(&data);
    let busy = server.post("/v1/leases/jobs/settle:acquire", r#"{"holder":"w2","ttl":"60s"}"#);
    assert!(busy.contains("\"BUSY\""), "{busy}");
    let renewed = server.post("/v1/leases/jobs/settle:renew", &format!(r#"{{"token":"{token}"}}"#));
    assert!(renewed.starts_with("HTTP/1.1 200"), "{renewed}");
    server.process.signal(Signal::TERM).expect("the process runs");
    assert_eq!(server.process.wait().code(), Some(0));
}

/// Exit code and standard error of a server that fails to start.
fn start_failure(data: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .output()
        .expect("the binary was built for this test");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_unusable_directory_is_rejected_with_the_next_step() {
    let (code, stderr) = start_failure(Path::new("/nowhere/at/all"));
    assert!(code == Some(78) && stderr.contains("create it first"), "{code:?}: {stderr}");
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("a directory");
    std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("the directory belongs to us");
    let (code, stderr) = start_failure(&data);
    assert!(code == Some(78) && stderr.contains("chmod"), "{code:?}: {stderr}");
    assert_eq!(std::fs::read_dir(&data).expect("the directory exists").count(), 0, "nothing was written");
}

#[test]
fn a_directory_in_use_is_rejected_with_the_process_id_of_its_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(&dir.path().join("data"));
    let (code, stderr) = start_failure(&dir.path().join("data"));
    assert!(code == Some(78) && stderr.contains(&server.process.id().to_string()), "{code:?}: {stderr}");
    let granted = server.post("/v1/leases/a:acquire", r#"{"holder":"w1","ttl":"60s"}"#);
    assert!(granted.starts_with("HTTP/1.1 200"), "the running server is not affected: {granted}");
}

#[test]
fn a_damaged_journal_is_not_served_and_not_modified() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let mut server = Server::start(&data);
    for holder in ["early-holder", "later-holder"] {
        let body = format!(r#"{{"holder":"{holder}","ttl":"60s"}}"#);
        let granted = server.post(&format!("/v1/leases/{holder}:acquire"), &body);
        assert!(granted.starts_with("HTTP/1.1 200"), "{granted}");
    }
    server.process.kill();
    let segment = data.join("segment-00000000000000000001");
    let mut bytes = std::fs::read(&segment).expect("the log exists");
    let at = bytes.windows(12).position(|name| name == b"early-holder").expect("the holder is in the log");
    bytes[at] ^= 1;
    std::fs::write(&segment, &bytes).expect("the file is writable");
    let (code, stderr) = start_failure(&data);
    assert_eq!(code, Some(65), "{stderr}");
    assert!(
        stderr.contains("leasehold: CORRUPT: ") && stderr.contains("segment-00000000000000000001 at byte "),
        "{stderr}"
    );
    assert!(std::fs::read(&segment).expect("the file exists") == bytes, "the log is unchanged");
}
