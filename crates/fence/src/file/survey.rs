//! Every mark that the files of a folder keep, for whoever restores a cluster and must count on above them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::format::{HEADER, Header, NoHeader};
use super::{Log, stand};
use crate::{Error, Kept};

/// The marks kept at this path: of a log or a replaced file, or of all such files of a folder.
pub fn survey(path: &Path) -> Result<Vec<Kept>, Error> {
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        files = std::fs::read_dir(path)?.map(|entry| entry.map(|of| of.path())).collect::<Result<Vec<PathBuf>, _>>()?;
        files.retain(|file| file.is_file() && !stand::is_draft(file));
        files.sort_unstable();
    }
    files.iter().filter_map(|file| kept(file).transpose()).collect()
}

fn kept(path: &Path) -> Result<Option<Kept>, Error> {
    match stand::read(path)?.kept()? {
        None => log(path),
        replaced => Ok(replaced),
    }
}

/// A log's mark; nothing if it is no log.
fn log(path: &Path) -> Result<Option<Kept>, Error> {
    let file = File::open(path)?;
    let mut bytes = [0; HEADER];
    if file.metadata()?.len() < bytes.len() as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut bytes, 0)?;
    match Header::decode(&bytes) {
        Err(NoHeader::Shape) => Ok(None),
        _ => Ok(Log::survey(path)?.pop()),
    }
}
