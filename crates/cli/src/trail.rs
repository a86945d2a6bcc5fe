//! `leasehold trail verify`: the proof of an exported audit trail, without a server.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use leasehold_server::trail::{Verified, check, hex};
use serde_json::json;

use crate::{Failure, Outcome};

/// Look at an audit trail
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Verify(Verify),
}

/// Prove an exported trail: every entry follows on the one before it, none is missing, changed or added
///
/// An export is what `GET /v1/trail` gives. Compare the last hash with one that you kept elsewhere.
///
/// Example: leasehold trail verify monday.jsonl
#[derive(clap::Args)]
struct Verify {
    /// The exported file
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The file cannot be had.
const EXIT_CONFIG: u8 = 78;
/// What is stored is damaged.
const EXIT_CORRUPT: u8 = 65;

pub fn run(args: &Args) -> Outcome {
    let Command::Verify(args) = &args.command;
    let shown = args.file.display();
    let refused = |exit: u8, code: &str, why: String, line: Option<u64>| {
        let text = if args.json {
            json!({ "code": code, "file": shown.to_string(), "line": line, "message": why }).to_string()
        } else {
            format!("leasehold: {code}: {shown}: {why}")
        };
        Failure { exit, text }
    };
    let file = File::open(&args.file)
        .map_err(|error| refused(EXIT_CONFIG, "CONFIG", format!("{error}; name an export that can be read"), None))?;
    match check(BufReader::new(file)) {
        Ok(found) => Ok(told(&found, args.json)),
        Err(bad) => Err(refused(EXIT_CORRUPT, "CORRUPT", bad.to_string(), Some(bad.line))),
    }
}

fn told(found: &Verified, in_json: bool) -> String {
    let Verified { first, last, hash } = found;
    let (entries, hash) = (found.entries(), hex(hash));
    if in_json {
        return json!({ "whole": true, "first": first, "last": last, "entries": entries, "hash": hash }).to_string();
    }
    format!("whole        {entries} entries, {first} to {last}\nlast hash    {hash}")
}
