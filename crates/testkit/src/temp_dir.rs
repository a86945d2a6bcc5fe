//! Temporary directories in memory, for data that needs no real disk.

use std::io;

use tempfile::TempDir;

/// Creates a temporary directory in memory, or in the default place if there is no such file system.
pub fn in_memory() -> io::Result<TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}
