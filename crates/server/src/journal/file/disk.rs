//! The directory operations of the file journal, as a trait, so that tests can simulate a power loss.

use std::io;
use std::path::PathBuf;

/// A directory that only this journal writes. Names are relative to it and name plain files.
///
/// A write is durable after [`sync`](Self::sync) of its file, a name after [`sync_names`](Self::sync_names); until then
/// any part of them may be lost, in any order. An interrupted or short write is continued inside the call.
pub trait Disk: Send + Sync + 'static {
    /// An open file.
    type File: Send + Sync + 'static;

    /// Names of all files in the directory.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Creates an empty file; an error if the name exists.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens an existing file for reading and writing; links are refused.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Length of a file.
    fn len(&self, file: &Self::File) -> io::Result<u64>;
    /// Fills the buffer from an offset, or as much of it as the file has.
    fn read(&self, file: &Self::File, at: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes all bytes at an offset.
    fn write(&self, file: &Self::File, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Allocates space for `bytes` bytes, if the filesystem supports it.
    fn reserve(&self, file: &Self::File, bytes: u64) -> io::Result<()>;
    /// Makes a file's bytes and length durable.
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    /// Fails if the name no longer refers to this open file, or if the directory was deleted or moved away: what is written to it
    /// would be lost.
    fn check_present(&self, name: &str, file: &Self::File) -> io::Result<()>;
    /// Renames a file; replaces an existing one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names durable.
    fn sync_names(&self) -> io::Result<()>;
    /// Free bytes on the disk.
    fn free(&self) -> io::Result<u64>;
    /// Identity of the host and the directory.
    fn host_identity(&self) -> HostIdentity;
    /// Sixteen random bytes.
    fn random(&self) -> io::Result<[u8; 16]>;
    /// The path of a name, for messages.
    fn path(&self, name: &str) -> PathBuf;
    /// Warnings about the directory for the operator.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Identity of a directory on its host; it differs for a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Machine id, at most 64 bytes; empty if it is unknown.
    pub machine: String,
}

/// Longest machine id.
pub const MACHINE_BYTES: usize = 64;
