//! The key directory: mode 0700, with key files of mode 0600 that belong to the user of the server.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use leasehold_core::secret::Secret;
use zeroize::Zeroizing;

use super::cluster_key::{ClusterKey, KEY_BYTES};
use crate::credential_file::{self, CredentialFileError, FileProblem};
use crate::random;

/// Name of the file with the cluster key: 64 hexadecimal digits.
pub const CLUSTER_KEY: &str = "cluster.key";

/// A key directory whose mode and owner were checked.
#[derive(Clone, Debug)]
pub struct KeyDirectory {
    path: PathBuf,
}

/// A key cannot be used.
#[derive(Debug)]
pub struct KeyError {
    /// The directory or file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: KeyProblem,
}

/// What is wrong with a key directory or a key file.
#[derive(Debug)]
pub enum KeyProblem {
    /// The file cannot be read, or others can read it.
    File(FileProblem),
    /// The directory cannot be used: missing, of another user, or open to others.
    Directory(FileProblem),
    /// The content is not a key.
    Malformed,
    /// It cannot be created.
    Create(io::Error),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.path.display();
        match &self.problem {
            KeyProblem::File(FileProblem::Missing) => {
                write!(
                    f,
                    "{at} does not exist; copy it from another server of the cluster, or create it with leasehold init"
                )
            }
            KeyProblem::File(problem) => problem.describe(&self.path, f),
            KeyProblem::Directory(FileProblem::Missing) => {
                write!(f, "the key directory {at} does not exist; create it with mode 0700, or run leasehold init")
            }
            KeyProblem::Directory(FileProblem::NotRegular) => write!(f, "{at} is not a directory; name a directory"),
            KeyProblem::Directory(FileProblem::Accessible { mode }) => {
                write!(f, "{at} has mode {mode:04o}, so other users can reach the keys; run chmod 0700 {at}")
            }
            KeyProblem::Directory(problem) => problem.describe(&self.path, f),
            KeyProblem::Malformed => {
                write!(f, "{at} is not 64 lower-case hexadecimal digits; restore it from a copy")
            }
            KeyProblem::Create(error) => write!(f, "cannot create {at}: {error}; check the directory's owner and mode"),
        }
    }
}

impl std::error::Error for KeyError {}

impl KeyError {
    /// Whether a key file does not exist.
    pub const fn is_missing_file(&self) -> bool {
        matches!(self.problem, KeyProblem::File(FileProblem::Missing))
    }
}

impl From<CredentialFileError> for KeyError {
    fn from(error: CredentialFileError) -> Self {
        Self { path: error.path, problem: KeyProblem::File(error.problem) }
    }
}

impl KeyDirectory {
    /// An existing directory that only its owner can enter.
    pub fn open(path: &Path) -> Result<Self, KeyError> {
        let user = rustix::process::geteuid().as_raw();
        let problem = |problem| KeyError { path: path.to_owned(), problem: KeyProblem::Directory(problem) };
        let known = fs::metadata(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => problem(FileProblem::Missing),
            _ => problem(FileProblem::Unreadable(error)),
        })?;
        let (mode, owner) = (known.mode() & 0o7777, known.uid());
        if !known.is_dir() {
            return Err(problem(FileProblem::NotRegular));
        }
        if owner != user && owner != 0 {
            return Err(problem(FileProblem::Foreign { owner, user }));
        }
        if mode & 0o077 != 0 {
            return Err(problem(FileProblem::Accessible { mode }));
        }
        Ok(Self { path: path.to_owned() })
    }

    /// The same, created if it does not exist. Its parent must exist.
    pub fn create(path: &Path) -> Result<Self, KeyError> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(KeyError { path: path.to_owned(), problem: KeyProblem::Create(error) })
            }
            _ => Self::open(path),
        }
    }

    /// The path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads the cluster key.
    pub fn cluster_key(&self) -> Result<ClusterKey, KeyError> {
        let path = self.file(CLUSTER_KEY);
        let bytes = Zeroizing::new(credential_file::read_private(&path)?);
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        match Secret::<KEY_BYTES>::parse_hex(text.trim_end_matches('\n')) {
            Some(secret) => Ok(ClusterKey::new(&secret)),
            None => Err(KeyError { path, problem: KeyProblem::Malformed }),
        }
    }

    /// Reads the cluster key, or creates a random one. Says whether it was created.
    pub fn cluster_key_or_create(&self) -> Result<(ClusterKey, bool), KeyError> {
        match self.cluster_key() {
            Err(error) if error.is_missing_file() => {
                let path = self.file(CLUSTER_KEY);
                create_once(&path, new_cluster_key().as_bytes())
                    .map_err(|error| KeyError { path, problem: KeyProblem::Create(error) })?;
                // Another process may have created it first.
                Ok((self.cluster_key()?, true))
            }
            key => Ok((key?, false)),
        }
    }
}

/// The content of a new file with a cluster key.
pub fn new_cluster_key() -> Zeroizing<String> {
    let secret = Secret::<KEY_BYTES>::new(random::bytes());
    let mut text = Zeroizing::new(secret.expose_hex());
    text.push('\n');
    text
}

/// Creates a private file with its whole content, durably. A file that exists is left as it is.
fn create_once(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let part = directory.join(format!(".{CLUSTER_KEY}.{}", std::process::id()));
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    let linked = created.and_then(|()| fs::hard_link(&part, path));
    let _ = fs::remove_file(&part);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => File::open(directory)?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode is set");
    }

    #[test]
    fn a_cluster_key_is_created_once_and_read_by_its_owner_only() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("keys");
        let directory = KeyDirectory::create(&path).expect("it is created");
        let (key, created) = directory.cluster_key_or_create().expect("it is created");
        assert!(created);
        let mode = |path: &Path| fs::metadata(path).expect("it exists").mode() & 0o7777;
        assert_eq!((mode(&path), mode(&path.join(CLUSTER_KEY))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&path).expect("a directory").count(), 1, "no part of it is left");
        let (again, created) =
            KeyDirectory::create(&path).and_then(|at| at.cluster_key_or_create()).expect("it exists");
        assert!(!created && again.check_value() == key.check_value());
        let read = KeyDirectory::open(&path).and_then(|at| at.cluster_key()).expect("read");
        assert_eq!(read.check_value(), key.check_value());
    }

    #[test]
    fn a_directory_or_key_that_others_can_reach_is_refused_with_the_next_step() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("keys");
        let directory = KeyDirectory::create(&path).expect("it is created");
        directory.cluster_key_or_create().expect("it is created");
        for mode in [0o755, 0o750, 0o701] {
            set_mode(&path, mode);
            let refused = KeyDirectory::open(&path).expect_err("others can enter").to_string();
            assert!(refused.contains("chmod 0700") && refused.contains(&format!("{mode:04o}")), "{refused}");
        }
        set_mode(&path, 0o700);
        set_mode(&path.join(CLUSTER_KEY), 0o640);
        let refused = directory.cluster_key_or_create().expect_err("others can read it").to_string();
        assert!(refused.contains("chmod 0600"), "{refused}");
    }

    #[test]
    fn missing_and_malformed_keys_are_refused_and_never_replaced() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("keys");
        let missing = KeyDirectory::open(&path).expect_err("there is none").to_string();
        assert!(missing.contains("does not exist") && missing.contains("leasehold init"), "{missing}");
        let directory = KeyDirectory::create(&path).expect("it is created");
        let missing = directory.cluster_key().expect_err("there is none").to_string();
        assert!(missing.contains(CLUSTER_KEY) && missing.contains("copy it from another server"), "{missing}");
        let file = path.join(CLUSTER_KEY);
        for content in ["", "\n", "abc\n", &"A".repeat(64), &"0".repeat(63), &"0".repeat(65)] {
            fs::write(&file, content).expect("the file is writable");
            set_mode(&file, 0o600);
            let refused = directory.cluster_key_or_create().expect_err("no key").to_string();
            assert!(refused.contains("64 lower-case hexadecimal digits"), "{refused}");
            assert_eq!(fs::read_to_string(&file).expect("it is kept"), content);
        }
        fs::remove_dir_all(&path).expect("it is removed");
        fs::write(&path, "").expect("a file in its place");
        let refused = KeyDirectory::create(&path).expect_err("a file").to_string();
        assert!(refused.contains("not a directory"), "{refused}");
    }
}
