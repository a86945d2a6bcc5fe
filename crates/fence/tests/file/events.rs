//! The log of these tests.

use std::path::PathBuf;

use leasehold_fence::Error;
use leasehold_fence::file::{Log, Reader};
use tempfile::TempDir;

use crate::support::{CLUSTER, name};

pub struct Events {
    pub dir: TempDir,
}

impl Events {
    pub fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory for the test");
        let events = Self { dir };
        Log::create(&events.file(), CLUSTER, name(), 0).expect("created");
        events
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("events.log")
    }

    pub fn try_open(&self) -> Result<Log, Error> {
        Log::open(&self.file(), CLUSTER, name(), 0)
    }

    /// One more handle, as another process would have it.
    pub fn open(&self) -> Log {
        self.try_open().expect("opened")
    }

    /// The numbers and bytes of all that can be read.
    pub fn read(&self) -> Vec<(u64, Vec<u8>)> {
        let mut reader = Reader::open(&self.file(), CLUSTER, name(), 0).expect("opened for reading");
        let all = std::iter::from_fn(|| reader.next().expect("readable"));
        let all = all.map(|entry| (entry.number.get(), entry.bytes)).collect();
        assert_eq!(reader.dropped(), 0, "nothing that the fence let in lies below its mark");
        all
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.read().into_iter().map(|(number, _)| number).collect()
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.file()).expect("the file")
    }

    /// Puts these bytes in place of the log's, in the same file.
    pub fn overwrite(&self, bytes: &[u8]) {
        std::fs::write(self.file(), bytes).expect("written");
    }
}
