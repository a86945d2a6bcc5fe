//! A worker of the nightly settlement: acquires the lease, claims the targets, reads what is settled, and sends its rows.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write, stdin};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use leasehold::blocking::Client;
use serde_json::{Value, json};

use crate::targets::RESOURCE;
use crate::{AnyError, OWED};

pub const SUBCOMMAND: &str = "__worker";

/// `ADDRESS NAME TTL_MS SOCKET`
pub fn run(args: &[&str]) -> Result<(), AnyError> {
    let [address, name, ttl, socket] = *args else { return Err("the worker needs four arguments".into()) };
    let ttl = Duration::from_millis(ttl.parse()?);
    let client = Client::new(address)?;
    let lock = client.lock(RESOURCE).holder(name).ttl(ttl).wait(Duration::from_secs(3_600));
    println!("waiting");
    // From here on a thread of the client renews the lease, three times per ttl.
    let guard = lock.acquire().map_err(|failure| failure.to_string())?;
    println!("granted {}", guard.token_number());

    let mut stream = UnixStream::connect(socket)?;
    send(&mut stream, &json!({ "claim": true, "token": guard.token().as_str() }))?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let answer: Value = serde_json::from_str(&line)?;
    let settled = answer["settled"].as_array().ok_or_else(|| format!("the claim was refused: {answer}"))?;
    let settled: BTreeSet<&str> = settled.iter().filter_map(Value::as_str).collect();
    println!("read {}", settled.len());

    let unsettled = OWED.iter().filter(|(merchant, _)| !settled.contains(merchant));
    let mut sent = 0;
    for (merchant, cents) in unsettled {
        let remaining = u64::try_from(guard.remaining().as_millis())?;
        send(
            &mut stream,
            &json!({ "merchant": merchant, "cents": cents, "token": guard.token().as_str(), "remaining_ms": remaining }),
        )?;
        sent += 1;
    }
    println!("sent {sent}");
    for command in stdin().lock().lines() {
        match command?.as_str() {
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

/// Writes a message in one call: the socket buffer has room for all rows, but not for single bytes in packets of their own.
fn send(stream: &mut UnixStream, message: &Value) -> std::io::Result<()> {
    stream.write_all(format!("{message}\n").as_bytes())
}
