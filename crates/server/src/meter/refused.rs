//! What was refused, by code, by field, by bound, and why a renewal was.

use leasehold_core::command::{Answer, Reply};
use leasehold_core::lease::Reason;
use leasehold_core::refusal::{Limit, NotCurrent, Refusal};
use leasehold_wire::{Code, v1};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The figures of refusals. Labels are bounded: what a caller makes up is counted together.
pub struct RefusedMeter {
    codes: Family<CodeLabel, Counter>,
    bad_input: Family<FieldLabel, Counter>,
    limits: Family<LimitLabel, Counter>,
    renewals: Family<WhyLabel, Counter>,
    stale_token: Counter,
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
struct WhyLabel {
    why: &'static str,
}

/// The fields that are counted by name. What a caller makes up is counted together: labels are bounded too.
const FIELDS: &str = "\
    access after answer ask at_expiry authority before body by cache capacity charter cluster content-type delay delivery \
    drain drain_ms event from grace grpc-timeout handoff head held hello highest holder how idempotency-key interval_ms key lease lease-token \
    lease-token-seen leases max_attempts mark max_hold method min_position mode most must_understand number numbers \
    oldest_first path payload preemption prefix presented priority progress query rate_error_ppm reason receipt refusals renewal \
    renewals reports request resource resources rung secret sequence session shared slot slots starts_from style target targets \
    times token ttl ttl_ms uncommitted units unread veto visibility wait why";

/// The bounds of the doors; those of the core have words of their own.
const DOOR_LIMITS: [&str; 4] = ["connections", "message_bytes", crate::pace::LIMIT, "unread"];
/// Why a lease is not the caller's to renew, although it did not end.
const NOT_CURRENT: [&str; 3] = ["unknown", "not_holder", "superseded"];

impl RefusedMeter {
    /// Figures in a registry. What can be counted is there from the beginning, at nothing.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let meter = Self {
            codes: Family::default(),
            bad_input: Family::default(),
            limits: Family::default(),
            renewals: Family::default(),
            stale_token: Counter::default(),
        };
        for code in Code::ALL {
            meter.codes.get_or_create(&CodeLabel { code: code.word() }).inc_by(0);
        }
        meter.bad_input.get_or_create(&FieldLabel { code: Code::InvalidArgument.word(), field: "" }).inc_by(0);
        for limit in limits() {
            meter.limits.get_or_create(&LimitLabel { limit }).inc_by(0);
        }
        for why in Reason::ALL.into_iter().map(Reason::word).chain(NOT_CURRENT) {
            meter.renewals.get_or_create(&WhyLabel { why }).inc_by(0);
        }
        registry.register("refused", "Requests refused by a turn, by code", meter.codes.clone());
        registry.register("bad_input", "What callers got wrong, by code and field", meter.bad_input.clone());
        registry.register("limit_refused", "Refusals because a bound was reached", meter.limits.clone());
        registry.register("renewal_rejected", "Renewals refused, by why", meter.renewals.clone());
        registry.register("stale_token", "Stale tokens shown to the grantor", meter.stale_token.clone());
        meter
    }

    /// Counts what is about to be told; `renews` says whether a reply is to a renewal.
    pub fn telling(&self, replies: &[Reply], renews: impl Fn(u64) -> bool) {
        for reply in replies {
            let Answer::Refused(refusal) = &reply.answer else { continue };
            self.codes.get_or_create(&CodeLabel { code: refusal.code() }).inc();
            if matches!(refusal, Refusal::Stale { .. } | Refusal::NotCurrent(NotCurrent::Superseded)) {
                self.stale_token.inc();
            }
            let why = match refusal {
                Refusal::Lost(reason) => reason.word(),
                Refusal::NotCurrent(NotCurrent::Unknown) => "unknown",
                Refusal::NotCurrent(NotCurrent::NotHolder) => "not_holder",
                Refusal::NotCurrent(NotCurrent::Superseded) => "superseded",
                _ => continue,
            };
            if renews(reply.to) {
                self.renewals.get_or_create(&WhyLabel { why }).inc();
            }
        }
    }

    /// A caller got something wrong. What only says how the world stands is not counted here: a wait may be over, but whoever
    /// was too slow with something is told with what.
    pub fn at_door(&self, problem: &v1::Problem) {
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
                self.bad_input.get_or_create(&FieldLabel { code: code.word(), field }).inc();
            }
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

    /// A bound was reached.
    pub fn limit(&self, word: &str) {
        let limit = limits().find(|known| *known == word).unwrap_or("other");
        self.limits.get_or_create(&LimitLabel { limit }).inc();
    }
}

fn limits() -> impl Iterator<Item = &'static str> {
    Limit::ALL.iter().map(|limit| limit.word()).chain(DOOR_LIMITS)
}
