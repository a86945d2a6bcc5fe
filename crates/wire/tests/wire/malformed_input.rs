//! Malformed input: no decoder panics, and none allocates far more than it received.

use leasehold_core::command::Answer;
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::{NotCurrent, Refusal};
use leasehold_core::token::TokenError;
use leasehold_wire::bounded_codec::{MessageError, decode};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::{
    CommandContext, DecodedCommand, MAX_RENEWALS, MAX_REQUEST_BYTES, MAX_REQUEST_FIELDS, RenewBatchReply,
    decode_answer, decode_charter, decode_event, decode_hello, decode_renewals, json, session_bits, v1,
};
use proptest::prelude::*;
use prost::Message;

use crate::generators::{CALLER, ISSUER, any_operation, token};

/// Decodes everything in a client batch, as a server does.
fn decode_as_server(batch: &v1::ClientBatch) {
    if let Some(hello) = &batch.hello {
        let _ = decode_hello(hello, [0; 32].into(), &ISSUER);
    }
    for request in &batch.requests {
        if let Ok(operation) = request.require_operation() {
            if let Ok(decoded) = DecodedCommand::decode(operation, &CALLER) {
                let _ = decoded.command();
            }
            let _ = leasehold_wire::core_request(1, operation, None, None, &ISSUER);
        }
    }
    for batch in &batch.renewals {
        let _ = decode_renewals(batch, None).map(Iterator::count);
    }
}

/// Decodes everything in a server batch, as a client does.
fn decode_as_client(batch: &v1::ServerBatch) {
    for response in &batch.responses {
        let _ = response.answer.as_ref().map(decode_answer);
    }
    for event in &batch.events {
        let _ = decode_event(event);
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(batch) = decode::<v1::ClientBatch>(&bytes) {
            decode_as_server(&batch);
        }
        if let Ok(batch) = decode::<v1::ServerBatch>(&bytes) {
            decode_as_client(&batch);
        }
        if let Ok(charter) = decode::<v1::Charter>(&bytes) {
            let _ = decode_charter(&charter);
        }
        let _ = leasehold_wire::problem_from_status(&tonic::Status::with_details(tonic::Code::Unknown, "", bytes.into()));
    }

    #[test]
    fn a_modified_message_does_not_panic(
        operations in prop::collection::vec(any_operation(), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let requests = operations.into_iter().map(|operation| v1::Request { sequence: 1, operation: Some(operation), alone: None, traceparent: None }).collect();
        let mut bytes = v1::ClientBatch { requests, ..Default::default() }.encode_to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(batch) = decode::<v1::ClientBatch>(&bytes) {
            decode_as_server(&batch);
        }
    }

    #[test]
    fn arbitrary_json_text_does_not_panic(text in "\\PC{0,200}") {
        let _ = json::decode::<json::AcquireBody>(text.as_bytes());
        let _ = json::decode::<json::CharterBody>(text.as_bytes());
    }
}

#[test]
fn a_message_above_the_limits_is_not_decoded() {
    // An empty request takes two bytes.
    let empty = [0x22, 0x00];
    assert!(decode::<v1::ClientBatch>(&empty.repeat(MAX_REQUEST_FIELDS)).is_ok());
    let (fields, max) = (MAX_REQUEST_FIELDS + 1, MAX_REQUEST_FIELDS);
    assert_eq!(decode::<v1::ClientBatch>(&empty.repeat(fields)), Err(MessageError::TooMany { fields, max }));
    let bytes = MAX_REQUEST_BYTES + 1;
    assert_eq!(
        decode::<v1::ClientBatch>(&vec![0; bytes]),
        Err(MessageError::TooLarge { bytes, max: MAX_REQUEST_BYTES })
    );
    assert_eq!(decode::<v1::ServerBatch>(&vec![0; bytes]), Err(MessageError::Malformed), "an answer may be larger");
    for malformed in [&[0x22][..], &[0x22, 0x05, 0x00], &[0xff; 11], &[0x0c], &[0x23]] {
        assert_eq!(decode::<v1::ClientBatch>(malformed), Err(MessageError::Malformed), "{malformed:?}");
    }
    let problem = v1::Problem::from(MessageError::TooMany { fields, max });
    assert_eq!((problem.code.as_str(), problem.max, problem.got), ("RESOURCE_EXHAUSTED", Some(8_192), Some(8_193)));
    assert_eq!(v1::Problem::from(MessageError::Malformed).code, "FRAME_ERROR");
}

#[test]
fn text_that_is_not_utf8_is_refused_at_decoding() {
    // acquire { resource: "\xff" }
    let bytes = [0x12, 0x03, 0x0a, 0x01, 0xff];
    assert_eq!(decode::<v1::Request>(&bytes), Err(MessageError::Malformed));
}

#[test]
fn an_unknown_field_is_ignored_and_an_unknown_operation_is_refused() {
    // A request with sequence 7 and the unknown field 900.
    let bytes = [0x08, 0x07, 0xa2, 0x38, 0x01, 0x00];
    let request = decode::<v1::Request>(&bytes).expect("well-formed");
    assert_eq!(request.sequence, 7);
    assert!(matches!(request.require_operation(), Err(Refusal::Invalid { field: "operation", .. })));
}

#[test]
fn missing_or_unknown_values_are_refused_with_the_name_of_the_field() {
    let held = |held: v1::LeaseRef| Operation::Release(held);
    let named = |token: String, number| v1::LeaseRef {
        selector: Some(v1::lease_ref::Selector::Resource("jobs/a".into())),
        token_number: number,
        token,
        holder: None,
    };
    let good = token("jobs/a", 9).to_string();
    let acquire = v1::Acquire { resource: "a".into(), ..Default::default() };
    let table: Vec<(&str, Operation)> = vec![
        ("lease", Operation::Renew(v1::Renew::default())),
        ("lease", Operation::Put(v1::Put::default())),
        ("lease", held(v1::LeaseRef { token_number: 1, ..Default::default() })),
        ("token_number", held(named(good.clone(), 8))),
        ("access", Operation::Acquire(v1::Acquire { access: 99, ..acquire.clone() })),
        ("units", Operation::Acquire(v1::Acquire { units: 3, ..acquire.clone() })),
        (
            "priority",
            Operation::Acquire(v1::Acquire {
                options: Some(v1::AcquireOptions { priority: Some(256), ..Default::default() }),
                ..acquire.clone()
            }),
        ),
        ("resource", Operation::Revoke(v1::Revoke::default())),
        (
            "reason",
            Operation::Revoke(v1::Revoke {
                selector: Some(v1::revoke::Selector::Lease(0)),
                reason: 0,
                ..Default::default()
            }),
        ),
        (
            "reason",
            Operation::Revoke(v1::Revoke {
                selector: Some(v1::revoke::Selector::Lease(0)),
                reason: -1,
                ..Default::default()
            }),
        ),
        ("session", Operation::Cancel(v1::Cancel::default())),
        ("session", Operation::RenewSession(v1::RenewSession::default())),
        ("delivery", Operation::Delivery(v1::DeliveryCommand::default())),
        ("cache", Operation::Cache(v1::CacheCommand::default())),
        ("charter", Operation::SetCharter(Box::default())),
        (
            "handoff.mode",
            Operation::SetCharter(Box::new(v1::SetCharter {
                charter: Some(v1::Charter { handoff: Some(v1::HandoffTerms::default()), ..Default::default() }),
                ..Default::default()
            })),
        ),
    ];
    for (field, ask) in table {
        match DecodedCommand::decode(&ask, &CALLER) {
            Err(Refusal::Invalid { field: named, .. }) => assert_eq!(named, field, "{ask:?}"),
            other => panic!("{ask:?}: {other:?}"),
        }
    }
}

#[test]
fn a_presented_token_is_validated() {
    let ask = |token: &str, number| {
        Operation::Check(v1::LeaseRef {
            selector: Some(v1::lease_ref::Selector::Resource("jobs/a".into())),
            token_number: number,
            token: token.into(),
            holder: None,
        })
    };
    let refused = |ask: &Operation| DecodedCommand::decode(ask, &CALLER).map(|_| ()).unwrap_err();
    let good = token("jobs/a", 9);
    assert!(DecodedCommand::decode(&ask(&good.to_string(), 0), &CALLER).is_ok());
    assert!(DecodedCommand::decode(&ask(&good.to_string(), 9), &CALLER).is_ok(), "the same token twice is one token");
    assert!(DecodedCommand::decode(&ask("", 9), &CALLER).is_ok());
    assert_eq!(refused(&ask("", 0)), Refusal::Token(TokenError::Absent));
    assert_eq!(refused(&ask("", 1 << 63)), Refusal::Token(TokenError::TooLarge));
    assert_eq!(refused(&ask("lh1-x", 0)), Refusal::Token(TokenError::Shape));
    assert_eq!(refused(&ask(&token("jobs/b", 9).to_string(), 0)), Refusal::Token(TokenError::Resource));
    let foreign = leasehold_core::token::Token { cluster: leasehold_core::token::Cluster(*b"elsewher"), ..good };
    assert_eq!(refused(&ask(&foreign.to_string(), 0)), Refusal::Token(TokenError::WrongCluster));
}

#[test]
fn the_token_in_a_request_and_the_highest_one_seen_both_reach_the_core() {
    let (low, high) = (token("jobs/a", 9), token("jobs/b", 10));
    let tokens = |inside: &leasehold_core::token::Token, seen| {
        let ask = Operation::ObserveToken(v1::ObserveToken { token: inside.to_string(), resource: String::new() });
        let request = leasehold_wire::core_request(1, &ask, None, seen, &ISSUER);
        (request.observed, request.presented)
    };
    assert_eq!(tokens(&high, Some(low)), (Some(low), Some(high)));
    assert_eq!(tokens(&low, Some(high)), (Some(high), Some(low)), "a lower one may be lost");
    assert_eq!(tokens(&low, None), (None, Some(low)));
}

#[test]
fn a_stream_only_accepts_its_own_session() {
    let (own, other) = (SessionId { slot: 3, reuse: 1 }, SessionId { slot: 4, reuse: 0 });
    let caller = CommandContext { session: Some(own), ..CALLER };
    let close =
        |session: Option<SessionId>| Operation::CloseSession(v1::CloseSession { session: session.map(session_bits) });
    for fine in [None, Some(own)] {
        let ask = close(fine);
        let decoded = DecodedCommand::decode(&ask, &caller).expect("its own");
        assert!(format!("{:?}", decoded.command()).contains("slot: 3, reuse: 1"));
    }
    let refused = DecodedCommand::decode(&close(Some(other)), &caller).map(|_| ()).unwrap_err();
    assert!(matches!(refused, Refusal::Invalid { field: "session", .. }), "{refused:?}");
}

#[test]
fn a_hello_of_another_version_is_refused_with_both_versions() {
    let open = v1::hello::Session::Open(v1::OpenSession { holder: "w".into(), ttl_ms: 1_000, waits_only: false });
    let hello = v1::Hello { protocol: 1, session: Some(open), ..Default::default() };
    assert!(decode_hello(&hello, [1; 32].into(), &ISSUER).is_ok());
    for protocol in [0, 2, u32::MAX] {
        let other = v1::Hello { protocol, ..hello.clone() };
        let problem = decode_hello(&other, [1; 32].into(), &ISSUER).unwrap_err();
        assert_eq!(problem.code, "UNSUPPORTED_VERSION");
        assert_eq!((problem.have, problem.want), (Some(protocol), Some(1)));
    }
    let critical = v1::Hello { required_features: vec!["sealed".into()], ..hello.clone() };
    let problem = decode_hello(&critical, [1; 32].into(), &ISSUER).unwrap_err();
    assert_eq!((problem.code.as_str(), problem.field.as_str()), ("UNSUPPORTED_VERSION", "required_features"));
    let silent = v1::Hello { session: None, ..hello.clone() };
    assert_eq!(decode_hello(&silent, [1; 32].into(), &ISSUER).unwrap_err().field, "session");
    let resume = v1::ResumeSession { session: 0, secret: vec![0; 31] };
    let short = v1::Hello { session: Some(v1::hello::Session::Resume(resume)), ..hello };
    assert_eq!(decode_hello(&short, [1; 32].into(), &ISSUER).unwrap_err().field, "secret");
}

#[test]
fn the_reply_to_a_batch_of_renewals_keeps_its_order() {
    let batch = v1::RenewBatch { sequence: 5, leases: vec![1 << 32, 2 << 32, 3 << 32], token_numbers: vec![7, 0, 9] };
    let read: Vec<_> = decode_renewals(&batch, None).expect("as many of each").collect();
    assert_eq!(read.len(), 3);
    assert_eq!(read[0].as_ref().map(|renew| renew.lease.number.get()), Ok(7));
    assert_eq!(read[1].as_ref().map(|_| ()), Err(&Refusal::Token(TokenError::Zero)));

    let mut reply = RenewBatchReply::new(5, 3);
    let current = |number, remaining_ms, drain_ms| {
        let number = leasehold_core::token::Number::new(number).expect("a number");
        Answer::Current(leasehold_core::command::CurrentLease { number, remaining_ms, drain_ms, overlaps_ms: None })
    };
    reply.record(2, 9, &current(9, 300, Some(50)));
    reply.record(0, 7, &current(7, 10_000, None));
    assert!(!reply.is_complete());
    reply.record(1, 0, &Answer::Refused(Refusal::NotCurrent(NotCurrent::Superseded)));
    assert!(reply.is_complete());
    let reply = reply.into_message();
    assert_eq!((reply.sequence, reply.remaining_ms), (5, vec![10_000, 0, 0]));
    let [drains, refused] = &reply.details[..] else { panic!("two details expected: {:?}", reply.details) };
    assert_eq!((drains.index, refused.index), (2, 1));
    let Some(v1::renew_detail::Outcome::Refused(refusal)) = &refused.outcome else { panic!("{refused:?}") };
    let problem = refusal.problem();
    assert_eq!((problem.code.as_str(), problem.reason.as_str()), ("NOT_CURRENT", "superseded"));

    let uneven = v1::RenewBatch { sequence: 1, leases: vec![1], token_numbers: vec![] };
    assert!(matches!(decode_renewals(&uneven, None).map(|_| ()), Err(Refusal::Invalid { field: "token_numbers", .. })));
    let many = vec![1; MAX_RENEWALS + 1];
    let many = v1::RenewBatch { sequence: 1, leases: many.clone(), token_numbers: many };
    assert!(matches!(decode_renewals(&many, None).map(|_| ()), Err(Refusal::Invalid { field: "leases", .. })));
}
