//! The revocation list of the CA: serial numbers of certificates that servers refuse.

use std::path::Path;

use leasehold::Error;
use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber};
use time::OffsetDateTime;

use super::certificate_text::{CaCertificate, file_error, hex, read_pem};

/// Revoked certificates, as they are listed.
#[derive(Default)]
pub struct RevokedCertificates {
    /// Grows with each list.
    number: u64,
    revoked: Vec<(Vec<u8>, OffsetDateTime)>,
}

impl RevokedCertificates {
    /// Reads a list that the CA has signed.
    pub fn read(path: &Path, ca: &CaCertificate) -> Result<Self, Error> {
        let at = path.display();
        let der = read_pem(path, "X509 CRL")?;
        let Ok(([], list)) = x509_parser::parse_x509_crl(&der) else {
            return Err(file_error(path, format!("{at} is not a revocation list; restore the file")));
        };
        if !ca.with_x509(|ca| list.verify_signature(ca.public_key()).is_ok()) {
            return Err(file_error(path, format!("{at} was not signed by this CA; restore the file")));
        }
        let revoked = list.iter_revoked_certificates();
        Ok(Self {
            number: list.crl_number().and_then(|number| u64::try_from(number).ok()).unwrap_or_default(),
            revoked: revoked.map(|one| (one.raw_serial().to_vec(), one.revocation_date.to_datetime())).collect(),
        })
    }

    /// Whether the list contains a serial number in hexadecimal digits.
    pub fn contains(&self, serial: &str) -> bool {
        self.revoked.iter().any(|(revoked, _)| hex(revoked) == serial)
    }

    /// The next list, with one more certificate.
    pub fn add(&mut self, serial: &str, now: OffsetDateTime) {
        let digits = serial.as_bytes().chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok());
        self.revoked.push((digits.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect(), now));
    }

    /// The contents of the next list. It is valid as long as the CA: an old list must not stop a server.
    pub fn params(&self, now: OffsetDateTime, not_after: OffsetDateTime) -> CertificateRevocationListParams {
        let revoked = |(serial, at): &(Vec<u8>, OffsetDateTime)| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: *at,
            reason_code: None,
            invalidity_date: None,
        };
        CertificateRevocationListParams {
            this_update: now,
            next_update: not_after,
            crl_number: SerialNumber::from(self.number + 1),
            issuing_distribution_point: None,
            revoked_certs: self.revoked.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        }
    }
}
