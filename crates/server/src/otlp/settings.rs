//! Settings of the export of spans: the collector, headers, authorities, and what describes this service.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use leasehold_wire::headers::percent_decode;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, version};

use super::CollectorUrl;
use crate::credential_file;

/// Where spans are exported to, and how they describe this service.
#[derive(Clone, Debug)]
pub struct CollectorSettings {
    url: CollectorUrl,
    headers: Vec<(HeaderName, HeaderValue)>,
    tls: Option<Arc<ClientConfig>>,
    service_name: String,
    attributes: Vec<(String, String)>,
}

/// Spans cannot be exported with these settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorSettingsError {
    /// The setting, or the variable, that is wrong.
    pub setting: &'static str,
    /// What is wrong, and the next step.
    pub message: String,
}

impl fmt::Display for CollectorSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.message)
    }
}

impl std::error::Error for CollectorSettingsError {}

fn wrong(setting: &'static str, message: impl fmt::Display) -> CollectorSettingsError {
    CollectorSettingsError { setting, message: message.to_string() }
}

/// The name of the service unless the operator sets one.
const SERVICE_NAME: &str = "leasehold";

impl CollectorSettings {
    /// Settings without headers. `ca` is the file with the authorities that verify a collector with TLS.
    pub fn new(url: CollectorUrl, ca: Option<&Path>) -> Result<Self, CollectorSettingsError> {
        let tls = match (url.is_tls(), ca) {
            (false, None) => None,
            (false, Some(_)) => {
                return Err(wrong("otlp_ca", "the collector has an http:// address; remove it, or use https://"));
            }
            (true, None) => {
                let message = "required for https://; set it to the CA certificates that verify the collector, for example \
                               /etc/ssl/certs/ca-certificates.crt";
                return Err(wrong("otlp_ca", message));
            }
            (true, Some(file)) => Some(Arc::new(client_config(file)?)),
        };
        Ok(Self { url, headers: Vec::new(), tls, service_name: SERVICE_NAME.to_owned(), attributes: Vec::new() })
    }

    /// Adds headers, which may contain credentials. They are not sent over a network in clear text.
    pub fn with_headers(
        mut self,
        setting: &'static str,
        headers: Vec<(String, String)>,
    ) -> Result<Self, CollectorSettingsError> {
        if !headers.is_empty() && self.tls.is_none() && !self.url.is_loopback() {
            let message = "headers may contain credentials, and the collector has an http:// address on another machine; use \
                           https:// and otlp_ca";
            return Err(wrong(setting, message));
        }
        for (name, text) in headers {
            let name = HeaderName::from_bytes(name.trim().as_bytes())
                .map_err(|_| wrong(setting, "contains an invalid header name; write one NAME: VALUE per line"))?;
            let mut value = HeaderValue::from_str(text.trim())
                .map_err(|_| wrong(setting, format_args!("the value of {name} is not plain ASCII; correct it")))?;
            value.set_sensitive(true);
            self.headers.push((name, value));
        }
        Ok(self)
    }

    /// Sets the name of the service. Empty keeps the default.
    #[must_use]
    pub fn with_service_name(self, name: &str) -> Self {
        if name.is_empty() { self } else { Self { service_name: name.to_owned(), ..self } }
    }

    /// Adds attributes of the service. `service.name` sets its name.
    #[must_use]
    pub fn with_attributes(mut self, attributes: Vec<(String, String)>) -> Self {
        for (key, value) in attributes {
            match key.as_str() {
                "service.name" => self.service_name = value,
                _ => self.attributes.push((key, value)),
            }
        }
        self
    }

    /// The collector.
    pub fn url(&self) -> &CollectorUrl {
        &self.url
    }

    pub(super) fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
    }

    pub(super) fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }

    pub(super) fn service_name(&self) -> &str {
        &self.service_name
    }

    pub(super) fn attributes(&self) -> &[(String, String)] {
        &self.attributes
    }
}

/// TLS 1.3 with these authorities alone.
fn client_config(file: &Path) -> Result<ClientConfig, CollectorSettingsError> {
    let pem = credential_file::read(file).map_err(|error| wrong("otlp_ca", error))?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found);
    if added == 0 {
        let message = format!("{} contains no PEM certificate; name a file with CA certificates", file.display());
        return Err(wrong("otlp_ca", message));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|error| wrong("otlp_ca", error))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Parses a file of headers: one `NAME: VALUE` per line; empty lines and lines that start with `#` are skipped.
pub fn parse_header_file(text: &str) -> Result<Vec<(String, String)>, CollectorSettingsError> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            // Without the line itself, which may be a credential.
            let (name, value) = line.split_once(':').ok_or_else(|| {
                wrong("otlp_headers_file", format_args!("line {number} has no colon; write one NAME: VALUE per line"))
            })?;
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

/// Parses a list of pairs as OpenTelemetry's variables have them: `key=value,key=value`, percent-encoded.
pub fn parse_pairs(variable: &'static str, text: &str) -> Result<Vec<(String, String)>, CollectorSettingsError> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    pairs
        .map(|pair| {
            let decoded = pair.split_once('=').and_then(|(key, value)| {
                let (key, value) = (percent_decode(key.trim())?, percent_decode(value.trim())?);
                (!key.is_empty()).then_some((key, value))
            });
            decoded.ok_or_else(|| wrong(variable, "not a list key=value,key=value, percent-encoded; correct it"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> CollectorSettings {
        CollectorSettings::new(url.parse().expect("a URL"), None).expect("plain")
    }

    #[test]
    fn headers_are_not_sent_in_clear_text_to_another_machine() {
        let headers = || vec![("x-api-key".to_owned(), "secret".to_owned())];
        let refused = settings("http://collector.example:4318").with_headers("otlp_headers_file", headers());
        assert!(refused.expect_err("plain").to_string().contains("use https://"));
        let local = settings("http://127.0.0.1:4318").with_headers("otlp_headers_file", headers()).expect("loopback");
        assert_eq!(local.headers()[0].1, "secret");
        assert!(!format!("{local:?}").contains("secret"), "it is not printed");
        assert!(settings("http://collector.example:4318").with_headers("otlp_headers_file", Vec::new()).is_ok());
    }

    #[test]
    fn tls_requires_authorities_and_nothing_else_has_them() {
        let https = CollectorSettings::new("https://collector.example".parse().expect("a URL"), None);
        assert!(https.expect_err("no authorities").to_string().starts_with("otlp_ca: required for https://"));
        let http = CollectorSettings::new("http://localhost:4318".parse().expect("a URL"), Some(Path::new("ca.pem")));
        assert!(
            http.expect_err("authorities").to_string().starts_with("otlp_ca: the collector has an http:// address")
        );
        let empty = tempfile::NamedTempFile::new().expect("a file");
        let https = CollectorSettings::new("https://collector.example".parse().expect("a URL"), Some(empty.path()));
        assert!(https.expect_err("no certificate").to_string().contains("contains no PEM certificate"));
    }

    #[test]
    fn a_header_file_is_parsed_line_by_line_and_an_error_does_not_print_it() {
        let text = "# of the vendor\n\nx-api-key: a:b c\nAuthorization:Bearer t\n";
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(parse_header_file(text), Ok(vec![pair("x-api-key", "a:b c"), pair("Authorization", "Bearer t")]));
        let error = parse_header_file("x: y\nsecret").expect_err("no colon").to_string();
        assert_eq!(error, "otlp_headers_file: line 2 has no colon; write one NAME: VALUE per line");
        let named = settings("http://localhost:1").with_headers("otlp_headers_file", vec![pair("not a name", "1")]);
        assert!(named.expect_err("a space").to_string().contains("invalid header name"));
    }

    #[test]
    fn the_lists_of_the_variables_are_percent_decoded() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let parsed = parse_pairs("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod, team=a%2Cb ,");
        assert_eq!(parsed, Ok(vec![pair("deployment.environment.name", "prod"), pair("team", "a,b")]));
        for bad in ["team", "=x", "a=%zz"] {
            assert!(parse_pairs("OTEL_RESOURCE_ATTRIBUTES", bad).is_err(), "{bad}");
        }
        let named = settings("http://localhost:1").with_attributes(vec![pair("service.name", "locks"), pair("a", "b")]);
        assert_eq!((named.service_name(), named.attributes().len()), ("locks", 1));
        assert_eq!(named.with_service_name("other").service_name(), "other");
    }
}
