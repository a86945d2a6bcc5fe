//! `leasehold audit`: exports the audit log and verifies its hash chain, with or without a server.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use futures::TryStreamExt;
use leasehold::json::AuditVerificationBody;
use leasehold::{AuditFilter, Client, Code, Error};
use leasehold_server::audit::{ExpectedEntry, unhex, verify_export_with};
use serde_json::json;

use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult};
use crate::part_file::PartFile;
use crate::table::key_values;

/// Export and verify the audit log
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold audit export monday.jsonl && leasehold audit verify monday.jsonl")]
pub struct Args {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(clap::Subcommand)]
enum AuditCommand {
    Export(ExportArgs),
    Verify(VerifyArgs),
}

/// Export the stored audit log to a file of JSON lines, one entry per line
///
/// The file appears under its name only after it is complete, verified and synced to disk.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold audit export /audit/leasehold-$(date +%F).jsonl")]
struct ExportArgs {
    /// File to write; it must not exist
    file: PathBuf,
}

/// Verify the hash chain of an audit log: no entry is missing, changed or added
///
/// With a file, works without a server. Without one, the server verifies its own audit log. The chain has no key: anyone who can write
/// the file can cut it or compute another one. Note the last entry and its hash elsewhere, and pass them with `--expect`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  leasehold audit verify monday.jsonl --expect 1042:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)]
struct VerifyArgs {
    /// File from `leasehold audit export` or `GET /v1/audit`
    file: Option<PathBuf>,
    /// An entry that was noted elsewhere; the log must contain it with this hash
    #[arg(long, value_name = "ENTRY:HASH")]
    expect: Option<ExpectedEntry>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    match &args.command {
        AuditCommand::Export(ExportArgs { file }) => export(file, global),
        AuditCommand::Verify(VerifyArgs { file: Some(file), expect }) => {
            Ok(proof_output(&verify(open(file)?, file, *expect)?, global))
        }
        AuditCommand::Verify(VerifyArgs { file: None, expect }) => {
            Ok(proof_output(&global.call(async |client| verify_server(&client, *expect).await)?, global))
        }
    }
}

fn export(path: &Path, global: &GlobalArgs) -> CommandResult {
    let mut file = PartFile::create(path)?;
    let written = global.with_client(async |client| copy(client, &mut file).await)?;
    let proof = verify(written, path, None)?;
    file.commit()?;
    let name = path.display().to_string();
    let body = json!({
        "file": name, "first": proof.first, "last": proof.last, "entries": proof.entries, "hash": proof.hash,
    });
    Ok(global.output(&body, || {
        let mut lines = vec![("file", name)];
        lines.extend(proof_lines(&proof));
        key_values(&lines)
    }))
}

async fn copy(client: Client, file: &mut PartFile) -> Result<File, CommandError> {
    let mut export = client.export_audit().await?;
    while let Some(chunk) = export.try_next().await? {
        file.write(&chunk)?;
    }
    file.sync()
}

fn open(path: &Path) -> Result<File, CommandError> {
    let failed = |error| format!("cannot read {}: {error}; check the path and its mode", path.display());
    File::open(path).map_err(|error| Error::config("file", failed(error)).into())
}

/// Verifies a whole exported file. `name` is its final name, for messages.
fn verify(file: File, name: &Path, expect: Option<ExpectedEntry>) -> Result<AuditVerificationBody, CommandError> {
    let name = name.display().to_string();
    let found = verify_export_with(BufReader::new(file), expect)
        .map_err(|bad| Error::corrupt_file(&name, bad.line, bad.to_string()))?;
    Ok(AuditVerificationBody::whole(found.first, found.last, &found.hash).with_gaps(found.gaps))
}

/// Lets the server verify its audit log, and compares an entry that was noted elsewhere.
async fn verify_server(client: &Client, expect: Option<ExpectedEntry>) -> Result<AuditVerificationBody, Error> {
    let proof = client.verify_audit().await?;
    if let Some(expected) = expect {
        let filter = AuditFilter::new().after(expected.entry - 1).before(expected.entry + 1);
        let page = client.audit(filter).try_next().await?;
        let found = page.and_then(|page| page.entries.into_iter().find(|entry| entry.entry == expected.entry));
        let found = found.and_then(|entry| unhex(&entry.hash));
        let (first, last) = (proof.first.unwrap_or(0), proof.last.unwrap_or(0));
        expected
            .check(found.as_ref(), first, last)
            .map_err(|reason| Error::new(Code::Corrupt, format!("{reason}; compare it with an export")))?;
    }
    Ok(proof)
}

fn proof_output(proof: &AuditVerificationBody, global: &GlobalArgs) -> CommandOutput {
    global.output(proof, || key_values(&proof_lines(proof)))
}

fn proof_lines(proof: &AuditVerificationBody) -> Vec<(&'static str, String)> {
    let number = |number: Option<u64>| number.unwrap_or(0);
    let (entries, first, last) = (number(proof.entries), number(proof.first), number(proof.last));
    let mut lines = vec![
        ("complete", format!("{entries} entries, {first} to {last}")),
        ("last hash", proof.hash.clone().unwrap_or_default()),
    ];
    if let Some(gaps) = proof.gaps {
        lines.push(("gaps", format!("{gaps}; entries before each are missing, see `leasehold history`")));
    }
    lines
}
