//! What is said is heard: every command, answer and event survives the way there and back.

use leasehold_core::command::{Answer, Current, Event, Grant, SessionGrant};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Reason, Rung};
use leasehold_core::payload::{cache, delivery};
use leasehold_core::refusal::{Cycle, Member};
use leasehold_core::time::Millis;
use leasehold_core::token::{Number, Reach, Token};
use leasehold_wire::json::CharterBody;
use leasehold_wire::{
    Asked, answer, ask, charter, digest, event, heard, lease_bits, lease_id, read_charter, read_event, session_bits,
    session_id, v1,
};
use proptest::option;
use proptest::prelude::*;
use prost::Message;

use crate::support::{CALLER, ISSUER, any_ask, text};

fn number() -> impl Strategy<Value = Number> + Clone {
    crate::support::number().prop_map(|raw| Number::new(raw).expect("a number"))
}

fn lease() -> impl Strategy<Value = LeaseId> + Clone {
    (any::<u32>(), any::<u32>()).prop_map(|(slot, reuse)| LeaseId { slot, reuse })
}

fn session() -> impl Strategy<Value = SessionId> {
    (any::<u32>(), any::<u32>()).prop_map(|(slot, reuse)| SessionId { slot, reuse })
}

fn reach() -> impl Strategy<Value = Reach> {
    prop_oneof![any::<u32>().prop_map(Reach::Slot), Just(Reach::Shared), Just(Reach::Units)]
}

fn rung() -> impl Strategy<Value = Rung> {
    prop::sample::select(vec![Rung::Session, Rung::Quorum, Rung::Issuer])
}

fn grant() -> impl Strategy<Value = Grant> {
    let counts = (any::<u32>(), any::<bool>());
    (lease(), number(), reach(), any::<[u64; 3]>(), rung(), option::of(any::<u64>()), counts).prop_map(
        |(lease, number, reach, [ttl_ms, remaining_ms, drain_ms], rung, overlaps_ms, (depth, rotates))| Grant {
            lease,
            number,
            reach,
            ttl_ms,
            remaining_ms,
            rung,
            drain_ms,
            overlaps_ms,
            depth,
            rotates,
        },
    )
}

fn current() -> impl Strategy<Value = Current> {
    (number(), any::<u64>(), option::of(any::<u64>()), option::of(any::<u64>())).prop_map(
        |(number, remaining_ms, drain_ms, overlaps_ms)| Current { number, remaining_ms, drain_ms, overlaps_ms },
    )
}

fn delivered() -> impl Strategy<Value = delivery::Answer> {
    let body = prop::collection::vec(any::<u8>(), 0..30);
    let one = (any::<u64>(), number(), any::<u32>(), body, any::<u64>()).prop_map(
        |(item, receipt, attempt, body, remaining_ms)| delivery::Delivery {
            item,
            receipt,
            attempt,
            body: body.into(),
            remaining_ms,
        },
    );
    prop_oneof![
        any::<u64>().prop_map(|item| delivery::Answer::Enqueued { item }),
        prop::collection::vec(one, 0..4).prop_map(delivery::Answer::Received),
        any::<u64>().prop_map(|remaining_ms| delivery::Answer::Extended { remaining_ms }),
        Just(delivery::Answer::Acked),
        any::<bool>().prop_map(|dead| delivery::Answer::Returned { dead }),
        Just(delivery::Answer::Redriven),
        Just(delivery::Answer::Dropped),
    ]
}

fn cached() -> impl Strategy<Value = cache::Answer> {
    prop_oneof![
        (any::<u64>(), number(), any::<u64>()).prop_map(|(version, lease, remaining_ms)| cache::Answer::Reading {
            version,
            lease,
            remaining_ms
        }),
        Just(cache::Answer::Dropped),
        (number(), any::<u32>(), any::<u64>()).prop_map(|(intent, waiting_for, until)| cache::Answer::Intended {
            intent,
            waiting_for,
            until: Millis(until)
        }),
        any::<u64>().prop_map(|version| cache::Answer::Committed { version }),
        Just(cache::Answer::Aborted),
        (number(), any::<u64>()).prop_map(|(token, remaining_ms)| cache::Answer::Fill { token, remaining_ms }),
        any::<u64>().prop_map(|remaining_ms| cache::Answer::Wait { remaining_ms }),
        any::<u64>().prop_map(|version| cache::Answer::Filled { version }),
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
        delivered().prop_map(|told| Answer::Delivery(Box::new(told))),
        cached().prop_map(|told| Answer::Cache(Box::new(told))),
    ]
}

fn any_event() -> impl Strategy<Value = Event> {
    let member = (text(), text()).prop_map(|(holder, waits_for)| Member { holder, waits_for });
    let cycle = (prop::collection::vec(member, 0..4), any::<u64>())
        .prop_map(|(members, length)| Event::Deadlock(Box::new(Cycle { members, length })));
    prop_oneof![
        (lease(), number()).prop_map(|(lease, number)| Event::Granted { lease, number }),
        (lease(), number(), prop::sample::select(Reason::ALL.to_vec()))
            .prop_map(|(lease, number, reason)| Event::Ended { lease, number, reason }),
        (lease(), any::<u64>()).prop_map(|(lease, until)| Event::Draining { lease, until: Millis(until) }),
        lease().prop_map(|lease| Event::Drained { lease }),
        (text(), number()).prop_map(|(key, lease)| Event::Invalidate { key, lease }),
        (text(), number()).prop_map(|(key, intent)| Event::Clear { key, intent }),
        text().prop_map(|queue| Event::Ready { queue }),
        cycle,
        number().prop_map(|shown| Event::RolledBack { shown }),
    ]
}

proptest! {
    #[test]
    fn a_command_is_the_message_it_came_in(asked in any_ask(), sequence in any::<u64>()) {
        let sent = v1::Request { sequence, ask: Some(asked) };
        let received = leasehold_wire::codec::read::<v1::Request>(&sent.encode_to_vec()).expect("just written");
        prop_assert_eq!(&received, &sent);
        let asked = received.asked().expect("it asks something");
        let read = Asked::read(asked, &CALLER).expect("a well-behaved client's");
        let again = ask(&read.command());
        prop_assert_eq!(again.as_ref(), Some(asked));
    }

    #[test]
    fn another_body_has_another_digest(one in any_ask(), other in any_ask()) {
        prop_assert_eq!(digest(&one) == digest(&other), one == other);
    }

    #[test]
    fn an_answer_is_heard_as_it_was_given(given in any_answer()) {
        let told = answer(&given, &ISSUER, |_| "jobs/settle");
        let sent = v1::Response { sequence: 1, answer: Some(told) };
        let received = v1::Response::decode(&*sent.encode_to_vec()).expect("just written");
        let told = received.answer.expect("it answers");
        prop_assert_eq!(heard(&told), Ok(Ok(given)));
    }

    #[test]
    fn a_grant_carries_the_token_that_fences_take(given in grant()) {
        let told = leasehold_wire::grant(&given, &ISSUER, "jobs/settle", "worker-1");
        let token = Token::parse(&told.token).expect("a token");
        prop_assert_eq!((token.number, token.reach), (given.number, given.reach));
        prop_assert_eq!(token.resource, leasehold_core::name::resource_hash("jobs/settle"));
        prop_assert_eq!(ISSUER.read(&told.token), Ok(token));
    }

    #[test]
    fn an_event_is_heard_as_it_happened(happened in any_event()) {
        let told = event(&happened, 9, "jobs/settle", "worker-1");
        let received = v1::Event::decode(&*told.encode_to_vec()).expect("just written");
        prop_assert_eq!(read_event(&received), Ok(happened));
    }

    #[test]
    fn ids_are_numbers_and_back(id in lease(), other in session()) {
        prop_assert_eq!(lease_id(lease_bits(id)), id);
        prop_assert_eq!(session_id(session_bits(other)), other);
    }

    #[test]
    fn a_charter_is_the_same_in_every_writing(written in crate::support::charter()) {
        let read = read_charter(&written).expect("well-formed");
        prop_assert_eq!(&charter(&read), &written);
        let json = serde_json::to_vec(&CharterBody::from(&read)).expect("a body is JSON");
        let body: CharterBody = leasehold_wire::json::read(&json).expect("just written");
        prop_assert_eq!(body.read(), Ok(read));
    }
}
