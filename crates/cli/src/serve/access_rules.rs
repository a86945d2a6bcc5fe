//! The access file of a server: read at the start, by SIGHUP, and when it has changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold::Error;
use leasehold_server::access::{AccessControl, AccessFile};
use leasehold_server::credential_file::FileFingerprint;

use crate::input_file;

/// The access rules of a server and the file that they come from.
pub struct AccessRulesFile {
    path: PathBuf,
    control: Arc<AccessControl>,
    /// The file as it was read last.
    stamp: FileFingerprint,
}

/// Reads and validates an access file.
pub fn read(path: &Path) -> Result<AccessFile, Error> {
    let text = input_file::read(path)?;
    AccessFile::parse(&text).map_err(|error| {
        let named = if error.key.is_empty() { String::new() } else { format!("{}: ", error.key) };
        Error::config_in_file(&path.display().to_string(), error.line, &error.key, format!("{named}{}", error.message))
    })
}

/// The access rules of a server that starts: those of the file, or none.
pub fn load(path: Option<&Path>) -> Result<(Arc<AccessControl>, Option<AccessRulesFile>), Error> {
    let Some(path) = path else { return Ok((Arc::new(AccessControl::unrestricted()), None)) };
    // Before the read, so that a change during it is noticed.
    let stamp = FileFingerprint::of(path);
    let control = Arc::new(AccessControl::new(&read(path)?));
    Ok((control.clone(), Some(AccessRulesFile { path: path.to_owned(), control, stamp })))
}

impl AccessRulesFile {
    /// Reads the file again. An invalid file is logged and changes nothing.
    pub fn reload(&mut self) {
        self.stamp = FileFingerprint::of(&self.path);
        match read(&self.path) {
            Ok(file) if self.control.reload(&file) => {
                tracing::info!(
                    grants = file.grants().len(),
                    epoch = self.control.rules().epoch(),
                    "access rules reloaded"
                );
            }
            Ok(_) => tracing::info!("access rules reloaded; nothing changed"),
            Err(error) => tracing::warn!("access rules unchanged, because the file is invalid: {error}"),
        }
    }

    /// Reads the file again if it was written or replaced.
    pub fn reload_if_changed(&mut self) {
        if FileFingerprint::of(&self.path) != self.stamp {
            self.reload();
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::access::{Action, Permission};

    use super::*;

    fn grant(prefix: &str) -> String {
        format!("[[grant]]\nprincipal = \"uid:1\"\nrole = \"holder\"\nprefix = {prefix:?}\n")
    }

    #[test]
    fn a_changed_file_takes_effect_and_an_invalid_or_missing_one_changes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.toml");
        std::fs::write(&path, grant("jobs")).expect("the file is writable");
        let (control, file) = load(Some(&path)).expect("the file is valid");
        let mut file = file.expect("there is a file");
        let may = |name: &str| control.rights_of("uid:1").permission(Action::Acquire, name) == Permission::Yes;
        assert!(may("jobs/a") && !may("disks/a"));
        file.reload_if_changed();
        assert_eq!(control.rules().epoch(), 1, "an unchanged file is not read again");
        std::fs::write(&path, "[[grant]]\nprincipal = \"uid:1\"\n").expect("the file is writable");
        file.reload_if_changed();
        assert!(may("jobs/a"), "an invalid file changes nothing");
        std::fs::remove_file(&path).expect("the file exists");
        file.reload_if_changed();
        assert!(may("jobs/a"), "a missing file changes nothing");
        let new = directory.path().join("new.toml");
        std::fs::write(&new, grant("disks")).expect("the file is writable");
        std::fs::rename(&new, &path).expect("the file can be replaced");
        file.reload_if_changed();
        assert!(may("disks/a") && !may("jobs/a"));
    }

    #[test]
    fn an_error_names_file_line_and_key() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.toml");
        std::fs::write(&path, grant("jobs/")).expect("the file is writable");
        let error = load(Some(&path)).err().expect("the prefix is invalid").to_string();
        assert!(error.starts_with(&format!("CONFIG{{{}, 4, prefix}}: prefix: ", path.display())), "{error}");
        assert!(load(Some(&directory.path().join("absent"))).is_err());
        assert!(load(None).is_ok_and(|(control, file)| !control.is_restricted() && file.is_none()));
    }
}
