//! JSON in and out: strict where people write it, whole where they read it.

use leasehold_core::command::{Command, Grant};
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::{Access, Rung};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Number, Reach};
use leasehold_wire::json::{
    self, AcquireBody, CapacityBody, EventBody, FreeBody, GrantBody, HandoffBody, OpenBody, RenewBody, RevokeBody,
    SessionBody,
};
use leasehold_wire::{Asked, v1};
use serde_json::json;

use crate::support::{CALLER, ISSUER, token};

#[test]
fn an_acquire_is_read_as_people_write_it() {
    let body = br#"{"holder":"worker-1","ttl":"10s","wait":"1500ms","priority":7,"session":"3.1","slots":4}"#;
    let ask = json::read::<AcquireBody>(body).expect("well-formed").ask("jobs/a").expect("possible");
    let asked = Asked::read(&ask, &CALLER).expect("possible");
    let Command::Acquire(acquire) = asked.command() else { panic!("{asked:?}") };
    assert_eq!((acquire.resource, acquire.holder), ("jobs/a", "worker-1"));
    assert_eq!((acquire.ttl_ms, acquire.terms.wait_ms, acquire.terms.priority), (Some(10_000), 1_500, 7));
    assert_eq!((acquire.access, acquire.slots), (Access::Slot, Some(4)));
    assert_eq!(acquire.session.map(|id| (id.slot, id.reuse)), Some((3, 1)));
}

#[test]
fn a_wrong_body_is_refused_by_the_name_of_its_field() {
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
        let problem = json::read::<AcquireBody>(body.as_bytes()).unwrap_err();
        assert_eq!(problem.code, "INVALID_ARGUMENT", "{body}");
        assert_eq!(problem.field, *field, "{body}: {}", problem.message);
        assert!(problem.message.starts_with(&format!("{field}: ")), "{}", problem.message);
    }
    assert_eq!(json::read::<RevokeBody>(b"{}").unwrap_err().field, "reason");
    assert_eq!(json::read::<OpenBody>(br#"{"holder":"w"}"#).unwrap_err().field, "ttl");
}

#[test]
fn numbers_that_json_spoils_are_refused() {
    for body in [r#"{"units":1e400}"#, r#"{"units":NaN}"#, r#"{"units":"1"}"#] {
        assert!(json::read::<CapacityBody>(body.as_bytes()).is_err(), "{body}");
    }
    for progress in ["9007199254740993", "1e3"] {
        let bare = format!(r#"{{"token":"x","progress":{progress}}}"#);
        assert_eq!(json::read::<RenewBody>(bare.as_bytes()).unwrap_err().field, "progress");
    }
    let body = br#"{"token":"x","progress":"9007199254740993"}"#;
    let ask = json::read::<RenewBody>(body).expect("a text").ask("jobs/a").expect("digits");
    assert!(matches!(ask, v1::request::Ask::Renew(renew) if renew.progress == Some(9_007_199_254_740_993)));
    for wrong in ["", "-1", "+1", "1.0", "18446744073709551616", " 1"] {
        let body = RenewBody { token: "x".into(), ttl: None, progress: Some(wrong.into()) };
        assert!(matches!(body.ask("a"), Err(Refusal::Invalid { field: "progress", .. })), "{wrong:?}");
    }
}

#[test]
fn deep_nesting_is_refused_and_overflows_no_stack() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let body = format!("{{\"holder\":{}1{}}}", open.repeat(10_000), close.repeat(10_000));
        assert!(json::read::<AcquireBody>(body.as_bytes()).is_err());
        let body = format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
        assert!(json::read::<json::CharterBody>(body.as_bytes()).is_err());
    }
}

#[test]
fn choices_that_exclude_each_other_are_refused() {
    let both = AcquireBody { shared: true, slots: Some(2), ..Default::default() };
    assert!(matches!(both.ask("a"), Err(Refusal::Invalid { field: "shared", .. })));
    let session = AcquireBody { session: Some("3".into()), ..Default::default() };
    assert!(matches!(session.ask("a"), Err(Refusal::Invalid { field: "session", .. })));
    let lease = RevokeBody { reason: "x".into(), lease: Some("1.2.3".into()), grace: None };
    assert!(matches!(lease.ask("a"), Err(Refusal::Invalid { field: "lease", .. })));
    let style = HandoffBody { style: Some("both".into()), ..Default::default() };
    assert!(matches!(style.ask("a"), Err(Refusal::Invalid { field: "style", .. })));
    let nothing = FreeBody { reason: "checked by hand".into() };
    assert!(matches!(nothing.ask("a"), v1::request::Ask::Free(free) if free.why == "checked by hand"));
}

#[test]
fn a_grant_tells_all_that_was_promised() {
    let grant = Grant {
        lease: LeaseId { slot: 17, reuse: 0 },
        number: Number::new((1 << 53) + 1).expect("a number"),
        reach: Reach::Slot(0),
        ttl_ms: 10_000,
        remaining_ms: 9_999,
        rung: Rung::Session,
        drain_ms: 10_000,
        overlaps_ms: None,
        depth: 1,
        rotates: false,
    };
    let body = GrantBody::from(leasehold_wire::grant(&grant, &ISSUER, "jobs/settle", "worker-1"));
    let expected = json!({
        "resource": "jobs/settle",
        "lease": "17.0",
        "holder": "worker-1",
        "token": token("jobs/settle", (1 << 53) + 1).to_string(),
        "token_number": "9007199254740993",
        "slot": 0,
        "ttl_ms": 10_000,
        "remaining_ms": 9_999,
        "rung": "session",
        "state": "held",
        "reason": null,
    });
    assert_eq!(serde_json::to_value(body).expect("a body is JSON"), expected);
}

#[test]
fn a_secret_is_told_once_and_never_printed() {
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
fn an_end_is_told_with_state_and_reason() {
    let ended = v1::EndedEvent { lease: 17 << 32, token_number: 9, reason: v1::Reason::Operator.into() };
    let event = v1::Event {
        position: 4,
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
