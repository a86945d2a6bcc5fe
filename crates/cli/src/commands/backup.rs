//! `leasehold backup`: copies the whole state of a running server into one file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use futures::TryStreamExt;
use leasehold::{Client, Code, Error};
use leasehold_server::backup::{BackupHeader, decode};
use serde_json::json;

use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandResult};
use crate::part_file::{PartFile, write_error};
use crate::table::key_values;

/// Back up the whole state of a running server to a file
///
/// The file appears under its name only after it is complete, verified and synced to disk. It contains no session secret
/// in clear text, and only you can read it; protect it as you protect the data directory. `leasehold restore` creates a data directory from it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold backup /backups/leasehold-$(date +%F).backup")]
pub struct Args {
    /// File to write; it must not exist
    file: PathBuf,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let mut file = PartFile::create(&args.file)?;
    let written = global.with_client(async |client| copy(client, &mut file).await)?;
    let header = verify(written, &args.file)?;
    file.commit()?;
    let body = json!({
        "file": args.file.display().to_string(),
        "bytes": header.total(),
        "cluster": header.cluster.to_string(),
        "incarnation": header.incarnation.to_string(),
        "position": header.position,
        "counter": header.counter.to_string(),
        "taken_wall_ms": header.wall.0,
    });
    Ok(global.output(&body, || {
        key_values(&[
            ("file", args.file.display().to_string()),
            ("bytes", header.total().to_string()),
            ("cluster", header.cluster.to_string()),
            ("position", header.position.to_string()),
            ("highest number", header.counter.to_string()),
        ])
    }))
}

async fn copy(client: Client, file: &mut PartFile) -> Result<File, CommandError> {
    let mut backup = client.backup().await?;
    while let Some(chunk) = backup.try_next().await? {
        file.write(&chunk)?;
    }
    file.sync()
}

/// Reads the written file back and checks all of it. `name` is its final name, for messages.
fn verify(mut file: File, name: &Path) -> Result<BackupHeader, CommandError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| write_error(name, &error))?;
    let backup = decode(&bytes).map_err(|error| Error::new(Code::Corrupt, format!("{}: {error}", name.display())))?;
    Ok(backup.header)
}
