//! The way from a worker to the targets, in a process of its own: what it has not read yet lies in a socket's buffer, sent
//! and out of its sender's hands.

use std::io::{BufRead, Read, Write, stdin};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Fault;
use crate::books::{Books, Row};

pub const WORD: &str = "__wire";

/// `DIRECTORY fenced|unfenced CLUSTER SOCKET`
pub fn play(words: &[&str]) -> Result<(), Fault> {
    let [dir, fenced, cluster, socket] = *words else { return Err("a wire needs four words".into()) };
    let mut books = Books::open(Path::new(dir), fenced == "fenced", cluster.parse()?)?;
    let listener = UnixListener::bind(socket)?;
    println!("ready");
    let (mut stream, _) = listener.accept()?;
    let mut permits = stdin().lock().lines();
    while let Some(line) = unbuffered(&mut stream)? {
        let message: Value = serde_json::from_str(&line)?;
        let text = |field: &str| message[field].as_str().ok_or("a message without its field");
        let token = text("token")?;
        if message["claim"] == true {
            let claimed = books.claim(token);
            // Read after the claim: what is seen now, no predecessor changes any more.
            let answer = match claimed {
                Ok(()) => json!({ "settled": books.settled()? }),
                Err(error) => json!({ "refused": error.to_string() }),
            };
            writeln!(stream, "{answer}")?;
            continue;
        }
        // The story says how far this wire comes before it is stopped.
        if permits.next().transpose()?.is_none() {
            return Ok(());
        }
        let merchant = text("merchant")?;
        let cents = message["cents"].as_i64().ok_or("a row without an amount")?;
        let left = Duration::from_millis(message["left_ms"].as_u64().ok_or("a row without its time")?);
        match books.settle(merchant, cents, token, left)? {
            Row::Settled => println!("settled {merchant}"),
            Row::Refused(refusal) => println!("refused {} {merchant}: {refusal}", refusal.code()),
        }
    }
    Ok(())
}

/// One line, byte by byte: what is behind it stays in the socket's buffer.
fn unbuffered(stream: &mut UnixStream) -> Result<Option<String>, Fault> {
    let mut line = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 {
        if byte[0] == b'\n' {
            return Ok(Some(String::from_utf8(line)?));
        }
        line.push(byte[0]);
    }
    Ok(None)
}
