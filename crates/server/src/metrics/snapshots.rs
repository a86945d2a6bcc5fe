//! Metrics of the snapshotter: snapshots, the journal after the newest one, the audit log, and backups.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use leasehold_core::time::WallClock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Metrics of the snapshotter. Clones share their values.
#[derive(Clone)]
pub struct SnapshotMetrics {
    snapshots: Counter,
    seconds: Histogram,
    bytes: Gauge<u64, AtomicU64>,
    backlog: Gauge<u64, AtomicU64>,
    failures: Counter,
    audit_entries: Gauge<u64, AtomicU64>,
    audit_lost: Counter,
    audit_heads: Counter,
    last_backup: Gauge<f64, AtomicU64>,
}

impl SnapshotMetrics {
    /// Registers the metrics.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            snapshots: Counter::default(),
            seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 12)),
            bytes: Gauge::default(),
            backlog: Gauge::default(),
            failures: Counter::default(),
            audit_entries: Gauge::default(),
            audit_lost: Counter::default(),
            audit_heads: Counter::default(),
            last_backup: Gauge::default(),
        };
        registry.register("snapshots", "Snapshots saved", metrics.snapshots.clone());
        registry.register("snapshot_seconds", "Time to take a snapshot, in the background", metrics.seconds.clone());
        registry.register("snapshot_bytes", "Size of the newest snapshot", metrics.bytes.clone());
        registry.register(
            "journal_backlog_bytes",
            "Size of the journal after the newest snapshot",
            metrics.backlog.clone(),
        );
        registry.register(
            "snapshotter_failures",
            "Failures to take a snapshot or to write the audit log",
            metrics.failures.clone(),
        );
        registry.register(
            "audit_entries",
            "Entries written to the audit log, over all time",
            metrics.audit_entries.clone(),
        );
        registry.register(
            "audit_lost_entries",
            "Entries that the audit log lacked when the server started, although they had been written",
            metrics.audit_lost.clone(),
        );
        registry.register("audit_heads", "Heads of the audit log that were signed", metrics.audit_heads.clone());
        registry.register(
            "last_backup_timestamp_seconds",
            "Time of the last backup that was sent completely, in seconds since 1970; 0 if there was none since the start",
            metrics.last_backup.clone(),
        );
        metrics
    }

    /// A snapshot was saved.
    pub fn saved(&self, bytes: u64, took: Duration) {
        self.snapshots.inc();
        self.bytes.set(bytes);
        self.seconds.observe(took.as_secs_f64());
    }

    /// Sets the size of the journal after the newest snapshot.
    pub fn set_backlog(&self, bytes: u64) {
        self.backlog.set(bytes);
    }

    /// Sets the number of audit entries.
    pub fn set_audit_entries(&self, entries: u64) {
        self.audit_entries.set(entries);
    }

    /// The audit log lacked entries at the start.
    pub fn audit_lost(&self, entries: u64) {
        self.audit_lost.inc_by(entries);
    }

    /// A head of the audit log was signed.
    pub fn head_signed(&self) {
        self.audit_heads.inc();
    }

    /// A backup of this time was sent completely.
    pub fn backup_sent(&self, at: WallClock) {
        self.last_backup.set(at.0 as f64 / 1_000.0);
    }

    /// A snapshot or the audit log failed.
    pub fn failed(&self) {
        self.failures.inc();
    }
}
