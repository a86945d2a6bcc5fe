//! The file of these tests.

use std::path::PathBuf;

use leasehold_fence::Error;
use leasehold_fence::file::Replace;
use tempfile::TempDir;

use crate::support::{CLUSTER, name};

pub struct Leader {
    pub dir: TempDir,
}

impl Leader {
    /// A folder with nothing in it.
    pub fn nowhere() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory for the test");
        Self { dir }
    }

    pub fn new() -> Self {
        let leader = Self::nowhere();
        Replace::create(&leader.file(), CLUSTER, name(), 0, b"").expect("created");
        leader
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("leader.conf")
    }

    pub fn try_open(&self) -> Result<Replace, Error> {
        Replace::open(&self.file(), CLUSTER, name(), 0)
    }

    /// One more handle, as another process would have it.
    pub fn open(&self) -> Replace {
        self.try_open().expect("opened")
    }

    /// What anybody reads.
    pub fn content(&self) -> String {
        std::fs::read_to_string(self.file()).expect("the file")
    }

    /// The names of all files in the folder.
    pub fn names(&self) -> Vec<String> {
        let all = std::fs::read_dir(self.dir.path()).expect("the folder");
        let mut names: Vec<_> =
            all.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort_unstable();
        names
    }
}
