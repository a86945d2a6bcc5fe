//! What the keeper measures: snapshots, and the log behind the newest.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The keeper's figures. A clone counts the same.
#[derive(Clone)]
pub struct KeepMeter {
    snapshots: Counter,
    seconds: Histogram,
    bytes: Gauge<u64, AtomicU64>,
    behind: Gauge<u64, AtomicU64>,
    failed: Counter,
    told: Gauge<u64, AtomicU64>,
}

impl KeepMeter {
    /// Figures in a registry.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let meter = Self {
            snapshots: Counter::default(),
            seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 12)),
            bytes: Gauge::default(),
            behind: Gauge::default(),
            failed: Counter::default(),
            told: Gauge::default(),
        };
        registry.register("snapshots", "Snapshots taken", meter.snapshots.clone());
        registry.register("snapshot_seconds", "Taking one snapshot, beside the turns", meter.seconds.clone());
        registry.register("snapshot_bytes", "The newest snapshot", meter.bytes.clone());
        registry.register("log_bytes", "The log behind the newest snapshot", meter.behind.clone());
        registry.register("keeper_failed", "Times that the keeper could not do its work", meter.failed.clone());
        registry.register("trail_entries", "Entries of the audit trail, ever", meter.told.clone());
        meter
    }

    /// A snapshot of so many bytes was saved.
    pub fn saved(&self, bytes: u64, took: Duration) {
        self.snapshots.inc();
        self.bytes.set(bytes);
        self.seconds.observe(took.as_secs_f64());
    }

    /// So much log lies behind the newest snapshot.
    pub fn behind(&self, bytes: u64) {
        self.behind.set(bytes);
    }

    /// The audit trail has so many entries.
    pub fn told(&self, entries: u64) {
        self.told.set(entries);
    }

    /// The keeper could not do its work.
    pub fn failed(&self) {
        self.failed.inc();
    }
}
