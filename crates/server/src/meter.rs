//! What is measured, in Prometheus' words.

mod keep;

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Duration, Instant};

use leasehold_core::command::{Answer, Reply};
use leasehold_core::grantor::{Grantor, Status};
use leasehold_core::lease::{Reason, State};
use leasehold_core::refusal::{NotCurrent, Refusal};
use leasehold_wire::{Code, v1};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

pub use keep::KeepMeter;

/// All figures of one server.
pub struct Meter {
    registry: Registry,
    turns: Counter,
    turn_requests: Histogram,
    turn_seconds: Histogram,
    sync_seconds: Histogram,
    batch_bytes: Counter,
    answers: Family<CodeLabel, Counter>,
    bad_input: Family<FieldLabel, Counter>,
    renewal_rejected: Family<WhyLabel, Counter>,
    stale_token: Counter,
    ended: Family<EndLabel, Gauge>,
    held: Gauge,
    sessions: Gauge,
    waiters: Gauge,
    deadlocks: Gauge,
    stalled_ms: Gauge,
    expiry_lag_ms: Gauge,
    full: Counter,
    skew_ms: Gauge<i64, AtomicI64>,
    token: Gauge<u64, AtomicU64>,
    keep: KeepMeter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FieldLabel {
    code: &'static str,
    field: &'static str,
}

/// The fields that are counted by name. What a caller makes up is counted together: labels are bounded too.
const FIELDS: &str = "\
    access after answer ask at_expiry authority before body by cache capacity charter content-type delay delivery \
    drain drain_ms event from grace handoff held hello holder how idempotency-key interval_ms key lease lease-token \
    lease-token-seen leases max_attempts max_hold method min_position most must_understand number numbers \
    oldest_first path payload preemption prefix priority progress query rate_error_ppm reason receipt renewal \
    renewals request resource resources rung secret sequence session shared slot slots starts_from style targets \
    token ttl ttl_ms uncommitted units veto visibility wait why";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabel {
    why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabel {
    state: &'static str,
    reason: &'static str,
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
            answers: Family::default(),
            bad_input: Family::default(),
            renewal_rejected: Family::default(),
            stale_token: Counter::default(),
            ended: Family::default(),
            held: Gauge::default(),
            sessions: Gauge::default(),
            waiters: Gauge::default(),
            deadlocks: Gauge::default(),
            stalled_ms: Gauge::default(),
            expiry_lag_ms: Gauge::default(),
            full: Counter::default(),
            skew_ms: Gauge::default(),
            token: Gauge::default(),
            keep: KeepMeter::new(&mut registry),
            registry: Registry::default(),
        };
        registry.register("turns", "Turns taken", meter.turns.clone());
        registry.register("turn_requests", "Requests of one turn", meter.turn_requests.clone());
        registry.register("turn_seconds", "One turn, from drained to told", meter.turn_seconds.clone());
        registry.register("sync_seconds", "Making one batch durable", meter.sync_seconds.clone());
        registry.register("batch_bytes", "Bytes put on record", meter.batch_bytes.clone());
        registry.register("refused", "Requests refused, by code", meter.answers.clone());
        registry.register("bad_input", "What callers got wrong, by code and field", meter.bad_input.clone());
        registry.register("renewal_rejected", "Renewals refused, by why", meter.renewal_rejected.clone());
        registry.register("stale_token", "Stale tokens shown to the grantor", meter.stale_token.clone());
        registry.register("ended", "Leases that ended, by state and reason", meter.ended.clone());
        registry.register("held", "Leases held", meter.held.clone());
        registry.register("sessions", "Sessions alive", meter.sessions.clone());
        registry.register("waiters", "Waiters", meter.waiters.clone());
        registry.register("deadlocks", "Deadlocks found", meter.deadlocks.clone());
        registry.register(
            "stalled_milliseconds",
            "Served time in which the grantor stood still",
            meter.stalled_ms.clone(),
        );
        registry.register("expiry_lag_milliseconds", "How late the last turn was", meter.expiry_lag_ms.clone());
        registry.register("journal_full", "Appends refused for want of room", meter.full.clone());
        registry.register(
            "clock_skew_milliseconds",
            "A holder's wall clock minus the server's, as last told",
            meter.skew_ms.clone(),
        );
        registry.register("token_number", "The highest token number given out", meter.token.clone());
        Self { registry, ..meter }
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

    /// A turn has drained so many requests.
    pub fn turn_began(&self, requests: usize) -> Began {
        self.turns.inc();
        self.turn_requests.observe(requests as f64);
        Began(Instant::now())
    }

    /// A batch became durable in this time.
    pub fn synced(&self, bytes: usize, took: Duration) {
        self.batch_bytes.inc_by(bytes as u64);
        self.sync_seconds.observe(took.as_secs_f64());
    }

    /// Counts what is about to be told.
    pub fn telling(&self, replies: &[Reply]) {
        for reply in replies {
            if let Answer::Refused(refusal) = &reply.answer {
                self.answers.get_or_create(&CodeLabel { code: refusal.code() }).inc();
                match refusal {
                    Refusal::Stale { .. } => {
                        self.stale_token.inc();
                    }
                    Refusal::Lost(reason) => self.rejected(reason.word()),
                    Refusal::NotCurrent(NotCurrent::Unknown) => self.rejected("unknown"),
                    Refusal::NotCurrent(NotCurrent::NotHolder) => self.rejected("not_holder"),
                    Refusal::NotCurrent(NotCurrent::Superseded) => {
                        self.stale_token.inc();
                        self.rejected("superseded");
                    }
                    _ => {}
                }
            }
        }
    }

    /// A caller got something wrong. What only says how the world stands is not counted here.
    pub fn refused_at_door(&self, problem: &v1::Problem) {
        use Code::{
            Busy, Cancelled, Config, Corrupt, HeldForOperator, Indeterminate, NotLeader, Quarantined, RolledBack,
            StorageFailed, StorageFull, Timeout, TokenExhausted, Unavailable,
        };
        let field = problem.field.split(['.', '[']).next().unwrap_or_default();
        let field = match FIELDS.split_ascii_whitespace().find(|known| *known == field) {
            Some(known) => known,
            None if field.is_empty() => "",
            None => "other",
        };
        match problem.known_code() {
            None
            | Some(
                Busy | Cancelled | Config | Corrupt | HeldForOperator | Indeterminate | NotLeader | Quarantined
                | RolledBack | StorageFailed | StorageFull | Timeout | TokenExhausted | Unavailable,
            ) => {}
            Some(code) => {
                self.bad_input.get_or_create(&FieldLabel { code: code.word(), field }).inc();
            }
        }
    }

    fn rejected(&self, why: &'static str) {
        self.renewal_rejected.get_or_create(&WhyLabel { why }).inc();
    }

    /// A turn is over.
    pub fn turn_ended(&self, began: Began, late_ms: u64) {
        self.turn_seconds.observe(began.0.elapsed().as_secs_f64());
        self.expiry_lag_ms.set(i64::try_from(late_ms).unwrap_or(i64::MAX));
    }

    /// The journal had no room.
    pub fn full(&self) {
        self.full.inc();
    }

    /// A holder told its wall clock.
    pub fn holder_clock(&self, wall_ms: u64) {
        let own = crate::clock::now().wall.0;
        self.skew_ms.set(i64::try_from(wall_ms).unwrap_or(i64::MAX).saturating_sub(i64::try_from(own).unwrap_or(0)));
    }

    /// Everything as text. The grantor's own figures are as of the look that brought them.
    pub fn text(&self, status: &Status) -> String {
        let gauge = |gauge: &Gauge, value: u64| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        gauge(&self.held, status.held as u64);
        gauge(&self.sessions, status.sessions as u64);
        gauge(&self.waiters, status.waiters as u64);
        gauge(&self.deadlocks, status.deadlocks);
        gauge(&self.stalled_ms, status.stalled_ms);
        self.token.set(status.counter);
        for reason in Reason::ALL {
            let state = match reason.state() {
                State::Held => "held",
                State::Expired => "expired",
                State::Revoked => "revoked",
            };
            let label = EndLabel { state, reason: reason.word() };
            gauge(&self.ended.get_or_create(&label), status.totals.ended[usize::from(reason.code())]);
        }
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }

    /// How late a turn is against its grantor's wish.
    pub fn lateness(grantor: &Grantor, now: leasehold_core::time::Instant) -> u64 {
        grantor.next_deadline().map_or(0, |due| now.millis_since(due))
    }
}
