//! `--secret-file`: the file with the secret of a lease. A secret is never an argument, which other users could read.

use std::fs;
use std::path::{Path, PathBuf};

use leasehold::{Client, Error, LeaseSecret};
use leasehold_server::credential_file::read_private;

use crate::output::CommandError;
use crate::part_file::PartFile;

/// The option `--secret-file` of commands that present a secret.
#[derive(clap::Args)]
pub struct SecretArg {
    /// File with the secret of the grant, readable by its owner only; servers with access rules require it
    #[arg(long, env = "LEASEHOLD_SECRET_FILE", value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl SecretArg {
    /// A client that presents the secret in the file, if there is one.
    pub fn present(&self, client: &Client) -> Result<Client, Error> {
        match &self.secret_file {
            None => Ok(client.clone()),
            Some(path) => Ok(client.with_lease_secret(&read(path)?)),
        }
    }

    /// Replaces the secret in the file, if there is one: the lease has a new token. Says whether it was written.
    pub fn update(&self, secret: &LeaseSecret) -> Result<bool, CommandError> {
        match &self.secret_file {
            None => Ok(false),
            Some(path) => SecretFile::prepare(path)?.write(secret).map(|()| true),
        }
    }
}

fn read(path: &Path) -> Result<LeaseSecret, Error> {
    let bytes = read_private(path).map_err(|error| Error::config("secret_file", error.to_string()))?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    LeaseSecret::parse_hex(text.trim_end_matches('\n')).ok_or_else(|| {
        let at = path.display();
        let message = format!("{at} is not 32 hexadecimal digits; write it with leasehold acquire --secret-file");
        Error::config("secret_file", message)
    })
}

/// A file that a secret is written to.
pub struct SecretFile(PartFile);

impl SecretFile {
    /// Prepares the file before the request, so that no lease is granted whose secret cannot be written. A file that exists is
    /// replaced if it is private.
    pub fn prepare(path: &Path) -> Result<Self, CommandError> {
        let known = fs::symlink_metadata(path);
        if known.as_ref().is_ok_and(fs::Metadata::is_symlink) {
            let at = path.display();
            let message = format!("{at} is a symbolic link, which is not followed; remove it, or name the file itself");
            return Err(Error::config("secret_file", message).into());
        }
        let mut part = if known.is_ok() {
            read_private(path).map_err(|error| Error::config("secret_file", error.to_string()))?;
            PartFile::replace(path)?
        } else {
            PartFile::create(path)?
        };
        part.write(&[])?;
        Ok(Self(part))
    }

    /// Writes the secret. The file appears when it is complete.
    pub fn write(mut self, secret: &LeaseSecret) -> Result<(), CommandError> {
        self.0.write(format!("{}\n", secret.expose_hex()).as_bytes())?;
        self.0.sync()?;
        self.0.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_secret_is_written_privately_read_back_and_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("secret");
        for byte in [1, 2] {
            let secret = LeaseSecret::new([byte; 16]);
            SecretFile::prepare(&path).expect("writable").write(&secret).expect("written");
            assert_eq!(fs::metadata(&path).expect("it exists").mode() & 0o7777, 0o600);
            assert!(read(&path).expect("readable").matches(&secret));
        }
        drop(SecretFile::prepare(&path).expect("writable"));
        assert!(read(&path).expect("kept").matches(&LeaseSecret::new([2; 16])), "nothing was granted");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1, "no part of it is left");
    }

    #[test]
    fn a_symbolic_link_is_neither_followed_nor_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, other) = (directory.path().join("secret"), directory.path().join("other"));
        std::os::unix::fs::symlink(&other, &path).expect("a link");
        let refused = |path: &Path| format!("{:?}", SecretFile::prepare(path).err().expect("refused"));
        assert!(refused(&path).contains("is a symbolic link, which is not followed"), "{}", refused(&path));
        let missing = read(&path).expect_err("refused").to_string();
        assert!(missing.contains("is a symbolic link to a file that does not exist"), "{missing}");
        fs::write(&other, "0".repeat(32)).expect("writable");
        fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).expect("the mode is set");
        assert!(refused(&path).contains("is a symbolic link, which is not followed"), "{}", refused(&path));
        assert!(read(&path).is_ok(), "a file that a link names is read");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 2, "nothing was written");
    }

    #[test]
    fn a_file_that_others_can_read_is_neither_read_nor_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("secret");
        fs::write(&path, "0".repeat(32)).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("the mode is set");
        assert!(read(&path).expect_err("refused").to_string().contains("chmod 0600"));
        assert!(SecretFile::prepare(&path).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the mode is set");
        fs::write(&path, "not a secret\n").expect("writable");
        assert!(read(&path).expect_err("refused").to_string().contains("32 hexadecimal digits"));
    }
}
