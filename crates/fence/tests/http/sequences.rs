//! A write that carries its sequence reaches the target once, however often it arrives.

use crate::service::{Answer, Then, World, shows};

async fn sends(world: &World, number: u64, sequence: u64, path: &str) -> Answer {
    let what = format!("{number}/{sequence}");
    world.send(shows(number, path).header("lease-sequence", sequence.to_string()), &what).await
}

fn was_before(answer: &Answer) -> bool {
    answer.headers.contains_key("lease-applied") && answer.json()["already_applied"] == true
}

#[tokio::test]
async fn a_late_duplicate_is_answered_and_not_applied() {
    let world = World::new();
    for (sequence, before) in [(1, false), (2, false), (2, true), (1, true), (7, false), (3, true)] {
        let answer = sends(&world, 33, sequence, "/now").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers.contains_key("lease-applied"), before, "{sequence}");
        assert!(!before || was_before(&answer), "{sequence}");
    }
    assert_eq!(world.applied(), ["33/1", "33/2", "33/7"]);
    assert_eq!(sends(&world, 34, 1, "/now").await.body.as_deref(), Ok(&b"done"[..]), "a new hold begins anew");
    assert_eq!(sends(&world, 33, 8, "/now").await.code().as_deref(), Some("STALE_TOKEN"));
    assert_eq!(world.fence.seen().duplicates, 3);
}

#[tokio::test]
async fn what_the_target_refused_may_be_sent_again_under_its_sequence() {
    let world = World::new();
    assert_eq!(sends(&world, 33, 1, "/fails").await.status, 500);
    assert_eq!(sends(&world, 33, 1, "/now").await.body.as_deref(), Ok(&b"done"[..]));
    assert!(was_before(&sends(&world, 33, 1, "/now").await));
    assert_eq!(world.applied(), ["33/1"]);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_comes_while_the_first_is_inside_waits_for_it() {
    let mut world = World::new();
    let first = world.sends(shows(33, "/held").header("lease-sequence", "1"), "first");
    let then = world.held.recv().await.expect("it is inside");
    let second = world.sends(shows(33, "/now").header("lease-sequence", "1"), "second");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!second.is_finished());
    then.send(Then::Apply).expect("it waits");
    first.await.expect("answered");
    assert!(was_before(&second.await.expect("answered")));
    assert_eq!(world.applied(), ["first"]);
}

#[tokio::test(start_paused = true)]
async fn of_what_nobody_knows_the_same_sequence_is_indeterminate_and_a_higher_one_goes_on() {
    let mut world = World::new();
    let first = world.sends(shows(33, "/held").header("lease-sequence", "1"), "first");
    world.held.recv().await.expect("it is inside").send(Then::Break).expect("it waits");
    first.await.expect("answered");
    let again = sends(&world, 33, 1, "/now").await;
    assert_eq!((again.status.as_u16(), again.json()["code"].as_str()), (504, Some("INDETERMINATE")));
    assert_eq!(sends(&world, 33, 2, "/now").await.code(), None);
    assert!(was_before(&sends(&world, 33, 1, "/now").await), "what lies below was answered, or given up");
    assert_eq!(world.applied(), ["33/2"]);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_comes_after_remembers_what_was_let_through_and_what_was_applied() {
    let world = World::new();
    assert_eq!(sends(&world, 33, 1, "/now").await.code(), None);
    assert_eq!(sends(&world, 33, 2, "/now").await.code(), None);
    let mut world = world.again();
    assert!(was_before(&sends(&world, 33, 1, "/now").await));
    assert!(was_before(&sends(&world, 33, 2, "/now").await));
    let third = world.sends(shows(33, "/held").header("lease-sequence", "3"), "third");
    let _then = world.held.recv().await.expect("it is inside");
    third.abort();
    assert!(third.await.expect_err("gone").is_cancelled());
    let world = world.again();
    assert_eq!(sends(&world, 33, 3, "/now").await.code().as_deref(), Some("INDETERMINATE"), "it may have been applied");
    assert_eq!(sends(&world, 33, 4, "/now").await.code(), None);
    assert_eq!(world.applied(), ["33/4"]);
}
