//! Failovers: a server that took over, or came back with another's data, may lack marks, and refuses.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use leasehold_fence::conformance::{Subject, Writer, number, token};
use leasehold_fence::{Error, Lost, Refusal};
use redis::aio::MultiplexedConnection;

use crate::server::Redis;

fn moved(error: &Error) -> bool {
    matches!(error, Error::Refused(Refusal::Lost(Lost::Moved)))
}

/// Redis knows primaries by address: this one listens on one for its replica.
async fn listen(db: &mut MultiplexedConnection) -> SocketAddr {
    let at = crate::daemon::address();
    let settings =
        [("bind", at.ip().to_string()), ("protected-mode", "no".to_owned()), ("port", at.port().to_string())];
    for (setting, to) in settings {
        redis::cmd("CONFIG").arg("SET").arg(setting).arg(to).query_async::<()>(db).await.expect("set");
    }
    at
}

async fn follow(db: &mut MultiplexedConnection, primary: SocketAddr) {
    let (ip, port) = (primary.ip().to_string(), primary.port().to_string());
    redis::cmd("REPLICAOF").arg(ip).arg(port).query_async::<()>(db).await.expect("it follows");
}

async fn take_over(db: &mut MultiplexedConnection) {
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async::<()>(db).await.expect("it takes over");
}

/// Waits until this server has this mark, read past the fence: a replica runs no functions that may write.
async fn has_mark(redis: &Redis, db: &mut MultiplexedConnection, mark: u64) {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let text = redis::cmd("GET").arg(redis.fence.key()).query_async::<Option<String>>(db).await;
        if text.is_ok_and(|text| text.is_some_and(|text| text.contains(&format!("-{mark:019} a")))) {
            return;
        }
        assert!(Instant::now() < until, "the replica does not follow");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_took_over_refuses_until_it_is_armed_from_a_floor() {
    let (primary, replica) = (Redis::durable().await, Redis::durable().await);
    primary.fresh().await;
    let mut old = primary.writer().await;
    old.claim(&token(20)).await.expect("claimed");
    let mut new = replica.connect().await;
    follow(&mut new, listen(&mut old.db).await).await;
    has_mark(&replica, &mut new, 20).await;
    primary.kill();
    take_over(&mut new).await;

    let mut way = replica.writer().await;
    assert!(moved(&way.claim(&token(21)).await.expect_err("a mark may be missing")));
    assert!(moved(&replica.fence.resume(&mut way.db).await.expect_err("it was a replica")));
    assert!(moved(&replica.mark().await.expect_err("for readers too")));
    replica.fence.rearm(&mut way.db, number(21)).await.expect("armed from the grantor's floor");
    assert_eq!(way.write(&token(20), "late").await.expect_err("stale").code(), "STALE_TOKEN");
    way.write(&token(21), "after").await.expect("the new holder");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_comes_back_with_the_data_of_one_that_lacks_its_last_mark_refuses() {
    let (first, second) = (Redis::durable().await, Redis::durable().await);
    first.fresh().await;
    let mut way = first.writer().await;
    way.claim(&token(20)).await.expect("claimed");
    let mut other = second.connect().await;
    follow(&mut other, listen(&mut way.db).await).await;
    has_mark(&second, &mut other, 20).await;
    take_over(&mut other).await;
    way.claim(&token(30)).await.expect("the first one does not know yet");

    // It follows, loses the mark, and takes over again, all in one process: only its library was loaded anew.
    follow(&mut way.db, listen(&mut other).await).await;
    has_mark(&first, &mut way.db, 20).await;
    take_over(&mut way.db).await;
    assert!(moved(&way.claim(&token(25)).await.expect_err("30 was here, and nobody remembers")));
    assert!(moved(&way.write(&token(20), "late").await.expect_err("not even the mark that is left")));
}
