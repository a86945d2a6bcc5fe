//! Shards in memory: one owner each however they move, and checkpoints that no zombie overwrites.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold_core::charter::{Charter, Handoff};
use leasehold_core::command::Style;
use leasehold_core::lease::Reason;

use super::{Shard, Shards, Worker};
use crate::blocking::block_on;
use crate::recipes::until;
use crate::testing::Grantor;
use crate::{Client, Code, Failure, Guard};

const TTL: Duration = Duration::from_secs(3);

fn orders(client: &Client, count: u32) -> Shards {
    client.shards("orders", count).ttl(TTL)
}

fn join(client: &Client, count: u32) -> Worker {
    block_on(orders(client, count).join()).expect("there is room")
}

/// One look, and what came of it.
fn turn(worker: &mut Worker) -> Vec<(Guard, Shard)> {
    block_on(worker.turn()).expect("it can be asked");
    std::iter::from_fn(|| worker.gained()).collect()
}

fn owners(grantor: &Grantor, index: u32) -> usize {
    grantor.show(&format!("orders/{index}")).map_or(0, |shown| shown.leases.len())
}

#[track_caller]
fn refused<T>(told: Result<T, Failure<T>>) -> crate::Error {
    match told {
        Ok(_) => panic!("it was not refused"),
        Err(failure) => failure.into_error(),
    }
}

#[test]
fn a_zombies_checkpoint_is_refused_and_its_successor_goes_on_from_the_last_good_one() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("w1"), grantor.client("w2"));
    let (_guard, zombie) = turn(&mut join(&one, 1)).remove(0);
    assert_eq!(block_on(zombie.resume()).expect("it can be asked"), None);
    block_on(zombie.checkpoint(b"100")).expect("it owns the shard");
    grantor.pause(&one);
    grantor.advance(2 * TTL);
    let (_next, successor) = turn(&mut join(&two, 1)).remove(0);
    let found = block_on(successor.resume()).expect("it can be asked").expect("there is one");
    assert_eq!((&found.bytes[..], found.token_number), (&b"100"[..], zombie.token_number()));
    block_on(successor.checkpoint(b"200")).expect("it owns the shard");
    grantor.resume(&one);
    let error = refused(block_on(zombie.checkpoint(b"150")));
    assert_eq!(error.lost(), Some(Reason::Ttl));
    let kept = block_on(successor.resume()).expect("it can be asked").expect("there is one");
    assert_eq!((&kept.bytes[..], kept.token_number), (&b"200"[..], successor.token_number()));
}

#[test]
fn work_is_stolen_without_two_owners_and_then_stays() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("w1"), grantor.client("w2"));
    let mut first = join(&one, 4);
    let mut kept = turn(&mut first);
    assert_eq!((kept.len(), first.owns()), (4, 4), "who is alone takes all");
    let mut second = join(&two, 4);
    assert!(turn(&mut second).is_empty(), "it looks twice before it takes from others");
    assert!(turn(&mut second).is_empty(), "the owner still works");
    until(|| kept.iter().filter(|(_, shard)| shard.draining().is_some()).count() == 2);
    assert!((0..4).all(|index| owners(&grantor, index) == 1), "the thief waits");
    let (leaving, stays): (Vec<_>, Vec<_>) = kept.drain(..).partition(|(_, shard)| shard.draining().is_some());
    let mut stolen = Vec::new();
    for (guard, shard) in leaving {
        block_on(shard.checkpoint(b"last")).expect("it owns the shard until it says so");
        let (index, number) = (shard.index(), shard.token_number());
        block_on(guard.release()).expect("it is held");
        until(|| {
            assert!(owners(&grantor, index) <= 1);
            stolen.extend(second.gained());
            stolen.iter().any(|(_, shard): &(Guard, Shard)| shard.index() == index)
        });
        let (_, mine) = stolen.last().expect("just found");
        assert!(mine.token_number() > number);
        assert_eq!(block_on(mine.resume()).expect("it can be asked").expect("there is one").bytes, b"last");
        assert_eq!(refused(block_on(shard.checkpoint(b"late"))).code(), Some(Code::LeaseLost));
    }
    for _ in 0..4 {
        assert!(turn(&mut first).is_empty() && turn(&mut second).is_empty(), "even shares stay");
    }
    assert_eq!((first.owns(), second.owns(), stays.len()), (2, 2, 2));
    assert!(stays.iter().all(|(_, shard)| shard.draining().is_none()));
}

#[test]
fn in_an_overlap_the_successor_starts_from_what_its_predecessor_wrote_last() {
    let grantor = Grantor::new();
    let handoff = Some(Handoff { style: Style::Overlap, drain_ms: 10_000 });
    grantor.set_charter("orders", Charter { handoff, ..Charter::default() }).expect("it is possible");
    let (one, two) = (grantor.client("w1"), grantor.client("w2"));
    let mut first = join(&one, 2);
    let mut kept = turn(&mut first);
    let mut second = join(&two, 2);
    turn(&mut second);
    let mut stolen = turn(&mut second);
    until(|| {
        stolen.extend(second.gained());
        stolen.len() == 1
    });
    let (_next, successor) = stolen.remove(0);
    let at = kept.iter().position(|(_, shard)| shard.index() == successor.index()).expect("it was the first's");
    let (guard, predecessor) = kept.remove(at);
    assert_eq!(owners(&grantor, successor.index()), 2, "never unheld");
    let mut resuming = pin!(successor.resume());
    assert!(resuming.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    block_on(predecessor.checkpoint(b"last")).expect("until the successor has written");
    block_on(guard.release()).expect("it is held");
    assert_eq!(block_on(resuming).expect("it can be asked").expect("there is one").bytes, b"last");
    block_on(successor.checkpoint(b"first")).expect("it owns the shard");
    assert_eq!(refused(block_on(predecessor.checkpoint(b"late"))).code(), Some(Code::LeaseLost));
}

#[test]
fn shards_of_a_worker_that_vanished_are_taken_after_their_ttl() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("w1"), grantor.client("w2"));
    let mut first = join(&one, 4);
    let lost = turn(&mut first);
    let mut second = join(&two, 4);
    grantor.partition(&one);
    grantor.advance(2 * TTL);
    assert!(lost.iter().all(|(_, shard)| !shard.is_held()), "the first has stopped");
    assert_eq!(turn(&mut second).len(), 4);
}

#[test]
fn a_worker_that_leaves_tells_its_work_and_leaves_its_shards_to_the_others() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("w1"), grantor.client("w2"));
    let mut first = join(&one, 2);
    let kept = turn(&mut first);
    let mut second = join(&two, 2);
    block_on(first.leave());
    for (guard, shard) in kept {
        block_on(shard.leaving());
        block_on(guard.release()).expect("it is held");
    }
    assert_eq!(turn(&mut second).len(), 2, "no time has passed");
}

#[test]
fn work_on_shards_can_be_spawned() {
    const fn can<T: Send>(_: &T) {}
    let shards = orders(&Grantor::new().client("w1"), 1);
    can(&shards.run(std::future::pending(), |shard: Shard| async move { shard.leaving().await }));
    let mut worker = block_on(shards.join()).expect("there is room");
    can(&worker.next());
}

#[test]
fn a_number_of_shards_that_cannot_be_is_refused() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    for count in [0, u32::MAX] {
        let error = block_on(orders(&client, count).join()).expect_err("that is no number of shards");
        assert_eq!(error.code(), Some(Code::InvalidArgument));
    }
}
