//! Where the servers are, checked once and strictly: `host:port`, one after the other.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv6Addr;

use crate::Error;

/// The key that errors about endpoints name.
const KEY: &str = "addr";

/// One server: `host:port`, `10.0.0.7:7421` or `[::1]:7421`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(String);

impl Address {
    /// Checks an address. Nothing is guessed: no default port, no scheme.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refused = |why: &str| Error::config(KEY, format!("{KEY}: {text:?} {why}; write it like 127.0.0.1:7421"));
        if text.is_empty() {
            return Err(Error::config(KEY, format!("{KEY}: an endpoint is empty; write it like 127.0.0.1:7421")));
        }
        if text.contains("://") {
            return Err(refused("has a scheme, and there is only one protocol"));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| refused("has no port"))?;
        if host.is_empty() {
            return Err(refused("has no host"));
        }
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let sound = match bracketed {
            Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
            None => host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)),
        };
        if !sound {
            return Err(refused("has no host that can be asked for; an IPv6 address stands in brackets"));
        }
        let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        match port.parse::<u16>() {
            Ok(1..) if digits => Ok(Self(format!("{}:{port}", host.to_ascii_lowercase()))),
            _ => Err(refused("has no port from 1 to 65535")),
        }
    }

    /// The address as it is dialled.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The servers of one cluster, each once, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints(Vec<Address>);

impl Endpoints {
    /// Most servers that one client knows from the start.
    pub const MOST: usize = 64;

    /// Reads `A[,B…]`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let addresses = text.split(',').map(Address::parse).collect::<Result<Vec<_>, _>>()?;
        if addresses.len() > Self::MOST {
            return Err(Error::config(KEY, format!("{KEY}: more than {} endpoints; name fewer", Self::MOST)));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = addresses.iter().find(|address| !seen.insert(*address)) {
            return Err(Error::config(KEY, format!("{KEY}: {twice} stands there twice; name each server once")));
        }
        Ok(Self(addresses))
    }

    /// No server: for a grantor in this process.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    /// The servers; at least one.
    pub fn all(&self) -> &[Address] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn hosts_with_ports_are_read_in_order() {
        let endpoints = Endpoints::parse("127.0.0.1:7421,[::1]:1,Lease-2.example:65535").unwrap();
        let texts: Vec<_> = endpoints.all().iter().map(Address::as_str).collect();
        assert_eq!(texts, ["127.0.0.1:7421", "[::1]:1", "lease-2.example:65535"]);
    }

    #[test]
    fn anything_else_is_a_configuration_error_with_an_example() {
        let wrong = [
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
        for text in wrong {
            let error = Endpoints::parse(text).expect_err(text);
            assert_eq!((error.code(), error.exit()), (Some(Code::Config), 78), "{text:?}");
            assert!(error.to_string().contains("127.0.0.1:7421"), "{error}");
        }
    }

    #[test]
    fn a_server_named_twice_is_a_configuration_error() {
        for text in ["a:1,b:1,a:1", "A.example:1,a.example:1"] {
            let error = Endpoints::parse(text).expect_err(text);
            assert!(error.to_string().contains("twice"), "{error}");
        }
    }
}
