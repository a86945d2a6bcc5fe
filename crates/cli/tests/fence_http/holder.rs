//! A holder process that can be stopped in the middle of a request.

use std::io::{BufRead, Read, Write, stdin, stdout};
use std::net::TcpStream;

use leasehold_fence::conformance::token;

/// Argument that selects this role.
pub const ROLE: &str = "holder";

/// Claims, writes, sends half of a second write, and sends the rest on command.
pub fn run(args: &[String]) {
    let [address, number] = args else { panic!("an address and a number: {args:?}") };
    let token = token(number.parse().expect("a number"));
    print(&format!("claimed {}", request(address, "/-/claim", &token, "")));
    print(&format!("wrote {}", request(address, "/now", &token, "first")));
    let mut half = TcpStream::connect(address).expect("it listens");
    let head = format!("POST /now HTTP/1.1\r\nhost: x\r\nlease-token: {token}\r\ncontent-length: 8\r\n\r\nzomb");
    half.write_all(head.as_bytes()).expect("sent");
    print("half");
    let mut command = String::new();
    stdin().lock().read_line(&mut command).expect("an command");
    let sent = half.write_all(b"ie!!").is_ok();
    let mut response = Vec::new();
    let complete = sent && half.read_to_end(&mut response).is_ok() && response.starts_with(b"HTTP/1.1 200");
    print(&format!("rest {}", if complete { "200" } else { "aborted" }));
    print(&format!("again {}", request(address, "/now", &token, "zombie")));
}

/// Sends one request on a new connection. Returns the status.
fn request(address: &str, path: &str, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nlease-token: {token}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("answered");
    response.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn print(line: &str) {
    let mut out = stdout().lock();
    // The reader is gone: exit.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
