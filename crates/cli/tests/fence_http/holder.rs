//! A holder that is a process of its own, so that it can really be stopped in the middle of a request.

use std::io::{BufRead, Read, Write, stdin, stdout};
use std::net::TcpStream;

use leasehold_fence::conformance::token;

/// The word by which a child knows its part.
pub const PART: &str = "holder";

/// Claims, writes, sends half of a second write and waits; the rest comes when it is told to, however late that is.
pub fn play(words: &[String]) {
    let [address, number] = words else { panic!("an address and a number: {words:?}") };
    let token = token(number.parse().expect("a number"));
    say(&format!("claimed {}", asks(address, "/-/claim", &token, "")));
    say(&format!("wrote {}", asks(address, "/now", &token, "first")));
    let mut half = TcpStream::connect(address).expect("it listens");
    let head = format!("POST /now HTTP/1.1\r\nhost: x\r\nlease-token: {token}\r\ncontent-length: 8\r\n\r\nzomb");
    half.write_all(head.as_bytes()).expect("sent");
    say("half");
    let mut order = String::new();
    stdin().lock().read_line(&mut order).expect("an order");
    let sent = half.write_all(b"ie!!").is_ok();
    let mut answer = Vec::new();
    let heard = sent && half.read_to_end(&mut answer).is_ok() && answer.starts_with(b"HTTP/1.1 200");
    say(&format!("rest {}", if heard { "200" } else { "cut off" }));
    say(&format!("again {}", asks(address, "/now", &token, "zombie")));
}

/// The status of one request on a connection of its own.
fn asks(address: &str, path: &str, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nlease-token: {token}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn say(line: &str) {
    let mut out = stdout().lock();
    // Who does not listen any more has heard enough.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
