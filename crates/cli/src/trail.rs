//! `leasehold trail export` and `trail verify`: the audit trail as a file, and its proof, with a server and without.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use leasehold::json::ProofBody;
use leasehold::{Client, Error};
use leasehold_server::trail::check;
use serde_json::json;

use crate::connection::Everywhere;
use crate::draft::Draft;
use crate::table::block;
use crate::told::{Failure, Outcome};

/// Keep and prove the audit trail
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold trail export monday.jsonl && leasehold trail verify monday.jsonl")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Export(Export),
    Verify(Verify),
}

/// Copy all of the trail that is kept into a file: lines of JSON, one entry each
///
/// The file appears under its name only when it is whole, proved and on the disk.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold trail export /audit/leasehold-$(date +%F).jsonl")]
struct Export {
    /// The file to write; it must not be there yet
    file: PathBuf,
}

/// Prove a trail: every entry follows on the one before it, none is missing, changed or added
///
/// Without a file the server walks through its own. With one nobody is asked. Compare the last hash with one that you
/// kept elsewhere.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold trail verify monday.jsonl")]
struct Verify {
    /// What `trail export` wrote, or what `GET /v1/trail` gave
    file: Option<PathBuf>,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    match &args.command {
        Command::Export(Export { file }) => export(file, ask),
        Command::Verify(Verify { file: Some(file) }) => Ok(proved(&prove(file, file)?, ask)),
        Command::Verify(Verify { file: None }) => {
            Ok(proved(&ask.ask(async |client| client.verify_trail().await)?, ask))
        }
    }
}

fn export(file: &Path, ask: &Everywhere) -> Outcome {
    let mut draft = Draft::of(file)?;
    ask.run(async |client| copy(client, &mut draft).await)?;
    let found = prove(draft.path(), file)?;
    draft.settle()?;
    let shown = file.display().to_string();
    let body = json!({
        "file": shown, "first": found.first, "last": found.last, "entries": found.entries, "hash": found.hash,
    });
    Ok(ask.answer(&body, || {
        let mut lines = vec![("file", shown)];
        lines.extend(told(&found));
        block(&lines)
    }))
}

async fn copy(client: Client, draft: &mut Draft) -> Result<(), Failure> {
    let mut exporting = client.export_trail().await?;
    while let Some(piece) = exporting.piece().await? {
        draft.write(&piece)?;
    }
    draft.sync()
}

/// Reads a file from beginning to end; `name` is what people call it.
fn prove(path: &Path, name: &Path) -> Result<ProofBody, Failure> {
    let shown = name.display().to_string();
    let file = File::open(path)
        .map_err(|error| Error::config("file", format!("{shown}: {error}; name an export that can be read")))?;
    let found = check(BufReader::new(file)).map_err(|bad| Error::damaged(&shown, bad.line, bad.to_string()))?;
    Ok(ProofBody::whole(found.first, found.last, &found.hash))
}

fn proved(found: &ProofBody, ask: &Everywhere) -> crate::told::Answer {
    ask.answer(found, || block(&told(found)))
}

fn told(found: &ProofBody) -> Vec<(&'static str, String)> {
    let number = |number: Option<u64>| number.unwrap_or(0);
    let (entries, first, last) = (number(found.entries), number(found.first), number(found.last));
    vec![
        ("whole", format!("{entries} entries, {first} to {last}")),
        ("last hash", found.hash.clone().unwrap_or_default()),
    ]
}
