//! Metrics of TLS: handshakes by result, and the time until certificates end.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Results of a handshake.
const RESULTS: [&str; 9] =
    ["ok", "certificate", "no_certificate", "version", "protocol", "plaintext", "closed", "timeout", "limit"];

/// Reads the certificates: their names, and the seconds until they end.
type ExpirySource = Box<dyn Fn() -> Vec<(String, f64)> + Send>;

/// Handshakes and certificates; nothing without TLS.
pub struct TlsMetrics {
    source: Mutex<Option<ExpirySource>>,
    handshakes: Family<ResultLabel, Counter>,
    expiry: Family<CertificateLabel, Gauge<f64, AtomicU64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: String,
}

impl TlsMetrics {
    /// Registers the metrics. Every known result starts at zero.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self { source: Mutex::default(), handshakes: Family::default(), expiry: Family::default() };
        for result in RESULTS {
            metrics.handshakes.get_or_create(&ResultLabel { result }).inc_by(0);
        }
        registry.register("tls_handshakes", "TLS handshakes, by result", metrics.handshakes.clone());
        let about = "Seconds until a certificate or revocation list ends; negative afterwards";
        registry.register("certificate_expiry_seconds", about, metrics.expiry.clone());
        metrics
    }

    /// Reads the certificates from `source` from now on.
    pub fn follow(&self, source: impl Fn() -> Vec<(String, f64)> + Send + 'static) {
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(source));
    }

    /// Counts a handshake.
    pub fn handshake(&self, result: &'static str) {
        self.handshakes.get_or_create(&ResultLabel { result }).inc();
    }

    /// Updates the gauges before a scrape.
    pub fn refresh(&self) {
        if let Some(source) = &*self.source.lock().unwrap_or_else(PoisonError::into_inner) {
            self.expiry.clear();
            for (certificate, seconds) in source() {
                self.expiry.get_or_create(&CertificateLabel { certificate }).set(seconds);
            }
        }
    }
}
