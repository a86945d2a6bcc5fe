//! `leasehold backup`: the whole state into one file, while the server serves.

use std::fs;
use std::path::{Path, PathBuf};

use leasehold::{Client, Code, Error};
use leasehold_server::backup::{Header, read};
use serde_json::json;

use crate::connection::Everywhere;
use crate::draft::{Draft, not_written};
use crate::table::block;
use crate::told::{Failure, Outcome};

/// Copy the whole state into a file, while the server serves
///
/// The file appears under its name only when it is whole, checked and on the disk. It holds no session's secret in the
/// clear; keep it as you keep the data directory. `leasehold restore` makes a directory of it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold backup /backups/leasehold-$(date +%F).backup")]
pub struct Args {
    /// The file to write; it must not be there yet
    file: PathBuf,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let mut draft = Draft::of(&args.file)?;
    ask.run(async |client| copy(client, &mut draft).await)?;
    let header = read_back(&draft, &args.file)?;
    draft.settle()?;
    let body = json!({
        "file": args.file.display().to_string(),
        "bytes": header.total(),
        "cluster": header.cluster.to_string(),
        "incarnation": header.incarnation.to_string(),
        "position": header.position,
        "counter": header.counter.to_string(),
        "taken_wall_ms": header.wall.0,
    });
    Ok(ask.answer(&body, || {
        block(&[
            ("file", args.file.display().to_string()),
            ("bytes", header.total().to_string()),
            ("cluster", header.cluster.to_string()),
            ("position", header.position.to_string()),
            ("highest number", header.counter.to_string()),
        ])
    }))
}

async fn copy(client: Client, draft: &mut Draft) -> Result<(), Failure> {
    let mut copying = client.backup().await?;
    while let Some(piece) = copying.piece().await? {
        draft.write(&piece)?;
    }
    draft.sync()
}

/// Checks all of the copy.
fn read_back(draft: &Draft, file: &Path) -> Result<Header, Failure> {
    let bytes = fs::read(draft.path()).map_err(|error| not_written(draft.path(), &error))?;
    let whole = read(&bytes).map_err(|wrong| Error::new(Code::Corrupt, format!("{}: {wrong}", file.display())))?;
    Ok(whole.header)
}
