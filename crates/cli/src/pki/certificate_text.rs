//! Reads certificates that the CA issued, from PEM files.

use std::net::IpAddr;
use std::path::Path;

use leasehold::Error;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;

use super::names::ServerName;
use super::subject::{CertificateUsage, SubjectNames};
use crate::input_file;

/// A certificate of a client or a server.
pub struct IssuedCertificate {
    /// The name it was issued under.
    pub name: String,
    pub names: SubjectNames,
    pub usage: CertificateUsage,
    /// The serial number in hexadecimal digits.
    pub serial: String,
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
    /// The public key with its algorithm, in DER.
    pub public_key: Vec<u8>,
}

impl IssuedCertificate {
    /// Reads a certificate that the CA has signed.
    pub fn read(path: &Path, ca: &CaCertificate) -> Result<Self, Error> {
        let der = read_pem(path, "CERTIFICATE")?;
        let certificate = parse(path, &der)?;
        ca.check_signature(path, &certificate)?;
        Self::from_x509(&certificate).ok_or_else(|| not_ours(path))
    }

    fn from_x509(certificate: &X509Certificate<'_>) -> Option<Self> {
        let name = certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
        let usage = certificate.extended_key_usage().ok()??.value;
        let usage = match (usage.server_auth, usage.client_auth) {
            (true, false) => CertificateUsage::Server,
            (false, true) => CertificateUsage::Client,
            _ => return None,
        };
        let mut names = SubjectNames::default();
        for name in &certificate.subject_alternative_name().ok()??.value.general_names {
            match name {
                GeneralName::URI(uri) if names.id.is_none() => names.id = Some(uri.parse().ok()?),
                GeneralName::DNSName(name) => names.hosts.push(ServerName::Dns((*name).to_owned())),
                GeneralName::IPAddress(bytes) => names.hosts.push(ServerName::Ip(ip_address(bytes)?)),
                _ => return None,
            }
        }
        Some(Self {
            name,
            names,
            usage,
            serial: hex(certificate.raw_serial()),
            not_before: certificate.validity().not_before.to_datetime(),
            not_after: certificate.validity().not_after.to_datetime(),
            public_key: certificate.public_key().raw.to_vec(),
        })
    }

    /// The identity, as the access file names it.
    pub fn identity(&self) -> String {
        self.names.id.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

/// The certificate of a CA.
pub struct CaCertificate {
    pub der: Vec<u8>,
    /// URIs in the certificate.
    pub uris: Vec<String>,
    pub not_after: OffsetDateTime,
}

impl CaCertificate {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let der = read_pem(path, "CERTIFICATE")?;
        let certificate = parse(path, &der)?;
        if !certificate.is_ca() {
            let reason =
                format!("{} is not the certificate of a CA; name the directory of `leasehold init`", path.display());
            return Err(file_error(path, reason));
        }
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.iter().flat_map(|names| &names.value.general_names);
        let uris =
            names.filter_map(|name| if let GeneralName::URI(uri) = name { Some((*uri).to_owned()) } else { None });
        let (uris, not_after) = (uris.collect(), certificate.validity().not_after.to_datetime());
        drop(certificate);
        Ok(Self { der, uris, not_after })
    }

    /// Whether a key belongs to the certificate.
    pub fn has_key(&self, public_key: &[u8]) -> bool {
        self.with_x509(|certificate| &*certificate.public_key().subject_public_key.data == public_key)
    }

    fn check_signature(&self, path: &Path, certificate: &X509Certificate<'_>) -> Result<(), Error> {
        let signed = self.with_x509(|ca| {
            ca.subject() == certificate.issuer() && certificate.verify_signature(Some(ca.public_key())).is_ok()
        });
        if signed { Ok(()) } else { Err(not_ours(path)) }
    }

    pub fn with_x509<T>(&self, read: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
        let (_, certificate) = x509_parser::parse_x509_certificate(&self.der).expect("it was parsed before");
        read(&certificate)
    }
}

/// The DER bytes of the one PEM block of a file.
pub fn read_pem(path: &Path, label: &str) -> Result<Vec<u8>, Error> {
    let text = input_file::read(path)?;
    match parse_x509_pem(text.as_bytes()) {
        Ok((_, pem)) if pem.label == label => Ok(pem.contents),
        _ => Err(file_error(path, format!("{} contains no PEM block {label:?}; restore the file", path.display()))),
    }
}

fn parse<'a>(path: &Path, der: &'a [u8]) -> Result<X509Certificate<'a>, Error> {
    match x509_parser::parse_x509_certificate(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(file_error(path, format!("{} is not an X.509 certificate; restore the file", path.display()))),
    }
}

fn not_ours(path: &Path) -> Error {
    file_error(path, format!("{} was not issued by this CA; remove it, or name another directory", path.display()))
}

/// An error about a file as a whole.
pub fn file_error(path: &Path, reason: String) -> Error {
    Error::config_in_file(&path.display().to_string(), None, "", reason)
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Bytes as hexadecimal digits, without leading zero bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().skip_while(|byte| **byte == 0).map(|byte| format!("{byte:02x}")).collect()
}

/// A date as text.
pub fn date_text(at: OffsetDateTime) -> String {
    format!("{:04}-{:02}-{:02}", at.year(), u8::from(at.month()), at.day())
}
