//! The identity of a file, which a copy does not have, and who may open it.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::UNIX_EPOCH;

/// Permissions of a new file. Anyone who can open a file can lock it, and so block its writers.
pub(crate) const OWNER_ONLY: u32 = 0o600;

/// Inode number and time of birth. Filesystems give the number of a deleted file to the next one, often at once, so the number
/// alone does not distinguish a restored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    pub(super) inode: u64,
    /// Nanoseconds since 1970; 0 if the filesystem does not record it.
    pub(super) born: u64,
}

impl FileIdentity {
    pub(super) fn of(meta: &Metadata) -> Self {
        let since = meta.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Self { inode: meta.ino(), born: since.and_then(|born| u64::try_from(born.as_nanos()).ok()).unwrap_or(0) }
    }

    /// Whether `current` is the file with this stored identity.
    pub(super) const fn is(self, current: Self) -> bool {
        self.inode == current.inode && (self.born == 0 || self.born == current.born)
    }
}

/// Removes the access of all users from a file that any user could open. A group that can write keeps its access. Only the owner
/// can do this; for others nothing changes.
pub(crate) fn restrict_access(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.mode();
    if mode & 0o007 == 0 {
        return Ok(());
    }
    let restricted = if mode & 0o020 == 0 { OWNER_ONLY } else { 0o660 };
    match file.set_permissions(Permissions::from_mode(restricted)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        restricted => restricted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_reuses_the_inode_number_is_another_one() {
        let stored = FileIdentity { inode: 7, born: 100 };
        assert!(stored.is(stored));
        assert!(!stored.is(FileIdentity { inode: 7, born: 101 }));
        assert!(!stored.is(FileIdentity { inode: 7, born: 0 }));
        assert!(FileIdentity { inode: 7, born: 0 }.is(stored), "stored without its time of birth");
    }

    #[test]
    fn access_of_all_users_is_removed_and_access_of_a_group_is_kept_if_it_was_chosen() {
        let file = tempfile::tempfile().expect("a file");
        for (before, after) in
            [(0o644, 0o600), (0o666, 0o660), (0o664, 0o660), (0o640, 0o640), (0o660, 0o660), (0o600, 0o600)]
        {
            file.set_permissions(Permissions::from_mode(before)).expect("set");
            restrict_access(&file).expect("restricted");
            assert_eq!(file.metadata().expect("read").mode() & 0o777, after, "{before:o}");
        }
    }
}
