//! Bytes from anybody: no decoder panics, and none unfolds far more than it was sent.

use leasehold_core::command::Answer;
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::{NotCurrent, Refusal};
use leasehold_core::token::TokenError;
use leasehold_wire::codec::{Garbled, read};
use leasehold_wire::v1::request::Ask;
use leasehold_wire::{
    ASK_BYTES, ASK_FIELDS, Asked, Caller, RENEWALS, Renewals, arrival, heard, json, read_charter, read_event, renewals,
    session_bits, v1,
};
use proptest::prelude::*;
use prost::Message;

use crate::support::{CALLER, ISSUER, any_ask, token};

/// Reads everything that a client batch holds, as a server does.
fn serve(batch: &v1::ClientBatch) {
    if let Some(hello) = &batch.hello {
        let _ = arrival(hello, [0; 32], &ISSUER);
    }
    for request in &batch.requests {
        if let Ok(ask) = request.asked() {
            if let Ok(asked) = Asked::read(ask, &CALLER) {
                let _ = asked.command();
            }
            let _ = leasehold_wire::request(1, ask, None, None, &ISSUER);
        }
    }
    for batch in &batch.renewals {
        let _ = renewals(batch, None).map(Iterator::count);
    }
}

/// Hears everything that a server batch holds, as a client does.
fn hear(batch: &v1::ServerBatch) {
    for response in &batch.responses {
        let _ = response.answer.as_ref().map(heard);
    }
    for event in &batch.events {
        let _ = read_event(event);
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_panic_nobody(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(batch) = read::<v1::ClientBatch>(&bytes) {
            serve(&batch);
        }
        if let Ok(batch) = read::<v1::ServerBatch>(&bytes) {
            hear(&batch);
        }
        if let Ok(charter) = read::<v1::Charter>(&bytes) {
            let _ = read_charter(&charter);
        }
        let _ = leasehold_wire::from_status(&tonic::Status::with_details(tonic::Code::Unknown, "", bytes.into()));
    }

    #[test]
    fn a_changed_message_panics_nobody(
        asked in prop::collection::vec(any_ask(), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let requests = asked.into_iter().map(|ask| v1::Request { sequence: 1, ask: Some(ask) }).collect();
        let mut bytes = v1::ClientBatch { requests, ..Default::default() }.encode_to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(batch) = read::<v1::ClientBatch>(&bytes) {
            serve(&batch);
        }
    }

    #[test]
    fn arbitrary_texts_panic_no_body(text in "\\PC{0,200}") {
        let _ = json::read::<json::AcquireBody>(text.as_bytes());
        let _ = json::read::<json::CharterBody>(text.as_bytes());
    }
}

#[test]
fn a_message_that_would_unfold_into_too_much_is_not_unfolded() {
    // Two bytes each: an empty request.
    let empty = [0x22, 0x00];
    assert!(read::<v1::ClientBatch>(&empty.repeat(ASK_FIELDS)).is_ok());
    let (fields, max) = (ASK_FIELDS + 1, ASK_FIELDS);
    assert_eq!(read::<v1::ClientBatch>(&empty.repeat(fields)), Err(Garbled::TooMany { fields, max }));
    let bytes = ASK_BYTES + 1;
    assert_eq!(read::<v1::ClientBatch>(&vec![0; bytes]), Err(Garbled::TooLarge { bytes, max: ASK_BYTES }));
    assert_eq!(read::<v1::ServerBatch>(&vec![0; bytes]), Err(Garbled::Malformed), "an answer may be larger");
    for malformed in [&[0x22][..], &[0x22, 0x05, 0x00], &[0xff; 11], &[0x0c], &[0x23]] {
        assert_eq!(read::<v1::ClientBatch>(malformed), Err(Garbled::Malformed), "{malformed:?}");
    }
    let problem = v1::Problem::from(Garbled::TooMany { fields, max });
    assert_eq!((problem.code.as_str(), problem.max, problem.got), ("RESOURCE_EXHAUSTED", Some(8_192), Some(8_193)));
    assert_eq!(v1::Problem::from(Garbled::Malformed).code, "FRAME_ERROR");
}

#[test]
fn text_that_is_not_utf8_is_refused_at_decoding() {
    // acquire { resource: "\xff" }
    let bytes = [0x12, 0x03, 0x0a, 0x01, 0xff];
    assert_eq!(read::<v1::Request>(&bytes), Err(Garbled::Malformed));
}

#[test]
fn an_unknown_field_is_ignored_and_an_unknown_request_refused_by_name() {
    // Field 900 of a request, which nobody knows, beside sequence 7.
    let bytes = [0x08, 0x07, 0xa2, 0x38, 0x01, 0x00];
    let request = read::<v1::Request>(&bytes).expect("well-formed");
    assert_eq!(request.sequence, 7);
    assert!(matches!(request.asked(), Err(Refusal::Invalid { field: "ask", .. })));
}

#[test]
fn what_is_absent_or_unknown_is_refused_by_its_field() {
    let held = |held: v1::Held| Ask::Release(held);
    let named = |token: String, number| v1::Held {
        which: Some(v1::held::Which::Resource("jobs/a".into())),
        number,
        token,
        holder: None,
    };
    let good = token("jobs/a", 9).to_string();
    let acquire = v1::Acquire { resource: "a".into(), ..Default::default() };
    let table: Vec<(&str, Ask)> = vec![
        ("held", Ask::Renew(v1::Renew::default())),
        ("held", Ask::Put(v1::Put::default())),
        ("lease", held(v1::Held { number: 1, ..Default::default() })),
        ("number", held(named(good.clone(), 8))),
        ("access", Ask::Acquire(v1::Acquire { access: 99, ..acquire.clone() })),
        ("units", Ask::Acquire(v1::Acquire { units: 3, ..acquire.clone() })),
        (
            "priority",
            Ask::Acquire(v1::Acquire {
                terms: Some(v1::Terms { priority: Some(256), ..Default::default() }),
                ..acquire.clone()
            }),
        ),
        ("resource", Ask::Revoke(v1::Revoke::default())),
        (
            "reason",
            Ask::Revoke(v1::Revoke { which: Some(v1::revoke::Which::Lease(0)), reason: 0, ..Default::default() }),
        ),
        (
            "reason",
            Ask::Revoke(v1::Revoke { which: Some(v1::revoke::Which::Lease(0)), reason: -1, ..Default::default() }),
        ),
        ("session", Ask::Cancel(v1::Cancel::default())),
        ("session", Ask::RenewSession(v1::RenewSession::default())),
        ("delivery", Ask::Delivery(v1::Delivery::default())),
        ("cache", Ask::Cache(v1::Cache::default())),
        ("charter", Ask::SetCharter(Box::default())),
        (
            "handoff.style",
            Ask::SetCharter(Box::new(v1::SetCharter {
                charter: Some(v1::Charter { handoff: Some(v1::HandoffTerms::default()), ..Default::default() }),
                ..Default::default()
            })),
        ),
    ];
    for (field, ask) in table {
        match Asked::read(&ask, &CALLER) {
            Err(Refusal::Invalid { field: named, .. }) => assert_eq!(named, field, "{ask:?}"),
            other => panic!("{ask:?}: {other:?}"),
        }
    }
}

#[test]
fn a_token_is_checked_where_it_is_shown() {
    let ask = |token: &str, number| {
        Ask::Confirm(v1::Held {
            which: Some(v1::held::Which::Resource("jobs/a".into())),
            number,
            token: token.into(),
            holder: None,
        })
    };
    let refused = |ask: &Ask| Asked::read(ask, &CALLER).map(|_| ()).unwrap_err();
    let good = token("jobs/a", 9);
    assert!(Asked::read(&ask(&good.to_string(), 0), &CALLER).is_ok());
    assert!(Asked::read(&ask(&good.to_string(), 9), &CALLER).is_ok(), "the same token twice is one token");
    assert!(Asked::read(&ask("", 9), &CALLER).is_ok());
    assert_eq!(refused(&ask("", 0)), Refusal::Token(TokenError::Absent));
    assert_eq!(refused(&ask("", 1 << 63)), Refusal::Token(TokenError::TooLarge));
    assert_eq!(refused(&ask("lh1-x", 0)), Refusal::Token(TokenError::Shape));
    assert_eq!(refused(&ask(&token("jobs/b", 9).to_string(), 0)), Refusal::Token(TokenError::Resource));
    let foreign = leasehold_core::token::Token { cluster: leasehold_core::token::Cluster(*b"elsewher"), ..good };
    assert_eq!(refused(&ask(&foreign.to_string(), 0)), Refusal::Token(TokenError::WrongCluster));
}

#[test]
fn a_token_shown_in_a_request_counts_as_seen() {
    let (low, high) = (token("jobs/a", 9), token("jobs/b", 10));
    let ask = Ask::ShowToken(v1::ShowToken { token: high.to_string() });
    assert_eq!(leasehold_wire::request(1, &ask, None, Some(low), &ISSUER).shown, Some(high));
    let ask = Ask::ShowToken(v1::ShowToken { token: low.to_string() });
    assert_eq!(leasehold_wire::request(1, &ask, None, Some(high), &ISSUER).shown, Some(high));
    assert_eq!(leasehold_wire::request(1, &ask, None, None, &ISSUER).shown, Some(low));
}

#[test]
fn on_a_stream_the_session_is_the_streams_own() {
    let (own, other) = (SessionId { slot: 3, reuse: 1 }, SessionId { slot: 4, reuse: 0 });
    let caller = Caller { session: Some(own), ..CALLER };
    let close = |session: Option<SessionId>| Ask::CloseSession(v1::CloseSession { session: session.map(session_bits) });
    for fine in [None, Some(own)] {
        let ask = close(fine);
        let asked = Asked::read(&ask, &caller).expect("its own");
        assert!(format!("{:?}", asked.command()).contains("slot: 3, reuse: 1"));
    }
    let refused = Asked::read(&close(Some(other)), &caller).map(|_| ()).unwrap_err();
    assert!(matches!(refused, Refusal::Invalid { field: "session", .. }), "{refused:?}");
}

#[test]
fn a_hello_of_another_version_is_told_both() {
    let open = v1::hello::How::Open(v1::OpenSession { holder: "w".into(), ttl_ms: 1_000, waits_only: false });
    let hello = v1::Hello { protocol: 1, how: Some(open), ..Default::default() };
    assert!(arrival(&hello, [1; 32], &ISSUER).is_ok());
    for protocol in [0, 2, u32::MAX] {
        let other = v1::Hello { protocol, ..hello.clone() };
        let problem = arrival(&other, [1; 32], &ISSUER).unwrap_err();
        assert_eq!(problem.code, "UNSUPPORTED_VERSION");
        assert_eq!((problem.have, problem.want), (Some(protocol), Some(1)));
    }
    let critical = v1::Hello { must_understand: vec!["sealed".into()], ..hello.clone() };
    let problem = arrival(&critical, [1; 32], &ISSUER).unwrap_err();
    assert_eq!((problem.code.as_str(), problem.field.as_str()), ("UNSUPPORTED_VERSION", "must_understand"));
    let silent = v1::Hello { how: None, ..hello.clone() };
    assert_eq!(arrival(&silent, [1; 32], &ISSUER).unwrap_err().field, "how");
    let resume = v1::ResumeSession { session: 0, secret: vec![0; 31] };
    let short = v1::Hello { how: Some(v1::hello::How::Resume(resume)), ..hello };
    assert_eq!(arrival(&short, [1; 32], &ISSUER).unwrap_err().field, "secret");
}

#[test]
fn a_batch_of_renewals_is_told_in_its_order() {
    let batch = v1::RenewBatch { sequence: 5, leases: vec![1 << 32, 2 << 32, 3 << 32], numbers: vec![7, 0, 9] };
    let read: Vec<_> = renewals(&batch, None).expect("as many of each").collect();
    assert_eq!(read.len(), 3);
    assert_eq!(read[0].as_ref().map(|renew| renew.held.number.get()), Ok(7));
    assert_eq!(read[1].as_ref().map(|_| ()), Err(&Refusal::Token(TokenError::Zero)));

    let mut told = Renewals::new(5, 3);
    let current = |number, remaining_ms, drain_ms| {
        let number = leasehold_core::token::Number::new(number).expect("a number");
        Answer::Current(leasehold_core::command::Current { number, remaining_ms, drain_ms, overlaps_ms: None })
    };
    told.tell(2, 9, &current(9, 300, Some(50)));
    told.tell(0, 7, &current(7, 10_000, None));
    assert!(!told.is_complete());
    told.tell(1, 0, &Answer::Refused(Refusal::NotCurrent(NotCurrent::Superseded)));
    assert!(told.is_complete());
    let told = told.into_told();
    assert_eq!((told.sequence, told.remaining_ms), (5, vec![10_000, 0, 0]));
    let [drains, refused] = &told.others[..] else { panic!("two with more to tell: {:?}", told.others) };
    assert_eq!((drains.index, refused.index), (2, 1));
    let Some(v1::renewed_other::Outcome::Refused(why)) = &refused.outcome else { panic!("{refused:?}") };
    let problem = why.problem();
    assert_eq!((problem.code.as_str(), problem.reason.as_str()), ("NOT_CURRENT", "superseded"));

    let uneven = v1::RenewBatch { sequence: 1, leases: vec![1], numbers: vec![] };
    assert!(matches!(renewals(&uneven, None).map(|_| ()), Err(Refusal::Invalid { field: "numbers", .. })));
    let many = vec![1; RENEWALS + 1];
    let many = v1::RenewBatch { sequence: 1, leases: many.clone(), numbers: many };
    assert!(matches!(renewals(&many, None).map(|_| ()), Err(Refusal::Invalid { field: "leases", .. })));
}
