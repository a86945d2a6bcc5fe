//! An audit entry as a JSON object. The order of its fields is fixed, because its hash covers the text.

use std::borrow::Cow;

use leasehold_core::command::HandoffMode;
use leasehold_core::grantor::AuditChange;
use leasehold_core::lease::Access;
use leasehold_core::name::resource_hash;
use leasehold_core::record::BatchHeader;
use serde::{Deserialize, Serialize};

/// An entry. Fields that do not apply are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct AuditEntry<'a> {
    /// Its number, from 1.
    pub entry: u64,
    /// The journal position of its batch.
    pub position: u64,
    /// Its index in that batch, from 0.
    pub step: u32,
    /// Grantor time.
    pub time_ms: u64,
    /// The wall clock of the turn, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The kind of change, one stable word.
    pub kind: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Cow<'a, str>>,
    /// Only the number: the token itself belongs to the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_number: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// `expired` or `revoked`, if the lease ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// Text of an operator, or the cause of a gap. The name in the text is fixed.
    #[serde(default, rename = "why", skip_serializing_if = "Option::is_none")]
    pub comment: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Cow<'a, str>>,
    /// The identity that caused the change; none if time did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Cow<'a, str>>,
    /// How it was known: `local`, `uid`, `mtls`, `bearer` or `anonymous`. None if its request was made earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Cow<'a, str>>,
    /// The first 16 hexadecimal digits of the SHA-256 of its certificate, or the id of its bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Cow<'a, str>>,
    /// The address that it connected from; none over a unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Cow<'a, str>>,
    /// The two-person proposal that was executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<u64>,
    /// The operation of a distributed trace that caused the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Cow<'a, str>>,
}

impl<'a> AuditEntry<'a> {
    /// The entry of a change.
    pub fn of(entry: u64, position: u64, step: u32, header: &BatchHeader, change: &AuditChange<'a>) -> Self {
        let text = |text: &'a str| (!text.is_empty()).then_some(Cow::Borrowed(text));
        let owned = |text: String| Some(Cow::Owned(text));
        let access = change.access.map(|access| match access {
            Access::Exclusive => "exclusive",
            Access::Shared => "shared",
            Access::Slot => "slot",
            Access::Units(_) => "units",
        });
        let held = match change.access {
            Some(Access::Units(units)) => Some(u64::from(units)),
            _ => None,
        };
        let style = change.handoff.map(|mode| match mode {
            HandoffMode::Gap => "gap",
            HandoffMode::Overlap => "overlap",
        });
        Self {
            entry,
            position,
            step,
            time_ms: header.time.0,
            wall_ms: header.wall.0,
            kind: Cow::Borrowed(change.kind),
            resource: text(change.resource),
            holder: text(change.holder),
            lease: change.lease.and_then(|lease| owned(lease.to_string())),
            session: change.session.and_then(|session| owned(session.to_string())),
            token_number: change.number.and_then(|number| owned(number.to_string())),
            access: access.map(Cow::Borrowed),
            slot: change.slot,
            ttl_ms: change.ttl_ms,
            state: change.reason.map(|reason| Cow::Borrowed(reason.state().word())),
            reason: change.reason.map(|reason| Cow::Borrowed(reason.word())),
            comment: text(change.comment),
            to: text(change.to),
            style: style.map(Cow::Borrowed),
            key: text(change.key),
            until_ms: change.until_ms,
            units: change.units.or(held),
            at: change.at,
            target: text(change.target),
            mode: text(change.mode),
            mark: change.mark.and_then(|mark| owned(mark.to_string())),
            by: text(change.by),
            via: change.via.map(|via| Cow::Borrowed(via.word())),
            credential: text(change.credential),
            from: change.from.and_then(|from| owned(from.to_string())),
            proposal: change.proposal,
            traceparent: change.trace.and_then(|trace| owned(trace.to_string())),
        }
    }

    /// Appends its text to a buffer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, self)
            .expect("writing to a buffer does not fail, and every field is text or a number");
    }

    /// Parses the text of an entry.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// The key by which entries of a resource are found.
    pub fn key_of(resource: &str) -> [u8; 8] {
        resource_hash(resource)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::access::Via;
    use leasehold_core::time::{GrantorTime, WallClock};
    use leasehold_core::trace_context::TraceContext;

    use super::*;

    #[test]
    fn a_trace_is_the_last_field_of_the_text_and_an_entry_without_one_has_none() {
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let header = BatchHeader { chain: [0; 32], time: GrantorTime(20), wall: WallClock(1_770_000_000_020) };
        let text = |trace| {
            let change = AuditChange {
                kind: "freed",
                resource: "jobs/a",
                by: "local",
                via: Some(Via::Local),
                trace,
                ..AuditChange::default()
            };
            let mut text = Vec::new();
            AuditEntry::of(7, 5, 0, &header, &change).encode(&mut text);
            String::from_utf8(text).expect("JSON is UTF-8")
        };
        let plain = r#"{"entry":7,"position":5,"step":0,"time_ms":20,"wall_ms":1770000000020,"kind":"freed","resource":"jobs/a","by":"local","via":"local"}"#;
        assert_eq!(text(None), plain);
        let traced = text(TraceContext::parse(traceparent));
        assert_eq!(traced, format!(r#"{},"traceparent":"{traceparent}"}}"#, plain.trim_end_matches('}')));
        let parsed = AuditEntry::parse(traced.as_bytes()).expect("it is an entry");
        assert_eq!(parsed.traceparent.as_deref(), Some(traceparent));
    }
}
