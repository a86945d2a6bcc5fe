//! The lanes have ends: single callers are sent away, streams are read no further, and nothing is lost.

use std::sync::Arc;

use leasehold_core::command::Request;
use leasehold_core::ids::LeaseId;
use leasehold_core::token::{Cluster, Incarnation};
use leasehold_wire::{Caller, Issuer, v1};
use tokio::sync::oneshot;

use super::*;
use crate::desk::To;

fn ask(bytes: usize) -> Ask {
    let issuer = Issuer { cluster: Cluster([1; 8]), incarnation: Incarnation(1) };
    let body = v1::delivery::Ask::Enqueue(v1::Enqueue { body: vec![0; bytes], ..Default::default() });
    let ask = v1::request::Ask::Delivery(v1::Delivery { queue: "q".into(), ask: Some(body) });
    let (to, _) = oneshot::channel();
    Ask::new(Request::tagged(0), Body::Ask(Box::new(ask)), Caller { session: None, issuer }, To::Caller(to))
}

fn renewals(count: usize) -> Renewals {
    let lease = LeaseId { slot: 1, reuse: 0 };
    let session = SessionId { slot: 1, reuse: 0 };
    Renewals { to: Arc::default(), session, number: 1, leases: vec![(lease, 1); count] }
}

#[test]
fn large_requests_fill_the_inbox_sooner() {
    for (bytes, most) in [(0, WAITING), (64 << 10, 64 << 20 >> 16)] {
        let inbox = Inbox::default();
        let taken = (0..=WAITING).take_while(|_| inbox.ask(ask(bytes)).is_ok()).count();
        assert!(taken <= most && taken * 10 > most * 9, "{taken} of {bytes} bytes");
        assert_eq!(inbox.ask(ask(bytes)), Err(NotTaken::Full));
        let mut drained = Drained::default();
        inbox.drain(&mut drained);
        assert_eq!(inbox.ask(ask(bytes)), Ok(()), "there is room again");
    }
}

fn renewal() -> Ask {
    let issuer = Issuer { cluster: Cluster([1; 8]), incarnation: Incarnation(1) };
    let body = Body::Ask(Box::new(v1::request::Ask::Renew(v1::Renew::default())));
    let (to, _) = oneshot::channel();
    Ask::new(Request::tagged(0), body, Caller { session: None, issuer }, To::Caller(to))
}

#[tokio::test]
async fn single_renewals_pass_a_flood_of_requests() {
    let inbox = Inbox::default();
    while inbox.ask(ask(0)).is_ok() {}
    assert_eq!(inbox.ask(renewal()), Ok(()), "there is room for renewals");
    assert_eq!(inbox.ask_all(vec![renewal(), renewal()]).await, Ok(()));
    let mut drained = Drained::default();
    inbox.drain(&mut drained);
    assert_eq!((drained.first.len(), drained.asks.len()), (3, TURN_ASKS), "the first turn has them");
    assert_eq!(inbox.renewals.available_permits(), RENEWALS);
}

#[test]
fn all_room_comes_back() {
    let inbox = Inbox::default();
    for round in 0..3 {
        let mut drained = Drained::default();
        for i in 0..10_000 {
            inbox.ask(ask(i * 7 % 3_000)).expect("there is room");
        }
        while {
            inbox.drain(&mut drained);
            !drained.asks.is_empty()
        } {
            // What a turn leaves over was counted once.
            let left = drained.asks.len() / 2;
            drained.asks.truncate(left);
        }
        assert_eq!(inbox.room.available_permits(), WAITING, "round {round}");
    }
}

#[tokio::test]
async fn a_stream_waits_for_room_and_is_never_refused() {
    let inbox = Arc::new(Inbox::default());
    for _ in 0..RENEWALS / 8_192 {
        inbox.renew(renewals(8_192)).await.expect("there is room");
    }
    while inbox.ask(ask(60_000)).is_ok() {}
    let waits = [
        tokio::spawn({
            let inbox = inbox.clone();
            async move { inbox.renew(renewals(8_192)).await }
        }),
        tokio::spawn({
            let inbox = inbox.clone();
            async move { inbox.ask_all((0..4).map(|_| ask(60_000)).collect()).await }
        }),
    ];
    tokio::task::yield_now().await;
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    let mut drained = Drained::default();
    inbox.drain(&mut drained);
    assert_eq!(drained.renewals.len(), RENEWALS / 8_192);
    for wait in waits {
        assert_eq!(wait.await.expect("no panic"), Ok(()));
    }
    assert!(!inbox.lanes().renewals.is_empty() && inbox.lanes().asks.len() == 4);
}

#[tokio::test]
async fn a_closed_inbox_takes_nothing_and_keeps_nobody_waiting() {
    let inbox = Arc::new(Inbox::default());
    while inbox.ask(ask(60_000)).is_ok() {}
    let wait = tokio::spawn({
        let inbox = inbox.clone();
        async move { inbox.ask_all(vec![ask(60_000)]).await }
    });
    tokio::task::yield_now().await;
    let left = inbox.close();
    assert!(!left.asks.is_empty());
    assert_eq!(wait.await.expect("no panic"), Err(NotTaken::Stopping));
    assert_eq!(inbox.ask(ask(0)), Err(NotTaken::Stopping));
    assert_eq!(inbox.renew(renewals(1)).await, Err(NotTaken::Stopping));
    assert!(inbox.close().is_empty());
}
