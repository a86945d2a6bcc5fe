//! The mark is raised only when no request is in flight. The clock is paused: it advances when all tasks wait.

use std::time::Duration;

use leasehold_core::fence::Mark;
use tokio::time::Instant;

use crate::service::{HeldAction, TIMEOUTS, TestService, with_token};
use crate::support::number;

#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_requests_in_flight_and_later_ones_are_stale() {
    let mut service = TestService::new();
    let old = service.spawn_send(with_token(33, "/held"), "old");
    let release = service.held.recv().await.expect("it is in flight");
    let claim = service.spawn_send(with_token(34, "/-/claim"), "");
    tokio::time::sleep(TIMEOUTS.claim_timeout / 2).await;
    assert!(!claim.is_finished(), "the old request has no outcome yet");
    assert_eq!(service.fence.gate_statuses()[0].mark, Mark::Armed(number(33)));
    release.send(HeldAction::Apply).expect("it is waiting");
    assert_eq!(old.await.expect("a response").code(), None);
    assert_eq!(claim.await.expect("a response").code(), None);
    assert_eq!(service.write(33, "late").await.code().as_deref(), Some("STALE_TOKEN"));
    assert_eq!(service.write(34, "new").await.code(), None);
    assert_eq!(service.applied(), ["old", "new"]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_too_long_is_unavailable_and_changes_nothing() {
    let mut service = TestService::new();
    let old = service.spawn_send(with_token(33, "/held"), "old");
    let release = service.held.recv().await.expect("it is in flight");
    let began = Instant::now();
    let blocked = service.claim(34).await;
    assert_eq!(blocked.status, 503);
    assert_eq!(blocked.json()["code"], "UNAVAILABLE");
    assert!(
        blocked.json()["detail"].as_str().is_some_and(|detail| detail.starts_with("1 requests with a lower token"))
    );
    assert!(blocked.headers.contains_key("retry-after"));
    assert_eq!(began.elapsed().as_secs(), TIMEOUTS.claim_timeout.as_secs());
    assert_eq!(service.write(33, "continues").await.code(), None, "nothing changed");
    release.send(HeldAction::Apply).expect("it is waiting");
    assert_eq!(old.await.expect("a response").code(), None);
    assert_eq!(service.claim(34).await.code(), None);
    assert_eq!(service.fence.metrics().blocked, 1);
}

#[tokio::test(start_paused = true)]
async fn later_requests_with_lower_tokens_wait_behind_a_waiting_claim() {
    let mut service = TestService::new();
    let old = service.spawn_send(with_token(33, "/held"), "old");
    let release = service.held.recv().await.expect("it is in flight");
    let claim = service.spawn_send(with_token(34, "/-/claim"), "");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let late = service.spawn_send(with_token(33, "/now"), "late");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!late.is_finished() && !claim.is_finished());
    release.send(HeldAction::Apply).expect("it is waiting");
    assert_eq!(old.await.expect("a response").code(), None);
    assert_eq!(claim.await.expect("a response").code(), None);
    assert_eq!(late.await.expect("a response").code().as_deref(), Some("STALE_TOKEN"));
    assert_eq!(service.applied(), ["old"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_claim_lets_other_requests_continue() {
    let mut service = TestService::new();
    let old = service.spawn_send(with_token(33, "/held"), "old");
    let release = service.held.recv().await.expect("it is in flight");
    let claim = service.spawn_send(with_token(34, "/-/claim"), "");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waiting = service.spawn_send(with_token(33, "/now"), "waiting");
    tokio::time::sleep(Duration::from_secs(1)).await;
    claim.abort();
    assert_eq!(waiting.await.expect("a response").code(), None);
    release.send(HeldAction::Apply).expect("it is waiting");
    old.await.expect("a response");
    assert_eq!(service.applied(), ["waiting", "old"]);
}

#[tokio::test(start_paused = true)]
async fn of_two_waiting_tokens_the_higher_is_admitted_and_the_lower_is_stale() {
    let mut service = TestService::new();
    let old = service.spawn_send(with_token(33, "/held"), "old");
    let release = service.held.recv().await.expect("it is in flight");
    let lower = service.spawn_send(with_token(34, "/now"), "34");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let higher = service.spawn_send(with_token(35, "/now"), "35");
    tokio::time::sleep(Duration::from_secs(1)).await;
    release.send(HeldAction::Apply).expect("it is waiting");
    old.await.expect("a response");
    assert_eq!(higher.await.expect("a response").code(), None);
    assert_eq!(lower.await.expect("a response").code().as_deref(), Some("STALE_TOKEN"));
    assert_eq!(service.applied(), ["old", "35"]);
}

#[tokio::test(start_paused = true)]
async fn requests_with_the_same_token_are_in_flight_together() {
    let mut service = TestService::new();
    let first = service.spawn_send(with_token(33, "/held"), "first");
    let release = service.held.recv().await.expect("it is in flight");
    assert_eq!(service.write(33, "second").await.code(), None);
    assert_eq!(service.fence.gate_statuses()[0].in_flight, 1);
    release.send(HeldAction::Apply).expect("it is waiting");
    first.await.expect("a response");
    assert_eq!(service.applied(), ["second", "first"]);
}
