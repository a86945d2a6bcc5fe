//! The collector that spans are exported to, from the settings and from OpenTelemetry's standard variables.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold::Error;
use leasehold_server::credential_file;
use leasehold_server::otlp::{CollectorSettings, CollectorSettingsError, CollectorUrl, parse_header_file, parse_pairs};

/// Base URL of a collector, unless `otlp_endpoint` names one.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The encoding that other exporters on the same machine use. Here it is always HTTP with Protocol Buffers.
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const PROTOCOL_HERE: &str = "http/protobuf";
/// Headers as a list of pairs, unless `otlp_headers_file` names a file.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// A collector as it is configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfiguredCollector {
    /// Where it is; nothing is exported without it.
    pub endpoint: Option<CollectorUrl>,
    pub headers_file: Option<PathBuf>,
    pub ca: Option<PathBuf>,
}

impl ConfiguredCollector {
    /// The collector of these settings, or of the environment if they name none.
    pub fn resolve(
        endpoint: Option<CollectorUrl>,
        headers_file: Option<PathBuf>,
        ca: Option<PathBuf>,
    ) -> Result<Self, Error> {
        let from_env = || variable(ENDPOINT).map(|text| text.parse().map_err(|error| config(ENDPOINT, &error)));
        let endpoint = match endpoint {
            Some(endpoint) => Some(endpoint),
            None => from_env().transpose()?,
        };
        let given = [(&headers_file, "otlp_headers_file"), (&ca, "otlp_ca")];
        if let (None, Some((_, setting))) = (&endpoint, given.into_iter().find(|(file, _)| file.is_some())) {
            return Err(config(setting, &"has no effect without a collector; set otlp_endpoint too"));
        }
        Ok(Self { endpoint, headers_file, ca })
    }

    /// Reads the files and the other variables.
    pub fn load(&self) -> Result<Option<Arc<CollectorSettings>>, Error> {
        let Some(endpoint) = &self.endpoint else { return Ok(None) };
        if let Some(protocol) = variable(PROTOCOL).filter(|protocol| protocol != PROTOCOL_HERE) {
            let message = format!(
                "{protocol} is not supported; set it to {PROTOCOL_HERE}, and the endpoint to the collector's port for HTTP, which is \
                 4318 by default"
            );
            return Err(config(PROTOCOL, &message));
        }
        let settings = CollectorSettings::new(endpoint.clone(), self.ca.as_deref()).map_err(settings_error)?;
        let settings = match (&self.headers_file, variable(HEADERS)) {
            (Some(file), _) => {
                const SETTING: &str = "otlp_headers_file";
                let bytes = credential_file::read_private(file).map_err(|error| config(SETTING, &error))?;
                let text = String::from_utf8(bytes)
                    .map_err(|_| config(SETTING, &format!("{} is not UTF-8; save it as UTF-8", file.display())))?;
                let headers = parse_header_file(&text).map_err(settings_error)?;
                settings.with_headers(SETTING, headers)
            }
            (None, Some(text)) => settings.with_headers(HEADERS, parse_pairs(HEADERS, &text).map_err(settings_error)?),
            (None, None) => Ok(settings),
        };
        let attributes = variable(RESOURCE_ATTRIBUTES).unwrap_or_default();
        let attributes = parse_pairs(RESOURCE_ATTRIBUTES, &attributes).map_err(settings_error)?;
        let settings = settings.map_err(settings_error)?.with_attributes(attributes);
        Ok(Some(Arc::new(settings.with_service_name(&variable(SERVICE_NAME).unwrap_or_default()))))
    }
}

/// A variable; an empty one counts as absent, as the specification says.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn config(setting: &'static str, problem: &dyn std::fmt::Display) -> Error {
    Error::config(setting, format!("{setting}: {problem}"))
}

fn settings_error(error: CollectorSettingsError) -> Error {
    Error::config(error.setting, error.to_string())
}
