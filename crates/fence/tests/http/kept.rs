//! The mark outlives the process, and so does that its requests may have been on their way.

use leasehold_core::fence::Mark;
use leasehold_fence::file::Log;
use leasehold_fence::http::{Rules, Under};
use tokio::time::Instant;

use crate::service::{BOUNDS, World, shows};
use crate::support::{CLUSTER, name, number};

#[tokio::test(start_paused = true)]
async fn after_a_process_that_ended_with_every_outcome_known_nobody_waits() {
    let world = World::new();
    assert_eq!(world.write(33, "old").await.code(), None);
    assert!(world.fence.settle().expect("written"));
    let world = world.again();
    assert_eq!(world.fence.crowds()[0].mark, Mark::Armed(number(33)));
    assert_eq!(world.write(32, "late").await.code().as_deref(), Some("STALE_TOKEN"));
    let began = Instant::now();
    assert_eq!(world.claim(34).await.code(), None);
    assert_eq!(began.elapsed().as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_process_that_just_ended_the_same_token_goes_on_and_a_higher_one_waits_for_the_bound() {
    let world = World::new();
    assert_eq!(world.write(33, "old").await.code(), None);
    let world = world.again();
    let began = Instant::now();
    assert_eq!(world.fence.crowds()[0].shut_for, BOUNDS.settle);
    assert_eq!(world.write(33, "the same").await.code(), None);
    assert_eq!(world.claim(34).await.code().as_deref(), Some("UNAVAILABLE"));
    while world.claim(34).await.code().is_some() {}
    assert!(began.elapsed() >= BOUNDS.settle);
    // Once more, without anything having passed: what was unknown then is over.
    assert!(world.fence.settle().expect("written"));
    assert_eq!(world.again().claim(35).await.code(), None);
}

#[tokio::test(start_paused = true)]
async fn what_is_unknown_at_the_end_is_not_called_settled() {
    let mut world = World::new();
    let old = world.sends(shows(33, "/held"), "old");
    drop(world.held.recv().await.expect("it is inside"));
    old.await.expect("answered");
    assert!(!world.fence.settle().expect("nothing to write"));
    assert_eq!(world.again().claim(34).await.code().as_deref(), Some("UNAVAILABLE"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_alone_is_kept_and_leaves_nothing_to_wait_for() {
    let world = World::new();
    assert_eq!(world.claim(34).await.code(), None);
    let world = world.again();
    assert_eq!(world.write(33, "late").await.code().as_deref(), Some("STALE_TOKEN"));
    assert_eq!(world.claim(35).await.code(), None);
}

#[tokio::test]
async fn a_second_process_cannot_gate_by_the_same_file_and_is_told_who_does() {
    let world = World::new();
    let rules = Rules::new(Under::new(name(), 0));
    let second = leasehold_fence::http::Fence::open(&world.file(), CLUSTER, rules, BOUNDS);
    let error = second.expect_err("taken");
    assert_eq!(error.code(), "UNAVAILABLE");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
}

#[tokio::test]
async fn a_mark_file_that_is_missing_refuses_and_arming_one_that_is_there_does_too() {
    let world = World::new();
    let rules = || Rules::new(Under::new(name(), 0));
    let elsewhere = world.dir.path().join("elsewhere");
    let missing = leasehold_fence::http::Fence::open(&elsewhere, CLUSTER, rules(), BOUNDS);
    assert_eq!(missing.expect_err("missing").code(), "STORAGE_FAILED");
    let armed = leasehold_fence::http::Fence::arm(&world.file(), CLUSTER, &rules());
    assert_eq!(armed.expect_err("there").code(), "CONFLICT");
}

#[tokio::test]
async fn a_mark_file_that_is_taken_away_refuses_and_one_that_is_armed_by_another_is_followed() {
    let world = World::new();
    assert_eq!(world.write(33, "first").await.code(), None);
    let away = world.dir.path().join("away");
    std::fs::rename(world.file(), &away).expect("moved");
    let answer = world.write(33, "no").await;
    assert_eq!((answer.status.as_u16(), answer.json()["reason"].as_str()), (500, Some("missing")));
    std::fs::rename(&away, world.file()).expect("moved back");
    assert_eq!(world.write(33, "back").await.code(), None);
    let mut log = Log::open(&world.file(), CLUSTER, name(), 0).expect("it opens");
    log.rearm(number(50)).expect("armed");
    assert_eq!(world.write(33, "before it was armed").await.json()["mark"], "50");
    assert_eq!(world.write(50, "at the floor").await.code(), None);
    assert_eq!(world.applied(), ["first", "back", "at the floor"]);
}
