//! A sequenced request is forwarded once.

use crate::service::{HeldAction, TestResponse, TestService, with_token};

async fn send(service: &TestService, number: u64, sequence: u64, path: &str) -> TestResponse {
    let body = format!("{number}/{sequence}");
    service.send(with_token(number, path).header("lease-sequence", sequence.to_string()), &body).await
}

fn is_duplicate(response: &TestResponse) -> bool {
    response.headers.contains_key("lease-applied") && response.json()["already_applied"] == true
}

#[tokio::test]
async fn a_duplicate_gets_a_response_and_is_not_applied() {
    let service = TestService::new();
    for (sequence, duplicate) in [(1, false), (2, false), (2, true), (1, true), (7, false), (3, true)] {
        let response = send(&service, 33, sequence, "/now").await;
        assert_eq!(response.status, 200);
        assert_eq!(response.headers.contains_key("lease-applied"), duplicate, "{sequence}");
        assert!(!duplicate || is_duplicate(&response), "{sequence}");
    }
    assert_eq!(service.applied(), ["33/1", "33/2", "33/7"]);
    assert_eq!(
        send(&service, 34, 1, "/now").await.body.as_deref(),
        Ok(&b"done"[..]),
        "a new token starts its own sequences"
    );
    assert_eq!(send(&service, 33, 8, "/now").await.code().as_deref(), Some("STALE_TOKEN"));
    assert_eq!(service.fence.metrics().duplicates, 3);
}

#[tokio::test]
async fn a_request_that_the_service_rejected_can_be_sent_again_with_its_sequence() {
    let service = TestService::new();
    assert_eq!(send(&service, 33, 1, "/fails").await.status, 500);
    assert_eq!(send(&service, 33, 1, "/now").await.body.as_deref(), Ok(&b"done"[..]));
    assert!(is_duplicate(&send(&service, 33, 1, "/now").await));
    assert_eq!(service.applied(), ["33/1"]);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_of_a_request_in_flight_waits_for_it() {
    let mut service = TestService::new();
    let first = service.spawn_send(with_token(33, "/held").header("lease-sequence", "1"), "first");
    let release = service.held.recv().await.expect("it is in flight");
    let second = service.spawn_send(with_token(33, "/now").header("lease-sequence", "1"), "second");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!second.is_finished());
    release.send(HeldAction::Apply).expect("it is waiting");
    first.await.expect("a response");
    assert!(is_duplicate(&second.await.expect("a response")));
    assert_eq!(service.applied(), ["first"]);
}

#[tokio::test(start_paused = true)]
async fn after_an_unknown_outcome_the_same_sequence_is_indeterminate_and_a_higher_one_continues() {
    let mut service = TestService::new();
    let first = service.spawn_send(with_token(33, "/held").header("lease-sequence", "1"), "first");
    service.held.recv().await.expect("it is in flight").send(HeldAction::Break).expect("it is waiting");
    first.await.expect("a response");
    let again = send(&service, 33, 1, "/now").await;
    assert_eq!((again.status.as_u16(), again.json()["code"].as_str()), (504, Some("INDETERMINATE")));
    assert_eq!(send(&service, 33, 2, "/now").await.code(), None);
    assert!(is_duplicate(&send(&service, 33, 1, "/now").await), "lower sequences are complete, or abandoned");
    assert_eq!(service.applied(), ["33/2"]);
}

#[tokio::test(start_paused = true)]
async fn the_last_sequence_and_its_outcome_survive_a_restart() {
    let service = TestService::new();
    assert_eq!(send(&service, 33, 1, "/now").await.code(), None);
    assert_eq!(send(&service, 33, 2, "/now").await.code(), None);
    let mut service = service.restart();
    assert!(is_duplicate(&send(&service, 33, 1, "/now").await));
    assert!(is_duplicate(&send(&service, 33, 2, "/now").await));
    let third = service.spawn_send(with_token(33, "/held").header("lease-sequence", "3"), "third");
    let _then = service.held.recv().await.expect("it is in flight");
    third.abort();
    assert!(third.await.expect_err("aborted").is_cancelled());
    let service = service.restart();
    assert_eq!(
        send(&service, 33, 3, "/now").await.code().as_deref(),
        Some("INDETERMINATE"),
        "it may have been applied"
    );
    assert_eq!(send(&service, 33, 4, "/now").await.code(), None);
    assert_eq!(service.applied(), ["33/4"]);
}

/// Statuses with which a gateway or a service says that it does not know whether the request was applied.
#[tokio::test(start_paused = true)]
async fn after_a_response_that_does_not_know_the_outcome_the_sequence_is_indeterminate_and_higher_tokens_wait() {
    for path in ["/status/502", "/status/504", "/grpc-status/1", "/grpc-status/4"] {
        let service = TestService::new();
        send(&service, 33, 1, path).await;
        assert_eq!(service.applied(), ["33/1"], "{path}: the service was applying it");
        let again = send(&service, 33, 1, "/now").await;
        assert_eq!(again.code().as_deref(), Some("INDETERMINATE"), "{path}");
        assert_eq!(service.applied(), ["33/1"], "{path}: applied once");
        let began = tokio::time::Instant::now();
        assert_eq!(service.claim(34).await.code().as_deref(), Some("UNAVAILABLE"), "{path}: it may still be applied");
        tokio::time::sleep(crate::service::TIMEOUTS.settle_time).await;
        assert_eq!(service.claim(34).await.code(), None, "{path}: after {:?}", began.elapsed());
    }
    for path in ["/status/500", "/status/503", "/status/409", "/grpc-status/9", "/grpc-status/14"] {
        let service = TestService::new();
        send(&service, 33, 1, path).await;
        assert_eq!(send(&service, 33, 1, "/now").await.code(), None, "{path}: it was not applied");
        assert_eq!(service.claim(34).await.code(), None, "{path}");
    }
}
