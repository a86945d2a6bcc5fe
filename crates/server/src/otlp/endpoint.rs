//! The address of a collector: a base URL, to which the path of traces is appended.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use axum::http::Uri;

/// The path of traces below the base URL, as the specification of OTLP names it.
const TRACES_PATH: &str = "/v1/traces";

/// The base URL of a collector, as in `OTEL_EXPORTER_OTLP_ENDPOINT`: `http://HOST:PORT` or `https://HOST:PORT`, with or without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl {
    base: String,
    host: String,
    port: u16,
    is_tls: bool,
}

/// A text is not the base URL of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectorUrlError(&'static str);

impl fmt::Display for CollectorUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for CollectorUrlError {}

impl FromStr for CollectorUrl {
    type Err = CollectorUrlError;

    fn from_str(text: &str) -> Result<Self, CollectorUrlError> {
        const FORM: CollectorUrlError =
            CollectorUrlError("not the base URL of a collector; write, for example, http://127.0.0.1:4318");
        let uri: Uri = text.parse().map_err(|_| FORM)?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(FORM),
        };
        let authority = uri.authority().ok_or(FORM)?;
        if authority.as_str().contains('@') {
            return Err(CollectorUrlError("contains credentials; put them into the file of otlp_headers_file"));
        }
        if uri.query().is_some() {
            return Err(CollectorUrlError(
                "contains a query; /v1/traces is appended to the URL, so write it without one",
            ));
        }
        if uri.path().ends_with(TRACES_PATH) {
            return Err(CollectorUrlError("contains /v1/traces, which is appended; write the base URL without it"));
        }
        if authority.host().is_empty() {
            return Err(FORM);
        }
        let port = match (authority.port(), authority.as_str().ends_with(':')) {
            (_, true) => return Err(FORM),
            (Some(port), _) => port.as_str().parse().map_err(|_| FORM)?,
            (None, _) if authority.as_str().len() != authority.host().len() => return Err(FORM),
            (None, _) => {
                if is_tls {
                    443
                } else {
                    80
                }
            }
        };
        Ok(Self { base: text.trim_end_matches('/').to_owned(), host: authority.host().to_owned(), port, is_tls })
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

impl CollectorUrl {
    /// The host without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is reached with TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Whether it is on this machine.
    pub fn is_loopback(&self) -> bool {
        self.host() == "localhost" || self.host().parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// Host and port, for the header `host`.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The path of traces.
    pub(super) fn path(&self) -> String {
        let after_scheme = self.base.split_once("://").map_or("", |(_, rest)| rest);
        let path = after_scheme.find('/').map_or("", |at| &after_scheme[at..]);
        format!("{path}{TRACES_PATH}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_gives_host_port_and_path() {
        let rows = [
            ("http://127.0.0.1:4318", "127.0.0.1", 4318, "/v1/traces", true),
            ("http://localhost:4318/", "localhost", 4318, "/v1/traces", true),
            ("http://[::1]:4318/otlp/", "::1", 4318, "/otlp/v1/traces", true),
            ("https://collector.example", "collector.example", 443, "/v1/traces", false),
            ("http://10.0.0.7", "10.0.0.7", 80, "/v1/traces", false),
        ];
        for (text, host, port, path, is_loopback) in rows {
            let url: CollectorUrl = text.parse().expect(text);
            assert_eq!((url.host(), url.port(), &*url.path(), url.is_loopback()), (host, port, path, is_loopback));
            assert_eq!(url.is_tls(), text.starts_with("https"));
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_next_step() {
        let rows = [
            ("", "write, for example"),
            ("collector:4318", "write, for example"),
            ("grpc://collector:4317", "write, for example"),
            ("http://:4318", "write, for example"),
            ("http://collector:", "write, for example"),
            ("http://collector:99999", "write, for example"),
            ("http://user:secret@collector:4318", "otlp_headers_file"),
            ("http://collector:4318?key=1", "without one"),
            ("http://collector:4318/v1/traces", "without it"),
        ];
        for (text, next_step) in rows {
            let error = CollectorUrl::from_str(text).expect_err(text).to_string();
            assert!(error.contains(next_step), "{text}: {error}");
        }
    }
}
