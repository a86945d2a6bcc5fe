//! Queues on the test server: stale receipts, failing workers and ended sessions.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::lease::EndReason;

use super::{MessageQueue, QueueStats, ReceivedMessage, SendOptions};
use crate::blocking::block_on;
use crate::recipes::wait_until;
use crate::testing::TestServer;
use crate::{Client, Code, Error, RequestError};

const VISIBLE: Duration = Duration::from_secs(3);

fn mail(client: &Client) -> MessageQueue {
    client.queue("mail").visibility(VISIBLE)
}

fn take(queue: &MessageQueue) -> Option<ReceivedMessage> {
    block_on(queue.receive(1)).expect("the server replies").pop()
}

fn counts(queue: &MessageQueue) -> QueueStats {
    block_on(queue.stats()).expect("the server replies")
}

fn refused<T>(result: Result<T, RequestError<T>>) -> Error {
    match result {
        Ok(_) => panic!("the request was not refused"),
        Err(failure) => failure.into_error(),
    }
}

#[test]
fn a_stale_receipt_deletes_nothing() {
    let server = TestServer::new();
    let (one, two) = (server.client("w1"), server.client("w2"));
    let (one, two) = (mail(&one), mail(&two));
    block_on(one.send(b"pay 5")).expect("the server accepts it");
    let late = take(&one).expect("one message is ready");
    server.advance(VISIBLE + VISIBLE);
    assert!(late.remaining().is_zero(), "the worker knows by its own clock");
    let current = take(&two).expect("the message was returned");
    assert_eq!((current.body(), current.attempt()), (&b"pay 5"[..], 2));
    assert!(current.receipt() > late.receipt());
    assert_eq!(refused(block_on(late.ack())).code(), Some(Code::StaleToken));
    assert_eq!(
        counts(&one),
        QueueStats { in_flight: 1, ..QueueStats::default() },
        "the message is with the other worker"
    );
    block_on(current.ack()).expect("the receipt is current");
    assert_eq!(counts(&one), QueueStats::default());
}

#[test]
fn an_ack_after_the_visibility_is_refused_even_before_another_delivery() {
    let server = TestServer::new();
    let queue = mail(&server.client("w1"));
    block_on(queue.send(b"a")).expect("the server accepts it");
    let late = take(&queue).expect("one message is ready");
    server.advance(VISIBLE);
    let error = refused(block_on(late.ack()));
    assert_eq!(error.end_reason(), Some(EndReason::Ttl));
    assert_eq!(counts(&queue), QueueStats { ready: 1, ..QueueStats::default() });
}

#[test]
fn a_message_out_of_attempts_is_a_dead_letter_and_can_be_redriven() {
    let server = TestServer::new();
    let queue = mail(&server.client("w1"));
    let how = SendOptions::new().max_attempts(2);
    let item = block_on(queue.send_with(b"poison", how)).expect("the server accepts it");
    let first = take(&queue).expect("one message is ready");
    assert!(!block_on(first.nack(Duration::ZERO)).expect("the receipt is current"));
    let second = take(&queue).expect("the message was returned");
    assert_eq!(second.attempt(), 2);
    assert!(block_on(second.nack(Duration::ZERO)).expect("the receipt is current"), "this was the last attempt");
    assert!(take(&queue).is_none(), "a dead message is not delivered");
    let dead = block_on(queue.dead_letters(0)).expect("the server replies");
    assert_eq!((dead.len(), dead[0].id, &dead[0].body[..], dead[0].attempts), (1, item, &b"poison"[..], 2));
    assert!(
        block_on(queue.dead_letters(item)).expect("the server replies").is_empty(),
        "there is no further dead letter"
    );
    block_on(queue.redrive(item)).expect("the message is dead");
    assert_eq!(take(&queue).expect("the message was redriven").attempt(), 1);
    wait_until(|| counts(&queue).ready == 1);
    drop(take(&queue));
    wait_until(|| counts(&queue).dead == 1);
    block_on(queue.discard(item)).expect("the message is dead");
    assert_eq!(refused(block_on(queue.discard(item))).code(), Some(Code::NotFound));
    assert_eq!(counts(&queue), QueueStats::default());
}

#[test]
fn a_slow_worker_extends_its_message_and_there_is_no_duplicate() {
    let server = TestServer::new();
    let (one, two) = (mail(&server.client("w1")), mail(&server.client("w2")));
    block_on(one.send(b"a")).expect("the server accepts it");
    let slow = take(&one).expect("one message is ready");
    for _ in 0..4 {
        server.advance(VISIBLE / 2);
        block_on(slow.extend(VISIBLE)).expect("the receipt is current");
        assert!(take(&two).is_none(), "the message is with the first worker");
    }
    block_on(slow.ack()).expect("the receipt is current");
    assert_eq!(counts(&one), QueueStats::default());
}

#[test]
fn work_whose_message_cannot_be_extended_is_stopped() {
    let server = TestServer::new();
    let client = server.client("w1");
    let queue = mail(&client);
    block_on(queue.send(b"a")).expect("the server accepts it");
    let one = take(&queue).expect("one message is ready");
    server.partition(&client);
    server.advance(VISIBLE);
    let stopped = block_on(one.run(std::future::pending::<()>())).expect_err("the message cannot be extended");
    assert_eq!(stopped.end_reason(), Some(EndReason::Ttl));
}

#[test]
fn a_dropped_message_is_returned_immediately() {
    let server = TestServer::new();
    let queue = mail(&server.client("w1"));
    block_on(queue.send(b"a")).expect("the server accepts it");
    drop(take(&queue).expect("one message is ready"));
    wait_until(|| counts(&queue).ready == 1);
    assert_eq!(take(&queue).expect("the clock did not advance").attempt(), 2);
}

#[test]
fn a_dropped_receive_returns_its_messages() {
    let server = TestServer::new();
    let client = server.client("w1");
    let queue = mail(&client);
    block_on(queue.send(b"a")).expect("the server accepts it");
    {
        let mut receiving = pin!(queue.receive(1));
        server.pause(&client);
        assert!(receiving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "there is no reply yet");
        server.resume(&client);
        wait_until(|| counts(&queue).in_flight == 1);
    }
    wait_until(|| counts(&queue).ready == 1);
    assert_eq!(take(&queue).expect("the message was returned").attempt(), 2);
}

#[test]
fn a_delayed_message_is_received_after_its_delay() {
    let server = TestServer::new();
    let queue = mail(&server.client("w1"));
    let how = SendOptions::new().delay(Duration::from_secs(5));
    block_on(queue.send_with(b"later", how)).expect("the server accepts it");
    assert_eq!(counts(&queue), QueueStats { delayed: 1, ..QueueStats::default() });
    server.advance(Duration::from_millis(4_900));
    assert!(take(&queue).is_none());
    server.advance(Duration::from_millis(200));
    let one = take(&queue).expect("the delay has passed");
    assert!(!block_on(one.nack(Duration::from_secs(5))).expect("the receipt is current"));
    assert!(take(&queue).is_none(), "the message is returned after the delay");
    server.advance(Duration::from_secs(6));
    assert_eq!(take(&queue).expect("the delay has passed again").attempt(), 2);
}

#[test]
fn messages_of_a_lost_worker_are_returned_with_its_session() {
    let server = TestServer::new();
    let (lost_client, other) = (server.client("w1"), server.client("w2"));
    let (queue, others) = (lost_client.queue("mail").visibility(Duration::from_secs(300)), mail(&other));
    block_on(queue.send(b"a")).expect("the server accepts it");
    let lost = take(&queue).expect("one message is ready");
    server.partition(&lost_client);
    server.advance(Duration::from_secs(61));
    let one = take(&others).expect("the session ends long before the visibility");
    server.heal(&lost_client);
    server.advance(Duration::from_secs(2));
    assert_eq!(refused(block_on(lost.ack())).code(), Some(Code::StaleToken));
    block_on(one.ack()).expect("the receipt is current");
}

#[test]
fn an_invalid_queue_name_is_refused_without_a_request() {
    let server = TestServer::new();
    let queue = server.client("w1").queue("//");
    let error = block_on(queue.receive(1)).expect_err("the name is invalid");
    assert_eq!(error.code(), Some(Code::InvalidArgument));
}

#[test]
fn a_message_expires_with_its_session() {
    let server = TestServer::new();
    let session = Duration::from_secs(10);
    let one = server.client_with(|client| client.holder("w1").session_ttl(session));
    let queue = one.queue("mail").visibility(12 * session);
    block_on(queue.send(b"a")).expect("the server accepts it");
    let first = take(&queue).expect("one message is ready");
    let polls = Cell::new(0);
    let mut keep = pin!(first.run(poll_fn(|_| {
        polls.set(polls.get() + 1);
        Poll::<()>::Pending
    })));
    let mut context = Context::from_waker(Waker::noop());
    assert!(keep.as_mut().poll(&mut context).is_pending());
    server.partition(&one);
    server.advance(session + Duration::from_secs(2));
    assert!(take(&mail(&server.client("w2"))).is_some(), "the message was returned with its session");
    assert!(first.remaining().is_zero(), "the worker knows by its own clock");
    assert!(matches!(keep.as_mut().poll(&mut context), Poll::Ready(Err(_))));
    assert_eq!(polls.get(), 1, "the work was not polled after the deadline");
}

#[test]
fn work_with_a_message_is_not_polled_after_its_deadline() {
    let server = TestServer::new();
    let one = server.client("w1");
    let queue = mail(&one);
    block_on(queue.send(b"a")).expect("the server accepts it");
    let first = take(&queue).expect("one message is ready");
    let polls = Cell::new(0);
    let mut keep = pin!(first.run(poll_fn(|_| {
        polls.set(polls.get() + 1);
        Poll::<()>::Pending
    })));
    let mut context = Context::from_waker(Waker::noop());
    assert!(keep.as_mut().poll(&mut context).is_pending());
    // The worker that would wake the task at the deadline is paused; the task is polled for another reason.
    server.pause(&one);
    server.advance(VISIBLE + VISIBLE);
    assert!(take(&mail(&server.client("w2"))).is_some(), "another worker has the message");
    assert!(matches!(keep.as_mut().poll(&mut context), Poll::Ready(Err(_))));
    assert_eq!(polls.get(), 1, "the work was not polled after the deadline");
    server.resume(&one);
}

#[test]
fn a_waiting_worker_is_notified_and_does_not_poll() {
    let server = TestServer::new();
    let (one, two) = (server.client("w1"), server.client("w2"));
    let queue = mail(&one);
    let mut next = pin!(queue.recv());
    let mut context = Context::from_waker(Waker::noop());
    assert!(next.as_mut().poll(&mut context).is_pending());
    server.advance(Duration::from_millis(100));
    assert!(next.as_mut().poll(&mut context).is_pending(), "the queue is empty");
    server.advance(Duration::from_millis(100));
    block_on(mail(&two).send(b"a")).expect("the server accepts it");
    // The clock does not advance: only the notification can deliver it.
    let until = std::time::Instant::now() + Duration::from_secs(60);
    let got = loop {
        match next.as_mut().poll(&mut context) {
            Poll::Ready(got) => break got.expect("the server replies"),
            Poll::Pending => assert!(std::time::Instant::now() < until, "the worker was not notified"),
        }
        std::thread::yield_now();
    };
    assert_eq!(got.body(), b"a");
}
