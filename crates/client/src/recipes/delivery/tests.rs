//! A queue in memory: what an old receipt cannot do, and what becomes of messages whose holders fail.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::lease::Reason;

use super::{Counts, Delivery, Queue, Sending};
use crate::blocking::block_on;
use crate::recipes::until;
use crate::testing::Grantor;
use crate::{Client, Code, Error, Failure, Options};

const VISIBLE: Duration = Duration::from_secs(3);

fn mail(client: &Client) -> Queue {
    client.queue("mail").visibility(VISIBLE)
}

fn take(queue: &Queue) -> Option<Delivery> {
    block_on(queue.receive(1)).expect("the queue answers").pop()
}

fn counts(queue: &Queue) -> Counts {
    block_on(queue.counts()).expect("the queue answers")
}

fn refused<T>(told: Result<T, Failure<T>>) -> Error {
    match told {
        Ok(_) => panic!("it was not refused"),
        Err(failure) => failure.into_error(),
    }
}

#[test]
fn a_stale_receipt_deletes_nothing() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("w1"), grantor.client("w2"));
    let (one, two) = (mail(&one), mail(&two));
    block_on(one.send(b"pay 5")).expect("there is room");
    let late = take(&one).expect("one message");
    grantor.advance(VISIBLE + VISIBLE);
    assert!(late.left().is_zero(), "its holder knows by its own clock");
    let current = take(&two).expect("it came back");
    assert_eq!((current.body(), current.attempt()), (&b"pay 5"[..], 2));
    assert!(current.receipt() > late.receipt());
    assert_eq!(refused(block_on(late.ack())).code(), Some(Code::StaleToken));
    assert_eq!(counts(&one), Counts { live: 1, ..Counts::default() }, "it is still with the other");
    block_on(current.ack()).expect("the receipt is current");
    assert_eq!(counts(&one), Counts::default());
}

#[test]
fn acking_after_the_time_ran_out_acks_nothing_before_anybody_else_has_it() {
    let grantor = Grantor::new();
    let queue = mail(&grantor.client("w1"));
    block_on(queue.send(b"a")).expect("there is room");
    let late = take(&queue).expect("one message");
    grantor.advance(VISIBLE);
    let error = refused(block_on(late.ack()));
    assert_eq!(error.lost(), Some(Reason::Ttl));
    assert_eq!(counts(&queue), Counts { ready: 1, ..Counts::default() });
}

#[test]
fn a_message_that_failed_too_often_is_a_dead_letter_and_can_be_brought_back() {
    let grantor = Grantor::new();
    let queue = mail(&grantor.client("w1"));
    let how = Sending { attempts: Some(2), ..Sending::default() };
    let item = block_on(queue.send_with(b"poison", how)).expect("there is room");
    let first = take(&queue).expect("one message");
    assert!(!block_on(first.nack(Duration::ZERO)).expect("the receipt is current"));
    let second = take(&queue).expect("it came back");
    assert_eq!(second.attempt(), 2);
    assert!(block_on(second.nack(Duration::ZERO)).expect("the receipt is current"), "that was the last attempt");
    assert!(take(&queue).is_none(), "what is dead is not handed out");
    let dead = block_on(queue.dead_letters(0)).expect("the queue answers");
    assert_eq!((dead.len(), dead[0].item, &dead[0].body[..], dead[0].attempts), (1, item, &b"poison"[..], 2));
    assert!(block_on(queue.dead_letters(item)).expect("the queue answers").is_empty(), "none after the last");
    block_on(queue.redrive(item)).expect("it is dead");
    assert_eq!(take(&queue).expect("it lives again").attempt(), 1);
    until(|| counts(&queue).ready == 1);
    drop(take(&queue));
    until(|| counts(&queue).dead == 1);
    block_on(queue.discard(item)).expect("it is dead");
    assert_eq!(refused(block_on(queue.discard(item))).code(), Some(Code::NotFound));
    assert_eq!(counts(&queue), Counts::default());
}

#[test]
fn a_worker_that_needs_longer_extends_and_nobody_gets_a_duplicate() {
    let grantor = Grantor::new();
    let (one, two) = (mail(&grantor.client("w1")), mail(&grantor.client("w2")));
    block_on(one.send(b"a")).expect("there is room");
    let slow = take(&one).expect("one message");
    for _ in 0..4 {
        grantor.advance(VISIBLE / 2);
        block_on(slow.extend(VISIBLE)).expect("the receipt is current");
        assert!(take(&two).is_none(), "it is still with the first");
    }
    block_on(slow.ack()).expect("the receipt is current");
    assert_eq!(counts(&one), Counts::default());
}

#[test]
fn work_that_cannot_keep_its_message_is_stopped() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let queue = mail(&client);
    block_on(queue.send(b"a")).expect("there is room");
    let one = take(&queue).expect("one message");
    grantor.partition(&client);
    grantor.advance(VISIBLE);
    let stopped = block_on(one.keep(std::future::pending::<()>())).expect_err("it cannot be kept");
    assert_eq!(stopped.lost(), Some(Reason::Ttl));
}

#[test]
fn what_is_dropped_goes_back_at_once() {
    let grantor = Grantor::new();
    let queue = mail(&grantor.client("w1"));
    block_on(queue.send(b"a")).expect("there is room");
    drop(take(&queue).expect("one message"));
    until(|| counts(&queue).ready == 1);
    assert_eq!(take(&queue).expect("no time has passed").attempt(), 2);
}

#[test]
fn a_receive_that_was_given_up_takes_nothing_with_it() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let queue = mail(&client);
    block_on(queue.send(b"a")).expect("there is room");
    {
        let mut receiving = pin!(queue.receive(1));
        grantor.pause(&client);
        assert!(receiving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "nobody answers yet");
        grantor.resume(&client);
        until(|| counts(&queue).live == 1);
    }
    until(|| counts(&queue).ready == 1);
    assert_eq!(take(&queue).expect("it came back").attempt(), 2);
}

#[test]
fn a_delayed_message_waits_for_its_time() {
    let grantor = Grantor::new();
    let queue = mail(&grantor.client("w1"));
    let how = Sending { delay: Duration::from_secs(5), ..Sending::default() };
    block_on(queue.send_with(b"later", how)).expect("there is room");
    assert_eq!(counts(&queue), Counts { delayed: 1, ..Counts::default() });
    grantor.advance(Duration::from_millis(4_900));
    assert!(take(&queue).is_none());
    grantor.advance(Duration::from_millis(200));
    let one = take(&queue).expect("its time has come");
    assert!(!block_on(one.nack(Duration::from_secs(5))).expect("the receipt is current"));
    assert!(take(&queue).is_none(), "it comes back after the delay");
    grantor.advance(Duration::from_secs(6));
    assert_eq!(take(&queue).expect("its time has come again").attempt(), 2);
}

#[test]
fn messages_of_a_holder_that_vanished_come_back_with_its_session() {
    let grantor = Grantor::new();
    let (gone, other) = (grantor.client("w1"), grantor.client("w2"));
    let (queue, others) = (gone.queue("mail").visibility(Duration::from_secs(300)), mail(&other));
    block_on(queue.send(b"a")).expect("there is room");
    let lost = take(&queue).expect("one message");
    grantor.partition(&gone);
    grantor.advance(Duration::from_secs(61));
    let one = take(&others).expect("the session is over long before the visibility");
    grantor.heal(&gone);
    grantor.advance(Duration::from_secs(2));
    assert_eq!(refused(block_on(lost.ack())).code(), Some(Code::StaleToken));
    block_on(one.ack()).expect("the receipt is current");
}

#[test]
fn a_wrong_name_is_refused_before_anybody_is_asked() {
    let grantor = Grantor::new();
    let queue = grantor.client("w1").queue("//");
    let error = block_on(queue.receive(1)).expect_err("that is no name");
    assert_eq!(error.code(), Some(Code::InvalidArgument));
}

#[test]
fn a_message_is_not_believed_after_the_session_that_received_it() {
    let grantor = Grantor::new();
    let session = Duration::from_secs(10);
    let one = grantor.client_with(Options { holder: Some("w1".into()), session, ..Options::default() });
    let queue = one.queue("mail").visibility(12 * session);
    block_on(queue.send(b"a")).expect("there is room");
    let first = take(&queue).expect("one message");
    let polls = Cell::new(0);
    let mut keep = pin!(first.keep(poll_fn(|_| {
        polls.set(polls.get() + 1);
        Poll::<()>::Pending
    })));
    let mut context = Context::from_waker(Waker::noop());
    assert!(keep.as_mut().poll(&mut context).is_pending());
    grantor.partition(&one);
    grantor.advance(session + Duration::from_secs(2));
    assert!(take(&mail(&grantor.client("w2"))).is_some(), "it went back with its session");
    assert!(first.left().is_zero(), "and its holder knows, by its own clock");
    assert!(matches!(keep.as_mut().poll(&mut context), Poll::Ready(Err(_))));
    assert_eq!(polls.get(), 1, "nothing was done after the time was over");
}

#[test]
fn work_with_a_message_is_not_gone_on_with_after_its_time_whatever_wakes_it() {
    let grantor = Grantor::new();
    let one = grantor.client("w1");
    let queue = mail(&one);
    block_on(queue.send(b"a")).expect("there is room");
    let first = take(&queue).expect("one message");
    let polls = Cell::new(0);
    let mut keep = pin!(first.keep(poll_fn(|_| {
        polls.set(polls.get() + 1);
        Poll::<()>::Pending
    })));
    let mut context = Context::from_waker(Waker::noop());
    assert!(keep.as_mut().poll(&mut context).is_pending());
    // The thread that would ring at the deadline stands still; the task is woken by something of its own.
    grantor.pause(&one);
    grantor.advance(VISIBLE + VISIBLE);
    assert!(take(&mail(&grantor.client("w2"))).is_some(), "another has it");
    assert!(matches!(keep.as_mut().poll(&mut context), Poll::Ready(Err(_))));
    assert_eq!(polls.get(), 1, "nothing was done after the time was over");
    grantor.resume(&one);
}

#[test]
fn whoever_waits_for_a_message_is_told_of_it_and_does_not_ask_again_and_again() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("w1"), grantor.client("w2"));
    let queue = mail(&one);
    let mut next = pin!(queue.next());
    let mut context = Context::from_waker(Waker::noop());
    assert!(next.as_mut().poll(&mut context).is_pending());
    grantor.advance(Duration::from_millis(100));
    assert!(next.as_mut().poll(&mut context).is_pending(), "it found nothing, and stands idle");
    grantor.advance(Duration::from_millis(100));
    block_on(mail(&two).send(b"a")).expect("there is room");
    // No time passes: only the word can bring it.
    let until = std::time::Instant::now() + Duration::from_secs(60);
    let got = loop {
        match next.as_mut().poll(&mut context) {
            Poll::Ready(got) => break got.expect("the queue answers"),
            Poll::Pending => assert!(std::time::Instant::now() < until, "it was not told"),
        }
        std::thread::yield_now();
    };
    assert_eq!(got.body(), b"a");
}
