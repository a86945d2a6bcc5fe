//! Names in certificates and of files: credentials, and the hosts of a server.

use std::fmt;
use std::net::IpAddr;

use crate::serve::parse_host_name;

/// Maximum validity of a certificate in days: that of the CA.
pub const MAX_DAYS: i64 = 3650;
const MAX_NAME: usize = 64;

/// Parses the name of a credential, a profile or a cluster. It becomes part of file names and identities.
pub fn parse_credential_name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if starts && text.len() <= MAX_NAME && text.bytes().all(allowed) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{text:?} is not a name; write at most {MAX_NAME} letters, digits, `.`, `-` and `_`, and start with a letter or a digit"
    ))
}

/// A host in the certificate of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerName {
    /// A DNS name, in lower case.
    Dns(String),
    /// An IP address.
    Ip(IpAddr),
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

/// Parses the host of a server: a DNS name without wildcard, or an IP address.
pub fn parse_server_name(text: &str) -> Result<ServerName, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        if address.is_unspecified() {
            return Err(format!("{address} is not the address of one machine; write the address that clients use"));
        }
        return Ok(ServerName::Ip(address));
    }
    let name = parse_host_name(text)?;
    let is_label = |label: &str| {
        let inner = !label.starts_with('-') && !label.ends_with('-') && label.len() <= 63;
        inner && !label.is_empty() && !label.contains('_')
    };
    // The last label of a name is not a number, or the text was meant as an address.
    let last_is_number = name.rsplit('.').next().is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    if !name.split('.').all(is_label) || last_is_number {
        return Err(format!(
            "{text:?} is neither a DNS name nor an IP address; for example leases.example.com or 192.0.2.10"
        ));
    }
    Ok(ServerName::Dns(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_directory() {
        for name in ["worker", "a", "jobs.worker-1_b", "7"] {
            assert_eq!(parse_credential_name(name).as_deref(), Ok(name));
        }
        for name in ["", ".", "..", "../a", "a/b", "-a", ".a", "a b", "a\n", "é", &"a".repeat(65)] {
            assert!(parse_credential_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_server_is_named_by_a_dns_name_or_an_address() {
        assert_eq!(parse_server_name("Leases.Example.com"), Ok(ServerName::Dns("leases.example.com".into())));
        assert_eq!(parse_server_name("192.0.2.10").map(|name| name.to_string()), Ok("192.0.2.10".into()));
        assert_eq!(parse_server_name("[2001:db8::1]").map(|name| name.to_string()), Ok("2001:db8::1".into()));
        let wrong = ["", "*", "*.example.com", "a b", "https://a", "a:7421", "192.0.2", "192.0.2.256", "0.0.0.0", "::"];
        for text in wrong.into_iter().chain(["a..b", "a.", "-a.b", "a_b", "é"]) {
            assert!(parse_server_name(text).is_err(), "{text:?}");
        }
    }
}
