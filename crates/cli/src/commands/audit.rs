//! `leasehold audit`: exports the audit log and its signed heads, verifies them with or without a server, and lists denials.

mod verify_trace_page;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};

use futures::TryStreamExt;
use leasehold::json::AuditVerificationBody;
use leasehold::{AuditFilter, Client, Code, Error};
use leasehold_seal::SealKeys;
use leasehold_server::audit::{
    AuditProof, ExpectedEntry, ExportLineError, HeadCheck, parse_heads, unhex, verify_export_with,
};
use serde_json::json;

use crate::global_args::GlobalArgs;
use crate::input_file;
use crate::output::{CommandError, CommandOutput, CommandResult};
use crate::part_file::PartFile;
use crate::table::{TextTable, format_time, key_values, or_dash};

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
    Heads(HeadsArgs),
    Denials(DenialsArgs),
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
/// With a file, works without a server. Without one, the server verifies its own audit log. A page of `leasehold trace --html` must also
/// be the one that follows from its chain. The chain has no key: anyone who can write
/// the file can cut it or compute another one. Signed heads that were stored elsewhere reveal that (`--heads`, `--keys`); so does an
/// entry that was noted elsewhere (`--expect`).
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  leasehold audit verify monday.jsonl --expect 1042:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n  \
                  leasehold audit verify monday.jsonl --heads heads.jsonl --keys keys.json"
)]
struct VerifyArgs {
    /// File from `leasehold audit export`, `GET /v1/audit` or `leasehold trace --html`
    file: Option<PathBuf>,
    /// An entry that was noted elsewhere; the log must contain it with this hash
    #[arg(long, value_name = "ENTRY:HASH")]
    expect: Option<ExpectedEntry>,
    /// Signed heads from `leasehold audit heads`; the log must agree with all of them
    #[arg(long, value_name = "FILE", requires = "keys")]
    heads: Option<PathBuf>,
    /// Public keys from `leasehold keys export`; only heads that they signed count
    #[arg(long, value_name = "FILE", requires = "heads")]
    keys: Option<PathBuf>,
}

/// Export the signed heads of the audit log to a file of JSON lines, one head per line
///
/// A server with a seal key signs the end of its audit log every 60 seconds and every 10,000 entries. Store the file where the
/// server cannot write: it then proves which entries existed.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold audit heads /audit/heads-$(date +%F).jsonl")]
struct HeadsArgs {
    /// File to write; it must not exist
    file: PathBuf,
}

/// List the last requests that the access rules refused, newest first
///
/// The server that answers keeps the last 1,000 in memory. They are not in the audit log, because anyone can cause them.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold --as admin audit denials")]
struct DenialsArgs {}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    match &args.command {
        AuditCommand::Export(ExportArgs { file }) => export(file, global),
        AuditCommand::Verify(args) => run_verify(args, global),
        AuditCommand::Heads(HeadsArgs { file }) => heads(file, global),
        AuditCommand::Denials(DenialsArgs {}) => denials(global),
    }
}

fn run_verify(args: &VerifyArgs, global: &GlobalArgs) -> CommandResult {
    let known = known_heads(args)?;
    let proof = match &args.file {
        Some(file) => {
            let mut opened = BufReader::new(open(file)?);
            if verify_trace_page::is_page(&mut opened) {
                return verify_trace_page::verify(opened, file, known, global);
            }
            verify(opened, file, known)?
        }
        None if args.heads.is_none() => global.call(async |client| verify_server(&client, args.expect).await)?,
        // The heads are compared here, not by a server whose files may have been changed.
        None => global.with_client(async |client| verify_download(client, known).await)?,
    };
    Ok(proof_output(&proof, global))
}

/// What is known of the log: heads that one of the keys signed, and the entry that was noted.
fn known_heads(args: &VerifyArgs) -> Result<HeadCheck, CommandError> {
    let mut known = Vec::new();
    if let (Some(heads), Some(keys)) = (&args.heads, &args.keys) {
        let refused =
            |path: &Path, reason: String| Error::config_in_file(&path.display().to_string(), None, "", reason);
        let keys = SealKeys::from_json(&input_file::read(keys)?).map_err(|error| refused(keys, error.to_string()))?;
        let name = heads.display().to_string();
        let parsed = parse_heads(BufReader::new(open(heads)?));
        let parsed = parsed.map_err(|bad| Error::corrupt_file(&name, bad.line, bad.to_string()))?;
        if parsed.is_empty() {
            return Err(refused(
                heads,
                format!("{name} contains no head; export it again with `leasehold audit heads`"),
            )
            .into());
        }
        for head in &parsed {
            let end = head.verify(&keys).map_err(|error| {
                Error::new(
                    Code::Corrupt,
                    format!("{name}: {error}; export the keys and the heads again, from a server you trust"),
                )
            })?;
            known.push(ExpectedEntry::from(&end));
        }
    }
    HeadCheck::new(known, args.expect)
        .map_err(|mismatch| Error::new(Code::Corrupt, format!("{mismatch}; use the heads of one server")).into())
}

fn export(path: &Path, global: &GlobalArgs) -> CommandResult {
    let mut file = PartFile::create(path)?;
    let written = global.with_client(async |client| copy(client, &mut file).await)?;
    let proof = verify(BufReader::new(written), path, HeadCheck::default())?;
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
fn verify(file: impl BufRead, name: &Path, known: HeadCheck) -> Result<AuditVerificationBody, CommandError> {
    let name = name.display().to_string();
    let found = verify_export_with(file, known);
    Ok(proof_body(&found.map_err(|bad| Error::corrupt_file(&name, bad.line, bad.to_string()))?))
}

fn proof_body(proof: &AuditProof) -> AuditVerificationBody {
    AuditVerificationBody::whole(proof.first, proof.last, &proof.hash).with_gaps(proof.gaps).with_heads(proof.heads)
}

/// Verifies the log while it is downloaded, without a file.
async fn verify_download(client: Client, known: HeadCheck) -> Result<AuditVerificationBody, CommandError> {
    // The server names the file and the offset of damage, and exports nothing of a damaged log.
    client.verify_audit().await?;
    let (sender, receiver) = sync_channel(4);
    let verifier = std::thread::spawn(move || verify_export_with(BufReader::new(ChunkReader::new(receiver)), known));
    let mut export = client.export_audit().await?;
    while let Some(chunk) = export.try_next().await? {
        // The verifier ends early at the first error.
        if sender.send(chunk).is_err() {
            break;
        }
    }
    drop(sender);
    let found: Result<AuditProof, ExportLineError> = verifier.join().expect("the verifier does not panic");
    let found = found.map_err(|bad| Error::new(Code::Corrupt, format!("audit log of the server: {bad}")))?;
    Ok(proof_body(&found))
}

/// Reads chunks from a channel as one stream.
struct ChunkReader {
    chunks: Receiver<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
}

impl ChunkReader {
    const fn new(chunks: Receiver<Vec<u8>>) -> Self {
        Self { chunks, current: Vec::new(), at: 0 }
    }
}

impl Read for ChunkReader {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.at == self.current.len() {
            match self.chunks.recv() {
                Ok(chunk) => (self.current, self.at) = (chunk, 0),
                Err(_) => return Ok(0),
            }
        }
        let got = (&self.current[self.at..]).read(into)?;
        self.at += got;
        Ok(got)
    }
}

fn heads(path: &Path, global: &GlobalArgs) -> CommandResult {
    let mut file = PartFile::create(path)?;
    let heads = global.call(async |client| client.audit_heads().await)?;
    let mut lines = Vec::new();
    for head in &heads {
        serde_json::to_writer(&mut lines, head).expect("writing to a buffer does not fail");
        lines.push(b'\n');
    }
    file.write(&lines)?;
    file.sync()?;
    file.commit()?;
    let name = path.display().to_string();
    let last = heads.last().map_or(0, |head| head.entry);
    let body = json!({ "file": name, "heads": heads.len(), "last": last });
    let note = heads
        .is_empty()
        .then(|| "the server has signed no head; give it a seal key (`leasehold keys create`)".to_owned());
    let output = global.output(&body, || {
        key_values(&[("file", name), ("heads", heads.len().to_string()), ("last entry", last.to_string())])
    });
    Ok(output.with_note(note))
}

fn denials(global: &GlobalArgs) -> CommandResult {
    let found = global.call(async |client| client.denials().await)?;
    let listed = found.denials.len() as u64;
    let note = (found.total > listed).then(|| format!("{} older denials are not kept", found.total - listed));
    let names = found.denials.iter().map(|denial| denial.principal.clone());
    let output = global.listing(&found, names, || {
        let mut table = TextTable::new(["TIME", "PRINCIPAL", "VIA", "CREDENTIAL", "FROM", "ACTION", "REASON"]);
        for denial in &found.denials {
            let or_dash = |text: &String| or_dash(Some(text).filter(|text| !text.is_empty()));
            table.row([
                format_time(denial.wall_ms),
                denial.principal.clone(),
                denial.via.clone(),
                or_dash(&denial.credential),
                or_dash(&denial.from),
                denial.action.clone(),
                denial.reason.clone(),
            ]);
        }
        table.text()
    });
    let output = global.or_empty(output, found.denials.is_empty(), || {
        "no denials since this server started; another server of the cluster keeps its own".to_owned()
    });
    Ok(output.with_note(note))
}

/// Lets the server verify its audit log, and compares an entry that was noted elsewhere.
async fn verify_server(client: &Client, expect: Option<ExpectedEntry>) -> Result<AuditVerificationBody, Error> {
    let proof = client.verify_audit().await?;
    if let Some(expected) = expect {
        let filter = AuditFilter::new().after(expected.entry - 1).before(expected.entry + 1);
        let page = client.audit(filter).try_next().await?;
        let found = page.and_then(|page| page.entries.into_iter().find(|entry| entry.entry == expected.entry));
        let (first, last) = (proof.first.unwrap_or(0), proof.last.unwrap_or(0));
        let mut known = HeadCheck::new([], Some(expected)).expect("one entry contradicts none");
        if let Some(hash) = found.and_then(|entry| unhex(&entry.hash)) {
            known.see(expected.entry, &hash);
        }
        known
            .finish(first, last)
            .map_err(|mismatch| Error::new(Code::Corrupt, format!("{mismatch}; compare it with an export")))?;
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
    if let Some(heads) = proof.heads {
        lines.push(("heads", format!("{heads} signed heads agree")));
    }
    if let Some(gaps) = proof.gaps {
        lines.push(("gaps", format!("{gaps}; entries before each are missing, see `leasehold history`")));
    }
    lines
}
