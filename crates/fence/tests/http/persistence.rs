//! The mark survives the process, and so does the information that requests may have been in flight.

use leasehold_core::fence::Mark;
use leasehold_fence::file::FencedLog;
use leasehold_fence::http::Rules;
use tokio::time::Instant;

use crate::service::{TIMEOUTS, TestService, with_token};
use crate::support::{fence_id, number};

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_with_known_outcomes_no_token_waits() {
    let service = TestService::new();
    assert_eq!(service.write(33, "old").await.code(), None);
    assert!(service.fence.record_settled().expect("written"));
    let service = service.restart();
    assert_eq!(service.fence.gate_statuses()[0].mark, Mark::Armed(number(33)));
    assert_eq!(service.write(32, "late").await.code().as_deref(), Some("STALE_TOKEN"));
    let began = Instant::now();
    assert_eq!(service.claim(34).await.code(), None);
    assert_eq!(began.elapsed().as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_same_token_continues_and_a_higher_one_waits_for_the_settle_time() {
    let service = TestService::new();
    assert_eq!(service.write(33, "old").await.code(), None);
    let service = service.restart();
    let began = Instant::now();
    assert_eq!(service.fence.gate_statuses()[0].closed_for, TIMEOUTS.settle_time);
    assert_eq!(service.write(33, "same token").await.code(), None);
    assert_eq!(service.claim(34).await.code().as_deref(), Some("UNAVAILABLE"));
    while service.claim(34).await.code().is_some() {}
    assert!(began.elapsed() >= TIMEOUTS.settle_time);
    // Another restart without requests: the unknown outcome has expired.
    assert!(service.fence.record_settled().expect("written"));
    assert_eq!(service.restart().claim(35).await.code(), None);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_at_shutdown_is_not_recorded_as_settled() {
    let mut service = TestService::new();
    let old = service.spawn_send(with_token(33, "/held"), "old");
    drop(service.held.recv().await.expect("it is in flight"));
    old.await.expect("a response");
    assert!(!service.fence.record_settled().expect("nothing to write"));
    assert_eq!(service.restart().claim(34).await.code().as_deref(), Some("UNAVAILABLE"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_durable_and_leaves_no_request_in_flight() {
    let service = TestService::new();
    assert_eq!(service.claim(34).await.code(), None);
    let service = service.restart();
    assert_eq!(service.write(33, "late").await.code().as_deref(), Some("STALE_TOKEN"));
    assert_eq!(service.claim(35).await.code(), None);
}

#[tokio::test]
async fn a_second_process_cannot_use_the_same_mark_file_and_gets_the_owner() {
    let service = TestService::new();
    let rules = Rules::new(&fence_id());
    let second = leasehold_fence::http::Fence::open(&service.file(), rules, TIMEOUTS);
    let error = second.expect_err("in use");
    assert_eq!(error.code(), "UNAVAILABLE");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
}

#[tokio::test]
async fn a_missing_mark_file_and_arming_an_existing_one_are_errors() {
    let service = TestService::new();
    let rules = || Rules::new(&fence_id());
    let missing_path = service.dir.path().join("missing_path");
    let missing = leasehold_fence::http::Fence::open(&missing_path, rules(), TIMEOUTS);
    assert_eq!(missing.expect_err("missing").code(), "STORAGE_FAILED");
    let armed = leasehold_fence::http::Fence::arm(&service.file(), &rules());
    assert_eq!(armed.expect_err("exists").code(), "CONFLICT");
}

#[tokio::test]
async fn a_removed_mark_file_rejects_tokens_and_an_external_re_arm_is_noticed() {
    let service = TestService::new();
    assert_eq!(service.write(33, "first").await.code(), None);
    let moved_path = service.dir.path().join("away");
    std::fs::rename(service.file(), &moved_path).expect("moved");
    let response = service.write(33, "no").await;
    assert_eq!((response.status.as_u16(), response.json()["reason"].as_str()), (500, Some("missing")));
    std::fs::rename(&moved_path, service.file()).expect("moved back");
    assert_eq!(service.write(33, "back").await.code(), None);
    let mut log = FencedLog::open(&service.file(), &fence_id()).expect("it opens");
    log.rearm(number(50)).expect("armed");
    assert_eq!(service.write(33, "before it was armed").await.json()["mark"], "50");
    assert_eq!(service.write(50, "at the floor").await.code(), None);
    assert_eq!(service.applied(), ["first", "back", "at the floor"]);
}

#[tokio::test]
async fn without_its_lock_file_the_fence_admits_nothing() {
    let service = TestService::new();
    assert_eq!(service.write(5, "first").await.code(), None);
    let lock = service.dir.path().join("marks.lock");
    std::fs::remove_file(&lock).expect("removed");
    for request in [service.write(5, "without a lock").await, service.claim(6).await] {
        assert_eq!(request.code().as_deref(), Some("CONFLICT"));
    }
    std::fs::write(&lock, "").expect("another one");
    assert_eq!(service.write(5, "with a lock of another process").await.code().as_deref(), Some("CONFLICT"));
    assert_eq!(service.applied(), ["first"]);
}

#[tokio::test]
async fn mark_files_and_their_locks_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    let service = TestService::new();
    let (marks, lock) = (service.file(), service.dir.path().join("marks.lock"));
    assert_eq!((mode(&marks), mode(&lock)), (0o600, 0o600));
    for file in [&marks, &lock] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644)).expect("as an older version left it");
    }
    let _service = service.restart();
    assert_eq!((mode(&marks), mode(&lock)), (0o600, 0o600));
}
