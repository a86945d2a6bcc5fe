//! A fenced log in a temporary directory.

use std::path::PathBuf;

use leasehold_fence::Error;
use leasehold_fence::file::{FencedLog, LogReader};
use tempfile::TempDir;

use crate::support::fence_id;

pub struct TestLog {
    pub dir: TempDir,
}

impl TestLog {
    pub fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory for the test");
        let fixture = Self { dir };
        FencedLog::create(&fixture.file(), &fence_id()).expect("created");
        fixture
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("events.log")
    }

    pub fn try_open(&self) -> Result<FencedLog, Error> {
        FencedLog::open(&self.file(), &fence_id())
    }

    /// Opens another handle, as another process would.
    pub fn open(&self) -> FencedLog {
        self.try_open().expect("opened")
    }

    /// Token numbers and payloads of all entries.
    pub fn read(&self) -> Vec<(u64, Vec<u8>)> {
        let mut reader = LogReader::open(&self.file(), &fence_id()).expect("opened for reading");
        let all = std::iter::from_fn(|| reader.next().expect("it can be read"));
        let all = all.map(|entry| (entry.number.get(), entry.bytes)).collect();
        assert_eq!(reader.dropped(), 0, "no admitted entry is below the mark");
        all
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.read().into_iter().map(|(number, _)| number).collect()
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.file()).expect("the file")
    }

    /// Replaces the content of the file, without replacing the file.
    pub fn overwrite(&self, bytes: &[u8]) {
        std::fs::write(self.file(), bytes).expect("written");
    }
}
