//! How full the etcd is that keeps the journal.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::gauge::Gauge as Figure;
use prometheus_client::registry::Registry;

use crate::journal::etcd::Gauge;

/// What is measured of etcd; zero without one.
pub struct EtcdMeter {
    from: Mutex<Option<Arc<Gauge>>>,
    used: Figure<u64, AtomicU64>,
    quota: Figure<u64, AtomicU64>,
}

impl EtcdMeter {
    /// Figures that stand in a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let meter = Self { from: Mutex::default(), used: Figure::default(), quota: Figure::default() };
        let about = "Bytes of the database of the fullest member of etcd";
        registry.register("etcd_database_bytes", about, meter.used.clone());
        let about = "Bytes that the database of etcd may have";
        registry.register("etcd_quota_bytes", about, meter.quota.clone());
        meter
    }

    /// Where the figures come from.
    pub fn follow(&self, gauge: Arc<Gauge>) {
        *self.from.lock().unwrap_or_else(PoisonError::into_inner) = Some(gauge);
    }

    /// Takes the figures as they are now.
    pub fn refresh(&self) {
        if let Some(gauge) = &*self.from.lock().unwrap_or_else(PoisonError::into_inner) {
            let (used, quota) = gauge.read();
            self.used.set(used);
            self.quota.set(quota);
        }
    }
}
