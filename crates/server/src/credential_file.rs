//! Reads certificates, keys and passwords from files. A private file may be readable by its owner only.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Size limit of a file.
pub const MAX_BYTES: u64 = 1 << 20;

/// A file with credentials cannot be used.
#[derive(Debug)]
pub struct CredentialFileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: FileProblem,
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum FileProblem {
    /// There is no such file.
    Missing,
    /// It is a symbolic link, and there is no file where it leads.
    DanglingLink,
    /// The operating system refused to open or read it.
    Unreadable(io::Error),
    /// It is a directory, a device or a socket.
    NotRegular,
    /// It is larger than [`MAX_BYTES`].
    TooLarge,
    /// Others than the owner have access to a private file.
    Accessible {
        /// The permission bits.
        mode: u32,
    },
    /// A private file belongs to another user, who can replace it.
    Foreign {
        /// The owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
}

impl fmt::Display for CredentialFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.describe(&self.path, f)
    }
}

impl FileProblem {
    /// Says what is wrong with a file, and the next step.
    pub(crate) fn describe(&self, path: &Path, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = path.display();
        match self {
            Self::Missing => write!(f, "{at} does not exist; check the path"),
            Self::DanglingLink => {
                write!(f, "{at} is a symbolic link to a file that does not exist; check where it leads")
            }
            Self::Unreadable(error) => write!(f, "cannot read {at}: {error}; check its owner and mode"),
            Self::NotRegular => write!(f, "{at} is not a regular file; name a file"),
            Self::TooLarge => write!(f, "{at} is larger than {MAX_BYTES} bytes; check the path"),
            Self::Accessible { mode } => {
                write!(f, "{at} has mode {mode:04o}, so other users can use it; run chmod 0600 {at}")
            }
            Self::Foreign { owner, user } => {
                write!(f, "{at} belongs to uid {owner}, and this process runs as uid {user}; run chown {user} {at}")
            }
        }
    }
}

impl std::error::Error for CredentialFileError {}

/// Reads a file that may be public, such as a certificate.
pub fn read(path: &Path) -> Result<Vec<u8>, CredentialFileError> {
    read_checked(path, |_| Ok(()))
}

/// Reads a file that must be private, such as a key: mode 0600 or less, and owned by the user of this process or by root.
pub fn read_private(path: &Path) -> Result<Vec<u8>, CredentialFileError> {
    let user = rustix::process::geteuid().as_raw();
    read_checked(path, |known| {
        let (mode, owner) = (known.mode() & 0o7777, known.uid());
        if owner != user && owner != 0 {
            return Err(FileProblem::Foreign { owner, user });
        }
        if mode & 0o077 != 0 {
            return Err(FileProblem::Accessible { mode });
        }
        Ok(())
    })
}

/// Checks the open file, so that nothing can be replaced between the check and the read.
fn read_checked(
    path: &Path,
    check: impl Fn(&std::fs::Metadata) -> Result<(), FileProblem>,
) -> Result<Vec<u8>, CredentialFileError> {
    let read = || {
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound if path.is_symlink() => FileProblem::DanglingLink,
            io::ErrorKind::NotFound => FileProblem::Missing,
            _ => FileProblem::Unreadable(error),
        };
        // Opening a pipe would wait for its other end.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(FileProblem::NotRegular);
        }
        let file = File::open(path).map_err(unreadable)?;
        let known = file.metadata().map_err(unreadable)?;
        check(&known)?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(FileProblem::TooLarge);
        }
        Ok(bytes)
    };
    read().map_err(|problem| CredentialFileError { path: path.to_owned(), problem })
}

/// Changes whenever a file is replaced or written; equal while it is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileFingerprint {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileFingerprint {
    /// The stamp of a file.
    pub fn of(path: &Path) -> Self {
        std::fs::metadata(path).map_or_else(
            |_| Self::default(),
            |known| Self {
                inode: known.ino(),
                bytes: known.len(),
                modified: (known.mtime(), known.mtime_nsec()),
                changed: (known.ctime(), known.ctime_nsec()),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_private_file_is_read_only_if_no_other_user_has_access() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("key");
        std::fs::write(&path, "secret").expect("the file is writable");
        for mode in [0o644, 0o640, 0o604, 0o660, 0o601, 0o620] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("the mode is set");
            let refused = read_private(&path).expect_err("others have access");
            assert!(matches!(refused.problem, FileProblem::Accessible { mode: found } if found == mode), "{refused}");
            assert!(refused.to_string().contains("chmod 0600"), "{refused}");
            assert_eq!(read(&path).expect("a public file may have any mode"), b"secret");
        }
        for mode in [0o600, 0o400] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("the mode is set");
            assert_eq!(read_private(&path).expect("only the owner has access"), b"secret");
        }
    }

    #[test]
    fn a_missing_file_a_directory_and_a_large_file_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let problem = |path: &Path| read(path).expect_err("refused").problem;
        assert!(matches!(problem(&directory.path().join("missing")), FileProblem::Missing));
        assert!(matches!(problem(directory.path()), FileProblem::NotRegular));
        let large = directory.path().join("large");
        File::create(&large).and_then(|file| file.set_len(MAX_BYTES + 1)).expect("the file is writable");
        assert!(matches!(problem(&large), FileProblem::TooLarge));
    }

    #[test]
    fn a_stamp_changes_when_a_file_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, next) = (directory.path().join("cert"), directory.path().join("next"));
        assert_eq!(FileFingerprint::of(&path), FileFingerprint::default());
        std::fs::write(&path, "one").expect("the file is writable");
        let before = FileFingerprint::of(&path);
        std::fs::write(&next, "two").expect("the file is writable");
        std::fs::rename(&next, &path).expect("the file is replaced");
        assert_ne!(FileFingerprint::of(&path), before);
    }
}
