//! The delivery recipe: no message is lost with a worker or a server, and stale receipts delete nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::Code;
use leasehold::recipes::delivery::{QueueStats, SendOptions};
use leasehold_testkit::tcp_proxy::TcpProxy;

use crate::support::Server;
use crate::{client, client_at, until, within_timeout};

/// Long enough for a busy machine.
const VISIBLE: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_stale_receipt_deletes_nothing_and_the_message_is_acknowledged_once() {
    let server = Server::start();
    let (one, two) = (client(&server, "one"), client(&server, "two"));
    let hasty = one.queue("mail").visibility(Duration::from_millis(200));
    hasty.send(b"pay 5").await.expect("the queue accepts it");
    let late = within_timeout(hasty.recv()).await.expect("the server responds");
    // The visibility is not extended, so the message is delivered again.
    let current = within_timeout(two.queue("mail").recv()).await.expect("the server responds");
    assert_eq!((current.id(), current.attempt()), (late.id(), 2));
    let error = late.ack().await.expect_err("the message was delivered again").into_error();
    assert_eq!(error.code(), Some(Code::StaleToken));
    assert_eq!(hasty.stats().await.expect("the server responds").in_flight, 1);
    current.ack().await.expect("the receipt is current");
    assert_eq!(hasty.stats().await.expect("the server responds"), QueueStats::default());
}

#[tokio::test]
async fn visibility_is_extended_while_the_work_runs() {
    let server = Server::start();
    let queue = client(&server, "one").queue("mail").visibility(VISIBLE);
    queue.send(b"long").await.expect("the queue accepts it");
    let message = within_timeout(queue.recv()).await.expect("the server responds");
    let work = async {
        // An increase of the remaining time is an extension.
        for _ in 0..2 {
            let mut remaining = message.remaining();
            until(async || std::mem::replace(&mut remaining, message.remaining()) < message.remaining()).await;
        }
    };
    within_timeout(message.run(work)).await.expect("the visibility is extended");
    assert_eq!(message.attempt(), 1);
    message.ack().await.expect("the receipt is current");
}

#[tokio::test]
async fn failed_workers_and_a_server_crash_lose_no_message_and_no_attempt_count() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    let address = proxy.address().to_string();
    let (one, two) = (client_at(&address, "one"), client_at(&address, "two"));
    let (queue, other) = (one.queue("mail"), two.queue("mail"));
    let options = SendOptions::new().max_attempts(3);
    let mut items = BTreeMap::new();
    for at in 0..5_u8 {
        items.insert(queue.send_with(&[at], options).await.expect("the queue accepts it"), at);
    }
    for message in within_timeout(queue.receive(5)).await.expect("the server responds") {
        assert!(!message.nack(Duration::ZERO).await.expect("the receipt is current"));
    }
    let held = within_timeout(queue.receive(5)).await.expect("the server responds");
    assert!(held.len() == 5 && held.iter().all(|message| message.attempt() == 2));
    let server = server.crash_and_restart();
    proxy.set_upstream(&server.address);
    // A closing client returns its messages long before their visibility ends.
    one.close().await.expect("the server responds");
    until(async || other.stats().await.is_ok_and(|counts| counts.ready == 5)).await;
    for message in within_timeout(other.receive(5)).await.expect("the server responds") {
        assert_eq!((message.attempt(), items.get(&message.id())), (3, Some(&message.body()[0])));
        if message.body() == [3] {
            assert!(message.nack(Duration::ZERO).await.expect("the receipt is current"), "this was the last attempt");
        } else {
            message.ack().await.expect("the receipt is current");
        }
    }
    let dead = other.dead_letters(0).await.expect("the server responds");
    assert_eq!(dead.iter().map(|letter| (&letter.body[..], letter.attempts)).collect::<Vec<_>>(), [(&[3][..], 3)]);
    other.discard(dead[0].id).await.expect("the dead letter exists");
    assert_eq!(other.stats().await.expect("the server responds"), QueueStats::default());
}

#[tokio::test]
async fn a_delayed_message_is_received_after_its_delay() {
    let server = Server::start();
    let queue = client(&server, "one").queue("mail");
    let options = SendOptions::new().delay(Duration::from_millis(300));
    let later = queue.send_with(b"later", options).await.expect("the queue accepts it");
    let now = queue.send(b"now").await.expect("the queue accepts it");
    for item in [now, later] {
        let message = within_timeout(queue.recv()).await.expect("the server responds");
        assert_eq!(message.id(), item);
        message.ack().await.expect("the receipt is current");
    }
}
