//! The lock recipe: several clients acquire several locks.

use std::time::Duration;

use leasehold::Error;

use crate::support::{Server, TEST_TIMEOUT};
use crate::{client, within_timeout};

#[tokio::test]
async fn clients_that_acquire_several_locks_in_any_order_all_proceed_and_exclude_each_other() {
    let server = Server::start();
    let names = ["a", "b", "c"];
    let observer = client(&server, "observer");
    let all = (0..6).map(|at| {
        let one = client(&server, &format!("worker-{at}"));
        let (first, second) = (names[at % 3], names[(at + 1) % 3]);
        async move {
            let lock = one.lock(first).also(second).wait(TEST_TIMEOUT);
            lock.run_all(|holds| async move {
                // No other client writes under these locks, so the revision is unchanged.
                for hold in &holds {
                    let revision = hold.put("count", hold.token().as_bytes()).await?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    assert_eq!(hold.put_if("count", Some(b"mine"), Some(revision)).await?, revision + 1);
                }
                Ok::<_, Error>(())
            })
            .await?
        }
    });
    let ended = within_timeout(futures::future::join_all(all)).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    for name in names {
        let count = observer.state_of(name).await.expect("the server responds").remove(0);
        assert_eq!(count.revision, 8, "four clients wrote twice each");
    }
}
