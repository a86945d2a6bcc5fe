//! `leasehold backup`: the whole state into one file, while the server serves.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use leasehold::{Client, Code, Error};
use leasehold_server::backup::{Header, read};
use serde_json::json;

use crate::connection::Everywhere;
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
    let draft = draft(&args.file)?;
    let made = ask.run(async |client| copy(client, &draft).await).and_then(|()| settle(&draft, &args.file));
    if made.is_err() {
        // Half a backup is none; if it cannot be removed, its name still says that it is a draft.
        let _ = fs::remove_file(&draft);
    }
    let header = made?;
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

/// Where the copy is written until it is whole.
fn draft(file: &Path) -> Result<PathBuf, Failure> {
    let at = file.display();
    if fs::symlink_metadata(file).is_ok() {
        return Err(Error::config("file", format!("{at} is there already; name a new file")).into());
    }
    let name = file.file_name().ok_or_else(|| Error::config("file", format!("{at} is no file; name one")))?;
    let mut draft = name.to_owned();
    draft.push(".part");
    Ok(file.with_file_name(draft))
}

async fn copy(client: Client, draft: &Path) -> Result<(), Failure> {
    let mut copying = client.backup().await?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft);
    let file = file.as_mut().map_err(|error| not_written(draft, error))?;
    while let Some(piece) = copying.piece().await? {
        file.write_all(&piece).map_err(|error| not_written(draft, &error))?;
    }
    file.sync_all().map_err(|error| not_written(draft, &error))
}

/// Reads the copy back, checks all of it, and gives it its name.
fn settle(draft: &Path, file: &Path) -> Result<Header, Failure> {
    let bytes = fs::read(draft).map_err(|error| not_written(draft, &error))?;
    let whole = read(&bytes).map_err(|wrong| Error::new(Code::Corrupt, format!("{}: {wrong}", file.display())))?;
    fs::rename(draft, file).map_err(|error| not_written(file, &error))?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| not_written(folder, &error))?;
    Ok(whole.header)
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let at = path.display();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::new(Code::StorageFull, format!("{at}: no space left; free some and begin again")).into()
        }
        _ => Error::config("file", format!("{at} cannot be written: {error}; name another file")).into(),
    }
}
