//! Metrics of requests: number and latency by operation and code, and the time that waits take.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The code of a request that was not refused.
pub const OK: &str = "OK";

/// Metrics of requests.
#[derive(Clone)]
pub struct RequestMetrics {
    seconds: Family<RequestLabel, Histogram>,
    wait_seconds: Family<WaitLabel, Histogram>,
    renewals: Counter,
    /// Renewals that arrived as requests of their own.
    single_renewals: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    operation: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabel {
    code: &'static str,
}

impl RequestMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_1, 2.0, 18))),
            wait_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.01, 2.0, 18))),
            renewals: Counter::default(),
            single_renewals: Counter::default(),
        };
        let about = "Time to answer a request without the time that it waited for a lease, by operation and code";
        registry.register("request_seconds", about, metrics.seconds.clone());
        let about = "Time that requests waited for a lease, by the code of the final answer";
        registry.register("wait_seconds", about, metrics.wait_seconds.clone());
        registry.register("batch_renewals", "Renewals that arrived in batches", metrics.renewals.clone());
        metrics
    }

    /// A request was answered.
    pub fn answered(&self, operation: &'static str, code: &'static str, took: Duration) {
        self.seconds.get_or_create(&RequestLabel { operation, code }).observe(took.as_secs_f64());
        if code == OK && matches!(operation, "renew" | "renew_session") {
            self.single_renewals.inc();
        }
    }

    /// Number of renewals so far, in batches and alone.
    pub fn renewal_count(&self) -> u64 {
        self.renewals.get() + self.single_renewals.get()
    }

    /// A wait for a lease has ended.
    pub fn waited(&self, code: &'static str, took: Duration) {
        self.wait_seconds.get_or_create(&WaitLabel { code }).observe(took.as_secs_f64());
    }

    /// A batch of renewals was answered.
    pub fn batch_renewed(&self, renewals: usize, took: Duration) {
        self.answered("renew_batch", OK, took);
        self.renewals.inc_by(renewals as u64);
    }
}
