//! Metrics of refused requests: by code, by field, by limit, and renewals by reason.

use leasehold_core::access::Action;
use leasehold_core::command::{Answer, Reply};
use leasehold_core::lease::EndReason;
use leasehold_core::refusal::{Limit, NotCurrent, Refusal};
use leasehold_wire::{Code, MESSAGE_BYTES_LIMIT, v1};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Metrics of refused requests. Labels are bounded: names invented by callers share one label.
pub struct RejectionMetrics {
    codes: Family<CodeLabel, Counter>,
    invalid: Family<FieldLabel, Counter>,
    limits: Family<LimitLabel, Counter>,
    renewals: Family<ReasonLabel, Counter>,
    stale_tokens: Counter,
    denied: Family<DenialLabel, Counter>,
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DenialLabel {
    action: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// How a request was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DenialReason {
    /// No grant of the identity allows the action there.
    Role,
    /// Another identity owns the lease, session or receipt.
    Owner,
    /// The identity is right, and the request does not prove that it was granted the lease or opened the session.
    Secret,
    /// The reply is that of something that does not exist, because the identity may not see it.
    Hidden,
}

impl DenialReason {
    /// The word in metrics and log lines.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::Owner => "owner",
            Self::Secret => "secret",
            Self::Hidden => "hidden",
        }
    }
}

/// Fields that have a label of their own; all others share `other`.
const FIELDS: &str = "\
    access actor after alone answer at_expiry authorization before below body body_base64 cache capacity certificate charter client clock_drift_ppm cluster comment \
    content-encoding content-type cursor delay delivery digest drain drain_ms duration event expected_revision fill from grace grpc-encoding grpc-timeout \
    handoff head held hello highest highest_token holder host idempotency-key intent interval_ms item key lease lease-secret lease-token leasehold-alone \
    lease-token-seen leases limit lowest_pending mark max_attempts max_hold max_ttl method min_position missing_version mode number offset \
    oldest_first operation origin path payload position preemption prefix presented priority progress query reason receipt \
    refusals renewal renewals reports request required_features resource resources sec-fetch-site secret sequence \
    session session-secret shared slot slots starts_from target targets times token token_number token_numbers ttl ttl_ms \
    uncommitted units unread until validity value value_base64 veto visibility wait";

/// Name of the limit on requests per second of a connection.
pub const REQUEST_RATE: &str = "request_rate";
/// Name of the limit on requests per second of a peer address.
pub const REQUEST_RATE_PER_ADDRESS: &str = "request_rate_per_address";
/// Name of the limit on the bytes of unfinished request bodies.
pub const BODY_BYTES_LIMIT: &str = "body_bytes";
/// Name of the limit on the connections of an identity.
pub const IDENTITY_CONNECTIONS: &str = "identity_connections";
/// Name of the limit on the watches of an identity.
pub const IDENTITY_WATCHES: &str = "identity_watches";
/// Name of the limit on the bytes of unfinished request bodies of an identity.
pub const IDENTITY_BODY_BYTES: &str = "identity_body_bytes";
/// Name of the limit on requests per second of an identity.
pub const IDENTITY_REQUEST_RATE: &str = "identity_request_rate";
/// Name of the limit on the queued requests of an identity.
pub const IDENTITY_QUEUED_REQUESTS: &str = "identity_queued_requests";
/// Name of the limit on the reads of the audit log that an identity has in progress.
pub const IDENTITY_AUDIT_READS: &str = "identity_audit_reads";
/// Name of the limit on the sorted listings that are collected for an identity.
pub const IDENTITY_SORTED_LISTINGS: &str = "identity_sorted_listings";
/// Limits of the transport and of queries; the core names its own.
const TRANSPORT_LIMITS: [&str; 14] = [
    BODY_BYTES_LIMIT,
    "connections",
    IDENTITY_AUDIT_READS,
    IDENTITY_BODY_BYTES,
    IDENTITY_CONNECTIONS,
    IDENTITY_QUEUED_REQUESTS,
    IDENTITY_REQUEST_RATE,
    IDENTITY_SORTED_LISTINGS,
    IDENTITY_WATCHES,
    MESSAGE_BYTES_LIMIT,
    "query_steps",
    REQUEST_RATE,
    REQUEST_RATE_PER_ADDRESS,
    "unread",
];
/// Reasons to refuse a renewal although the lease has not ended.
const NOT_CURRENT: [&str; 3] = ["unknown", "not_holder", "superseded"];

impl RejectionMetrics {
    /// Registers the metrics. Every known label starts at zero.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            codes: Family::default(),
            invalid: Family::default(),
            limits: Family::default(),
            renewals: Family::default(),
            stale_tokens: Counter::default(),
            denied: Family::default(),
        };
        for code in Code::ALL {
            metrics.codes.get_or_create(&CodeLabel { code: code.word() }).inc_by(0);
        }
        metrics.invalid.get_or_create(&FieldLabel { code: Code::InvalidArgument.word(), field: "" }).inc_by(0);
        for limit in limits() {
            metrics.limits.get_or_create(&LimitLabel { limit }).inc_by(0);
        }
        for reason in EndReason::ALL.into_iter().map(EndReason::word).chain(NOT_CURRENT) {
            metrics.renewals.get_or_create(&ReasonLabel { reason }).inc_by(0);
        }
        registry.register("requests_refused", "Requests that the grantor refused, by code", metrics.codes.clone());
        registry.register("invalid_requests", "Invalid requests, by code and field", metrics.invalid.clone());
        registry.register(
            "limits_reached",
            "Requests refused because a limit is reached, by limit",
            metrics.limits.clone(),
        );
        registry.register("renewals_refused", "Renewals refused, by reason", metrics.renewals.clone());
        registry.register("stale_tokens", "Stale tokens presented to the grantor", metrics.stale_tokens.clone());
        // Other labels appear with their first denial: there is one for each action and reason.
        metrics
            .denied
            .get_or_create(&DenialLabel { action: Action::Acquire.word(), reason: DenialReason::Role.word() })
            .inc_by(0);
        registry.register(
            "denied",
            "Requests that access rules do not allow, by action and reason",
            metrics.denied.clone(),
        );
        metrics
    }

    /// Counts a request that access rules do not allow.
    pub fn denied(&self, action: Action, reason: DenialReason) {
        self.denied.get_or_create(&DenialLabel { action: action.word(), reason: reason.word() }).inc();
    }

    /// Counts the refusals among the replies of a turn; `is_renewal` reports whether a reply answers a renewal.
    pub fn replies(&self, replies: &[Reply], is_renewal: impl Fn(u64) -> bool) {
        for reply in replies {
            let Answer::Refused(refusal) = &reply.answer else { continue };
            self.codes.get_or_create(&CodeLabel { code: refusal.code() }).inc();
            if matches!(refusal, Refusal::Stale { .. } | Refusal::NotCurrent(NotCurrent::Superseded)) {
                self.stale_tokens.inc();
            }
            let reason = match refusal {
                Refusal::Lost(end) => end.word(),
                Refusal::NotCurrent(NotCurrent::Unknown) => "unknown",
                Refusal::NotCurrent(NotCurrent::NotHolder) => "not_holder",
                Refusal::NotCurrent(NotCurrent::Superseded) => "superseded",
                _ => continue,
            };
            if is_renewal(reply.tag) {
                self.renewals.get_or_create(&ReasonLabel { reason }).inc();
            }
        }
    }

    /// Counts a problem that is the caller's mistake. A problem that only reports the state of the server is not counted; a timeout
    /// is counted if it names a field.
    pub fn problem(&self, problem: &v1::Problem) {
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
        if problem.known_code() == Some(Code::ResourceExhausted) {
            self.limit(&problem.limit);
        }
        match problem.known_code() {
            Some(code @ Timeout) if !field.is_empty() => {
                self.invalid.get_or_create(&FieldLabel { code: code.word(), field }).inc();
            }
            None
            | Some(
                Busy | Cancelled | Config | Corrupt | HeldForOperator | Indeterminate | NotLeader | Quarantined
                | RolledBack | StorageFailed | StorageFull | Timeout | TokenExhausted | Unavailable,
            ) => {}
            Some(code) => {
                self.invalid.get_or_create(&FieldLabel { code: code.word(), field }).inc();
            }
        }
    }

    /// Counts a limit that is reached.
    pub fn limit(&self, name: &str) {
        let limit = limits().find(|known| *known == name).unwrap_or("other");
        self.limits.get_or_create(&LimitLabel { limit }).inc();
    }
}

fn limits() -> impl Iterator<Item = &'static str> {
    Limit::ALL.iter().map(|limit| limit.word()).chain(TRANSPORT_LIMITS)
}
