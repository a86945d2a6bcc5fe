//! Metrics of the etcd that stores the journal.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::journal::etcd::Quota;

/// Database size and quota of etcd; zero without etcd.
pub struct EtcdMetrics {
    source: Mutex<Option<Arc<Quota>>>,
    used: Gauge<u64, AtomicU64>,
    quota: Gauge<u64, AtomicU64>,
}

impl EtcdMetrics {
    /// Registers the metrics.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self { source: Mutex::default(), used: Gauge::default(), quota: Gauge::default() };
        let about = "Database size of the fullest etcd member";
        registry.register("etcd_database_bytes", about, metrics.used.clone());
        let about = "Database quota of etcd";
        registry.register("etcd_quota_bytes", about, metrics.quota.clone());
        metrics
    }

    /// Reads the metrics from `quota` from now on.
    pub fn follow(&self, quota: Arc<Quota>) {
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) = Some(quota);
    }

    /// Updates the gauges before a scrape.
    pub fn refresh(&self) {
        if let Some(source) = &*self.source.lock().unwrap_or_else(PoisonError::into_inner) {
            let (used, quota) = source.read();
            self.used.set(used);
            self.quota.set(quota);
        }
    }
}
