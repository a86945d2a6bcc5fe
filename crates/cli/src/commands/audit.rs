//! `leasehold audit`: exports the audit log and verifies its hash chain, with or without a server.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use futures::TryStreamExt;
use leasehold::json::AuditVerificationBody;
use leasehold::{Client, Error};
use leasehold_server::audit::verify_export;
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
/// With a file, works without a server. Without one, the server verifies its own audit log. Compare the last hash with one
/// that you stored elsewhere.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold audit verify monday.jsonl")]
struct VerifyArgs {
    /// File from `leasehold audit export` or `GET /v1/audit`
    file: Option<PathBuf>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    match &args.command {
        AuditCommand::Export(ExportArgs { file }) => export(file, global),
        AuditCommand::Verify(VerifyArgs { file: Some(file) }) => Ok(proof_output(&verify(open(file)?, file)?, global)),
        AuditCommand::Verify(VerifyArgs { file: None }) => {
            Ok(proof_output(&global.call(async |client| client.verify_audit().await)?, global))
        }
    }
}

fn export(path: &Path, global: &GlobalArgs) -> CommandResult {
    let mut file = PartFile::create(path)?;
    let written = global.with_client(async |client| copy(client, &mut file).await)?;
    let proof = verify(written, path)?;
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
fn verify(file: File, name: &Path) -> Result<AuditVerificationBody, CommandError> {
    let name = name.display().to_string();
    let found =
        verify_export(BufReader::new(file)).map_err(|bad| Error::corrupt_file(&name, bad.line, bad.to_string()))?;
    Ok(AuditVerificationBody::whole(found.first, found.last, &found.hash))
}

fn proof_output(proof: &AuditVerificationBody, global: &GlobalArgs) -> CommandOutput {
    global.output(proof, || key_values(&proof_lines(proof)))
}

fn proof_lines(proof: &AuditVerificationBody) -> Vec<(&'static str, String)> {
    let number = |number: Option<u64>| number.unwrap_or(0);
    let (entries, first, last) = (number(proof.entries), number(proof.first), number(proof.last));
    vec![
        ("complete", format!("{entries} entries, {first} to {last}")),
        ("last hash", proof.hash.clone().unwrap_or_default()),
    ]
}
