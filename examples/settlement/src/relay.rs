//! The relay from a worker to the targets, in a process of its own. Rows that it has not read yet are in a socket buffer, where the
//! worker cannot recall them.

use std::io::{BufRead, Read, Write, stdin};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::AnyError;
use crate::targets::{SettleOutcome, SettlementTargets};

pub const SUBCOMMAND: &str = "__relay";

/// `DIRECTORY fenced|unfenced CLUSTER SOCKET`
pub fn run(args: &[&str]) -> Result<(), AnyError> {
    let [dir, fenced, cluster, socket] = *args else { return Err("the relay needs four arguments".into()) };
    let mut targets = SettlementTargets::open(Path::new(dir), fenced == "fenced", cluster.parse()?)?;
    let listener = UnixListener::bind(socket)?;
    println!("ready");
    let (mut stream, _) = listener.accept()?;
    let mut permits = stdin().lock().lines();
    while let Some(line) = read_line(&mut stream)? {
        let message: Value = serde_json::from_str(&line)?;
        let text = |field: &str| message[field].as_str().ok_or("a field is missing in a message");
        let token = text("token")?;
        if message["claim"] == true {
            let claimed = targets.claim(token);
            // Reads after the claim: no predecessor can change it any more.
            let answer = match claimed {
                Ok(()) => json!({ "settled": targets.settled()? }),
                Err(error) => json!({ "refused": error.to_string() }),
            };
            writeln!(stream, "{answer}")?;
            continue;
        }
        // The scenario permits every row, so that it controls where the relay stops.
        if permits.next().transpose()?.is_none() {
            return Ok(());
        }
        let merchant = text("merchant")?;
        let cents = message["cents"].as_i64().ok_or("a row has no amount")?;
        let remaining = Duration::from_millis(message["remaining_ms"].as_u64().ok_or("a row has no remaining time")?);
        match targets.settle(merchant, cents, token, remaining)? {
            SettleOutcome::Settled => println!("settled {merchant}"),
            SettleOutcome::Refused(refusal) => println!("refused {} {merchant}: {refusal}", refusal.code()),
        }
    }
    Ok(())
}

/// Reads one line byte by byte, so that the following lines stay in the socket buffer.
fn read_line(stream: &mut UnixStream) -> Result<Option<String>, AnyError> {
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
