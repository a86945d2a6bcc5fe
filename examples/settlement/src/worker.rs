//! A worker of the nightly run: takes the lease, claims, reads what is left to do, and sends its rows.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write, stdin};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use leasehold::{Client, blocking};
use serde_json::{Value, json};

use crate::books::RESOURCE;
use crate::{Fault, OWED};

pub const WORD: &str = "__worker";

/// `ADDRESS NAME TTL_MS SOCKET`
pub fn play(words: &[&str]) -> Result<(), Fault> {
    let [address, name, ttl, socket] = *words else { return Err("a worker needs four words".into()) };
    let ttl = Duration::from_millis(ttl.parse()?);
    let client = blocking::Client::from(Client::try_from(address)?);
    let lock = client.lock(RESOURCE, |lock| lock.holder(name).ttl(ttl).wait(Duration::from_secs(3_600)));
    println!("waits");
    // From here on a thread of the client's renews, three times in a ttl.
    let guard = lock.acquire().map_err(|failure| failure.to_string())?;
    println!("granted {}", guard.token_number());

    let mut stream = UnixStream::connect(socket)?;
    send(&mut stream, &json!({ "claim": true, "token": guard.token() }))?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let answer: Value = serde_json::from_str(&line)?;
    let settled = answer["settled"].as_array().ok_or_else(|| format!("the claim was refused: {answer}"))?;
    let settled: BTreeSet<&str> = settled.iter().filter_map(Value::as_str).collect();
    println!("read {}", settled.len());

    let left = OWED.iter().filter(|(merchant, _)| !settled.contains(merchant));
    let mut sent = 0;
    for (merchant, cents) in left {
        let left = u64::try_from(guard.left().as_millis())?;
        send(&mut stream, &json!({ "merchant": merchant, "cents": cents, "token": guard.token(), "left_ms": left }))?;
        sent += 1;
    }
    println!("sent {sent}");
    for order in stdin().lock().lines() {
        match order?.as_str() {
            "release" => {
                guard.release().map_err(|failure| failure.to_string())?;
                println!("released");
                return Ok(());
            }
            _ => println!("held {}", guard.is_held()),
        }
    }
    Ok(())
}

/// In one piece: a socket's buffer has room for a night's rows, but not for each of their letters in a packet of its own.
fn send(stream: &mut UnixStream, message: &Value) -> std::io::Result<()> {
    stream.write_all(format!("{message}\n").as_bytes())
}
