//! Failovers: a server that was promoted or resynchronized may lack marks, so its fence refuses all tokens.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use leasehold_fence::conformance::{FenceWriter, Subject, number, token};
use leasehold_fence::{Error, FenceRefusal, MarkLoss};
use redis::aio::MultiplexedConnection;

use crate::server::Redis;

fn is_moved(error: &Error) -> bool {
    matches!(error, Error::Refused(FenceRefusal::MarkLost(MarkLoss::Moved)))
}

/// Makes a server listen on an address, because replicas connect to their primary by address.
async fn listen(db: &mut MultiplexedConnection) -> SocketAddr {
    let address = leasehold_testkit::ports::unused_address();
    let settings =
        [("bind", address.ip().to_string()), ("protected-mode", "no".to_owned()), ("port", address.port().to_string())];
    for (setting, to) in settings {
        redis::cmd("CONFIG").arg("SET").arg(setting).arg(to).query_async::<()>(db).await.expect("set");
    }
    address
}

async fn follow(db: &mut MultiplexedConnection, primary: SocketAddr) {
    let (ip, port) = (primary.ip().to_string(), primary.port().to_string());
    redis::cmd("REPLICAOF").arg(ip).arg(port).query_async::<()>(db).await.expect("replicating");
}

async fn promote(db: &mut MultiplexedConnection) {
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async::<()>(db).await.expect("promoted");
}

/// Waits until this server has this mark. Reads the key directly, because a replica runs no functions that may write.
async fn wait_for_mark(redis: &Redis, db: &mut MultiplexedConnection, mark: u64) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let text = redis::cmd("GET").arg(redis.fence.key()).query_async::<Option<String>>(db).await;
        if text.is_ok_and(|text| text.is_some_and(|text| text.contains(&format!("-{mark:019} a")))) {
            return;
        }
        assert!(Instant::now() < deadline, "the replica does not replicate");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_refuses_every_token_until_it_is_rearmed() {
    let (primary, replica) = (Redis::durable().await, Redis::durable().await);
    primary.fresh().await;
    let mut old = primary.writer().await;
    old.claim(&token(20)).await.expect("claimed");
    let mut new = replica.connect().await;
    follow(&mut new, listen(&mut old.db).await).await;
    wait_for_mark(&replica, &mut new, 20).await;
    primary.kill();
    promote(&mut new).await;

    let mut writer = replica.writer().await;
    assert!(is_moved(&writer.claim(&token(21)).await.expect_err("a mark may be missing")));
    assert!(is_moved(&replica.fence.resume(&mut writer.db).await.expect_err("it was a replica")));
    assert!(is_moved(&replica.mark().await.expect_err("reads fail too")));
    replica.fence.rearm(&mut writer.db, number(21)).await.expect("re-armed");
    assert_eq!(writer.write(&token(20), "late").await.expect_err("stale").code(), "STALE_TOKEN");
    writer.write(&token(21), "after").await.expect("the new holder");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_was_resynchronized_from_a_replica_without_its_last_mark_refuses_every_token() {
    let (first, second) = (Redis::durable().await, Redis::durable().await);
    first.fresh().await;
    let mut writer = first.writer().await;
    writer.claim(&token(20)).await.expect("claimed");
    let mut other = second.connect().await;
    follow(&mut other, listen(&mut writer.db).await).await;
    wait_for_mark(&second, &mut other, 20).await;
    promote(&mut other).await;
    writer.claim(&token(30)).await.expect("claimed on the old primary");

    // It replicates, loses the mark and is promoted again, all in one process: only its library is reloaded.
    follow(&mut writer.db, listen(&mut other).await).await;
    wait_for_mark(&first, &mut writer.db, 20).await;
    promote(&mut writer.db).await;
    assert!(is_moved(&writer.claim(&token(25)).await.expect_err("the mark 30 is lost")));
    assert!(is_moved(&writer.write(&token(20), "late").await.expect_err("the older mark does not count")));
}
