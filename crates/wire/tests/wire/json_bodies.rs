//! JSON bodies: requests decode strictly, responses are complete.

use leasehold_core::command::{Command, Grant};
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::{Access, EndReason, Validity};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Number, TokenScope};
use leasehold_wire::json::{
    self, AcquireBody, AuditEntryBody, CapacityBody, EventBody, FreeBody, GrantBody, HandoffBody, OpenSessionBody,
    ProblemBody, RenewBody, RevokeBody, SessionBody, SetCharterBody, plain_words,
};
use leasehold_wire::{DecodedCommand, v1};
use serde_json::json;

use crate::generators::{CALLER, ISSUER, token};

#[test]
fn an_acquire_body_decodes_into_a_command() {
    let body = br#"{"holder":"worker-1","ttl":"10s","wait":"1500ms","priority":7,"session":"3.1","slots":4}"#;
    let operation = json::decode::<AcquireBody>(body).expect("well-formed").into_operation("jobs/a").expect("possible");
    let decoded = DecodedCommand::decode(&operation, &CALLER).expect("possible");
    let Command::Acquire(acquire) = decoded.command() else { panic!("{decoded:?}") };
    assert_eq!((acquire.resource, acquire.holder), ("jobs/a", "worker-1"));
    assert_eq!((acquire.ttl_ms, acquire.options.wait_ms, acquire.options.priority), (Some(10_000), 1_500, 7));
    assert_eq!((acquire.access, acquire.slots), (Access::Slot, Some(4)));
    assert_eq!(acquire.session.map(|id| (id.slot, id.reuse)), Some((3, 1)));
}

#[test]
fn an_invalid_body_is_refused_with_the_name_of_its_field() {
    let table: &[(&str, &str)] = &[
        ("ttl", r#"{"ttl":10}"#),
        ("ttl", r#"{"ttl":"10"}"#),
        ("ttl", r#"{"ttl":"10 s"}"#),
        ("ttl", r#"{"ttl":-1}"#),
        ("ttl", r#"{"ttl":1e3}"#),
        ("ttl", r#"{"ttl":"∞"}"#),
        ("ttl", r#"{"holder":"a","ttl":"1s","ttl":"2s"}"#),
        ("units", r#"{"units":-1}"#),
        ("units", r#"{"units":4294967296}"#),
        ("units", r#"{"units":1.5}"#),
        ("holder", r#"{"holder":7}"#),
        ("ttl_ms", r#"{"ttl_ms":10000}"#),
        ("owner", r#"{"owner":"a"}"#),
        ("body", r"[]"),
        ("body", r"null"),
        ("body", r#"{"holder":"a"} {}"#),
        ("body", r#"{"holder":"a""#),
    ];
    for (field, body) in table {
        let problem = json::decode::<AcquireBody>(body.as_bytes()).unwrap_err();
        assert_eq!(problem.code, "INVALID_ARGUMENT", "{body}");
        assert_eq!(problem.field, *field, "{body}: {}", problem.message);
        assert!(problem.message.starts_with(&format!("{field}: ")), "{}", problem.message);
    }
    assert_eq!(json::decode::<RevokeBody>(b"{}").unwrap_err().field, "comment");
    assert_eq!(json::decode::<OpenSessionBody>(br#"{"holder":"w"}"#).unwrap_err().field, "ttl");
}

#[test]
fn numbers_that_json_cannot_represent_are_refused() {
    for body in [r#"{"units":1e400}"#, r#"{"units":NaN}"#, r#"{"units":"1"}"#] {
        assert!(json::decode::<CapacityBody>(body.as_bytes()).is_err(), "{body}");
    }
    for progress in ["9007199254740993", "1e3"] {
        let bare = format!(r#"{{"token":"x","progress":{progress}}}"#);
        assert_eq!(json::decode::<RenewBody>(bare.as_bytes()).unwrap_err().field, "progress");
    }
    let body = br#"{"token":"x","progress":"9007199254740993"}"#;
    let operation = json::decode::<RenewBody>(body).expect("a text").into_operation("jobs/a").expect("digits");
    assert!(matches!(operation, v1::request::Operation::Renew(renew) if renew.progress == Some(9_007_199_254_740_993)));
    for wrong in ["", "-1", "+1", "1.0", "18446744073709551616", " 1"] {
        let body = RenewBody { token: "x".into(), ttl: None, progress: Some(wrong.into()) };
        assert!(matches!(body.into_operation("a"), Err(Refusal::Invalid { field: "progress", .. })), "{wrong:?}");
    }
}

#[test]
fn deep_nesting_is_refused_without_overflowing_the_stack() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let body = format!("{{\"holder\":{}1{}}}", open.repeat(10_000), close.repeat(10_000));
        assert!(json::decode::<AcquireBody>(body.as_bytes()).is_err());
        let body = format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
        assert!(json::decode::<json::CharterBody>(body.as_bytes()).is_err());
    }
}

#[test]
fn mutually_exclusive_fields_are_refused() {
    let both = AcquireBody { shared: true, slots: Some(2), ..Default::default() };
    assert!(matches!(both.into_operation("a"), Err(Refusal::Invalid { field: "shared", .. })));
    let session = AcquireBody { session: Some("3".into()), ..Default::default() };
    assert!(matches!(session.into_operation("a"), Err(Refusal::Invalid { field: "session", .. })));
    let lease = RevokeBody { comment: "x".into(), lease: Some("1.2.3".into()), grace: None };
    assert!(matches!(lease.into_operation("a"), Err(Refusal::Invalid { field: "lease", .. })));
    let mode = HandoffBody { mode: Some("both".into()), ..Default::default() };
    assert!(matches!(mode.into_operation("a"), Err(Refusal::Invalid { field: "mode", .. })));
    let free = FreeBody { comment: "checked by hand".into() };
    assert!(
        matches!(free.into_operation("a"), v1::request::Operation::Free(free) if free.comment == "checked by hand")
    );
}

#[test]
fn a_grant_body_has_all_documented_fields() {
    let grant = Grant {
        lease: LeaseId { slot: 17, reuse: 0 },
        number: Number::new((1 << 53) + 1).expect("a number"),
        scope: TokenScope::Slot(0),
        ttl_ms: 10_000,
        remaining_ms: 9_999,
        validity: Validity::Session,
        drain_ms: 10_000,
        overlaps_ms: None,
        depth: 1,
        rotates: false,
    };
    let body = GrantBody::from(leasehold_wire::encode_grant(&grant, &ISSUER, "jobs/settle", "worker-1"));
    let expected = json!({
        "resource": "jobs/settle",
        "lease": "17.0",
        "holder": "worker-1",
        "token": token("jobs/settle", (1 << 53) + 1).to_string(),
        "token_number": "9007199254740993",
        "slot": 0,
        "ttl_ms": 10_000,
        "drain_ms": 10_000,
        "remaining_ms": 9_999,
        "validity": "session",
        "state": "held",
        "reason": null,
    });
    assert_eq!(serde_json::to_value(body).expect("a body is JSON"), expected);
}

#[test]
fn a_secret_is_sent_once_and_never_printed() {
    let welcome = v1::Welcome { secret: vec![0xab; 32], cluster: "c".into(), ..Default::default() };
    let resume = v1::ResumeSession { session: 0, secret: vec![0xab; 32] };
    for printed in [format!("{welcome:?}"), format!("{resume:?}")] {
        assert!(!printed.contains("171") && !printed.contains("abab"), "{printed}");
    }
    let body = SessionBody::from(welcome);
    assert_eq!(body.secret.as_deref(), Some("ab".repeat(32).as_str()));
    assert!(!format!("{body:?}").contains("abab"));
    assert_eq!(SessionBody::from(v1::Welcome::default()).secret, None);
}

#[test]
fn an_end_has_state_and_reason() {
    let ended = v1::EndedEvent { lease: 17 << 32, token_number: 9, reason: v1::EndReason::Operator.into() };
    let event = v1::Event {
        position: 4,
        wall_ms: 0,
        resource: "jobs/a".into(),
        holder: String::new(),
        event: Some(v1::event::Event::Ended(ended)),
    };
    let json = serde_json::to_value(EventBody::from(event)).expect("a body is JSON");
    let expected = json!({
        "event": "ended", "position": 4, "resource": "jobs/a", "lease": "17.0", "token_number": "9",
        "state": "revoked", "reason": "operator",
    });
    assert_eq!(json, expected);
}

#[test]
fn a_released_lease_is_shown_as_released() {
    let problem = ProblemBody::from(leasehold_wire::problem(&Refusal::Lost(EndReason::Released)));
    assert_eq!((problem.state.as_deref(), problem.reason.as_deref()), (Some("released"), Some("released")));
    let expired = ProblemBody::from(leasehold_wire::problem(&Refusal::Lost(EndReason::Ttl)));
    assert_eq!((expired.state.as_deref(), expired.reason.as_deref()), (Some("expired"), Some("ttl")));
    let text = r#"{"entry":1,"kind":"ended","state":"expired","reason":"released","why":"done"}"#;
    let entry = AuditEntryBody::of(text.into(), &[0xab]);
    assert_eq!(
        (entry.state.as_deref(), entry.comment.as_deref(), entry.hash.as_str()),
        (Some("released"), Some("done"), "ab")
    );
}

#[test]
fn a_parse_error_names_no_rust_type() {
    let bodies = [
        r#"{"comment":"c","charter":"x"}"#,
        r#"{"comment":"c","charter":{"renewal":"pulse"}}"#,
        r#"{"comment":"c","charter":{"handoff":["gap"]}}"#,
        r#"{"comment":"c","charter":{"ttl_max_ms":"10s"}}"#,
        r#"{"comment":"c","charter":{"ttl_max_ms":-1}}"#,
        r#"{"comment":"c","charter":{"targets":{}}}"#,
    ];
    for body in bodies {
        let error = json::decode::<SetCharterBody>(body.as_bytes()).expect_err(body).message;
        for word in ["struct", "Body", "u64", "u32", "sequence", "a map"] {
            assert!(!error.contains(word), "{body}: {error}");
        }
    }
    assert_eq!(
        plain_words("invalid type: map, expected u64 at line 1"),
        "invalid type: table, expected a whole number from 0 at line 1"
    );
}
