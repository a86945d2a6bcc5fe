//! Nothing lower is on its way when the mark is raised: the clock of these tests stands still unless everybody waits.

use std::time::Duration;

use leasehold_core::fence::Mark;
use tokio::time::Instant;

use crate::service::{BOUNDS, Then, World, shows};
use crate::support::number;

#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_what_is_inside_and_what_comes_after_it_is_refused() {
    let mut world = World::new();
    let old = world.sends(shows(33, "/held"), "old");
    let then = world.held.recv().await.expect("it is inside");
    let claim = world.sends(shows(34, "/-/claim"), "");
    tokio::time::sleep(BOUNDS.patience / 2).await;
    assert!(!claim.is_finished(), "the old request has no outcome yet");
    assert_eq!(world.fence.crowds()[0].mark, Mark::Armed(number(33)));
    then.send(Then::Apply).expect("it waits");
    assert_eq!(old.await.expect("answered").code(), None);
    assert_eq!(claim.await.expect("answered").code(), None);
    assert_eq!(world.write(33, "late").await.code().as_deref(), Some("STALE_TOKEN"));
    assert_eq!(world.write(34, "new").await.code(), None);
    assert_eq!(world.applied(), ["old", "new"]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_too_long_is_told_so_and_nothing_is_changed() {
    let mut world = World::new();
    let old = world.sends(shows(33, "/held"), "old");
    let then = world.held.recv().await.expect("it is inside");
    let began = Instant::now();
    let blocked = world.claim(34).await;
    assert_eq!(blocked.status, 503);
    assert_eq!(blocked.json()["code"], "UNAVAILABLE");
    assert!(blocked.json()["detail"].as_str().is_some_and(|told| told.starts_with("1 requests of a lower token")));
    assert!(blocked.headers.contains_key("retry-after"));
    assert_eq!(began.elapsed().as_secs(), BOUNDS.patience.as_secs());
    assert_eq!(world.write(33, "goes on").await.code(), None, "nothing was changed");
    then.send(Then::Apply).expect("it waits");
    assert_eq!(old.await.expect("answered").code(), None);
    assert_eq!(world.claim(34).await.code(), None);
    assert_eq!(world.fence.seen().blocked, 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_overtakes_a_claim_that_waits() {
    let mut world = World::new();
    let old = world.sends(shows(33, "/held"), "old");
    let then = world.held.recv().await.expect("it is inside");
    let claim = world.sends(shows(34, "/-/claim"), "");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let late = world.sends(shows(33, "/now"), "late");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!late.is_finished() && !claim.is_finished());
    then.send(Then::Apply).expect("it waits");
    assert_eq!(old.await.expect("answered").code(), None);
    assert_eq!(claim.await.expect("answered").code(), None);
    assert_eq!(late.await.expect("answered").code().as_deref(), Some("STALE_TOKEN"));
    assert_eq!(world.applied(), ["old"]);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_its_claim_lets_the_others_go_on() {
    let mut world = World::new();
    let old = world.sends(shows(33, "/held"), "old");
    let then = world.held.recv().await.expect("it is inside");
    let claim = world.sends(shows(34, "/-/claim"), "");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waits = world.sends(shows(33, "/now"), "waits");
    tokio::time::sleep(Duration::from_secs(1)).await;
    claim.abort();
    assert_eq!(waits.await.expect("answered").code(), None);
    then.send(Then::Apply).expect("it waits");
    old.await.expect("answered");
    assert_eq!(world.applied(), ["waits", "old"]);
}

#[tokio::test(start_paused = true)]
async fn of_two_who_wait_the_higher_goes_first_and_the_lower_is_stale() {
    let mut world = World::new();
    let old = world.sends(shows(33, "/held"), "old");
    let then = world.held.recv().await.expect("it is inside");
    let lower = world.sends(shows(34, "/now"), "34");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let higher = world.sends(shows(35, "/now"), "35");
    tokio::time::sleep(Duration::from_secs(1)).await;
    then.send(Then::Apply).expect("it waits");
    old.await.expect("answered");
    assert_eq!(higher.await.expect("answered").code(), None);
    assert_eq!(lower.await.expect("answered").code().as_deref(), Some("STALE_TOKEN"));
    assert_eq!(world.applied(), ["old", "35"]);
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_token_are_inside_together() {
    let mut world = World::new();
    let first = world.sends(shows(33, "/held"), "first");
    let then = world.held.recv().await.expect("it is inside");
    assert_eq!(world.write(33, "second").await.code(), None);
    assert_eq!(world.fence.crowds()[0].inside, 1);
    then.send(Then::Apply).expect("it waits");
    first.await.expect("answered");
    assert_eq!(world.applied(), ["second", "first"]);
}
