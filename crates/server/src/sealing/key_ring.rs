//! The seal keys of a key directory, every file `seal-KID.key`, and its stamp keys, every file `stamp-ID.key`.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use leasehold_seal::{Kid, MAX_KEYS, SealKey, SealKeyError, SealKeys, TargetStampKey};
use zeroize::Zeroizing;

use crate::credential_file::{self, CredentialFileError};

/// The seal keys and the stamp keys of a server between two reloads.
#[derive(Debug, Default)]
pub struct SealKeyRing {
    keys: Vec<SealKey>,
    public: SealKeys,
    stamp_keys: Vec<TargetStampKey>,
}

/// A seal key cannot be used.
#[derive(Debug)]
pub struct KeyRingError {
    /// The file or directory.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: SealKeyProblem,
}

/// What is wrong with a seal key.
#[derive(Debug)]
pub enum SealKeyProblem {
    /// The directory cannot be listed.
    Unreadable(io::Error),
    /// The file cannot be read, or others can read it.
    File(CredentialFileError),
    /// The content is not a seal key, or the keys do not fit together.
    Key(SealKeyError),
    /// The name of the file is not that of its key.
    Name {
        /// The id of the key.
        kid: Kid,
    },
    /// There are keys, but none signs now.
    NoneActive,
    /// There are stamp keys and no seal key, so no token could be stamped.
    NothingToStamp,
}

impl fmt::Display for KeyRingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.path.display();
        match &self.problem {
            SealKeyProblem::Unreadable(error) => write!(f, "cannot list {at}: {error}; check its owner and mode"),
            SealKeyProblem::File(error) => error.fmt(f),
            SealKeyProblem::Key(error) => write!(f, "{at}: {error}"),
            SealKeyProblem::Name { kid } => {
                let name = if is_stamp_file_name(&self.path) { stamp_file_name(*kid) } else { key_file_name(*kid) };
                write!(f, "{at} holds the key {kid}; rename the file to {name}")
            }
            SealKeyProblem::NothingToStamp => write!(
                f,
                "{at} has stamp keys and no seal key, and only sealed tokens are stamped; create one with leasehold keys create"
            ),
            SealKeyProblem::NoneActive => {
                write!(f, "{at} has seal keys, but none is active now; create one with leasehold keys create")
            }
        }
    }
}

impl std::error::Error for KeyRingError {}

/// The name of the file of a seal key.
pub fn key_file_name(kid: Kid) -> String {
    format!("seal-{kid}.key")
}

/// The name of the file of a stamp key.
pub fn stamp_file_name(id: Kid) -> String {
    format!("stamp-{id}.key")
}

impl SealKeyRing {
    /// Reads all seal keys and stamp keys of a directory; none if it does not exist. Every other file in it is ignored.
    pub fn load(directory: &Path) -> Result<Self, KeyRingError> {
        let unreadable =
            |error| KeyRingError { path: directory.to_owned(), problem: SealKeyProblem::Unreadable(error) };
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            entries => entries.map_err(unreadable)?,
        };
        let (mut paths, mut stamp_paths) = (Vec::new(), Vec::new());
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            if is_key_file_name(&path) {
                paths.push(path);
            } else if is_stamp_file_name(&path) {
                stamp_paths.push(path);
            }
        }
        paths.sort();
        stamp_paths.sort();
        let failed = |error| KeyRingError { path: directory.to_owned(), problem: SealKeyProblem::Key(error) };
        let keys = paths.iter().map(|path| read_key(path)).collect::<Result<Vec<_>, _>>()?;
        let public = SealKeys::new(keys.iter().map(SealKey::public)).map_err(failed)?;
        if stamp_paths.len() > MAX_KEYS {
            return Err(failed(SealKeyError::TooMany { have: stamp_paths.len(), max: MAX_KEYS }));
        }
        let stamp_keys = stamp_paths.iter().map(|path| read_stamp_key(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { keys, public, stamp_keys })
    }

    /// Fails if there are keys and none of them signs at `now_ms`.
    pub fn require_active(&self, directory: &Path, now_ms: u64) -> Result<(), KeyRingError> {
        let failed = |problem| Err(KeyRingError { path: directory.to_owned(), problem });
        match (self.keys.is_empty(), self.stamp_keys.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => failed(SealKeyProblem::NothingToStamp),
            (false, _) if self.signing_key(now_ms).is_none() => failed(SealKeyProblem::NoneActive),
            (false, _) => Ok(()),
        }
    }

    /// The key that stamps the tokens of a resource for a target at `now_ms`: the one that became active last.
    pub fn stamp_key(&self, target: &str, resource: &str, now_ms: u64) -> Option<&TargetStampKey> {
        let stamping = self.stamp_keys.iter().filter(|key| key.stamps(target, resource, now_ms));
        stamping.max_by_key(|key| (key.active_ms, key.key.id()))
    }

    /// All stamp keys.
    pub fn stamp_keys(&self) -> &[TargetStampKey] {
        &self.stamp_keys
    }

    /// Whether another ring has the same keys with the same times.
    pub fn has_same_keys(&self, other: &Self) -> bool {
        let stamps = |ring: &Self| -> Vec<_> {
            let described =
                |key: &TargetStampKey| (key.key.id(), key.target.clone(), key.prefix.clone(), key.active_ms);
            ring.stamp_keys.iter().map(described).collect()
        };
        self.public == other.public && stamps(self) == stamps(other)
    }

    /// The key that signs at `now_ms`: the one that became active last, and of those without an end if there are any.
    pub fn signing_key(&self, now_ms: u64) -> Option<&SealKey> {
        let active = self.keys.iter().filter(|key| key.is_active(now_ms));
        active.max_by_key(|key| {
            let public = key.public();
            (public.end_ms().is_none(), public.active_ms(), key.kid())
        })
    }

    /// All keys.
    pub fn keys(&self) -> &[SealKey] {
        &self.keys
    }

    /// What verifiers need.
    pub fn public(&self) -> &SealKeys {
        &self.public
    }
}

/// Whether a file is meant to hold a seal key. A file with the right beginning and end and no key id in between is reported when it
/// is read.
fn is_key_file_name(path: &Path) -> bool {
    is_named(path, "seal-")
}

/// The same for a stamp key.
fn is_stamp_file_name(path: &Path) -> bool {
    is_named(path, "stamp-")
}

fn is_named(path: &Path, prefix: &str) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with(prefix) && name.ends_with(".key"))
}

fn read_key(path: &Path) -> Result<SealKey, KeyRingError> {
    let key = read_file(path, SealKey::from_file_text)?;
    check_name(path, key.kid(), &key_file_name(key.kid()))?;
    Ok(key)
}

fn read_stamp_key(path: &Path) -> Result<TargetStampKey, KeyRingError> {
    let key = read_file(path, TargetStampKey::from_file_text)?;
    check_name(path, key.key.id(), &stamp_file_name(key.key.id()))?;
    Ok(key)
}

fn read_file<K>(path: &Path, parse: impl Fn(&str) -> Result<K, SealKeyError>) -> Result<K, KeyRingError> {
    let failed = |problem| KeyRingError { path: path.to_owned(), problem };
    let bytes = credential_file::read_private(path).map_err(|error| failed(SealKeyProblem::File(error)))?;
    let bytes = Zeroizing::new(bytes);
    parse(std::str::from_utf8(&bytes).unwrap_or_default()).map_err(|error| failed(SealKeyProblem::Key(error)))
}

fn check_name(path: &Path, kid: Kid, expected: &str) -> Result<(), KeyRingError> {
    match path.file_name() {
        Some(name) if *name == *expected => Ok(()),
        _ => Err(KeyRingError { path: path.to_owned(), problem: SealKeyProblem::Name { kid } }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(directory: &Path, name: &str, key: &SealKey) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, key.to_file_text().expect("a text").as_bytes()).expect("the file is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the mode is set");
        path
    }

    fn store(directory: &Path, key: &SealKey) -> PathBuf {
        write(directory, &key_file_name(key.kid()), key)
    }

    #[test]
    fn the_newest_active_key_signs_and_one_without_an_end_comes_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let key = |active, end| {
            let key = SealKey::generate(0).and_then(|key| key.with_active(active)).and_then(|key| key.with_end(end));
            let key = key.expect("a key");
            store(directory.path(), &key);
            key.kid()
        };
        let (ending, old, new) = (key(50, Some(900)), key(10, None), key(100, None));
        let ring = SealKeyRing::load(directory.path()).expect("three keys");
        let signs = |now| ring.signing_key(now).map(SealKey::kid);
        assert_eq!((signs(9), signs(10), signs(60)), (None, Some(old), Some(old)));
        assert_eq!((signs(100), signs(u64::MAX)), (Some(new), Some(new)));
        assert!(ring.public().get(ending).is_some(), "a key that signs no more still verifies");
        assert!(ring.require_active(directory.path(), 10).is_ok());
        let refused = ring.require_active(directory.path(), 9).expect_err("no key is active yet").to_string();
        assert!(refused.contains("keys create"), "{refused}");
    }

    fn store_stamp(directory: &Path, target: &str, prefix: &str, active_ms: u64) -> Kid {
        let key = TargetStampKey::generate(target, prefix, 0, active_ms).expect("a key");
        let path = directory.join(stamp_file_name(key.key.id()));
        fs::write(&path, key.to_file_text().expect("a text").as_bytes()).expect("the file is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the mode is set");
        key.key.id()
    }

    #[test]
    fn the_newest_active_stamp_key_of_the_target_and_prefix_stamps() {
        let directory = tempfile::tempdir().expect("a directory");
        store(directory.path(), &SealKey::generate(0).expect("a key"));
        let (old, new) =
            (store_stamp(directory.path(), "ledger", "jobs", 10), store_stamp(directory.path(), "ledger", "jobs", 20));
        let other = store_stamp(directory.path(), "ledger", "team", 0);
        let ring = SealKeyRing::load(directory.path()).expect("four keys");
        let stamps = |target, resource, now| ring.stamp_key(target, resource, now).map(|key| key.key.id());
        assert_eq!((stamps("ledger", "jobs/a", 9), stamps("ledger", "jobs/a", 19)), (None, Some(old)));
        assert_eq!((stamps("ledger", "jobs/a", 20), stamps("ledger", "team/a", 20)), (Some(new), Some(other)));
        assert_eq!((stamps("other", "jobs/a", 20), stamps("ledger", "jobsx", 20)), (None, None));
        let again = SealKeyRing::load(directory.path()).expect("four keys");
        assert!(ring.has_same_keys(&again));
        fs::remove_file(directory.path().join(stamp_file_name(old))).expect("removed");
        assert!(!ring.has_same_keys(&SealKeyRing::load(directory.path()).expect("three keys")));
    }

    #[test]
    fn stamp_keys_that_cannot_be_used_are_refused_with_the_next_step() {
        let directory = tempfile::tempdir().expect("a directory");
        let id = store_stamp(directory.path(), "ledger", "jobs", 0);
        let ring = SealKeyRing::load(directory.path()).expect("one key");
        let refused = ring.require_active(directory.path(), 0).expect_err("nothing is sealed").to_string();
        assert!(refused.contains("no seal key") && refused.contains("keys create"), "{refused}");
        let path = directory.path().join(stamp_file_name(id));
        let refused = || SealKeyRing::load(directory.path()).expect_err("refused").to_string();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("the mode is set");
        assert!(refused().contains("chmod 0600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the mode is set");
        fs::rename(&path, directory.path().join("stamp-00000000.key")).expect("renamed");
        assert!(refused().contains(&stamp_file_name(id)));
    }

    #[test]
    fn a_missing_directory_has_no_keys_and_other_files_are_ignored() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("cluster.key"), "00").expect("the file is writable");
        for path in [directory.path(), &directory.path().join("absent")] {
            let ring = SealKeyRing::load(path).expect("no key");
            assert!(ring.keys().is_empty() && ring.public().is_empty());
            assert!(ring.require_active(path, 0).is_ok());
        }
    }

    #[test]
    fn a_key_that_others_can_read_is_damaged_or_renamed_is_refused_and_never_shown() {
        let directory = tempfile::tempdir().expect("a directory");
        let key = SealKey::generate(0).expect("a key");
        let text = key.to_file_text().expect("a text");
        let private = text.split('"').rev().nth(1).expect("the private key");
        let refused = || {
            let refused = SealKeyRing::load(directory.path()).expect_err("refused").to_string();
            assert!(!refused.contains(private), "{refused}");
            refused
        };
        let path = store(directory.path(), &key);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("the mode is set");
        assert!(refused().contains("chmod 0600"));
        fs::remove_file(&path).expect("the file exists");
        let path = write(directory.path(), "seal-00000000.key", &key);
        assert!(refused().contains(&key_file_name(key.kid())));
        fs::write(&path, text.replace("version", "Version")).expect("the file is writable");
        assert!(refused().contains("not a key file"));
        fs::write(&path, [0xFF, 0xFE]).expect("the file is writable");
        assert!(refused().contains("not a key file"));
    }
}
