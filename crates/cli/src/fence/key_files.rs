//! Key files of fences: public seal keys, which a running fence reads again when they change, and stamp keys.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_fence::postgres::StampKey;
use leasehold_fence::{SealKeys, SealVerifier};
use leasehold_server::credential_file;

use crate::input_file;
use crate::output::{CommandError, error_with_code};

/// How often a running fence looks whether the file changed.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// Reads public seal keys, as `leasehold keys export` writes them. A file without keys would refuse every token, so it is an
/// error.
pub fn read_seal_keys(path: &Path) -> Result<SealKeys, CommandError> {
    let keys = SealKeys::from_json(&input_file::read(path)?);
    let keys = keys.map_err(|error| error_with_code("CONFIG", &format!("{}: {error}", path.display())))?;
    if keys.is_empty() {
        let message = format!("{} has no key; export the keys of a cluster that has one", path.display());
        return Err(error_with_code("CONFIG", &message));
    }
    Ok(keys)
}

/// Reads a stamp key. The file must be private.
pub fn read_stamp_key(path: &Path) -> Result<StampKey, CommandError> {
    let bytes = credential_file::read_private(path).map_err(|error| error_with_code("CONFIG", &error))?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    StampKey::from_file_text(text).map_err(|error| error_with_code("CONFIG", &format!("{}: {error}", path.display())))
}

/// Reads the keys again whenever the file changes, until the task is aborted. An invalid file is logged, and the keys stay.
pub async fn reload(path: PathBuf, verifier: SealVerifier) {
    let mut known = version(&path);
    loop {
        tokio::time::sleep(RELOAD_INTERVAL).await;
        let current = version(&path);
        if current == known {
            continue;
        }
        known = current;
        match read_seal_keys(&path) {
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "seal keys reloaded");
                verifier.replace_keys(keys);
            }
            Err(error) => tracing::warn!("seal keys unchanged, because they cannot be loaded: {error}"),
        }
    }
}

/// What changes when a file is written or replaced.
fn version(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let version = |known: Metadata| (known.ino(), known.len(), known.mtime(), known.mtime_nsec());
    std::fs::metadata(path).map(version).ok()
}
