//! Queues over real connections: nothing is lost with a worker or a server, and no old receipt deletes.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::Code;
use leasehold::recipes::delivery::{Counts, Sending};

use crate::support::Server;
use crate::way::Way;
use crate::{client, client_at, soon, until};

/// Long enough for a machine that does other things too.
const VISIBLE: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_stale_receipt_deletes_nothing_and_the_message_is_done_once() {
    let server = Server::start();
    let (one, two) = (client(&server, "one"), client(&server, "two"));
    let hasty = one.queue("mail").visibility(Duration::from_millis(200));
    hasty.send(b"pay 5").await.expect("there is room");
    let late = soon(hasty.next()).await.expect("the server answers");
    // Nobody extends it, so that it comes back.
    let current = soon(two.queue("mail").next()).await.expect("the server answers");
    assert_eq!((current.item(), current.attempt()), (late.item(), 2));
    let error = late.ack().await.expect_err("it was handed out again").into_error();
    assert_eq!(error.code(), Some(Code::StaleToken));
    assert_eq!(hasty.counts().await.expect("the server answers").live, 1);
    current.ack().await.expect("the receipt is current");
    assert_eq!(hasty.counts().await.expect("the server answers"), Counts::default());
}

#[tokio::test]
async fn a_message_is_kept_for_as_long_as_its_work_takes() {
    let server = Server::start();
    let queue = client(&server, "one").queue("mail").visibility(VISIBLE);
    queue.send(b"long").await.expect("there is room");
    let message = soon(queue.next()).await.expect("the server answers");
    let work = async {
        // Time that was left and becomes more was given anew.
        for _ in 0..2 {
            let mut left = message.left();
            until(async || std::mem::replace(&mut left, message.left()) < message.left()).await;
        }
    };
    soon(message.keep(work)).await.expect("it is extended meanwhile");
    assert_eq!(message.attempt(), 1);
    message.ack().await.expect("the receipt is current");
}

#[tokio::test]
async fn workers_that_fail_and_a_server_that_is_killed_lose_no_message_and_no_count_of_attempts() {
    let server = Server::start();
    let way = Way::to(&server.address).await;
    let (one, two) = (client_at(&way.address, "one"), client_at(&way.address, "two"));
    let (queue, other) = (one.queue("mail"), two.queue("mail"));
    let how = Sending { attempts: Some(3), ..Sending::default() };
    let mut items = BTreeMap::new();
    for at in 0..5_u8 {
        items.insert(queue.send_with(&[at], how).await.expect("there is room"), at);
    }
    for message in soon(queue.receive(5)).await.expect("the server answers") {
        assert!(!message.nack(Duration::ZERO).await.expect("the receipt is current"));
    }
    let held = soon(queue.receive(5)).await.expect("the server answers");
    assert!(held.len() == 5 && held.iter().all(|message| message.attempt() == 2));
    let server = server.again();
    way.leads_to(&server.address);
    // A process that goes gives back what it had, long before the visibility is over.
    one.close().await.expect("the server hears it");
    until(async || other.counts().await.is_ok_and(|counts| counts.ready == 5)).await;
    for message in soon(other.receive(5)).await.expect("the server answers") {
        assert_eq!((message.attempt(), items.get(&message.item())), (3, Some(&message.body()[0])));
        if message.body() == [3] {
            assert!(message.nack(Duration::ZERO).await.expect("the receipt is current"), "that was the last attempt");
        } else {
            message.ack().await.expect("the receipt is current");
        }
    }
    let dead = other.dead_letters(0).await.expect("the server answers");
    assert_eq!(dead.iter().map(|letter| (&letter.body[..], letter.attempts)).collect::<Vec<_>>(), [(&[3][..], 3)]);
    other.discard(dead[0].item).await.expect("it is dead");
    assert_eq!(other.counts().await.expect("the server answers"), Counts::default());
}

#[tokio::test]
async fn a_delayed_message_is_received_when_its_time_has_come() {
    let server = Server::start();
    let queue = client(&server, "one").queue("mail");
    let how = Sending { delay: Duration::from_millis(300), ..Sending::default() };
    let later = queue.send_with(b"later", how).await.expect("there is room");
    let now = queue.send(b"now").await.expect("there is room");
    for item in [now, later] {
        let message = soon(queue.next()).await.expect("the server answers");
        assert_eq!(message.item(), item);
        message.ack().await.expect("the receipt is current");
    }
}
