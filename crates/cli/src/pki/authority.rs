//! Signs certificates and revocation lists with the key of the CA.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use leasehold::Error;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SubjectPublicKeyInfo,
};
use rustix::rand::{GetRandomFlags, getrandom};
use time::{Duration, OffsetDateTime};

use super::certificate_text::{CaCertificate, IssuedCertificate, date_text, file_error, hex};
use super::names::{MAX_DAYS, ServerName};
use super::revocation_list::RevokedCertificates;
use super::spiffe_id::TrustDomain;
use super::subject::{CertificateUsage, SubjectNames};
use crate::input_file;
use crate::output::CommandError;

/// Certificates are valid a little before they are issued, because clocks of machines differ.
const CLOCK_SKEW: Duration = Duration::minutes(5);

/// A new certificate, and its key if that is new too.
pub struct Credential {
    /// The certificate in PEM.
    pub certificate: String,
    /// The private key in PEM; only its owner may read it.
    pub key: String,
    /// The serial number in hexadecimal digits.
    pub serial: String,
    pub not_after: OffsetDateTime,
}

/// A certificate authority that can sign.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    pub trust_domain: TrustDomain,
    pub not_after: OffsetDateTime,
}

impl CertificateAuthority {
    /// Creates a CA. Returns its certificate and its key too.
    pub fn create(trust_domain: &TrustDomain, now: OffsetDateTime) -> Result<(Self, Credential), CommandError> {
        let key = KeyPair::generate().map_err(signing_error)?;
        let (serial_number, serial) = random_serial()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&format!("{trust_domain} CA"));
        params.subject_alt_names = vec![SanType::URI(ascii(&trust_domain.uri())?)];
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.serial_number = Some(serial_number);
        (params.not_before, params.not_after) = (now - CLOCK_SKEW, now + Duration::days(MAX_DAYS));
        let certificate = params.self_signed(&key).map_err(signing_error)?;
        let not_after = params.not_after;
        let credential = Credential { certificate: certificate.pem(), key: key.serialize_pem(), serial, not_after };
        let issuer = Issuer::new(params, key);
        Ok((Self { issuer, trust_domain: trust_domain.clone(), not_after }, credential))
    }

    /// Opens a CA by its certificate and the file of its key.
    pub fn open(certificate: &CaCertificate, path: &Path, key_path: &Path) -> Result<Self, CommandError> {
        let key = read_key(key_path)?;
        if !certificate.has_key(key.public_key_raw()) {
            let (key, path) = (key_path.display(), path.display());
            return Err(file_error(key_path, format!("{key} is not the key of {path}; name the right file")).into());
        }
        let [uri] = &certificate.uris[..] else { return Err(without_trust_domain(path).into()) };
        let trust_domain = TrustDomain::from_uri(uri).ok_or_else(|| without_trust_domain(path))?;
        let issuer = Issuer::from_ca_cert_der(&certificate.der.clone().into(), key).map_err(signing_error)?;
        Ok(Self { issuer, trust_domain, not_after: certificate.not_after })
    }

    /// Issues a certificate with a new key.
    pub fn issue(
        &self,
        name: &str,
        names: &SubjectNames,
        usage: CertificateUsage,
        (now, days): (OffsetDateTime, i64),
    ) -> Result<Credential, CommandError> {
        let key = KeyPair::generate().map_err(signing_error)?;
        let signed = self.sign(name, names, usage, &key, (now, days))?;
        Ok(Credential { key: key.serialize_pem(), ..signed })
    }

    /// Issues a certificate for the names and the key of an earlier one.
    pub fn renew(&self, earlier: &IssuedCertificate, at: (OffsetDateTime, i64)) -> Result<Credential, CommandError> {
        let key = SubjectPublicKeyInfo::from_der(&earlier.public_key).map_err(signing_error)?;
        self.sign(&earlier.name, &earlier.names, earlier.usage, &key, at)
    }

    fn sign(
        &self,
        name: &str,
        names: &SubjectNames,
        usage: CertificateUsage,
        key: &impl PublicKeyData,
        (now, days): (OffsetDateTime, i64),
    ) -> Result<Credential, CommandError> {
        let not_after = now + Duration::days(days);
        if not_after > self.not_after {
            let end = date_text(self.not_after);
            return Err(Error::config("days", format!("the CA itself ends on {end}; choose fewer --days")).into());
        }
        let (serial_number, serial) = random_serial()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name);
        let uri = names.id.iter().map(|id| ascii(&id.to_string()).map(SanType::URI));
        let hosts = names.hosts.iter().map(|host| match host {
            ServerName::Dns(name) => ascii(name).map(SanType::DnsName),
            ServerName::Ip(address) => Ok(SanType::IpAddress(*address)),
        });
        params.subject_alt_names = hosts.chain(uri).collect::<Result<_, _>>()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match usage {
            CertificateUsage::Server => ExtendedKeyUsagePurpose::ServerAuth,
            CertificateUsage::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial_number);
        (params.not_before, params.not_after) = (now - CLOCK_SKEW, not_after);
        let certificate = params.signed_by(key, &self.issuer).map_err(signing_error)?;
        Ok(Credential { certificate: certificate.pem(), key: String::new(), serial, not_after })
    }

    /// Signs a revocation list, in PEM.
    pub fn sign_list(&self, list: &RevokedCertificates, now: OffsetDateTime) -> Result<String, CommandError> {
        let params = list.params(now, self.not_after);
        params.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(signing_error)
    }
}

fn read_key(path: &Path) -> Result<KeyPair, CommandError> {
    let at = path.display();
    if !path.exists() {
        let reason =
            format!("{at} does not exist; bring the key of the CA to this machine, or name its file with --ca-key");
        return Err(file_error(path, reason).into());
    }
    let text = input_file::read(path)?;
    let mode = path.metadata().map(|known| known.permissions().mode()).unwrap_or_default();
    if mode & 0o077 != 0 {
        return Err(file_error(path, format!("other users can read or change {at}; run chmod 600 on it")).into());
    }
    let refused = |_| file_error(path, format!("{at} contains no private key in PEM; restore the file"));
    Ok(KeyPair::from_pem(&text).map_err(refused)?)
}

fn without_trust_domain(path: &Path) -> Error {
    let at = path.display();
    file_error(path, format!("{at} names no trust domain; only a CA of `leasehold init` can issue certificates here"))
}

fn common_name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

fn ascii(text: &str) -> Result<Ia5String, CommandError> {
    Ia5String::try_from(text).map_err(signing_error)
}

/// A serial number that cannot be guessed and is not repeated.
fn random_serial() -> Result<(SerialNumber, String), CommandError> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| CommandError::Other(format!("no random bytes from the system: {error}")))?;
    // Positive, and of full length.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok((SerialNumber::from_slice(&bytes), hex(&bytes)))
}

fn signing_error(error: rcgen::Error) -> CommandError {
    CommandError::Other(format!("cannot create the certificate: {error}"))
}
