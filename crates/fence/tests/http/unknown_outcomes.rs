//! An unknown outcome blocks higher tokens for the settle time; a known one does not.

use std::time::Duration;

use tokio::time::Instant;

use crate::service::{HeldAction, TIMEOUTS, TestService, with_token};

/// Retries a claim of 34 until it succeeds, and returns the time it took.
async fn claim_until_admitted(service: &TestService) -> Duration {
    let began = Instant::now();
    loop {
        let response = service.claim(34).await;
        match response.code().as_deref() {
            None => return began.elapsed(),
            Some("UNAVAILABLE") => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_to_the_target_blocks_higher_tokens_for_the_settle_time() {
    let mut service = TestService::new();
    let old = service.spawn_send(with_token(33, "/held"), "old");
    service.held.recv().await.expect("it is in flight").send(HeldAction::Break).expect("it is waiting");
    old.await.expect("a response");
    assert_eq!(service.fence.gate_statuses()[0].closed_for, TIMEOUTS.settle_time);
    assert_eq!(service.write(33, "same token").await.code(), None);
    let waited = claim_until_admitted(&service).await;
    assert!(waited >= TIMEOUTS.settle_time && waited < TIMEOUTS.settle_time + Duration::from_secs(1), "{waited:?}");
    assert_eq!(service.fence.metrics().unknown, 1);
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_caller_blocks_higher_tokens_for_the_settle_time() {
    let mut service = TestService::new();
    let old = service.spawn_send(with_token(33, "/held"), "old");
    let release = service.held.recv().await.expect("it is in flight");
    old.abort();
    assert!(old.await.expect_err("aborted").is_cancelled());
    assert!(release.is_closed(), "the request is dropped");
    let waited = claim_until_admitted(&service).await;
    assert!(waited >= TIMEOUTS.settle_time && waited < TIMEOUTS.settle_time + Duration::from_secs(1), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_not_sent_blocks_nothing() {
    let mut service = TestService::new();
    let old = service.spawn_send(with_token(33, "/held"), "old");
    service.held.recv().await.expect("it is in flight").send(HeldAction::NotSent).expect("it is waiting");
    old.await.expect("a response");
    assert_eq!(claim_until_admitted(&service).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_error_response_of_the_target_is_a_known_outcome() {
    let service = TestService::new();
    assert_eq!(service.send(with_token(33, "/fails"), "").await.status, 500);
    assert_eq!(claim_until_admitted(&service).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_response_is_aborted_and_the_claim_succeeds_within_the_limit() {
    let mut service = TestService::new();
    let began = Instant::now();
    let old = service.spawn_send(with_token(33, "/held"), "old");
    let release = service.held.recv().await.expect("it is in flight");
    claim_until_admitted(&service).await;
    let waited = began.elapsed();
    let bound = TIMEOUTS.max_request_time + TIMEOUTS.settle_time;
    assert!(waited >= bound && waited < bound + Duration::from_secs(1), "{waited:?}");
    assert!(release.is_closed(), "it was aborted");
    assert_eq!(old.await.expect("a response").code().as_deref(), Some("INDETERMINATE"));
    assert_eq!(service.applied(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_in_flight_while_its_response_is_streamed() {
    let mut service = TestService::new();
    let old = service.spawn_send(with_token(33, "/streams"), "");
    let stream = service.streams.recv().await.expect("a stream");
    stream.send("one").expect("the response continues");
    assert_eq!(service.claim(34).await.code().as_deref(), Some("UNAVAILABLE"));
    stream.send("two").expect("the response continues");
    drop(stream);
    assert_eq!(old.await.expect("a response").body.as_deref(), Ok(&b"onetwo"[..]));
    assert_eq!(claim_until_admitted(&service).await, Duration::ZERO);
    assert_eq!(service.applied(), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn an_endless_response_is_aborted() {
    let mut service = TestService::new();
    let old = service.spawn_send(with_token(33, "/streams"), "");
    let stream = service.streams.recv().await.expect("a stream");
    stream.send("one").expect("the response continues");
    let began = Instant::now();
    claim_until_admitted(&service).await;
    assert!(began.elapsed() <= TIMEOUTS.max_request_time + TIMEOUTS.settle_time + Duration::from_secs(1));
    let body = old.await.expect("a response").body;
    assert!(body.as_ref().is_err_and(|error| error.contains("exceeded its maximum time")), "{body:?}");
    assert!(stream.send("two").is_err(), "the stream is closed");
}
