//! What is measured, in Prometheus' words. The page `docs/metrics.md` tells every figure.

mod clocks;
mod etcd;
mod keep;
mod refused;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::grantor::{Grantor, Status};
use leasehold_core::lease::{Reason, State};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use clocks::ClockMeter;
pub use etcd::EtcdMeter;
pub use keep::KeepMeter;
pub use refused::RefusedMeter;

/// A gauge of something that is not whole.
type Seconds = Gauge<f64, AtomicU64>;

/// All figures of one server.
pub struct Meter {
    registry: Registry,
    turns: Counter,
    turn_requests: Histogram,
    turn_seconds: Histogram,
    sync_seconds: Histogram,
    batch_bytes: Counter,
    ended: Family<EndLabel, Counter>,
    held: Gauge,
    sessions: Gauge,
    waiters: Gauge,
    deadlocks: Counter,
    stalled: Counter<f64, AtomicU64>,
    expiry_lag: Histogram,
    progress_age: Seconds,
    quarantine: Seconds,
    full: Counter,
    endings_only: Gauge,
    token: Gauge<u64, AtomicU64>,
    position: Gauge<u64, AtomicU64>,
    connections: Gauge<i64, AtomicI64>,
    events_missed: Counter,
    zombies: Counter,
    fence_checks: Gauge<u64, AtomicU64>,
    fence_targets: Gauge,
    leads: Gauge,
    etcd: EtcdMeter,
    clocks: ClockMeter,
    refused: RefusedMeter,
    keep: KeepMeter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabel {
    state: &'static str,
    reason: &'static str,
}

/// What a look at the grantor brings for the figures.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The grantor in figures.
    pub status: Status,
    /// How long ago the lease that is furthest behind showed progress.
    pub progress_ms: Option<u64>,
    /// Writes of zombies refused, ever; tokens checked since the start; targets that reported.
    pub fences: (u64, u64, usize),
}

impl Looked {
    /// Leases looked at for their progress. A scrape must not make a turn long.
    const MOST: usize = 1 << 16;

    /// Looks.
    pub fn at(grantor: &Grantor) -> Self {
        let coverage = grantor.coverage();
        let fences = (coverage.zombies(), grantor.checks(), coverage.places());
        Self { status: grantor.status(), progress_ms: grantor.oldest_progress(Self::MOST), fences }
    }
}

/// A connection that is open.
pub struct Open(Gauge<i64, AtomicI64>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Meter {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("leasehold");
        let seconds = || Histogram::new(exponential_buckets(0.000_01, 2.0, 20));
        let meter = Self {
            turns: Counter::default(),
            turn_requests: Histogram::new(exponential_buckets(1.0, 2.0, 16)),
            turn_seconds: seconds(),
            sync_seconds: seconds(),
            batch_bytes: Counter::default(),
            ended: Family::default(),
            held: Gauge::default(),
            sessions: Gauge::default(),
            waiters: Gauge::default(),
            deadlocks: Counter::default(),
            stalled: Counter::default(),
            expiry_lag: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            progress_age: Gauge::default(),
            quarantine: Gauge::default(),
            full: Counter::default(),
            endings_only: Gauge::default(),
            token: Gauge::default(),
            position: Gauge::default(),
            connections: Gauge::default(),
            events_missed: Counter::default(),
            zombies: Counter::default(),
            fence_checks: Gauge::default(),
            fence_targets: Gauge::default(),
            leads: Gauge::default(),
            etcd: EtcdMeter::new(&mut registry),
            clocks: ClockMeter::new(&mut registry),
            refused: RefusedMeter::new(&mut registry),
            keep: KeepMeter::new(&mut registry),
            registry: Registry::default(),
        };
        meter.register(&mut registry);
        Self { registry, ..meter }
    }
}

impl Meter {
    fn register(&self, registry: &mut Registry) {
        registry.register("build", "Which version serves", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        registry.register("turns", "Turns taken", self.turns.clone());
        registry.register("turn_requests", "Requests and renewals of one turn", self.turn_requests.clone());
        registry.register("turn_seconds", "One turn, from drained to told", self.turn_seconds.clone());
        registry.register("sync_seconds", "Making one batch durable", self.sync_seconds.clone());
        registry.register("batch_bytes", "Bytes put on record", self.batch_bytes.clone());
        registry.register("ended", "Leases that ended, by state and reason", self.ended.clone());
        registry.register("held", "Leases held", self.held.clone());
        registry.register("sessions", "Sessions alive", self.sessions.clone());
        registry.register("waiters", "Waiters", self.waiters.clone());
        registry.register("deadlocks", "Deadlocks found", self.deadlocks.clone());
        let about = "Served time in which the grantor stood still";
        registry.register("stalled_seconds", about, self.stalled.clone());
        registry.register("expiry_lag_seconds", "How late a turn ended what was due", self.expiry_lag.clone());
        let about = "How long ago the lease that is furthest behind showed progress, of those that must";
        registry.register("progress_age_seconds", about, self.progress_age.clone());
        registry.register("quarantine_seconds", "For how long nothing is granted yet", self.quarantine.clone());
        registry.register("journal_full", "Appends that found no room", self.full.clone());
        let about = "Whether the journal has room for endings only";
        registry.register("endings_only", about, self.endings_only.clone());
        registry.register("token_number", "The highest token number given out", self.token.clone());
        registry.register("position", "The last journal position that was told", self.position.clone());
        registry.register("connections", "Connections open", self.connections.clone());
        registry.register("events_missed", "Events that watchers read too slowly for", self.events_missed.clone());
        registry.register("zombies", "Writes of zombies that targets refused and reported", self.zombies.clone());
        let about = "Tokens that fences checked, as reported since the server was started";
        registry.register("fence_checks", about, self.fence_checks.clone());
        registry.register("fence_targets", "Targets that ever reported, slot by slot", self.fence_targets.clone());
        registry.register("leads", "Whether this server decides", self.leads.clone());
    }
}

/// When a turn's parts began.
#[derive(Clone, Copy, Debug)]
pub struct Began(Instant);

impl Meter {
    /// What the keeper measures.
    pub fn keep(&self) -> KeepMeter {
        self.keep.clone()
    }

    /// What clocks do.
    pub fn clocks(&self) -> &ClockMeter {
        &self.clocks
    }

    /// How full etcd is.
    pub fn etcd(&self) -> &EtcdMeter {
        &self.etcd
    }

    /// Whether this server decides.
    pub fn leads(&self, leads: bool) {
        self.leads.set(leads.into());
    }

    /// What was refused.
    pub fn refused(&self) -> &RefusedMeter {
        &self.refused
    }

    /// A turn has drained so many requests; whether only endings have room.
    pub fn turn_began(&self, requests: usize, endings_only: bool) -> Began {
        self.turns.inc();
        self.turn_requests.observe(requests as f64);
        self.endings_only.set(endings_only.into());
        Began(Instant::now())
    }

    /// A batch became durable in this time.
    pub fn synced(&self, bytes: usize, took: Duration) {
        self.batch_bytes.inc_by(bytes as u64);
        self.sync_seconds.observe(took.as_secs_f64());
    }

    /// Everything up to this position may be told.
    pub fn at(&self, position: u64) {
        self.position.set(position);
    }

    /// The last position that was told of.
    pub fn position(&self) -> u64 {
        self.position.get()
    }

    /// A turn is over that ended what was due so late.
    pub fn turn_ended(&self, began: Began, late_ms: u64) {
        self.turn_seconds.observe(began.0.elapsed().as_secs_f64());
        self.expiry_lag.observe(late_ms as f64 / 1_000.0);
    }

    /// The journal had no room.
    pub fn full(&self) {
        self.full.inc();
    }

    /// A connection is open until this is dropped.
    pub fn open(&self) -> Open {
        self.connections.inc();
        Open(self.connections.clone())
    }

    /// A watcher read too slowly for so many events.
    pub fn events_missed(&self, events: u64) {
        self.events_missed.inc_by(events);
    }

    /// Everything as text. The grantor's own figures are as of the look that brought them.
    pub fn text(&self, looked: &Looked) -> String {
        let status = &looked.status;
        let gauge = |gauge: &Gauge, value: usize| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        gauge(&self.held, status.held);
        gauge(&self.sessions, status.sessions);
        gauge(&self.waiters, status.waiters);
        // What the grantor counts for good goes on over restarts.
        self.deadlocks.inner().store(status.deadlocks, Ordering::Relaxed);
        self.stalled.inner().store((status.stalled_ms as f64 / 1_000.0).to_bits(), Ordering::Relaxed);
        self.progress_age.set(looked.progress_ms.unwrap_or(0) as f64 / 1_000.0);
        self.quarantine.set(status.quarantine.map_or(0, |(ms, _)| ms) as f64 / 1_000.0);
        let (zombies, checks, targets) = looked.fences;
        self.zombies.inner().store(zombies, Ordering::Relaxed);
        self.fence_checks.set(checks);
        gauge(&self.fence_targets, targets);
        self.token.set(status.counter);
        self.clocks.refresh();
        for reason in Reason::ALL {
            let state = match reason.state() {
                State::Held => "held",
                State::Expired => "expired",
                State::Revoked => "revoked",
            };
            let ended = self.ended.get_or_create(&EndLabel { state, reason: reason.word() });
            ended.inner().store(status.totals.ended[usize::from(reason.code())], Ordering::Relaxed);
        }
        self.written()
    }

    /// Everything as text, without the figures of a grantor: this server has none at work.
    pub fn written(&self) -> String {
        self.etcd.refresh();
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }

    /// How late a turn is against its grantor's wish.
    pub fn lateness(grantor: &Grantor, now: leasehold_core::time::Instant) -> u64 {
        grantor.next_deadline().map_or(0, |due| now.millis_since(due))
    }
}
