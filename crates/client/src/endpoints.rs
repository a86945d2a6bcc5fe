//! Endpoints of a cluster: strictly parsed addresses, and how to connect to them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::{BearerTokenFile, Error, TlsOptions};

/// Setting that errors about endpoints name.
const KEY: &str = "addr";

/// Start of the address of a unix socket.
const UNIX: &str = "unix:";
/// Start of an address that requires TLS.
const HTTPS: &str = "https://";

/// One server: `host:port`, `10.0.0.7:7421` or `[::1]:7421`. As an endpoint of a client also a unix socket, `unix:PATH`.
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
            return Err(invalid("has a scheme; write HOST:PORT"));
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

    /// Parses an endpoint: `host:port`, `https://host:port` or `unix:PATH`. True if it requires TLS.
    fn parse_endpoint(text: &str) -> Result<(Self, bool), Error> {
        // A port after it makes `unix` the name of a host.
        if let Some(path) = text.strip_prefix(UNIX).filter(|path| path.parse::<u16>().is_err()) {
            if path.is_empty() || path.contains('\0') {
                let message =
                    format!("{KEY}: {text:?} names no socket; for example unix:/run/leasehold/leasehold.sock");
                return Err(Error::config(KEY, message));
            }
            return Ok((Self(text.to_owned()), false));
        }
        match text.strip_prefix(HTTPS) {
            Some(address) => Ok((Self::parse(address)?, true)),
            None => Ok((Self::parse(text)?, false)),
        }
    }

    /// The address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of a unix socket; none for an address on the network.
    pub fn unix_path(&self) -> Option<&str> {
        self.0.strip_prefix(UNIX).filter(|path| path.parse::<u16>().is_err())
    }

    /// The host, without the brackets of an IPv6 address.
    #[doc(hidden)]
    pub fn host(&self) -> &str {
        let host = self.0.rsplit_once(':').map_or("", |(host, _)| host);
        host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
    }

    /// Whether what is sent there does not leave this machine.
    fn is_local(&self) -> bool {
        let host = self.host();
        let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
        self.unix_path().is_some() || host == "localhost" || host.parse().is_ok_and(is_loopback)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The servers of one cluster in the order in which they are tried, without duplicates, and the credentials to connect with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    addresses: Vec<Address>,
    /// Whether an address is written with `https://`.
    requires_tls: bool,
    tls: Option<TlsOptions>,
    bearer: Option<BearerTokenFile>,
}

impl Endpoints {
    /// Limit on the number of endpoints.
    pub const MAX: usize = 64;

    /// Parses addresses separated by commas: `host:port`, `https://host:port` or `unix:PATH`. If one of them requires TLS, all on the
    /// network do.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let parsed = text.split(',').map(Address::parse_endpoint).collect::<Result<Vec<_>, _>>()?;
        let (addresses, with_https): (Vec<_>, Vec<_>) = parsed.into_iter().unzip();
        if addresses.len() > Self::MAX {
            return Err(Error::config(KEY, format!("{KEY}: more than {} endpoints", Self::MAX)));
        }
        let mut seen = BTreeSet::new();
        if let Some(duplicate) = addresses.iter().find(|address| !seen.insert(*address)) {
            return Err(Error::config(KEY, format!("{KEY}: {duplicate} is listed twice; list each server once")));
        }
        Ok(Self { addresses, requires_tls: with_https.contains(&true), tls: None, bearer: None })
    }

    /// Connects to servers on the network with TLS, whether or not their addresses are written with `https://`.
    #[must_use]
    pub fn with_tls(self, options: TlsOptions) -> Self {
        Self { tls: Some(options), ..self }
    }

    /// Presents the bearer token in this file with each request.
    #[must_use]
    pub fn with_bearer(self, file: BearerTokenFile) -> Self {
        Self { bearer: Some(file), ..self }
    }

    /// No endpoint, for a grantor in this process.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) const fn none() -> Self {
        Self { addresses: Vec::new(), requires_tls: false, tls: None, bearer: None }
    }

    /// The addresses; at least one.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The certificates for a connection to a server; none for a plain one. Never plain if TLS is configured or required.
    pub(crate) fn tls(&self) -> Result<Option<&TlsOptions>, Error> {
        if self.requires_tls && self.tls.is_none() {
            let message = "tls_ca: https:// requires the CA certificates of the servers; set tls_ca, and tls_cert and tls_key or bearer_file";
            return Err(Error::config("tls_ca", message));
        }
        Ok(self.tls.as_ref())
    }

    /// The bearer token for a server. Fails where others could read it: on a plain connection that leaves this machine.
    pub(crate) fn bearer(&self, at: &Address) -> Result<Option<&BearerTokenFile>, Error> {
        if self.bearer.is_some() && self.tls()?.is_none() && !at.is_local() {
            let message = format!(
                "bearer_file: refusing to send a bearer token to {at} without TLS; write https://{at} and set tls_ca"
            );
            return Err(Error::config("bearer_file", message));
        }
        Ok(self.bearer.as_ref())
    }

    /// Fails if the bearer token would be refused for one of the addresses, or is not in its file.
    pub fn check_bearer(&self) -> Result<(), Error> {
        self.addresses.iter().try_for_each(|at| self.bearer(at).map(drop))?;
        self.bearer.as_ref().map_or(Ok(()), BearerTokenFile::check)
    }

    /// Whether an address is one of the endpoints.
    pub(crate) fn contains(&self, at: &Address) -> bool {
        self.addresses.contains(at)
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
            "https://host",
            "https://host:7421/",
            "https://https://host:7421",
            "HTTPS://host:7421",
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
    fn a_unix_socket_and_an_address_with_tls_are_endpoints() {
        let endpoints = Endpoints::parse("unix:/run/leasehold.sock,unix:7421,https://[::1]:7421").unwrap();
        let [socket, host, v6] = endpoints.addresses() else { panic!("three addresses: {endpoints:?}") };
        assert_eq!((socket.unix_path(), socket.as_str()), (Some("/run/leasehold.sock"), "unix:/run/leasehold.sock"));
        assert_eq!((host.unix_path(), host.host()), (None, "unix"), "a port follows a host");
        assert_eq!((v6.as_str(), v6.host()), ("[::1]:7421", "::1"));
        for text in ["unix:", "unix:/a,unix:"] {
            assert!(Endpoints::parse(text).expect_err(text).to_string().contains("unix:/run"), "{text}");
        }
        assert!(
            Address::parse("unix:/run/x").is_err() && Address::parse("https://a:1").is_err(),
            "not for other servers"
        );
    }

    #[test]
    fn an_address_with_https_is_never_connected_to_without_tls() {
        let options = TlsOptions::new("ca.pem", "cert.pem", "key.pem");
        for text in ["https://a:1", "https://a:1,b:1", "b:1,https://a:1"] {
            let endpoints = Endpoints::parse(text).unwrap();
            assert_eq!(endpoints.tls().expect_err(text).exit_code(), 78);
            assert_eq!(endpoints.with_tls(options.clone()).tls().unwrap(), Some(&options));
        }
        let plain = Endpoints::parse("a:1").unwrap();
        assert_eq!(plain.tls().unwrap(), None);
        assert_eq!(plain.with_tls(options.clone()).tls().unwrap(), Some(&options), "the scheme may be left out");
    }

    #[test]
    fn a_bearer_token_is_never_sent_over_a_plain_connection_to_another_machine() {
        let token = BearerTokenFile::new("token");
        let tls = TlsOptions::without_certificate("ca.pem");
        let sends = |text: &str, tls: Option<&TlsOptions>| {
            let endpoints = Endpoints::parse(text).unwrap().with_bearer(token.clone());
            let endpoints = tls.map_or(endpoints.clone(), |tls| endpoints.with_tls(tls.clone()));
            endpoints.bearer(&endpoints.addresses()[0]).map(|file| file.is_some())
        };
        for local in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1", "unix:/run/a"] {
            assert_eq!(sends(local, None).ok(), Some(true), "{local}");
        }
        for remote in
            ["10.0.0.1:1", "lease-1:1", "[fe80::1]:1", "0.0.0.0:1", "localhost.example:1", "127.0.0.1.example:1"]
        {
            let error = sends(remote, None).expect_err(remote);
            assert!(error.to_string().contains("without TLS"), "{error}");
            assert_eq!(sends(remote, Some(&tls)).ok(), Some(true), "{remote}");
        }
        assert!(sends("https://lease-1:1", None).is_err(), "TLS is required, and not configured");
    }

    #[test]
    fn a_duplicate_endpoint_is_a_configuration_error() {
        for text in ["a:1,b:1,a:1", "A.example:1,a.example:1"] {
            let error = Endpoints::parse(text).expect_err(text);
            assert!(error.to_string().contains("twice"), "{error}");
        }
    }
}
