//! Private runtime directory of a wrapper: the supervisor's socket, the notification socket and the start error.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use leasehold::Error;
use rustix::rand::{GetRandomFlags, getrandom};

/// Socket between the wrapper and its supervisor.
const CONTROL: &str = "supervisor";
/// Socket for progress notifications.
const PROGRESS: &str = "progress";
/// File with the error of a command that could not be started.
const START_ERROR: &str = "start-error";

/// A directory that is removed on drop, or by the supervisor if the wrapper is killed.
pub struct RuntimeDir(PathBuf);

impl RuntimeDir {
    pub fn create() -> Result<Self, Error> {
        let parent = std::env::temp_dir();
        let failed = |error: io::Error| {
            let path = parent.display();
            Error::config("TMPDIR", format!("cannot create a directory in {path}: {error}; set another TMPDIR"))
        };
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty()).map_err(|error| failed(error.into()))?;
        let path = parent.join(format!("leasehold-run-{:016x}", u64::from_ne_bytes(random)));
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Path of the supervisor's socket.
pub fn control(directory: &Path) -> PathBuf {
    directory.join(CONTROL)
}

/// Path of the notification socket.
pub fn progress(directory: &Path) -> PathBuf {
    directory.join(PROGRESS)
}

/// Path of the start error.
pub fn start_error(directory: &Path) -> PathBuf {
    directory.join(START_ERROR)
}

/// Removes a runtime directory and its own files. Files of others stay, and then the directory too.
pub fn remove(directory: &Path) {
    // Errors are ignored: the files may not exist.
    let _ = fs::remove_file(control(directory));
    let _ = fs::remove_file(progress(directory));
    let _ = fs::remove_file(start_error(directory));
    let _ = fs::remove_dir(directory);
}
