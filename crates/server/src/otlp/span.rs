//! The span of a hold: from its grant to its end, below the span of the request that acquired it.

use leasehold_core::grantor::EndedHold;
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::time::WallClock;
use leasehold_core::token::{Cluster, Incarnation};
use sha2::{Digest, Sha256};

use super::CollectorSettings;
use super::pb::span::{Event, SpanKind};
use super::pb::status::StatusCode;
use super::pb::{
    ExportTraceServiceRequest, InstrumentationScope, KeyValue, Resource, ResourceSpans, ScopeSpans, Span, Status,
};

/// Whether a span is sampled.
const SAMPLED: u32 = 0x01;
/// Whether the next flag is known.
const HAS_IS_REMOTE: u32 = 0x100;
/// Whether the parent is a span of another process.
const IS_REMOTE: u32 = 0x200;
/// The name of the instrumentation scope.
const SCOPE: &str = "leasehold";

/// The server whose spans are exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanSource {
    /// The cluster.
    pub cluster: Cluster,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The address of this server.
    pub address: String,
}

impl SpanSource {
    /// The request that exports these holds.
    pub(super) fn request(&self, settings: &CollectorSettings, holds: &[EndedHold]) -> ExportTraceServiceRequest {
        let mut attributes = vec![
            KeyValue::text("service.name", settings.service_name()),
            KeyValue::text("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::text("service.instance.id", &self.address),
        ];
        let is_own = |key: &str| attributes.iter().any(|own: &KeyValue| own.key == key);
        let given = settings.attributes().iter().filter(|(key, _)| !is_own(key));
        let given: Vec<_> = given.map(|(key, value)| KeyValue::text(key, value)).collect();
        attributes.extend(given);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let scope_spans = ScopeSpans {
            scope: Some(InstrumentationScope { name: SCOPE.to_owned(), version }),
            spans: holds.iter().map(|hold| self.span(hold)).collect(),
        };
        let resource = Some(Resource { attributes });
        ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { resource, scope_spans: vec![scope_spans] }] }
    }

    fn span(&self, hold: &EndedHold) -> Span {
        let (own_trace, span_id) = self.ids(hold);
        let (trace_id, parent_span_id, remote) = match hold.trace {
            Some(trace) => (trace.trace_id().to_vec(), trace.parent_id().to_vec(), IS_REMOTE),
            None => (own_trace.to_vec(), Vec::new(), 0),
        };
        Span {
            trace_id,
            span_id: span_id.to_vec(),
            parent_span_id,
            name: format!("lease {}", hold.resource),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: nanos(hold.granted),
            end_time_unix_nano: nanos(hold.ended),
            attributes: self.attributes(hold),
            events: drain_event(hold).into_iter().collect(),
            status: status(hold),
            flags: SAMPLED | HAS_IS_REMOTE | remote,
        }
    }

    /// The id of a trace of its own, and that of the span. They follow from the hold, so that a collector recognizes a span that it
    /// receives twice, because an answer was lost.
    fn ids(&self, hold: &EndedHold) -> ([u8; 16], [u8; 8]) {
        let mut digest = Sha256::new();
        digest.update(b"leasehold span\0");
        digest.update(self.cluster.0);
        digest.update(self.incarnation.0.to_be_bytes());
        digest.update(hold.number.get().to_be_bytes());
        let digest: [u8; 32] = digest.finalize().into();
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&digest[..16]);
        span.copy_from_slice(&digest[16..24]);
        // Zero means that there is none.
        trace[15] |= 1;
        span[7] |= 1;
        (trace, span)
    }

    fn attributes(&self, hold: &EndedHold) -> Vec<KeyValue> {
        let access = match hold.access {
            Access::Exclusive => "exclusive",
            Access::Shared => "shared",
            Access::Slot => "slot",
            Access::Units(_) => "units",
        };
        let mut attributes = vec![
            KeyValue::text("leasehold.cluster", self.cluster.to_string()),
            KeyValue::text("leasehold.incarnation", self.incarnation.to_string()),
            KeyValue::text("leasehold.resource", &*hold.resource),
            KeyValue::text("leasehold.holder", &*hold.holder),
            KeyValue::text("leasehold.owner", &*hold.owner),
            KeyValue::text("leasehold.lease_id", hold.lease.to_string()),
            // Below 2^63, so that it is no negative number.
            KeyValue::number("leasehold.token_number", hold.number.get() as i64),
            KeyValue::text("leasehold.access", access),
            KeyValue::text("leasehold.end_reason", hold.reason.word()),
        ];
        if let Some(session) = hold.session {
            attributes.push(KeyValue::text("leasehold.session_id", session.to_string()));
        }
        if let Some(slot) = hold.slot {
            attributes.push(KeyValue::number("leasehold.slot", slot.into()));
        }
        if let Access::Units(units) = hold.access {
            attributes.push(KeyValue::number("leasehold.units", units.into()));
        }
        attributes
    }
}

/// The drain, if there was one.
fn drain_event(hold: &EndedHold) -> Option<Event> {
    let drain = hold.drain?;
    Some(Event {
        time_unix_nano: nanos(drain.began),
        name: "leasehold.draining".to_owned(),
        attributes: vec![KeyValue::text("leasehold.drain_cause", drain.cause.word())],
    })
}

/// An error if the lease ended other than by the act of its holder: it expired, or it was revoked.
fn status(hold: &EndedHold) -> Option<Status> {
    let is_planned = match hold.reason {
        EndReason::Released | EndReason::HandedOff => true,
        EndReason::Session => !hold.session_expired,
        EndReason::Ttl
        | EndReason::Stalled
        | EndReason::MaxHold
        | EndReason::Restored
        | EndReason::Operator
        | EndReason::Deadlock
        | EndReason::Priority
        | EndReason::Policy => false,
    };
    let message = || format!("{}: {}", hold.reason.state().word(), hold.reason.word());
    (!is_planned).then(|| Status { message: message(), code: StatusCode::Error.into() })
}

fn nanos(at: WallClock) -> u64 {
    at.0.saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use leasehold_core::ids::{LeaseId, SessionId};
    use leasehold_core::token::Number;

    use super::*;

    fn hold(number: u64, reason: EndReason) -> EndedHold {
        EndedHold {
            resource: "jobs/settle".into(),
            holder: "worker-1".into(),
            owner: "local".into(),
            lease: LeaseId { slot: 7, reuse: 1 },
            session: Some(SessionId { slot: 3, reuse: 0 }),
            number: Number::new(number).expect("a number"),
            access: Access::Exclusive,
            slot: Some(0),
            granted: WallClock(1_000),
            ended: WallClock(3_500),
            reason,
            session_expired: false,
            drain: None,
            trace: None,
        }
    }

    fn source() -> SpanSource {
        SpanSource { cluster: Cluster(*b"examples"), incarnation: Incarnation(9), address: "127.0.0.1:1".into() }
    }

    #[test]
    fn a_hold_without_a_trace_is_a_trace_of_its_own_and_always_has_the_same_ids() {
        let (first, again) = (source().span(&hold(5, EndReason::Ttl)), source().span(&hold(5, EndReason::Ttl)));
        assert_eq!(first, again);
        assert_eq!((first.trace_id.len(), first.span_id.len(), first.parent_span_id.len()), (16, 8, 0));
        let others = [
            source().span(&hold(6, EndReason::Ttl)),
            SpanSource { incarnation: Incarnation(10), ..source() }.span(&hold(5, EndReason::Ttl)),
            SpanSource { cluster: Cluster(*b"elsewher"), ..source() }.span(&hold(5, EndReason::Ttl)),
        ];
        for other in others {
            assert!(other.span_id != first.span_id && other.trace_id != first.trace_id);
        }
    }

    #[test]
    fn only_a_hold_that_its_holder_ended_has_no_error() {
        for reason in EndReason::ALL {
            let planned = matches!(reason, EndReason::Released | EndReason::HandedOff | EndReason::Session);
            assert_eq!(source().span(&hold(5, reason)).status.is_none(), planned, "{reason}");
        }
        let expired = EndedHold { session_expired: true, ..hold(5, EndReason::Session) };
        let status = source().span(&expired).status.expect("its holder did not renew");
        assert_eq!((status.code, &*status.message), (StatusCode::Error.into(), "expired: session"));
    }
}
