//! Prometheus metrics of a server. `docs/reference/metrics.md` lists every metric.

mod clocks;
mod etcd;
mod identities;
mod process;
mod rejections;
mod requests;
mod snapshots;
mod spans;
mod tls;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::access::Action;
use leasehold_core::coverage::Hole;
use leasehold_core::grantor::{Grantor, Status};
use leasehold_core::lease::EndReason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use clocks::ClockMetrics;
pub use etcd::EtcdMetrics;
pub use identities::IdentityMetrics;
pub use rejections::{
    BODY_BYTES_LIMIT, DenialReason, IDENTITY_AUDIT_READS, IDENTITY_BODY_BYTES, IDENTITY_CONNECTIONS,
    IDENTITY_QUEUED_REQUESTS, IDENTITY_REQUEST_RATE, IDENTITY_SORTED_LISTINGS, IDENTITY_WATCHES, REQUEST_RATE,
    REQUEST_RATE_PER_ADDRESS, RejectionMetrics,
};
pub use requests::{OK, RequestMetrics};
pub use snapshots::SnapshotMetrics;
pub use spans::{SpanDrop, SpanMetrics};
pub use tls::TlsMetrics;

use process::ProcessMetrics;

/// A gauge of seconds.
type Seconds = Gauge<f64, AtomicU64>;

/// All metrics of one server.
pub struct Metrics {
    registry: Registry,
    /// Metrics whose names have no prefix.
    process_registry: Registry,
    turns: Counter,
    turn_requests: Histogram,
    turn_seconds: Histogram,
    sync_seconds: Histogram,
    batch_bytes: Counter,
    work: WorkTotals,
    ended: Family<EndLabel, Counter>,
    held_seconds: Family<EndLabel, Counter<f64, AtomicU64>>,
    granted: Counter,
    held: Gauge,
    sessions: Gauge,
    waiters: Gauge,
    deadlocks: Counter,
    stalled: Counter<f64, AtomicU64>,
    expiry_lag: Histogram,
    progress_age: Seconds,
    quarantine: Seconds,
    rollback_proofs: Counter,
    unproven_tokens: Counter,
    acts_alone: Family<ActionLabel, Counter>,
    full_appends: Counter,
    reserve_only: Gauge,
    token: Gauge<u64, AtomicU64>,
    position: Gauge<u64, AtomicU64>,
    connections: Gauge<i64, AtomicI64>,
    events_missed: Counter,
    zombies: Counter,
    fence_checks: Gauge<u64, AtomicU64>,
    fence_targets: Gauge,
    coverage_holes: Family<HoleLabel, Gauge>,
    is_leader: Gauge,
    etcd: EtcdMetrics,
    tls: TlsMetrics,
    clocks: ClockMetrics,
    rejections: RejectionMetrics,
    identities: IdentityMetrics,
    requests: RequestMetrics,
    process: ProcessMetrics,
    snapshots: SnapshotMetrics,
    spans: SpanMetrics,
}

/// Totals of the histograms of turns and syncs, which cannot be read themselves.
#[derive(Debug, Default)]
struct WorkTotals {
    syncs: AtomicU64,
    sync_micros: AtomicU64,
    turns: AtomicU64,
    turn_micros: AtomicU64,
}

fn add_work(count: &AtomicU64, micros: &AtomicU64, took: Duration) {
    count.fetch_add(1, Ordering::Relaxed);
    micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabel {
    action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HoleLabel {
    hole: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabel {
    state: &'static str,
    reason: &'static str,
}

/// Metrics that are read from the grantor when they are scraped.
#[derive(Clone, Debug)]
pub struct GrantorStats {
    /// Status of the grantor.
    pub status: Status,
    /// Age of the oldest progress report of a lease that must report progress.
    pub progress_ms: Option<u64>,
    /// Zombie writes that fences refused, over all time.
    pub zombie_writes: u64,
    /// Tokens that fences checked since the server started.
    pub fence_checks: u64,
    /// Targets that have reported.
    pub fence_targets: usize,
    /// Holes in coverage by kind.
    pub coverage_holes: Vec<(Hole, usize)>,
}

impl GrantorStats {
    /// Leases that are read for their progress, so that a scrape does not make a turn long.
    const MAX_LEASES: usize = 1 << 16;

    /// Reads the grantor.
    pub fn read(grantor: &Grantor) -> Self {
        let coverage = grantor.coverage();
        Self {
            status: grantor.status(),
            progress_ms: grantor.oldest_progress(Self::MAX_LEASES),
            zombie_writes: coverage.zombies(),
            fence_checks: grantor.checks(),
            fence_targets: coverage.places(),
            coverage_holes: grantor.coverage_holes().filter(|(hole, _)| *hole != Hole::NoTarget).collect(),
        }
    }
}

/// Counts an open connection until it is dropped.
pub struct ConnectionGauge(Gauge<i64, AtomicI64>);

impl Drop for ConnectionGauge {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let (mut registry, mut process_registry) = (Registry::with_prefix("leasehold"), Registry::default());
        let seconds = || Histogram::new(exponential_buckets(0.000_01, 2.0, 20));
        let metrics = Self {
            turns: Counter::default(),
            turn_requests: Histogram::new(exponential_buckets(1.0, 2.0, 16)),
            turn_seconds: seconds(),
            sync_seconds: seconds(),
            batch_bytes: Counter::default(),
            work: WorkTotals::default(),
            ended: Family::default(),
            held_seconds: Family::default(),
            granted: Counter::default(),
            held: Gauge::default(),
            sessions: Gauge::default(),
            waiters: Gauge::default(),
            deadlocks: Counter::default(),
            stalled: Counter::default(),
            expiry_lag: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            progress_age: Gauge::default(),
            quarantine: Gauge::default(),
            rollback_proofs: Counter::default(),
            unproven_tokens: Counter::default(),
            acts_alone: Family::default(),
            full_appends: Counter::default(),
            reserve_only: Gauge::default(),
            token: Gauge::default(),
            position: Gauge::default(),
            connections: Gauge::default(),
            events_missed: Counter::default(),
            zombies: Counter::default(),
            fence_checks: Gauge::default(),
            fence_targets: Gauge::default(),
            coverage_holes: Family::default(),
            is_leader: Gauge::default(),
            etcd: EtcdMetrics::new(&mut registry),
            tls: TlsMetrics::new(&mut registry),
            clocks: ClockMetrics::new(&mut registry),
            rejections: RejectionMetrics::new(&mut registry),
            identities: IdentityMetrics::new(&mut registry),
            requests: RequestMetrics::new(&mut registry),
            process: ProcessMetrics::new(&mut process_registry),
            snapshots: SnapshotMetrics::new(&mut registry),
            spans: SpanMetrics::new(&mut registry),
            registry: Registry::default(),
            process_registry: Registry::default(),
        };
        metrics.register(&mut registry);
        Self { registry, process_registry, ..metrics }
    }
}

impl Metrics {
    fn register(&self, registry: &mut Registry) {
        registry.register("build", "Version of the server", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        registry.register("turns", "Turns", self.turns.clone());
        registry.register("turn_requests", "Requests and renewals of a turn", self.turn_requests.clone());
        registry.register(
            "turn_seconds",
            "Duration of a turn, from draining the queue to sending replies",
            self.turn_seconds.clone(),
        );
        registry.register("journal_sync_seconds", "Time to make a batch durable", self.sync_seconds.clone());
        registry.register("journal_appended_bytes", "Bytes appended to the journal", self.batch_bytes.clone());
        registry.register("leases_ended", "Leases that ended, by state and reason", self.ended.clone());
        registry.register(
            "lease_held_seconds",
            "Time that ended leases were held, by state and reason",
            self.held_seconds.clone(),
        );
        registry.register("leases_granted", "Leases granted", self.granted.clone());
        registry.register("leases_held", "Leases held", self.held.clone());
        registry.register("sessions", "Open sessions", self.sessions.clone());
        registry.register("waiters", "Requests that wait for a lease", self.waiters.clone());
        registry.register("deadlocks", "Deadlocks detected", self.deadlocks.clone());
        let about = "Time that the grantor was stalled while it served";
        registry.register("stalled_seconds", about, self.stalled.clone());
        registry.register(
            "expiry_lag_seconds",
            "Delay between the deadline of a lease and the turn that ended it",
            self.expiry_lag.clone(),
        );
        let about = "Age of the oldest progress report of a lease that must report progress";
        registry.register("progress_age_seconds", about, self.progress_age.clone());
        registry.register(
            "quarantine_remaining_seconds",
            "Time until leases are granted again",
            self.quarantine.clone(),
        );
        let about = "Presented tokens that this journal never issued: they prove a rollback, or are forged";
        registry.register("rollback_proofs", about, self.rollback_proofs.clone());
        let about =
            "Presented tokens that this journal never issued and that had no effect, because they were not proven";
        registry.register("unproven_tokens", about, self.unproven_tokens.clone());
        for action in Action::ALL.iter().filter(|action| !action.replacements().is_empty()) {
            self.acts_alone.get_or_create(&ActionLabel { action: action.word() }).inc_by(0);
        }
        let about = "Commands that need two identities and that one executed alone, by action";
        registry.register("acts_alone", about, self.acts_alone.clone());
        registry.register(
            "journal_full_appends",
            "Appends that failed because the disk was full",
            self.full_appends.clone(),
        );
        let about = "1 if only the disk reserve is left, so that only requests that end leases are accepted";
        registry.register("journal_reserve_only", about, self.reserve_only.clone());
        registry.register("highest_token_number", "Highest token number issued", self.token.clone());
        registry.register("journal_position", "Last journal position that replies depend on", self.position.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "watch_events_missed",
            "Events that watchers missed because they read too slowly",
            self.events_missed.clone(),
        );
        registry.register(
            "zombie_writes_refused",
            "Zombie writes that fences refused and reported",
            self.zombies.clone(),
        );
        let about = "Tokens that fences checked, as reported since the server started";
        registry.register("fence_checks", about, self.fence_checks.clone());
        registry.register("fence_targets", "Targets that have reported, by slot", self.fence_targets.clone());
        let about = "Holes in coverage: declared targets by charter, and targets that no charter declares by resource";
        registry.register("coverage_holes", about, self.coverage_holes.clone());
        registry.register("is_leader", "1 if this server leads", self.is_leader.clone());
    }
}

/// Start of a turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnTimer(Instant);

impl Metrics {
    /// Metrics of the snapshotter.
    pub fn snapshots(&self) -> SnapshotMetrics {
        self.snapshots.clone()
    }

    /// Metrics of the export of spans.
    pub fn spans(&self) -> SpanMetrics {
        self.spans.clone()
    }

    /// Metrics of clocks.
    pub fn clocks(&self) -> &ClockMetrics {
        &self.clocks
    }

    /// Metrics of TLS.
    pub fn tls(&self) -> &TlsMetrics {
        &self.tls
    }

    /// Metrics of etcd.
    pub fn etcd(&self) -> &EtcdMetrics {
        &self.etcd
    }

    /// Sets whether this server leads.
    pub fn set_leader(&self, is_leader: bool) {
        self.is_leader.set(is_leader.into());
    }

    /// Metrics of refused requests.
    pub fn rejections(&self) -> &RejectionMetrics {
        &self.rejections
    }

    /// Metrics of limits of identities.
    pub fn identities(&self) -> &IdentityMetrics {
        &self.identities
    }

    /// Metrics of answered requests.
    pub fn requests(&self) -> &RequestMetrics {
        &self.requests
    }

    /// A turn has drained `requests` requests; `reserve_only` if the disk is almost full.
    pub fn turn_started(&self, requests: usize, reserve_only: bool) -> TurnTimer {
        self.turns.inc();
        self.turn_requests.observe(requests as f64);
        self.reserve_only.set(reserve_only.into());
        TurnTimer(Instant::now())
    }

    /// A batch became durable.
    pub fn batch_synced(&self, bytes: usize, took: Duration) {
        self.batch_bytes.inc_by(bytes as u64);
        self.sync_seconds.observe(took.as_secs_f64());
        add_work(&self.work.syncs, &self.work.sync_micros, took);
    }

    /// Number of syncs, their microseconds, number of turns, and their microseconds.
    pub fn work_totals(&self) -> (u64, u64, u64, u64) {
        let WorkTotals { syncs, sync_micros, turns, turn_micros } = &self.work;
        let read = |total: &AtomicU64| total.load(Ordering::Relaxed);
        (read(syncs), read(sync_micros), read(turns), read(turn_micros))
    }

    /// Sets the journal position that replies depend on.
    pub fn set_position(&self, position: u64) {
        self.position.set(position);
    }

    /// The journal position that the last replies depend on.
    pub fn position(&self) -> u64 {
        self.position.get()
    }

    /// A turn has ended, which was `late_ms` behind the deadlines of leases.
    pub fn turn_ended(&self, timer: TurnTimer, late_ms: u64) {
        let took = timer.0.elapsed();
        self.turn_seconds.observe(took.as_secs_f64());
        add_work(&self.work.turns, &self.work.turn_micros, took);
        self.expiry_lag.observe(late_ms as f64 / 1_000.0);
    }

    /// Presented tokens proved a rollback, or were forged.
    pub fn rollback_proofs(&self, new: u64) {
        self.rollback_proofs.inc_by(new);
    }

    /// Presented tokens would have proved a rollback, but were not proven themselves.
    pub fn unproven_tokens(&self, new: u64) {
        self.unproven_tokens.inc_by(new);
    }

    /// One identity executed a command that needs two.
    pub fn acted_alone(&self, action: Action) {
        self.acts_alone.get_or_create(&ActionLabel { action: action.word() }).inc();
    }

    /// An append failed because the disk was full.
    pub fn append_full(&self) {
        self.full_appends.inc();
    }

    /// A connection is open until the returned guard is dropped.
    pub fn connection_opened(&self) -> ConnectionGauge {
        self.connections.inc();
        ConnectionGauge(self.connections.clone())
    }

    /// A watcher missed events because it read too slowly.
    pub fn events_missed(&self, events: u64) {
        self.events_missed.inc_by(events);
    }

    /// All metrics as OpenMetrics text, with those of the grantor.
    pub fn encode_with(&self, grantor: &GrantorStats) -> String {
        let status = &grantor.status;
        let gauge = |gauge: &Gauge, value: usize| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        gauge(&self.held, status.held);
        gauge(&self.sessions, status.sessions);
        gauge(&self.waiters, status.waiters);
        // These counters are part of the state, so that they continue after a restart.
        self.deadlocks.inner().store(status.deadlocks, Ordering::Relaxed);
        self.stalled.inner().store((status.stalled_ms as f64 / 1_000.0).to_bits(), Ordering::Relaxed);
        self.progress_age.set(grantor.progress_ms.unwrap_or(0) as f64 / 1_000.0);
        self.quarantine.set(status.quarantine.map_or(0, |(ms, _)| ms) as f64 / 1_000.0);
        self.zombies.inner().store(grantor.zombie_writes, Ordering::Relaxed);
        self.fence_checks.set(grantor.fence_checks);
        gauge(&self.fence_targets, grantor.fence_targets);
        for (hole, count) in &grantor.coverage_holes {
            gauge(&self.coverage_holes.get_or_create(&HoleLabel { hole: hole.word() }), *count);
        }
        self.token.set(status.counter);
        self.clocks.refresh();
        for reason in EndReason::ALL {
            let ended = self.ended.get_or_create(&EndLabel { state: reason.outcome(), reason: reason.word() });
            ended.inner().store(status.totals.ended[usize::from(reason.code())], Ordering::Relaxed);
            let held = self.held_seconds.get_or_create(&EndLabel { state: reason.outcome(), reason: reason.word() });
            let seconds = status.totals.held_ms[usize::from(reason.code())] as f64 / 1_000.0;
            held.inner().store(seconds.to_bits(), Ordering::Relaxed);
        }
        // Every lease that was granted is held or has ended.
        let granted = status.totals.ended.iter().sum::<u64>() + status.held as u64;
        self.granted.inner().store(granted, Ordering::Relaxed);
        self.encode()
    }

    /// All metrics as OpenMetrics text, without those of a grantor, for a standby.
    pub fn encode(&self) -> String {
        self.etcd.refresh();
        self.tls.refresh();
        self.process.refresh();
        let mut out = String::new();
        let written = text::encode_registry(&mut out, &self.registry)
            .and_then(|()| text::encode_registry(&mut out, &self.process_registry))
            .and_then(|()| text::encode_eof(&mut out));
        written.expect("writing to a string does not fail");
        out
    }

    /// Time by which a turn is behind the grantor's next deadline, in milliseconds.
    pub fn lateness(grantor: &Grantor, now: leasehold_core::time::Instant) -> u64 {
        grantor.next_deadline().map_or(0, |due| now.millis_since(due))
    }
}
