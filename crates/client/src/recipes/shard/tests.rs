//! Shards on the test server: one owner at a time, and checkpoints that no zombie overwrites.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold_core::charter::{Charter, HandoffTerms};
use leasehold_core::command::HandoffMode;
use leasehold_core::lease::EndReason;

use super::{Shard, ShardWorker, Shards};
use crate::blocking::block_on;
use crate::recipes::wait_until;
use crate::testing::TestServer;
use crate::{Client, Code, Guard, RequestError};

const TTL: Duration = Duration::from_secs(3);

fn orders(client: &Client, count: u32) -> Shards {
    client.shards("orders", count).ttl(TTL)
}

fn join(client: &Client, count: u32) -> ShardWorker {
    block_on(orders(client, count).join()).expect("the server accepts it")
}

/// Runs one rebalancing step and returns the new assignments.
fn rebalance(worker: &mut ShardWorker) -> Vec<(Guard, Shard)> {
    block_on(worker.rebalance()).expect("the server replies");
    std::iter::from_fn(|| worker.take_assignment()).collect()
}

fn owners(server: &TestServer, index: u32) -> usize {
    server.show(&format!("orders/{index}")).map_or(0, |view| view.leases.len())
}

#[track_caller]
fn refused<T>(result: Result<T, RequestError<T>>) -> crate::Error {
    match result {
        Ok(_) => panic!("the request was not refused"),
        Err(failure) => failure.into_error(),
    }
}

#[test]
fn a_zombies_checkpoint_is_refused_and_its_successor_continues_from_the_last_valid_one() {
    let server = TestServer::new();
    let (one, two) = (server.client("w1"), server.client("w2"));
    let (_guard, zombie) = rebalance(&mut join(&one, 1)).remove(0);
    assert_eq!(block_on(zombie.resume()).expect("the server replies"), None);
    block_on(zombie.checkpoint(b"100")).expect("the worker owns the shard");
    server.pause(&one);
    server.advance(2 * TTL);
    let (_next, successor) = rebalance(&mut join(&two, 1)).remove(0);
    let found = block_on(successor.resume()).expect("the server replies").expect("there is a checkpoint");
    assert_eq!((&found.bytes[..], found.token_number), (&b"100"[..], zombie.token_number()));
    block_on(successor.checkpoint(b"200")).expect("the worker owns the shard");
    server.resume(&one);
    let error = refused(block_on(zombie.checkpoint(b"150")));
    assert_eq!(error.end_reason(), Some(EndReason::Ttl));
    let kept = block_on(successor.resume()).expect("the server replies").expect("there is a checkpoint");
    assert_eq!((&kept.bytes[..], kept.token_number), (&b"200"[..], successor.token_number()));
}

#[test]
fn shards_are_rebalanced_without_two_owners_and_then_stay() {
    let server = TestServer::new();
    let (one, two) = (server.client("w1"), server.client("w2"));
    let mut first = join(&one, 4);
    let mut owned = rebalance(&mut first);
    assert_eq!((owned.len(), first.owned_count()), (4, 4), "a single worker acquires all shards");
    let mut second = join(&two, 4);
    assert!(rebalance(&mut second).is_empty(), "a worker waits for a second snapshot before it requests shards");
    assert!(rebalance(&mut second).is_empty(), "the owner still works");
    wait_until(|| owned.iter().filter(|(_, shard)| shard.draining().is_some()).count() == 2);
    assert!((0..4).all(|index| owners(&server, index) == 1), "the new owner waits");
    let (leaving, stays): (Vec<_>, Vec<_>) = owned.drain(..).partition(|(_, shard)| shard.draining().is_some());
    let mut moved = Vec::new();
    for (guard, shard) in leaving {
        block_on(shard.checkpoint(b"last")).expect("the worker owns the shard until it releases it");
        let (index, number) = (shard.index(), shard.token_number());
        block_on(guard.release()).expect("the lease is held");
        wait_until(|| {
            assert!(owners(&server, index) <= 1);
            moved.extend(second.take_assignment());
            moved.iter().any(|(_, shard): &(Guard, Shard)| shard.index() == index)
        });
        let (_, mine) = moved.last().expect("just found");
        assert!(mine.token_number() > number);
        assert_eq!(block_on(mine.resume()).expect("the server replies").expect("there is a checkpoint").bytes, b"last");
        assert_eq!(refused(block_on(shard.checkpoint(b"late"))).code(), Some(Code::LeaseLost));
    }
    for _ in 0..4 {
        assert!(rebalance(&mut first).is_empty() && rebalance(&mut second).is_empty(), "even shares do not move");
    }
    assert_eq!((first.owned_count(), second.owned_count(), stays.len()), (2, 2, 2));
    assert!(stays.iter().all(|(_, shard)| shard.draining().is_none()));
}

#[test]
fn in_an_overlap_the_successor_starts_from_its_predecessors_last_checkpoint() {
    let server = TestServer::new();
    let handoff = Some(HandoffTerms { mode: HandoffMode::Overlap, drain_ms: 10_000 });
    server.set_charter("orders", Charter { handoff, ..Charter::default() }).expect("the charter is valid");
    let (one, two) = (server.client("w1"), server.client("w2"));
    let mut first = join(&one, 2);
    let mut owned = rebalance(&mut first);
    let mut second = join(&two, 2);
    rebalance(&mut second);
    let mut moved = rebalance(&mut second);
    wait_until(|| {
        moved.extend(second.take_assignment());
        moved.len() == 1
    });
    let (_next, successor) = moved.remove(0);
    let at = owned
        .iter()
        .position(|(_, shard)| shard.index() == successor.index())
        .expect("the shard was the first worker's");
    let (guard, predecessor) = owned.remove(at);
    assert_eq!(owners(&server, successor.index()), 2, "an overlap has two owners");
    let mut resuming = pin!(successor.resume());
    assert!(resuming.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    block_on(predecessor.checkpoint(b"last")).expect("the predecessor may write while it drains");
    block_on(guard.release()).expect("the lease is held");
    assert_eq!(block_on(resuming).expect("the server replies").expect("there is a checkpoint").bytes, b"last");
    block_on(successor.checkpoint(b"first")).expect("the worker owns the shard");
    assert_eq!(refused(block_on(predecessor.checkpoint(b"late"))).code(), Some(Code::LeaseLost));
}

#[test]
fn shards_of_a_lost_worker_are_acquired_after_their_ttl() {
    let server = TestServer::new();
    let (one, two) = (server.client("w1"), server.client("w2"));
    let mut first = join(&one, 4);
    let lost = rebalance(&mut first);
    let mut second = join(&two, 4);
    server.partition(&one);
    server.advance(2 * TTL);
    assert!(lost.iter().all(|(_, shard)| !shard.is_held()), "the first worker has stopped");
    assert_eq!(rebalance(&mut second).len(), 4);
}

#[test]
fn a_leaving_worker_drains_its_shards_for_the_others() {
    let server = TestServer::new();
    let (one, two) = (server.client("w1"), server.client("w2"));
    let mut first = join(&one, 2);
    let owned = rebalance(&mut first);
    let mut second = join(&two, 2);
    block_on(first.leave());
    for (guard, shard) in owned {
        block_on(shard.draining_started());
        block_on(guard.release()).expect("the lease is held");
    }
    assert_eq!(rebalance(&mut second).len(), 2, "the clock did not advance");
}

#[test]
fn futures_of_shards_are_send() {
    const fn can<T: Send>(_: &T) {}
    let shards = orders(&TestServer::new().client("w1"), 1);
    can(&shards.run(std::future::pending(), |shard: Shard| async move { shard.draining_started().await }));
    let mut worker = block_on(shards.join()).expect("the server accepts it");
    can(&worker.next_assignment());
}

#[test]
fn an_invalid_number_of_shards_is_refused() {
    let server = TestServer::new();
    let client = server.client("w1");
    for count in [0, u32::MAX] {
        let error = block_on(orders(&client, count).join()).expect_err("the number is invalid");
        assert_eq!(error.code(), Some(Code::InvalidArgument));
    }
}
