//! The directory of a wrapper: two sockets and a note that nobody else on the machine reaches, gone when it is.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use leasehold::Error;
use rustix::rand::{GetRandomFlags, getrandom};

/// Where the minder is spoken to.
const CONTROL: &str = "minder";
/// Where the command tells how far it is.
const PROGRESS: &str = "progress";
/// Where a starter leaves why there is no command.
const UNSTARTED: &str = "unstarted";

/// A directory that is removed when this is dropped. The minder removes it if the wrapper cannot.
pub struct Place(PathBuf);

impl Place {
    pub fn make() -> Result<Self, Error> {
        let under = std::env::temp_dir();
        let wrong = |error: io::Error| {
            let at = under.display();
            Error::config("TMPDIR", format!("{at}: no directory can be made there: {error}; set another"))
        };
        let mut chance = [0; 8];
        getrandom(&mut chance, GetRandomFlags::empty()).map_err(|error| wrong(error.into()))?;
        let path = under.join(format!("leasehold-run-{:016x}", u64::from_ne_bytes(chance)));
        DirBuilder::new().mode(0o700).create(&path).map_err(wrong)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Where the minder is spoken to, in a wrapper's directory.
pub fn control(directory: &Path) -> PathBuf {
    directory.join(CONTROL)
}

/// Where the command tells how far it is.
pub fn progress(directory: &Path) -> PathBuf {
    directory.join(PROGRESS)
}

/// Where a starter leaves why there is no command.
pub fn unstarted(directory: &Path) -> PathBuf {
    directory.join(UNSTARTED)
}

/// Removes a wrapper's directory and what belongs there, and nothing that somebody else put beside it.
pub fn remove(directory: &Path) {
    // Whatever is gone already is gone.
    let _ = fs::remove_file(control(directory));
    let _ = fs::remove_file(progress(directory));
    let _ = fs::remove_file(unstarted(directory));
    let _ = fs::remove_dir(directory);
}
