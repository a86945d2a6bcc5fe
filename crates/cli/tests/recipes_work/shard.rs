//! Shards over real connections: workers come, go and vanish, and every count goes on where it stood.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::recipes::shard::Shard;
use leasehold::{Client, Failure};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::Server;
use crate::{client, soon, until};

const SHARDS: u32 = 6;

/// What was written, in the order of the answers: the shard, its token, the count.
type Ledger = Arc<Mutex<Vec<(u32, u64, u64)>>>;

/// Counts, and puts every count on record before it says so.
async fn count(shard: Shard, ledger: Ledger) {
    let found = shard.resume().await.expect("the server answers");
    let begun = found.map_or(0, |found| String::from_utf8_lossy(&found.bytes).parse().expect("a count"));
    for at in begun + 1.. {
        match shard.checkpoint(at.to_string().as_bytes()).await.map_err(Failure::into_error) {
            Ok(_) => ledger.lock().expect("nobody panicked").push((shard.index(), shard.token_number().get(), at)),
            Err(error) if error.lost().is_some() => return,
            Err(error) => panic!("{error}"),
        }
        tokio::select! {
            () = shard.leaving() => return,
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
}

fn work(client: &Client, ledger: &Ledger) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let shards = client.shards("orders", SHARDS).look_every(Duration::from_millis(50));
    let ledger = ledger.clone();
    let working = tokio::spawn(async move {
        let stop = async { drop(stopped.await) };
        shards.run(stop, |shard| count(shard, ledger.clone())).await.expect("the server answers");
    });
    (stop, working)
}

/// How many shards each of these workers owns, by the seats they are held under.
async fn shares(looking: &Client) -> Vec<usize> {
    let mut owned = std::collections::BTreeMap::<String, usize>::new();
    for index in 0..SHARDS {
        if let Ok(shown) = looking.show(&format!("orders/{index}")).await {
            assert!(shown.leases.len() <= 1, "two owners: {shown:?}");
            shown.leases.iter().for_each(|lease| *owned.entry(lease.metadata.clone()).or_default() += 1);
        }
    }
    owned.into_values().collect()
}

#[tokio::test]
async fn shards_move_to_who_comes_and_back_from_who_goes_and_no_count_is_lost_or_written_twice() {
    let server = Server::start();
    let clients = ["one", "two", "three"].map(|name| client(&server, name));
    let looking = client(&server, "looking");
    let ledger = Ledger::default();
    let first = work(&clients[0], &ledger);
    until(async || shares(&looking).await == [6]).await;
    let second = work(&clients[1], &ledger);
    until(async || shares(&looking).await == [3, 3]).await;
    let third = work(&clients[2], &ledger);
    until(async || shares(&looking).await == [2, 2, 2]).await;
    // One stops as it should: its shards move long before any ttl.
    first.0.send(()).expect("it listens");
    soon(first.1).await.expect("its work finished");
    until(async || shares(&looking).await == [3, 3]).await;
    // One vanishes with its process: its session closes, and what it held is free.
    second.1.abort();
    clients[1].close().await.expect("the server hears it");
    until(async || shares(&looking).await == [6]).await;
    third.0.send(()).expect("it listens");
    soon(third.1).await.expect("its work finished");
    let written = ledger.lock().expect("nobody panicked").clone();
    for index in 0..SHARDS {
        let of: Vec<_> = written.iter().filter(|(shard, ..)| *shard == index).collect();
        assert!(of.windows(2).all(|pair| pair[0].1 <= pair[1].1), "shard {index}: a token fell");
        let last = looking.state_of(&format!("orders/{index}")).await.expect("the server answers").remove(0);
        assert_eq!(String::from_utf8_lossy(&last.bytes), of.last().expect("it was counted").2.to_string());
        // What a dropped worker wrote last may have been taken without its knowing: then one count is not in the ledger.
        let gaps = of.windows(2).filter(|pair| pair[1].2 != pair[0].2 + 1).count();
        assert!(gaps <= 1 && of.windows(2).all(|pair| pair[1].2 > pair[0].2), "shard {index}: {of:?}");
    }
}
