//! What the desk remembers, and when it forgets.

use leasehold_core::command::{Grant, RequestId, SessionGrant};
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::Rung;
use leasehold_core::token::{Number, Reach};

use super::*;

fn asked(session: u32, sequence: u64) -> Request {
    let session = SessionId { slot: session, reuse: 0 };
    Request { id: Some(RequestId { session, sequence, lowest: 1, digest: 0 }), ..Request::tagged(0) }
}

fn nothing() -> Body {
    Body::Ask(Box::new(v1::request::Ask::ShowToken(v1::ShowToken::default())))
}

fn waits(desk: &mut Desk, mark: u64) {
    desk.tell(Reply { to: mark, answer: Answer::Waiting { position: 1 } });
}

fn answers(items: Items) -> Vec<(u64, Answer)> {
    let answer = |item| match item {
        Item::Answer(number, told) => (number, told.answer),
        other => panic!("{other:?}"),
    };
    items.list.into_iter().map(answer).collect()
}

#[test]
fn a_wait_that_is_asked_for_again_and_again_takes_one_place() {
    let mut desk = Desk::new(Arc::default());
    let mut last = 0;
    for _ in 0..100 {
        let (to, _) = oneshot::channel();
        last = desk.one(To::Caller(to), &asked(1, 7), nothing());
        waits(&mut desk, last);
        assert_eq!(desk.waiting(), 1);
    }
    desk.tell(Reply { to: last, answer: Answer::Done });
    assert_eq!(desk.waiting(), 0);
    assert!(desk.waits.is_empty());
}

#[tokio::test]
async fn whoever_asks_again_hears_the_end_and_the_earlier_ones_hear_that_they_will_not() {
    let mut desk = Desk::new(Arc::default());
    let (caller, told) = oneshot::channel();
    let first = desk.one(To::Caller(caller), &asked(1, 7), nothing());
    waits(&mut desk, first);
    let streams = [Arc::new(Outbox::default()), Arc::new(Outbox::default())];
    for outbox in &streams {
        for _ in 0..2 {
            let mark = desk.one(To::Stream(outbox.clone(), 7), &asked(1, 7), nothing());
            waits(&mut desk, mark);
        }
    }
    told.await.expect_err("nobody answers the first");
    let last = desk.waits.values().copied().next().expect("one listens");
    desk.tell(Reply { to: last, answer: Answer::Done });
    let conflict = || Answer::Refused(Refusal::Conflict(What::Request));
    let before = answers(streams[0].take().await.expect("told"));
    let now = answers(streams[1].take().await.expect("told"));
    assert!(matches!(before[..], [(7, Answer::Waiting { .. }), (7, Answer::Waiting { .. }), (7, _)]), "{before:?}");
    assert_eq!(before[2].1, conflict());
    assert!(
        matches!(now[..], [(7, Answer::Waiting { .. }), (7, Answer::Waiting { .. }), (7, Answer::Done)]),
        "{now:?}"
    );
    assert_eq!(desk.waiting(), 0);
}

#[test]
fn another_body_under_the_id_of_a_wait_leaves_the_wait_alone() {
    let mut desk = Desk::new(Arc::default());
    let (caller, mut told) = oneshot::channel();
    let waiting = desk.one(To::Caller(caller), &asked(1, 7), nothing());
    waits(&mut desk, waiting);
    let (other, mut refused) = oneshot::channel();
    let mark = desk.one(To::Caller(other), &asked(1, 7), nothing());
    desk.tell(Reply { to: mark, answer: Answer::Refused(Refusal::Conflict(What::Request)) });
    assert!(refused.try_recv().is_ok());
    desk.tell(Reply { to: waiting, answer: Answer::Done });
    assert_eq!(told.try_recv().expect("it was told").answer, Answer::Done);
    assert_eq!(desk.waiting(), 0);
}

#[test]
fn sessions_whose_connection_is_gone_are_forgotten() {
    let mut desk = Desk::new(Arc::default());
    let open = |slot| {
        let session = SessionId { slot, reuse: 0 };
        Answer::Session(SessionGrant { session, ttl_ms: 1, remaining_ms: 1, mismatch: false })
    };
    let stays = Arc::new(Outbox::default());
    for slot in 0..100_000 {
        let outbox = if slot == 0 { stays.clone() } else { Arc::new(Outbox::default()) };
        let body = Body::Open(v1::OpenSession::default(), [0; 32]);
        let mark = desk.one(To::Stream(outbox.clone(), 0), &Request::tagged(0), body);
        desk.tell(Reply { to: mark, answer: open(slot) });
        desk.ring();
        if slot > 0 {
            outbox.close();
        }
        assert!(desk.sessions.len() <= SESSIONS_LEAST, "{}", desk.sessions.len());
    }
    assert!(desk.sessions.contains_key(&SessionId { slot: 0, reuse: 0 }));
}

#[test]
fn renewing_another_session_does_not_draw_its_events_here() {
    let mut desk = Desk::new(Arc::default());
    let session = SessionId { slot: 3, reuse: 0 };
    let grant = || Answer::Session(SessionGrant { session, ttl_ms: 1, remaining_ms: 1, mismatch: false });
    let (owner, other) = (Arc::new(Outbox::default()), Arc::new(Outbox::default()));
    let body = Body::Open(v1::OpenSession::default(), [0; 32]);
    let mark = desk.one(To::Stream(owner.clone(), 0), &Request::tagged(0), body);
    desk.tell(Reply { to: mark, answer: grant() });
    let mark = desk.one(To::Stream(other, 1), &asked(4, 1), nothing());
    desk.tell(Reply { to: mark, answer: grant() });
    assert!(Arc::ptr_eq(&desk.sessions[&session], &owner));
}

#[test]
fn a_grant_that_nobody_can_hear_of_is_given_back() {
    let inbox = Arc::new(Inbox::default());
    let mut desk = Desk::new(inbox.clone());
    let grant = Grant {
        lease: LeaseId { slot: 1, reuse: 0 },
        number: Number::FIRST,
        reach: Reach::Slot(0),
        ttl_ms: 1,
        remaining_ms: 1,
        rung: Rung::Session,
        drain_ms: 1,
        overlaps_ms: None,
        depth: 1,
        rotates: false,
    };
    let given_back = |inbox: &Inbox| {
        let mut drained = crate::inbox::Drained::default();
        inbox.drain(&mut drained);
        drained.given_back.len()
    };
    for (request, expected) in [(Request::tagged(0), 1), (asked(1, 7), 0)] {
        for gone_before in [true, false] {
            let (to, told) = oneshot::channel();
            let mut told = Some(told).filter(|_| !gone_before);
            let mark = desk.one(To::Caller(to), &request, nothing());
            desk.tell(Reply { to: mark, answer: Answer::Granted(grant) });
            drop(told.take());
            assert_eq!(given_back(&inbox), expected, "what has an id is asked for again");
        }
    }
    let (to, told) = oneshot::channel();
    let mark = desk.one(To::Caller(to), &Request::tagged(0), nothing());
    desk.tell(Reply { to: mark, answer: Answer::Granted(grant) });
    told.blocking_recv().expect("told").unheard.expect("it can be given back").heard();
    assert_eq!(given_back(&inbox), 0, "what was heard is held");
}
