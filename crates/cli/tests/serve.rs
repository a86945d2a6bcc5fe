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

#[test]
fn a_directory_that_cannot_be_is_refused_with_the_next_step() {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data", "/nowhere/at/all"])
        .output()
        .expect("the binary was built for this test");
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("create that first"));
}
