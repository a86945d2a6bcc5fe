//! The directory of a CA: its certificate, what it issued, the access file, and the configuration of the server.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use leasehold::Error;
use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;

use super::access_document::AccessDocument;
use super::authority::CertificateAuthority;
use super::certificate_text::{CaCertificate, IssuedCertificate, file_error};
use super::revocation_list::RevokedCertificates;
use crate::input_file;
use crate::output::CommandError;

/// Names of the files in the directory.
pub const CA_CERTIFICATE: &str = "ca.pem";
pub const CA_KEY: &str = "ca.key";
pub const ISSUED: &str = "issued";
pub const REVOKED: &str = "crl.pem";
pub const ACCESS: &str = "access.toml";
pub const CONFIG: &str = "leasehold.toml";

/// Default port of a server.
const DEFAULT_PORT: u16 = 7421;

/// A directory that `leasehold init` wrote.
pub struct CaDirectory {
    pub path: PathBuf,
    pub ca: CaCertificate,
    /// Held while the directory changes, so that no other command changes it at the same time.
    _lock: Option<File>,
}

impl CaDirectory {
    /// Opens a directory to read it.
    pub fn open(path: &Path) -> Result<Self, CommandError> {
        let certificate = path.join(CA_CERTIFICATE);
        if !certificate.exists() {
            let at = certificate.display();
            let reason = format!("{at} does not exist; run leasehold init, or name its directory with --dir");
            return Err(file_error(&certificate, reason).into());
        }
        let absolute = absolute_path(path)?;
        let ca = CaCertificate::read(&absolute.join(CA_CERTIFICATE))?;
        Ok(Self { path: absolute, ca, _lock: None })
    }

    /// Opens a directory to change it.
    pub fn open_locked(path: &Path) -> Result<Self, CommandError> {
        let opened = Self::open(path)?;
        let locked = File::open(&opened.path).and_then(|folder| {
            flock(&folder, FlockOperation::LockExclusive)?;
            Ok(folder)
        });
        let lock = locked.map_err(|error| {
            let at = opened.path.display();
            file_error(&opened.path, format!("cannot lock {at}: {error}; check the directory and its mode"))
        })?;
        Ok(Self { _lock: Some(lock), ..opened })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The CA with its key.
    pub fn authority(&self, key: Option<&Path>) -> Result<CertificateAuthority, CommandError> {
        let own = self.file(CA_KEY);
        CertificateAuthority::open(&self.ca, &self.file(CA_CERTIFICATE), key.unwrap_or(&own))
    }

    /// Where a certificate is recorded.
    pub fn record(&self, serial: &str) -> PathBuf {
        self.path.join(ISSUED).join(format!("{serial}.pem"))
    }

    /// Every certificate that the CA issued here, by name and then by end; the newest one of a name is the last.
    pub fn issued(&self) -> Result<Vec<IssuedCertificate>, CommandError> {
        let folder = self.file(ISSUED);
        let entries = fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(|error| {
            file_error(
                &folder,
                format!("cannot read {}: {error}; name the directory of leasehold init", folder.display()),
            )
        })?;
        let paths =
            entries.iter().map(fs::DirEntry::path).filter(|path| path.extension().is_some_and(|end| end == "pem"));
        let mut issued =
            paths.map(|path| IssuedCertificate::read(&path, &self.ca)).collect::<Result<Vec<_>, Error>>()?;
        issued.sort_by(|one, other| {
            (&one.name, one.not_before, one.not_after).cmp(&(&other.name, other.not_before, other.not_after))
        });
        Ok(issued)
    }

    /// Certificates of one name, the newest one last.
    pub fn issued_as(&self, name: &str) -> Result<Vec<IssuedCertificate>, CommandError> {
        let mut issued = self.issued()?;
        issued.retain(|certificate| certificate.name == name);
        if issued.is_empty() {
            let message = format!("no certificate was issued as {name:?}; leasehold ca list shows the names");
            return Err(Error::config("name", message).into());
        }
        Ok(issued)
    }

    pub fn access(&self) -> Result<AccessDocument, Error> {
        AccessDocument::read(&self.file(ACCESS))
    }

    pub fn revoked(&self) -> Result<RevokedCertificates, Error> {
        RevokedCertificates::read(&self.file(REVOKED), &self.ca)
    }

    /// The address that clients use, from the configuration file of the server.
    pub fn server_address(&self) -> Result<String, Error> {
        let config = self.file(CONFIG);
        let settings: AddressSettings = if config.exists() {
            input_file::toml(&config, &input_file::read(&config)?)?
        } else {
            AddressSettings::default()
        };
        let port = settings.listen.map_or(DEFAULT_PORT, |listen| listen.port());
        let address = settings.advertise.unwrap_or_else(|| format!("localhost:{port}"));
        Ok(if address.contains("://") { address } else { format!("https://{address}") })
    }
}

/// The settings of a server that say where it is. Others are not read here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AddressSettings {
    listen: Option<SocketAddr>,
    advertise: Option<String>,
}

/// The path without symbolic links and relative parts, as text that a TOML file can contain.
pub fn absolute_path(path: &Path) -> Result<PathBuf, Error> {
    let absolute = path
        .canonicalize()
        .map_err(|error| file_error(path, format!("cannot open {}: {error}; check the path", path.display())))?;
    match absolute.to_str() {
        Some(_) => Ok(absolute),
        None => Err(file_error(path, format!("{} is not UTF-8; choose another directory", absolute.display()))),
    }
}
