//! Lists the marks of fenced files in a directory. A restore uses them to choose higher token numbers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::log_format::{HEADER_LEN, HeaderError, LogHeader};
use super::{FencedLog, atomic_file};
use crate::{Error, MarkInfo};

/// Returns the marks at this path: of a log or a fenced file, or of all such files of a directory.
pub fn list_marks(path: &Path) -> Result<Vec<MarkInfo>, Error> {
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        files = std::fs::read_dir(path)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<PathBuf>, _>>()?;
        files.retain(|file| file.is_file() && !atomic_file::is_temp_file(file));
        files.sort_unstable();
    }
    files.iter().filter_map(|file| file_mark(file).transpose()).collect()
}

fn file_mark(path: &Path) -> Result<Option<MarkInfo>, Error> {
    match atomic_file::open(path)?.mark_info()? {
        None => log_mark(path),
        mark => Ok(mark),
    }
}

/// The mark of a log; `None` if the file is not a log.
fn log_mark(path: &Path) -> Result<Option<MarkInfo>, Error> {
    let file = File::open(path)?;
    let mut bytes = [0; HEADER_LEN];
    if file.metadata()?.len() < bytes.len() as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut bytes, 0)?;
    match LogHeader::decode(&bytes) {
        Err(HeaderError::Shape) => Ok(None),
        _ => Ok(FencedLog::list_marks(path)?.pop()),
    }
}
