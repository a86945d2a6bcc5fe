//! What the file journal asks of a directory, so that a test can put a disk under it that loses power.

use std::io;
use std::path::PathBuf;

/// A directory that only this journal writes. Names are relative to it and name plain files.
///
/// A write is durable after [`sync`](Self::sync) of its file, a name after [`sync_names`](Self::sync_names); until then
/// any part of them may be lost, in any order. An interrupted or short write is gone on with inside the call.
pub trait Disk: Send + Sync + 'static {
    /// An open file.
    type File: Send + Sync + 'static;

    /// Everything in the directory.
    fn names(&self) -> io::Result<Vec<String>>;
    /// A new, empty file; an error if the name is taken.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// A file that is there, for reading and writing; links are refused.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// How long a file is.
    fn len(&self, file: &Self::File) -> io::Result<u64>;
    /// Fills the buffer from an offset, or as much of it as there is.
    fn read(&self, file: &Self::File, at: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes all of it at an offset.
    fn write(&self, file: &Self::File, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Takes the space for so many bytes, where the filesystem can.
    fn reserve(&self, file: &Self::File, bytes: u64) -> io::Result<()>;
    /// Makes a file's bytes and length durable.
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    /// Gives a file another name, in place of whatever had that.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Takes a name away.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names durable.
    fn sync_names(&self) -> io::Result<()>;
    /// How many bytes are free.
    fn free(&self) -> io::Result<u64>;
    /// Where this directory is.
    fn whereabouts(&self) -> Whereabouts;
    /// Sixteen random bytes.
    fn random(&self) -> io::Result<[u8; 16]>;
    /// The path of a name, for people.
    fn path(&self, name: &str) -> PathBuf;
    /// What an operator should know about this directory.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What tells a directory from its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// The device that it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// The machine, in at most 64 bytes; empty if the machine does not say.
    pub machine: String,
}

/// The longest name of a machine.
pub const MACHINE_BYTES: usize = 64;
