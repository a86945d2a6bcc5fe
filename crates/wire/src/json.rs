//! JSON bodies of the HTTP API, with strict decoding.
//!
//! Durations in requests are texts with a unit (`10s`); ids and token numbers are texts. A request with an unknown field, a
//! repeated field or a value of the wrong type is refused, and the error names the field.

mod audit;
mod bytes;
mod cache;
mod charter;
mod cluster;
mod coverage;
mod done;
mod event;
mod held_lease_request;
mod keys;
mod lease_batch;
mod lease_request;
mod lease_response;
mod problem;
mod proposal;
mod queue;
mod request_fields;
mod session;
mod state;
mod view;

pub use audit::{AuditEntryBody, AuditHeadBody, AuditPageBody, AuditVerificationBody, DenialBody, DenialsBody};
pub use cache::{AbortBody, CacheActorBody, CacheBody, FillBody, GetOrFillBody, IntentBody, ReadLeaseBody};
pub use charter::{
    AtExpiryBody, CharterBody, CharterEntryBody, HandoffTermsBody, PreemptionBody, RenewalBody, SetCharterBody,
    StartsFromBody, TargetBody,
};
pub use cluster::{ClusterBody, EtcdMemberBody, SetMaxTtlBody, StepDownBody, WaiveBody};
pub use coverage::{
    CoverageBody, FenceReportBody, FenceReportsBody, LastZombieBody, RefusedZombieBody, TargetCoverageBody,
    TargetSlotBody,
};
pub use done::DoneBody;
pub use event::EventBody;
pub use held_lease_request::{
    CollectBelowBody, CollectBody, PinBody, ProgressBody, PutBody, ResizeBody, RevisionBody, TokenBody, VetoBody,
};
pub use keys::{PublicSealKeyBody, SealKeySetBody};
pub use lease_batch::{
    AcquireAllBody, GrantsBody, LeaseNumberBody, RenewLeasesBody, RenewedLeaseBody, RenewedLeasesBody,
    ResourceAccessBody,
};
pub use lease_request::{
    AcquireBody, CapacityBody, CheckBody, FreeBody, HandoffBody, ReleaseBody, RenewBody, RevokeBody,
};
pub use lease_response::{CurrentLeaseBody, GrantBody};
pub use problem::{BODY_TOO_LARGE, PROBLEM_TYPE, ProblemBody};
pub use proposal::{ApproveBody, ProposalBody};
pub use queue::{
    DeadLetterBody, DeliveriesBody, DeliveryBody, ExtendBody, ExtendedBody, ItemBody, NackBody, NackedBody, QueueBody,
    ReceiptBody, ReceiveBody, SendBody, SentBody,
};
pub use session::{
    CancelWaitBody, HeldDigestBody, OpenSessionBody, ReconcileBody, RenewSessionBody, SessionBody, SessionLeaseBody,
    SessionLeasesBody, SessionStateBody,
};
pub use state::{StateBody, StateEntryBody};
pub use view::{
    CycleMemberBody, DeadlockBody, EndedLeaseBody, LeaseBody, ListedLeaseBody, ListedLeasesBody, ResourceBody,
    ResourcesBody, StatusBody, UsageBody, UsageRowBody, WaiterBody,
};

use std::fmt::Write;

use leasehold_core::lease::EndReason;
use serde::de::DeserializeOwned;

use crate::enums::optional_enum;
use crate::{Code, v1};

/// Decodes a request body. An empty body counts as `{}`.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Box<v1::Problem>> {
    let body = if body.is_empty() { b"{}".as_slice() } else { body };
    // serde would accept a list as fields without names.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(invalid("body".into(), "not an object; write {\"field\": value}".into()));
    }
    let mut from = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.inner().to_string();
        // The path of a field without a name is empty.
        let field =
            if ["", ".", "?"].contains(&path.as_str()) { quoted(&reason).unwrap_or("body").to_owned() } else { path };
        invalid(field, plain_reason(&reason))
    })?;
    from.end().map_err(|_| invalid("body".into(), "has characters after its end; send one object".into()))?;
    Ok(value)
}

/// A reason of the parser in words that need no knowledge of it.
fn plain_reason(reason: &str) -> String {
    let (text, place) = reason.split_once(" at line ").unwrap_or((reason, ""));
    let place = match place.split_once(" column ") {
        Some((line, column)) => format!(" (line {line}, column {column})"),
        None => String::new(),
    };
    let found =
        ["invalid type: ", "invalid value: ", "invalid length: "].iter().find_map(|start| text.strip_prefix(start));
    if let Some((found, expected)) = found.and_then(|rest| rest.rsplit_once(", expected ")) {
        return format!("must be {}, not {found}{place}", plain_type(expected));
    }
    let text = match text {
        text if text.starts_with("EOF") => "ends too early",
        "trailing characters" => "has characters after its end",
        "recursion limit exceeded" => "is nested too deeply",
        "number out of range" => "the number is out of range",
        text if text.contains("surrogate") => "has half a surrogate pair; write the whole character",
        text => text,
    };
    format!("{text}{place}")
}

/// What a value must be, in place of the name of a type.
fn plain_type(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" | "bool" => "true or false",
        "a borrowed string" | "string" | "str" => "a string",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other if other.contains("enum ") || other == "string or map" || other == "variant identifier" => {
            "one of its words"
        }
        other => other,
    }
}

/// A parser's message in the words of the person who wrote the text, without names of Rust types.
pub fn plain_words(message: &str) -> String {
    let mut words = Vec::new();
    let mut rest = message.split(' ').peekable();
    while let Some(word) = rest.next() {
        match (word, rest.peek()) {
            ("expected", Some(&("u8" | "u16" | "u32" | "u64" | "usize"))) => {
                rest.next();
                words.push("expected a whole number from 0");
            }
            ("expected", Some(&("i8" | "i16" | "i32" | "i64" | "isize"))) => {
                rest.next();
                words.push("expected a whole number");
            }
            ("struct", Some(_)) => {
                rest.next();
                words.push("a table of fields");
            }
            ("sequence,", _) => words.push("list,"),
            ("sequence", _) => words.push("list"),
            ("map,", _) => words.push("table,"),
            ("map", _) => words.push("table"),
            (word, _) => words.push(word),
        }
    }
    words.join(" ")
}

/// The field name that a serde error quotes in backticks.
fn quoted(message: &str) -> Option<&str> {
    message.split('`').nth(1).filter(|name| !name.is_empty())
}

fn invalid(mut field: String, mut reason: String) -> Box<v1::Problem> {
    // A refusal does not repeat a large request.
    for (text, max) in [(&mut field, 100), (&mut reason, 400)] {
        if let Some((end, _)) = text.char_indices().nth(max) {
            text.truncate(end);
            text.push('…');
        }
    }
    let message = format!("{field}: {reason}");
    Box::new(v1::Problem { field, reason, ..v1::Problem::of(Code::InvalidArgument, message) })
}

/// Bytes as lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
        text
    })
}

/// The state of an ended lease as people read it: `released`, `expired` or `revoked`. A released lease has the state
/// [`LeaseState::Expired`](leasehold_core::lease::LeaseState::Expired), which would mislead a reader.
fn ended_state(reason: EndReason) -> &'static str {
    if reason == EndReason::Released { reason.word() } else { reason.state().word() }
}

/// The word for an enum value; empty if it is unspecified.
fn enum_word<W, C>(raw: i32, of: impl Fn(C) -> &'static str) -> String
where
    W: TryFrom<i32>,
    Option<C>: From<W>,
{
    optional_enum::<W, C>(raw, "").ok().flatten().map_or("", of).into()
}

/// The word for an enum value; `None` if it is unspecified.
fn optional_enum_word<W, C>(raw: i32, of: impl Fn(C) -> &'static str) -> Option<String>
where
    W: TryFrom<i32>,
    Option<C>: From<W>,
{
    optional_enum::<W, C>(raw, "").ok().flatten().map(|word| of(word).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_body_is_explained_without_names_of_types() {
        let message = |body: &str| decode::<AcquireBody>(body.as_bytes()).expect_err(body).message;
        let table = [
            (r#"{"holder":"w","units":"1"}"#, r#"units: must be a whole number, not string "1" (line 1, column 25)"#),
            (
                r#"{"holder":"w","units":1.5}"#,
                "units: must be a whole number, not floating point `1.5` (line 1, column 25)",
            ),
            (r#"{"holder":"w","units":-1}"#, "units: must be a whole number, not integer `-1` (line 1, column 24)"),
            (r#"{"holder":["w"]}"#, "holder: must be a string, not sequence (line 1, column 10)"),
            (r#"{"holder":"w""#, "body: ends too early (line 1, column 13)"),
            (r#"{"holder":"w"} {}"#, "body: has characters after its end; send one object"),
            (r#"{"holder":"w","units":1e999}"#, "units: the number is out of range (line 1, column 27)"),
        ];
        for (body, expected) in table {
            assert_eq!(message(body), expected);
        }
        let deep = format!("{}1{}", r#"{"a":"#.repeat(1_000), "}".repeat(1_000));
        for text in [message(&deep), message(r#"{"holder":true,"wait":{}}"#), message(r#"{"shared":"yes"}"#)] {
            let words = ["u8", "u32", "u64", "usize", "struct", "enum", "Option", "serde", "EOF"];
            assert!(!words.iter().any(|word| text.contains(word)), "{text}");
        }
    }
}
