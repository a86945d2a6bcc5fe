//! Slots, wait listeners and session connections of pending replies.

use leasehold_core::command::{Grant, RequestId, SessionGrant};
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::Validity;
use leasehold_core::token::{Number, TokenScope};
use tokio::sync::oneshot;

use super::*;
use crate::identity::current_or_local;
use crate::request::OutboxBatch;
use crate::request_queue::{RequestQueue, TurnInputs};

fn queue() -> Arc<RequestQueue> {
    Arc::default()
}

fn request(session: u32, sequence: u64) -> Request<'static> {
    let session = SessionId { slot: session, reuse: 0 };
    Request { id: Some(RequestId { session, sequence, lowest: 1, digest: 0 }), ..Request::tagged(0) }
}

fn body() -> RequestPayload {
    RequestPayload::Operation(Box::new(v1::request::Operation::ObserveToken(v1::ObserveToken::default())))
}

fn reply_waiting(pending: &mut PendingReplies, slot: u64) {
    pending.deliver(Reply { tag: slot, answer: Answer::Waiting { position: 1 } });
}

fn answers(batch: OutboxBatch) -> Vec<(u64, Answer)> {
    let answer = |item| match item {
        Outgoing::Answer(number, reply) => (number, reply.answer),
        other => panic!("{other:?}"),
    };
    batch.items.into_iter().map(answer).collect()
}

#[test]
fn a_wait_that_is_retried_many_times_takes_one_slot() {
    let mut pending = PendingReplies::new(queue());
    let mut last = 0;
    for _ in 0..100 {
        let (to, _) = oneshot::channel();
        last = pending.register(ReplyTo::Caller(to), &request(1, 7), body(), current_or_local(), Instant::now());
        reply_waiting(&mut pending, last);
        assert_eq!(pending.len(), 1);
    }
    pending.deliver(Reply { tag: last, answer: Answer::Done });
    assert_eq!(pending.len(), 0);
    assert!(pending.wait_listeners.is_empty());
}

#[tokio::test]
async fn the_last_retry_receives_the_outcome_and_earlier_listeners_receive_a_conflict() {
    let mut pending = PendingReplies::new(queue());
    let (caller, reply) = oneshot::channel();
    let first = pending.register(ReplyTo::Caller(caller), &request(1, 7), body(), current_or_local(), Instant::now());
    reply_waiting(&mut pending, first);
    let streams = [Arc::new(Outbox::default()), Arc::new(Outbox::default())];
    for outbox in &streams {
        for _ in 0..2 {
            let slot = pending.register(
                ReplyTo::Stream(outbox.clone(), 7),
                &request(1, 7),
                body(),
                current_or_local(),
                Instant::now(),
            );
            reply_waiting(&mut pending, slot);
        }
    }
    reply.await.expect_err("the first listener was replaced");
    let last = pending.wait_listeners.values().copied().next().expect("one listener");
    pending.deliver(Reply { tag: last, answer: Answer::Done });
    let conflict = || Answer::Refused(Refusal::Conflict(RefusalSubject::Request));
    let before = answers(streams[0].recv().await.expect("open"));
    let now = answers(streams[1].recv().await.expect("open"));
    assert!(matches!(before[..], [(7, Answer::Waiting { .. }), (7, Answer::Waiting { .. }), (7, _)]), "{before:?}");
    assert_eq!(before[2].1, conflict());
    assert!(
        matches!(now[..], [(7, Answer::Waiting { .. }), (7, Answer::Waiting { .. }), (7, Answer::Done)]),
        "{now:?}"
    );
    assert_eq!(pending.len(), 0);
}

#[test]
fn another_body_under_the_id_of_a_wait_does_not_affect_the_wait() {
    let mut pending = PendingReplies::new(queue());
    let (caller, mut reply) = oneshot::channel();
    let waiting = pending.register(ReplyTo::Caller(caller), &request(1, 7), body(), current_or_local(), Instant::now());
    reply_waiting(&mut pending, waiting);
    let (other, mut refused) = oneshot::channel();
    let slot = pending.register(ReplyTo::Caller(other), &request(1, 7), body(), current_or_local(), Instant::now());
    pending.deliver(Reply { tag: slot, answer: Answer::Refused(Refusal::Conflict(RefusalSubject::Request)) });
    assert!(refused.try_recv().is_ok());
    pending.deliver(Reply { tag: waiting, answer: Answer::Done });
    assert_eq!(reply.try_recv().expect("replied").answer, Answer::Done);
    assert_eq!(pending.len(), 0);
}

#[test]
fn sessions_of_closed_connections_are_swept() {
    let mut pending = PendingReplies::new(queue());
    let open = |number| {
        let session = SessionId { slot: number, reuse: 0 };
        Answer::Session(SessionGrant { session, ttl_ms: 1, remaining_ms: 1, mismatch: false })
    };
    let stays = Arc::new(Outbox::default());
    for number in 0..100_000 {
        let outbox = if number == 0 { stays.clone() } else { Arc::new(Outbox::default()) };
        let body = RequestPayload::Open(v1::OpenSession::default(), [0; 32].into());
        let slot = pending.register(
            ReplyTo::Stream(outbox.clone(), 0),
            &Request::tagged(0),
            body,
            current_or_local(),
            Instant::now(),
        );
        pending.deliver(Reply { tag: slot, answer: open(number) });
        pending.wake_connections();
        if number > 0 {
            outbox.close();
        }
        assert!(pending.session_outboxes.len() <= MIN_SWEEP, "{}", pending.session_outboxes.len());
    }
    assert!(pending.session_outboxes.contains_key(&SessionId { slot: 0, reuse: 0 }));
}

#[test]
fn renewing_a_session_of_another_connection_does_not_bind_it() {
    let mut pending = PendingReplies::new(queue());
    let session = SessionId { slot: 3, reuse: 0 };
    let grant = || Answer::Session(SessionGrant { session, ttl_ms: 1, remaining_ms: 1, mismatch: false });
    let (owner, other) = (Arc::new(Outbox::default()), Arc::new(Outbox::default()));
    let open = RequestPayload::Open(v1::OpenSession::default(), [0; 32].into());
    let slot = pending.register(
        ReplyTo::Stream(owner.clone(), 0),
        &Request::tagged(0),
        open,
        current_or_local(),
        Instant::now(),
    );
    pending.deliver(Reply { tag: slot, answer: grant() });
    let slot = pending.register(ReplyTo::Stream(other, 1), &request(4, 1), body(), current_or_local(), Instant::now());
    pending.deliver(Reply { tag: slot, answer: grant() });
    assert!(Arc::ptr_eq(&pending.session_outboxes[&session], &owner));
}

#[test]
fn a_grant_without_a_request_id_is_released_if_its_caller_disconnects() {
    let queue = queue();
    let mut pending = PendingReplies::new(queue.clone());
    let grant = Grant {
        lease: LeaseId { slot: 1, reuse: 0 },
        number: Number::FIRST,
        scope: TokenScope::Slot(0),
        ttl_ms: 1,
        remaining_ms: 1,
        validity: Validity::Session,
        drain_ms: 1,
        overlaps_ms: None,
        depth: 1,
        rotates: false,
    };
    let released = |queue: &RequestQueue| {
        let mut inputs = TurnInputs::default();
        queue.drain(&mut inputs);
        inputs.cancellations.undelivered_grants.len()
    };
    for (request, expected) in [(Request::tagged(0), 1), (request(1, 7), 0)] {
        for disconnected_before in [true, false] {
            let (to, reply) = oneshot::channel();
            let mut reply = Some(reply).filter(|_| !disconnected_before);
            let slot = pending.register(ReplyTo::Caller(to), &request, body(), current_or_local(), Instant::now());
            pending.deliver(Reply { tag: slot, answer: Answer::Granted(grant) });
            drop(reply.take());
            assert_eq!(released(&queue), expected, "a request with an id can be retried");
        }
    }
    let (to, reply) = oneshot::channel();
    let slot = pending.register(ReplyTo::Caller(to), &Request::tagged(0), body(), current_or_local(), Instant::now());
    pending.deliver(Reply { tag: slot, answer: Answer::Granted(grant) });
    reply.blocking_recv().expect("replied").undelivered.expect("guarded").delivered();
    assert_eq!(released(&queue), 0, "a delivered grant is kept");
}
