//! `leasehold trail verify`: the proof of an exported audit trail, without a server.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use leasehold::{Code, Error};
use leasehold_server::trail::{check, hex};
use serde_json::json;

use crate::connection::Everywhere;
use crate::table::block;
use crate::told::Outcome;

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
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold trail verify monday.jsonl")]
struct Verify {
    /// The exported file
    file: PathBuf,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let Command::Verify(args) = &args.command;
    let shown = args.file.display();
    let file = File::open(&args.file)
        .map_err(|error| Error::config("file", format!("{shown}: {error}; name an export that can be read")))?;
    let found = check(BufReader::new(file)).map_err(|bad| Error::new(Code::Corrupt, format!("{shown}: {bad}")))?;
    let (entries, hash) = (found.entries(), hex(&found.hash));
    let body = json!({ "whole": true, "first": found.first, "last": found.last, "entries": entries, "hash": hash });
    Ok(ask.answer(&body, || {
        block(&[
            ("whole", format!("{entries} entries, {} to {}", found.first, found.last)),
            ("last hash", hash.clone()),
        ])
    }))
}
