//! What a certificate states about its owner: one name, the end of its validity, and whether it is for clients (A3).
//!
//! The subject and its common name never count. A certificate with two names of one kind is refused, because a reader could take
//! either.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;

use crate::hex::hex;

/// Longest SPIFFE id.
const MAX_NAME: usize = 2_048;
/// Longest trust domain.
const MAX_DOMAIN: usize = 255;
/// Digits of the digest that names a certificate in logs and audit entries.
const CREDENTIAL_DIGITS: usize = 16;
const SCHEME: &str = "spiffe://";

/// The name of a peer in its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerName {
    /// A SPIFFE id, `spiffe://DOMAIN/PATH`.
    Spiffe(String),
    /// A DNS name in lower case.
    Dns(String),
}

/// A certificate names no one, or not clearly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateNameError {
    /// It cannot be decoded.
    Malformed,
    /// It has neither a URI nor a DNS name.
    NoName,
    /// It has several URIs.
    ManyUris,
    /// It has several DNS names and no URI.
    ManyDnsNames,
    /// Its URI is not a SPIFFE id.
    NotSpiffe,
    /// Its DNS name is a wildcard or not a host name.
    NotHostName,
    /// It is not for client authentication.
    NotForClients,
    /// Its name is longer than any principal.
    TooLong,
}

impl CertificateNameError {
    /// The reason in log lines and metrics.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "the certificate cannot be decoded",
            Self::NoName => "the certificate has no URI and no DNS name",
            Self::ManyUris => "the certificate has more than one URI",
            Self::ManyDnsNames => "the certificate has more than one DNS name and no URI",
            Self::NotSpiffe => "the URI of the certificate is not spiffe://DOMAIN/PATH",
            Self::NotHostName => "the DNS name of the certificate is a wildcard or not a host name",
            Self::NotForClients => "the certificate lacks the extended key usage clientAuth",
            Self::TooLong => "the name in the certificate is too long",
        }
    }
}

impl fmt::Display for CertificateNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for CertificateNameError {}

impl PeerName {
    /// The only name of a client certificate. It proves nothing before the certificate is verified.
    pub fn of_client(certificate: &CertificateDer<'_>) -> Result<Self, CertificateNameError> {
        let certificate = parse(certificate).ok_or(CertificateNameError::Malformed)?;
        let usage = certificate.extended_key_usage().map_err(|_| CertificateNameError::Malformed)?;
        if !usage.is_some_and(|usage| usage.value.client_auth) {
            return Err(CertificateNameError::NotForClients);
        }
        let names = certificate.subject_alternative_name().map_err(|_| CertificateNameError::Malformed)?;
        let (mut uris, mut hosts) = (Vec::new(), Vec::new());
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::URI(uri) => uris.push(*uri),
                GeneralName::DNSName(host) => hosts.push(*host),
                GeneralName::Invalid(..) => return Err(CertificateNameError::Malformed),
                _ => {}
            }
        }
        match (&*uris, &*hosts) {
            ([uri], _) => Self::spiffe(uri),
            ([_, _, ..], _) => Err(CertificateNameError::ManyUris),
            ([], [host]) => Self::dns(host),
            ([], [_, _, ..]) => Err(CertificateNameError::ManyDnsNames),
            ([], []) => Err(CertificateNameError::NoName),
        }
    }

    /// Parses a SPIFFE id as its specification spells it: nothing is normalized.
    fn spiffe(uri: &str) -> Result<Self, CertificateNameError> {
        let (domain, path) =
            uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')).ok_or(CertificateNameError::NotSpiffe)?;
        let is_segment = |segment: &str| {
            let plain = segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            plain && !["", ".", ".."].contains(&segment)
        };
        if !is_trust_domain(domain) || !path.split('/').all(is_segment) {
            return Err(CertificateNameError::NotSpiffe);
        }
        if uri.len() > MAX_NAME { Err(CertificateNameError::TooLong) } else { Ok(Self::Spiffe(uri.to_owned())) }
    }

    /// Parses a DNS name. Case does not matter in DNS, so it is folded here, once.
    fn dns(host: &str) -> Result<Self, CertificateNameError> {
        let is_label = |label: &str| {
            let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            plain && (1..=63).contains(&label.len())
        };
        if host.len() > 253 || !host.split('.').all(is_label) {
            return Err(CertificateNameError::NotHostName);
        }
        Ok(Self::Dns(host.to_ascii_lowercase()))
    }

    /// The name that grants are given to.
    pub fn principal(&self) -> String {
        match self {
            Self::Spiffe(id) => id.clone(),
            Self::Dns(host) => format!("dns:{host}"),
        }
    }

    /// The trust domain of a SPIFFE id; none for a DNS name.
    pub fn trust_domain(&self) -> Option<&str> {
        match self {
            Self::Spiffe(id) => id[SCHEME.len()..].split('/').next(),
            Self::Dns(_) => None,
        }
    }
}

/// Whether a text is a trust domain: lower case, as in a SPIFFE id.
pub fn is_trust_domain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    (1..=MAX_DOMAIN).contains(&text.len()) && text.bytes().all(plain)
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (rest, certificate) = X509Certificate::from_der(certificate.as_ref()).ok()?;
    rest.is_empty().then_some(certificate)
}

/// Begin and end of a certificate's validity; `None` if it cannot be decoded.
pub fn validity(certificate: &CertificateDer<'_>) -> Option<(SystemTime, SystemTime)> {
    let certificate = parse(certificate)?;
    let validity = certificate.validity();
    Some((time(validity.not_before.timestamp()), time(validity.not_after.timestamp())))
}

/// Whether a certificate is that of an authority.
pub fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    parse(certificate).is_some_and(|certificate| certificate.is_ca())
}

/// When the next revocation list is due; `None` if the list cannot be decoded or names no time.
pub fn next_update(list: &CertificateRevocationListDer<'_>) -> Option<SystemTime> {
    let (_, list) = CertificateRevocationList::from_der(list.as_ref()).ok()?;
    list.next_update().map(|at| time(at.timestamp()))
}

/// The first instant at which one of these certificates is over.
pub fn earliest_end(chain: &[CertificateDer<'_>]) -> Option<SystemTime> {
    chain.iter().map(|certificate| validity(certificate).map(|(_, end)| end)).min()?
}

/// The DNS names of a server's own certificate, in lower case.
pub fn host_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Some(certificate) = parse(certificate) else { return Vec::new() };
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|names| &names.value.general_names);
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(host) => Some(host.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

/// The digest that names a certificate in logs and audit entries.
pub fn credential(certificate: &CertificateDer<'_>) -> String {
    let mut digits = hex(&Sha256::digest(certificate.as_ref()).into());
    digits.truncate(CREDENTIAL_DIGITS);
    digits
}

fn time(seconds: i64) -> SystemTime {
    let magnitude = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds >= 0 { UNIX_EPOCH.checked_add(magnitude) } else { UNIX_EPOCH.checked_sub(magnitude) };
    time.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spiffe_id_is_taken_as_it_is_spelled() {
        for id in ["spiffe://example/jobs/worker", "spiffe://a.b-c_1/x", "spiffe://example/A/b..c"] {
            let name = PeerName::spiffe(id).expect(id);
            assert_eq!(name.principal(), id);
        }
        let name = PeerName::spiffe("spiffe://prod.example/a").expect("valid");
        assert_eq!(name.trust_domain(), Some("prod.example"));
        for bad in [
            "",
            "spiffe://",
            "spiffe://example",
            "spiffe://example/",
            "spiffe:///a",
            "spiffe://Example/a",
            "SPIFFE://example/a",
            "spiffe://example/a/",
            "spiffe://example//a",
            "spiffe://example/./a",
            "spiffe://example/../a",
            "spiffe://example/a%2fb",
            "spiffe://example/a b",
            "spiffe://example/a?b",
            "spiffe://example/a#b",
            "spiffe://user@example/a",
            "spiffe://example:443/a",
            "https://example/a",
            "spiffe://ex\u{e4}mple/a",
        ] {
            assert_eq!(PeerName::spiffe(bad), Err(CertificateNameError::NotSpiffe), "{bad:?}");
        }
        let long = format!("spiffe://example/{}", "a".repeat(MAX_NAME));
        assert_eq!(PeerName::spiffe(&long), Err(CertificateNameError::TooLong));
    }

    #[test]
    fn a_dns_name_is_folded_and_a_wildcard_is_none() {
        let name = PeerName::dns("Worker-1.Example").expect("valid");
        assert_eq!((name.principal().as_str(), name.trust_domain()), ("dns:worker-1.example", None));
        for bad in ["", "*.example", "a.*", ".", "a..b", "a.", ".a", "a b", "a/b", "\u{e4}", &"a".repeat(64)] {
            assert_eq!(PeerName::dns(bad), Err(CertificateNameError::NotHostName), "{bad:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_certificate_are_refused() {
        for bytes in [&b""[..], b"\x30", b"\x30\x03\x02\x01\x00", &[0; 1024]] {
            let certificate = CertificateDer::from(bytes);
            assert_eq!(PeerName::of_client(&certificate), Err(CertificateNameError::Malformed));
            assert_eq!(validity(&certificate), None);
            assert!(host_names(&certificate).is_empty());
        }
    }
}
