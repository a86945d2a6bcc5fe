//! An outcome that nobody knows keeps the gate shut, and one that somebody knows does not.

use std::time::Duration;

use tokio::time::Instant;

use crate::service::{BOUNDS, Then, World, shows};

/// How long it takes until 34 is let in, trying again as often as it is told.
async fn let_in(world: &World) -> Duration {
    let began = Instant::now();
    loop {
        let answer = world.claim(34).await;
        match answer.code().as_deref() {
            None => return began.elapsed(),
            Some("UNAVAILABLE") => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_way_to_the_target_keeps_the_gate_shut_for_the_bound() {
    let mut world = World::new();
    let old = world.sends(shows(33, "/held"), "old");
    world.held.recv().await.expect("it is inside").send(Then::Break).expect("it waits");
    old.await.expect("answered");
    assert_eq!(world.fence.crowds()[0].shut_for, BOUNDS.settle);
    assert_eq!(world.write(33, "the same goes on").await.code(), None);
    let waited = let_in(&world).await;
    assert!(waited >= BOUNDS.settle && waited < BOUNDS.settle + Duration::from_secs(1), "{waited:?}");
    assert_eq!(world.fence.seen().unknown, 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_went_away_keeps_the_gate_shut_for_the_bound() {
    let mut world = World::new();
    let old = world.sends(shows(33, "/held"), "old");
    let then = world.held.recv().await.expect("it is inside");
    old.abort();
    assert!(old.await.expect_err("gone").is_cancelled());
    assert!(then.is_closed(), "what served it is gone too");
    let waited = let_in(&world).await;
    assert!(waited >= BOUNDS.settle && waited < BOUNDS.settle + Duration::from_secs(1), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_reached_the_target_leaves_no_trace() {
    let mut world = World::new();
    let old = world.sends(shows(33, "/held"), "old");
    world.held.recv().await.expect("it is inside").send(Then::NotBegun).expect("it waits");
    old.await.expect("answered");
    assert_eq!(let_in(&world).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_the_target_answers_is_a_known_outcome() {
    let world = World::new();
    assert_eq!(world.send(shows(33, "/fails"), "").await.status, 500);
    assert_eq!(let_in(&world).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_does_not_answer_is_cut_off_and_the_claim_gets_in_within_the_stated_bound() {
    let mut world = World::new();
    let began = Instant::now();
    let old = world.sends(shows(33, "/held"), "old");
    let then = world.held.recv().await.expect("it is inside");
    let_in(&world).await;
    let waited = began.elapsed();
    let bound = BOUNDS.longest + BOUNDS.settle;
    assert!(waited >= bound && waited < bound + Duration::from_secs(1), "{waited:?}");
    assert!(then.is_closed(), "it was cut off");
    assert_eq!(old.await.expect("answered").code().as_deref(), Some("INDETERMINATE"));
    assert_eq!(world.applied(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_still_coming_keeps_its_request_inside() {
    let mut world = World::new();
    let old = world.sends(shows(33, "/streams"), "");
    let say = world.streams.recv().await.expect("it began");
    say.send("one").expect("it goes on");
    assert_eq!(world.claim(34).await.code().as_deref(), Some("UNAVAILABLE"));
    say.send("two").expect("it goes on");
    drop(say);
    assert_eq!(old.await.expect("answered").body.as_deref(), Ok(&b"onetwo"[..]));
    assert_eq!(let_in(&world).await, Duration::ZERO);
    assert_eq!(world.applied(), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_ends_is_cut_off_too() {
    let mut world = World::new();
    let old = world.sends(shows(33, "/streams"), "");
    let say = world.streams.recv().await.expect("it began");
    say.send("one").expect("it goes on");
    let began = Instant::now();
    let_in(&world).await;
    assert!(began.elapsed() <= BOUNDS.longest + BOUNDS.settle + Duration::from_secs(1));
    let body = old.await.expect("answered").body;
    assert!(body.as_ref().is_err_and(|why| why.contains("took longer than its bound")), "{body:?}");
    assert!(say.send("two").is_err(), "nobody reads it any more");
}
