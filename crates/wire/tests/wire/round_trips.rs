//! Round trips: every command, answer, event and charter survives encoding and decoding.

use leasehold_core::command::{Answer, CurrentLease, Grant, SessionEvent, SessionGrant};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{EndReason, Validity};
use leasehold_core::payload::{cache, delivery};
use leasehold_core::refusal::{Cycle, CycleMember};
use leasehold_core::time::GrantorTime;
use leasehold_core::token::{Number, Token, TokenScope};
use leasehold_wire::json::CharterBody;
use leasehold_wire::{
    DecodedCommand, decode_answer, decode_charter, decode_event, encode_answer, encode_charter, encode_command,
    encode_event, lease_bits, lease_id, request_digest, session_bits, session_id, v1,
};
use proptest::option;
use proptest::prelude::*;
use prost::Message;

use crate::generators::{CALLER, ISSUER, any_operation, text};

fn number() -> impl Strategy<Value = Number> + Clone {
    crate::generators::number().prop_map(|raw| Number::new(raw).expect("a number"))
}

fn lease() -> impl Strategy<Value = LeaseId> + Clone {
    (any::<u32>(), any::<u32>()).prop_map(|(slot, reuse)| LeaseId { slot, reuse })
}

fn session() -> impl Strategy<Value = SessionId> {
    (any::<u32>(), any::<u32>()).prop_map(|(slot, reuse)| SessionId { slot, reuse })
}

fn scope() -> impl Strategy<Value = TokenScope> {
    prop_oneof![any::<u32>().prop_map(TokenScope::Slot), Just(TokenScope::Shared), Just(TokenScope::Units)]
}

fn validity() -> impl Strategy<Value = Validity> {
    prop::sample::select(vec![Validity::Session, Validity::Quorum, Validity::Issuer])
}

fn grant() -> impl Strategy<Value = Grant> {
    let counts = (any::<u32>(), any::<bool>());
    (lease(), number(), scope(), any::<[u64; 3]>(), validity(), option::of(any::<u64>()), counts).prop_map(
        |(lease, number, scope, [ttl_ms, remaining_ms, drain_ms], validity, overlaps_ms, (depth, rotates))| Grant {
            lease,
            number,
            scope,
            ttl_ms,
            remaining_ms,
            validity,
            drain_ms,
            overlaps_ms,
            depth,
            rotates,
        },
    )
}

fn current() -> impl Strategy<Value = CurrentLease> {
    (number(), any::<u64>(), option::of(any::<u64>()), option::of(any::<u64>())).prop_map(
        |(number, remaining_ms, drain_ms, overlaps_ms)| CurrentLease { number, remaining_ms, drain_ms, overlaps_ms },
    )
}

fn delivered() -> impl Strategy<Value = delivery::DeliveryAnswer> {
    let body = prop::collection::vec(any::<u8>(), 0..30);
    let one = (any::<u64>(), number(), any::<u32>(), body, any::<u64>()).prop_map(
        |(item, receipt, attempt, body, remaining_ms)| delivery::DeliveredMessage {
            item,
            receipt,
            attempt,
            body: body.into(),
            remaining_ms,
        },
    );
    prop_oneof![
        any::<u64>().prop_map(|item| delivery::DeliveryAnswer::Enqueued { item }),
        prop::collection::vec(one, 0..4).prop_map(delivery::DeliveryAnswer::Received),
        any::<u64>().prop_map(|remaining_ms| delivery::DeliveryAnswer::Extended { remaining_ms }),
        Just(delivery::DeliveryAnswer::Acked),
        any::<bool>().prop_map(|dead| delivery::DeliveryAnswer::Returned { dead }),
        Just(delivery::DeliveryAnswer::Redriven),
        Just(delivery::DeliveryAnswer::Dropped),
    ]
}

fn cached() -> impl Strategy<Value = cache::CacheAnswer> {
    prop_oneof![
        (any::<u64>(), number(), any::<u64>()).prop_map(|(version, lease, remaining_ms)| cache::CacheAnswer::Reading {
            version,
            lease,
            remaining_ms
        }),
        Just(cache::CacheAnswer::Dropped),
        (number(), any::<u32>(), any::<u64>()).prop_map(|(intent, waiting_for, until)| cache::CacheAnswer::Intended {
            intent,
            waiting_for,
            until: GrantorTime(until)
        }),
        any::<u64>().prop_map(|version| cache::CacheAnswer::Committed { version }),
        Just(cache::CacheAnswer::Aborted),
        (number(), any::<u64>()).prop_map(|(token, remaining_ms)| cache::CacheAnswer::Fill { token, remaining_ms }),
        any::<u64>().prop_map(|remaining_ms| cache::CacheAnswer::Wait { remaining_ms }),
        any::<u64>().prop_map(|version| cache::CacheAnswer::Filled { version }),
    ]
}

fn any_answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        Just(Answer::Done),
        (session(), any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(session, ttl_ms, remaining_ms, mismatch)| {
            Answer::Session(SessionGrant { session, ttl_ms, remaining_ms, mismatch })
        }),
        grant().prop_map(Answer::Granted),
        prop::collection::vec(grant(), 0..4).prop_map(|all| Answer::GrantedAll(all.into())),
        current().prop_map(Answer::Current),
        any::<u32>().prop_map(|position| Answer::Waiting { position }),
        any::<u64>().prop_map(Answer::CollectBelow),
        any::<u64>().prop_map(|revision| Answer::Stored { revision }),
        delivered().prop_map(|answer| Answer::Delivery(Box::new(answer))),
        cached().prop_map(|answer| Answer::Cache(Box::new(answer))),
    ]
}

fn any_event() -> impl Strategy<Value = SessionEvent> {
    let member = (text(), text()).prop_map(|(holder, waits_for)| CycleMember { holder, waits_for });
    let cycle = (prop::collection::vec(member, 0..4), any::<u64>())
        .prop_map(|(members, length)| SessionEvent::Deadlock(Box::new(Cycle { members, length })));
    prop_oneof![
        (lease(), number()).prop_map(|(lease, number)| SessionEvent::Granted { lease, number }),
        (lease(), number(), prop::sample::select(EndReason::ALL.to_vec()))
            .prop_map(|(lease, number, reason)| SessionEvent::Ended { lease, number, reason }),
        (lease(), any::<u64>()).prop_map(|(lease, until)| SessionEvent::Draining { lease, until: GrantorTime(until) }),
        lease().prop_map(|lease| SessionEvent::Drained { lease }),
        (text(), number()).prop_map(|(key, lease)| SessionEvent::Invalidate { key, lease }),
        (text(), number()).prop_map(|(key, intent)| SessionEvent::Clear { key, intent }),
        text().prop_map(|queue| SessionEvent::Ready { queue }),
        cycle,
        number().prop_map(|presented| SessionEvent::RolledBack { presented }),
    ]
}

proptest! {
    #[test]
    fn a_command_survives_a_round_trip(operation in any_operation(), sequence in any::<u64>()) {
        let sent = v1::Request { sequence, operation: Some(operation), alone: None, traceparent: None };
        let received = leasehold_wire::bounded_codec::decode::<v1::Request>(&sent.encode_to_vec()).expect("just written");
        prop_assert_eq!(&received, &sent);
        let operation = received.require_operation().expect("it has an operation");
        let decoded = DecodedCommand::decode(operation, &CALLER).expect("a valid operation");
        let again = encode_command(&decoded.command());
        prop_assert_eq!(again.as_ref(), Some(operation));
    }

    #[test]
    fn different_bodies_have_different_digests(one in any_operation(), other in any_operation()) {
        prop_assert_eq!(request_digest(&one) == request_digest(&other), one == other);
    }

    #[test]
    fn an_answer_survives_a_round_trip(given in any_answer()) {
        let encoded = encode_answer(&given, &ISSUER, |_| "jobs/settle", "worker-1");
        let sent = v1::Response { sequence: 1, answer: Some(encoded) };
        let received = v1::Response::decode(&*sent.encode_to_vec()).expect("just written");
        let answer = received.answer.expect("it has an answer");
        prop_assert_eq!(decode_answer(&answer), Ok(Ok(given)));
    }

    #[test]
    fn a_grant_carries_its_token(given in grant()) {
        let message = leasehold_wire::encode_grant(&given, &ISSUER, "jobs/settle", "worker-1");
        let token = Token::parse(&message.token).expect("a token");
        prop_assert_eq!((token.number, token.scope), (given.number, given.scope));
        prop_assert_eq!(token.resource, leasehold_core::name::resource_hash("jobs/settle"));
        prop_assert_eq!(ISSUER.parse_token(&message.token), Ok(token));
    }

    #[test]
    fn an_event_survives_a_round_trip(happened in any_event()) {
        let message = encode_event(&happened, 9, "jobs/settle", "worker-1");
        let received = v1::Event::decode(&*message.encode_to_vec()).expect("just written");
        prop_assert_eq!(decode_event(&received), Ok(happened));
    }

    #[test]
    fn ids_survive_a_round_trip(id in lease(), other in session()) {
        prop_assert_eq!(lease_id(lease_bits(id)), id);
        prop_assert_eq!(session_id(session_bits(other)), other);
    }

    #[test]
    fn a_charter_survives_a_round_trip_in_protobuf_and_json(written in crate::generators::charter()) {
        let read = decode_charter(&written).expect("well-formed");
        prop_assert_eq!(&encode_charter(&read), &written);
        let json = serde_json::to_vec(&CharterBody::from(&read)).expect("a body is JSON");
        let body: CharterBody = leasehold_wire::json::decode(&json).expect("just written");
        prop_assert_eq!(body.to_charter(), Ok(read));
    }
}
