//! `leasehold serve` as a process: what it told survives kill −9, and it ends when it is asked to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server of its own on a free port.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(data: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built for this test");
        let told = child.stderr.take().expect("it is piped");
        let line = BufReader::new(told).lines().map_while(Result::ok).find(|line| line.contains("serving on "));
        let line = line.expect("a server that starts says where");
        let address = line.split("serving on ").nth(1).and_then(|rest| rest.split(',').next()).expect("an address");
        Self { address: address.to_owned(), child }
    }

    fn ask(&self, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}", body.len());
        write!(stream, "{head}\r\n\r\n{body}").expect("the server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server answers");
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failing test leaves nothing behind; one that has ended is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_was_told_is_there_after_kill_9_and_term_ends_it_well() {
    let above = tempfile::tempdir().expect("a directory");
    let data = above.path().join("data");
    let mut server = Server::start(&data);
    let granted = server.ask("/v1/leases/jobs/settle:acquire", r#"{"holder":"w1","ttl":"60s"}"#);
    assert!(granted.starts_with("HTTP/1.1 200"), "{granted}");
    let token = granted.split("\"token\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a token");
    server.child.kill().expect("it runs");
    server.child.wait().expect("it ended");

    let mut server = Server::start(&data);
    let busy = server.ask("/v1/leases/jobs/settle:acquire", r#"{"holder":"w2","ttl":"60s"}"#);
    assert!(busy.contains("\"BUSY\""), "{busy}");
    let renewed = server.ask("/v1/leases/jobs/settle:renew", &format!(r#"{{"token":"{token}"}}"#));
    assert!(renewed.starts_with("HTTP/1.1 200"), "{renewed}");
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill is there").success());
    assert_eq!(server.child.wait().expect("it ended").code(), Some(0));
}

/// The exit code and the words of a server that does not come to serve.
fn not_started(data: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .output()
        .expect("the binary was built for this test");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_directory_that_cannot_be_is_refused_with_the_next_step() {
    let (code, said) = not_started(Path::new("/nowhere/at/all"));
    assert!(code == Some(78) && said.contains("create that first"), "{code:?}: {said}");
    let above = tempfile::tempdir().expect("a directory");
    let data = above.path().join("data");
    std::fs::create_dir(&data).expect("a directory");
    std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("it is ours");
    let (code, said) = not_started(&data);
    assert!(code == Some(78) && said.contains("chmod"), "{code:?}: {said}");
    assert_eq!(std::fs::read_dir(&data).expect("it is there").count(), 0, "and nothing was put there");
}

#[test]
fn a_directory_that_another_server_has_is_refused_by_the_others_process_id() {
    let above = tempfile::tempdir().expect("a directory");
    let server = Server::start(&above.path().join("data"));
    let (code, said) = not_started(&above.path().join("data"));
    assert!(code == Some(78) && said.contains(&server.child.id().to_string()), "{code:?}: {said}");
    let granted = server.ask("/v1/leases/a:acquire", r#"{"holder":"w1","ttl":"60s"}"#);
    assert!(granted.starts_with("HTTP/1.1 200"), "the one that serves does not notice: {granted}");
}

#[test]
fn a_journal_that_is_damaged_is_not_served_and_left_as_it_is() {
    let above = tempfile::tempdir().expect("a directory");
    let data = above.path().join("data");
    let mut server = Server::start(&data);
    for holder in ["early-holder", "later-holder"] {
        let body = format!(r#"{{"holder":"{holder}","ttl":"60s"}}"#);
        let granted = server.ask(&format!("/v1/leases/{holder}:acquire"), &body);
        assert!(granted.starts_with("HTTP/1.1 200"), "{granted}");
    }
    server.child.kill().expect("it runs");
    server.child.wait().expect("it ended");
    let segment = data.join("segment-00000000000000000001");
    let mut bytes = std::fs::read(&segment).expect("the log is there");
    let at = bytes.windows(12).position(|name| name == b"early-holder").expect("it is on record");
    bytes[at] ^= 1;
    std::fs::write(&segment, &bytes).expect("it can be written");
    let (code, said) = not_started(&data);
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("leasehold: CORRUPT: ") && said.contains("segment-00000000000000000001 at byte "), "{said}");
    assert!(std::fs::read(&segment).expect("it is there") == bytes, "it is left as it is");
}
