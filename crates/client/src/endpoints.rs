//! Endpoints of a cluster: strictly parsed `host:port` addresses.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv6Addr;

use crate::Error;

/// Setting that errors about endpoints name.
const KEY: &str = "addr";

/// One server: `host:port`, `10.0.0.7:7421` or `[::1]:7421`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(String);

impl Address {
    /// Parses an address. There is no default port and no scheme.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let invalid =
            |reason: &str| Error::config(KEY, format!("{KEY}: {text:?} {reason}; for example 127.0.0.1:7421"));
        if text.is_empty() {
            return Err(Error::config(KEY, format!("{KEY}: empty endpoint; for example 127.0.0.1:7421")));
        }
        if text.contains("://") {
            return Err(invalid("has a scheme; endpoints have none"));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| invalid("has no port"))?;
        if host.is_empty() {
            return Err(invalid("has no host; write 127.0.0.1 for this machine"));
        }
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let valid = match bracketed {
            Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
            None => host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)),
        };
        if !valid {
            return Err(invalid("has an invalid host; write an IPv6 address in brackets"));
        }
        let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        match port.parse::<u16>() {
            Ok(1..) if digits => Ok(Self(format!("{}:{port}", host.to_ascii_lowercase()))),
            _ => Err(invalid("needs a port from 1 to 65535")),
        }
    }

    /// The address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The servers of one cluster in the order in which they are tried, without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints(Vec<Address>);

impl Endpoints {
    /// Limit on the number of endpoints.
    pub const MAX: usize = 64;

    /// Parses addresses separated by commas.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let addresses = text.split(',').map(Address::parse).collect::<Result<Vec<_>, _>>()?;
        if addresses.len() > Self::MAX {
            return Err(Error::config(KEY, format!("{KEY}: more than {} endpoints", Self::MAX)));
        }
        let mut seen = BTreeSet::new();
        if let Some(duplicate) = addresses.iter().find(|address| !seen.insert(*address)) {
            return Err(Error::config(KEY, format!("{KEY}: {duplicate} is listed twice; list each server once")));
        }
        Ok(Self(addresses))
    }

    /// No endpoint, for a grantor in this process.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    /// The addresses; at least one.
    pub fn addresses(&self) -> &[Address] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn hosts_with_ports_are_parsed_in_order() {
        let endpoints = Endpoints::parse("127.0.0.1:7421,[::1]:1,Lease-2.example:65535").unwrap();
        let texts: Vec<_> = endpoints.addresses().iter().map(Address::as_str).collect();
        assert_eq!(texts, ["127.0.0.1:7421", "[::1]:1", "lease-2.example:65535"]);
    }

    #[test]
    fn an_invalid_endpoint_is_a_configuration_error_with_an_example() {
        let invalid = [
            "",
            ",",
            "a:1,",
            ",a:1",
            "host",
            "host:",
            ":7421",
            "host:0",
            "host:65536",
            "host:+1",
            "host:7421 ",
            " host:7421",
            "ho st:7421",
            "http://host:7421",
            "https://host:7421",
            "host:7421/path",
            "user@host:7421",
            "::1:7421",
            "[::1]",
            "[nonsense]:7421",
            "hóst:7421",
        ];
        for text in invalid {
            let error = Endpoints::parse(text).expect_err(text);
            assert_eq!((error.code(), error.exit_code()), (Some(Code::Config), 78), "{text:?}");
            assert!(error.to_string().contains("127.0.0.1:7421"), "{error}");
        }
    }

    #[test]
    fn a_duplicate_endpoint_is_a_configuration_error() {
        for text in ["a:1,b:1,a:1", "A.example:1,a.example:1"] {
            let error = Endpoints::parse(text).expect_err(text);
            assert!(error.to_string().contains("twice"), "{error}");
        }
    }
}
