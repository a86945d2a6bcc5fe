//! SPIFFE ids: `spiffe://TRUST-DOMAIN/PATH`, the identities in certificates.

use std::fmt;
use std::str::FromStr;

use leasehold_core::limits::PRINCIPAL_BYTES;

const SCHEME: &str = "spiffe://";
const MAX_DOMAIN: usize = 255;
/// First segment of the ids of servers.
const SERVERS: &str = "leasehold";

/// The name of a trust domain: all identities that one CA vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustDomain(String);

impl TrustDomain {
    /// `.internal` is reserved for private use, so this is never a name on the internet.
    pub const DEFAULT: &'static str = "leasehold.internal";

    /// The id of the trust domain itself, in the certificate of its CA.
    pub fn uri(&self) -> String {
        format!("{SCHEME}{self}")
    }

    /// The trust domain of a CA, by the URI in its certificate.
    pub fn from_uri(uri: &str) -> Option<Self> {
        uri.strip_prefix(SCHEME)?.parse().ok()
    }

    /// The id of the servers of a cluster.
    pub fn server(&self, cluster: &str) -> SpiffeId {
        SpiffeId { domain: self.clone(), path: format!("{SERVERS}/{cluster}") }
    }

    /// The id of a client by its name.
    pub fn client(&self, name: &str) -> SpiffeId {
        SpiffeId { domain: self.clone(), path: name.to_owned() }
    }
}

impl FromStr for TrustDomain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
        if text.is_empty() || text.len() > MAX_DOMAIN || !text.bytes().all(allowed) {
            return Err(format!(
                "{text:?} is not a trust domain; write lower-case letters, digits, `.`, `-` and `_`, for example {}",
                Self::DEFAULT
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An identity: a trust domain and a path of at least one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpiffeId {
    pub domain: TrustDomain,
    path: String,
}

impl SpiffeId {
    /// Whether the id is one of servers, which no client may have.
    pub fn is_server(&self) -> bool {
        self.path.split('/').next() == Some(SERVERS)
    }
}

impl FromStr for SpiffeId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = format!("for example {SCHEME}{}/jobs/worker", TrustDomain::DEFAULT);
        let Some((domain, path)) = text.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')) else {
            return Err(format!("{text:?} is not a SPIFFE id; write {SCHEME}TRUST-DOMAIN/PATH, {example}"));
        };
        if text.len() > PRINCIPAL_BYTES {
            return Err(format!(
                "a SPIFFE id has at most {PRINCIPAL_BYTES} bytes, and this one {}; shorten it",
                text.len()
            ));
        }
        if let Some(segment) = path.split('/').find(|segment| !is_segment(segment)) {
            return Err(format!(
                "{segment:?} is not a segment of a SPIFFE id; write letters, digits, `.`, `-` and `_`, {example}"
            ));
        }
        Ok(Self { domain: domain.parse()?, path: path.to_owned() })
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.domain, self.path)
    }
}

fn is_segment(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !text.is_empty() && text != "." && text != ".." && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_a_trust_domain_and_a_path_of_plain_segments() {
        for text in ["spiffe://a/b", "spiffe://leasehold.internal/jobs/worker", "spiffe://a-b_c.d/X/y.z/1-2_3"] {
            assert_eq!(text.parse::<SpiffeId>().map(|id| id.to_string()), Ok(text.to_owned()));
        }
        let wrong = [
            "",
            "spiffe://",
            "spiffe://a",
            "spiffe://a/",
            "spiffe:///b",
            "spiffe://A/b",
            "spiffe://a/b/",
            "spiffe://a//b",
            "spiffe://a/../b",
            "spiffe://a/.",
            "spiffe://a/b?c",
            "spiffe://a/b#c",
            "spiffe://a/b%20c",
            "spiffe://a:1/b",
            "spiffe://u@a/b",
            "spiffe://a/b\n",
            "spiffe://a/é",
            "SPIFFE://a/b",
            "https://a/b",
        ];
        for text in wrong {
            assert!(text.parse::<SpiffeId>().is_err(), "{text:?}");
        }
        assert!(format!("spiffe://a/{}", "b".repeat(PRINCIPAL_BYTES)).parse::<SpiffeId>().is_err(), "too long");
    }

    #[test]
    fn ids_of_servers_are_recognized_by_their_first_segment() {
        let domain: TrustDomain = "a".parse().expect("a trust domain");
        assert!(domain.server("main").is_server());
        assert!("spiffe://a/leasehold".parse::<SpiffeId>().is_ok_and(|id| id.is_server()));
        assert!("spiffe://a/leaseholder/main".parse::<SpiffeId>().is_ok_and(|id| !id.is_server()));
    }
}
