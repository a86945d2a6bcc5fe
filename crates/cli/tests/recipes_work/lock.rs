//! Locks of several programs at once.

use std::time::Duration;

use leasehold::Error;

use crate::support::{PATIENCE, Server};
use crate::{client, soon};

#[tokio::test]
async fn programs_that_take_several_in_any_order_all_get_their_turn_and_never_two_at_once() {
    let server = Server::start();
    let names = ["a", "b", "c"];
    let looking = client(&server, "looking");
    let all = (0..6).map(|at| {
        let one = client(&server, &format!("worker-{at}"));
        let (first, second) = (names[at % 3], names[(at + 1) % 3]);
        async move {
            let lock = one.lock(first).and(second).wait(PATIENCE);
            lock.run_all(|holds| async move {
                // Under its locks nobody else writes: what is read is what was written before.
                for hold in &holds {
                    let revision = hold.put("count", hold.token().as_bytes()).await?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    assert_eq!(hold.store("count", Some(b"mine"), Some(revision)).await?, revision + 1);
                }
                Ok::<_, Error>(())
            })
            .await?
        }
    });
    let ended = soon(futures::future::join_all(all)).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    for name in names {
        let count = looking.state_of(name).await.expect("the server answers").remove(0);
        assert_eq!(count.revision, 8, "four programs wrote twice each");
    }
}
