//! A fenced file in a temporary directory.

use std::path::PathBuf;

use leasehold_fence::Error;
use leasehold_fence::file::FencedFile;
use tempfile::TempDir;

use crate::support::fence_id;

pub struct TestFile {
    pub dir: TempDir,
}

impl TestFile {
    /// An empty directory.
    pub fn empty() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory for the test");
        Self { dir }
    }

    pub fn new() -> Self {
        let fixture = Self::empty();
        FencedFile::create(&fixture.file(), &fence_id(), b"").expect("created");
        fixture
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("leader.conf")
    }

    pub fn try_open(&self) -> Result<FencedFile, Error> {
        FencedFile::open(&self.file(), &fence_id())
    }

    /// Opens another handle, as another process would.
    pub fn open(&self) -> FencedFile {
        self.try_open().expect("opened")
    }

    /// The content, read without the fence.
    pub fn content(&self) -> String {
        std::fs::read_to_string(self.file()).expect("the file")
    }

    /// The names of all files in the directory.
    pub fn names(&self) -> Vec<String> {
        let all = std::fs::read_dir(self.dir.path()).expect("the directory");
        let mut names: Vec<_> =
            all.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort_unstable();
        names
    }
}
