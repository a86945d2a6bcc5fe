//! Failovers: a server that was promoted or resynchronized may lack marks, so its fence refuses all tokens.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use leasehold_fence::conformance::{FenceWriter, Subject, number, token};
use leasehold_fence::{Error, FenceRefusal, MarkLoss};
use redis::aio::MultiplexedConnection;

use crate::server::{Redis, RedisWriter};

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

/// Arms a server, claims 20 there and replicates the mark to the other. A writer of the first, and a connection to the second.
async fn replicate(primary: &Redis, replica: &Redis) -> (RedisWriter, MultiplexedConnection) {
    primary.fresh().await;
    let mut writer = primary.writer().await;
    writer.claim(&token(20)).await.expect("claimed");
    let mut db = replica.connect().await;
    follow(&mut db, listen(&mut writer.db).await).await;
    wait_for_mark(replica, &mut db, 20).await;
    (writer, db)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_refuses_every_token_until_it_is_rearmed() {
    let (primary, replica) = (Redis::durable().await, Redis::durable().await);
    let (_, mut new) = replicate(&primary, &replica).await;
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
    let (mut writer, mut other) = replicate(&first, &second).await;
    promote(&mut other).await;
    writer.claim(&token(30)).await.expect("claimed on the old primary");

    // It replicates, loses the mark and is promoted again, all in one process: only its library is reloaded.
    follow(&mut writer.db, listen(&mut other).await).await;
    wait_for_mark(&first, &mut writer.db, 20).await;
    promote(&mut writer.db).await;
    assert!(is_moved(&writer.claim(&token(25)).await.expect_err("the mark 30 is lost")));
    assert!(is_moved(&writer.write(&token(20), "late").await.expect_err("the older mark does not count")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_was_demoted_and_promoted_again_refuses_every_token() {
    let (first, second) = (Redis::durable().await, Redis::durable().await);
    let (mut writer, mut other) = replicate(&first, &second).await;
    promote(&mut other).await;
    // Nothing was lost, so it continues from its own history, and its library is not reloaded.
    let before = statistic(&mut other, "sync_partial_ok").await;
    follow(&mut writer.db, listen(&mut other).await).await;
    let deadline = Instant::now() + Duration::from_secs(120);
    while statistic(&mut other, "sync_partial_ok").await == before {
        assert!(Instant::now() < deadline, "the demoted primary does not replicate");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("replica-read-only")
        .arg("no")
        .query_async::<()>(&mut writer.db)
        .await
        .expect("set");
    assert!(is_moved(&writer.write(&token(20), "at a replica").await.expect_err("only the primary decides")));
    // The second one could have stored a mark since that the first one has not received.
    promote(&mut writer.db).await;
    assert!(is_moved(&writer.write(&token(20), "late").await.expect_err("a mark may be missing")));
    assert!(is_moved(&writer.claim(&token(21)).await.expect_err("a mark may be missing")));
}

/// A number that a server reports about itself.
async fn statistic(db: &mut MultiplexedConnection, name: &str) -> u64 {
    let all: String = redis::cmd("INFO").arg("stats").query_async(db).await.expect("reported");
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("known").trim().parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writable_replica_refuses_every_call_and_a_call_before_its_promotion_changes_nothing() {
    let (primary, replica) = (Redis::durable().await, Redis::durable().await);
    let (_, mut new) = replicate(&primary, &replica).await;
    redis::cmd("CONFIG").arg("SET").arg("replica-read-only").arg("no").query_async::<()>(&mut new).await.expect("set");

    // The replica has the primary's identity, and must not keep it.
    let mut writer = replica.writer().await;
    assert!(is_moved(&writer.write(&token(20), "at a replica").await.expect_err("only the primary decides")));
    let refused = replica.fence.rearm(&mut writer.db, number(21)).await.expect_err("only the primary decides");
    assert_eq!(refused.code(), "CONFLICT", "{refused}");
    // The primary goes on, and the replica does not receive it.
    primary.kill();
    promote(&mut new).await;
    for late in [20, 21] {
        assert!(is_moved(&writer.write(&token(late), "late").await.expect_err("a mark may be missing")));
    }
    assert!(replica.applied().await.is_empty());
    replica.fence.rearm(&mut writer.db, number(25)).await.expect("re-armed");
    assert_eq!(writer.write(&token(20), "late").await.expect_err("stale").code(), "STALE_TOKEN");
    writer.write(&token(25), "after").await.expect("the new holder");
}

/// A crash of the machine with `appendfsync everysec`: the end of the append-only file is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lost_the_last_second_of_its_file_refuses_every_token() {
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "everysec"]).await;
    redis.fresh().await;
    let mut writer = redis.writer().await;
    writer.write(&token(20), "first").await.expect("written");
    let file = redis.append_only_file();
    let synced = std::fs::metadata(&file).expect("a file").len();
    writer.claim(&token(30)).await.expect("claimed");
    redis.kill();
    let all = std::fs::OpenOptions::new().write(true).open(&file).expect("a file");
    assert!(all.metadata().expect("its length").len() > synced, "the claim is in the file");
    all.set_len(synced).expect("the end is lost");
    redis.restart();
    let mut writer = redis.writer().await;
    let mark: String = redis::cmd("GET").arg(redis.fence.key()).query_async(&mut writer.db).await.expect("read");
    assert!(mark.contains("-0000000000000000020 a"), "the server has the older mark: {mark}");
    for late in [20, 30, 31] {
        assert!(is_moved(&writer.write(&token(late), "late").await.expect_err("a mark may be missing")));
    }
    assert_eq!(redis.fence.resume(&mut writer.db).await.expect_err("not durable").code(), "CONFIG");
    redis.fence.rearm(&mut writer.db, number(31)).await.expect("re-armed");
    writer.write(&token(31), "after").await.expect("the new holder");
    assert_eq!(redis.applied().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_mark_and_keys_share_a_slot_and_a_migrated_mark_is_refused() {
    let (first, second) = (cluster_node().await, cluster_node().await);
    let (mut db, mut other) = (first.connect().await, second.connect().await);
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("ADDSLOTSRANGE").arg(0).arg(16383).query_async::<()>(&mut db).await.expect("assigned");
    wait_for_cluster(&mut db).await;
    first.fence.arm(&mut db).await.expect("armed");
    let mut writer = first.writer().await;
    writer.write(&token(20), "first").await.expect("written");
    let elsewhere =
        first.fence.write::<()>(&mut db, &token(20), &["elsewhere"], redis::cmd("SET").arg("elsewhere").arg(1)).await;
    assert_eq!(elsewhere.expect_err("a key of another slot").code(), "STORAGE_FAILED");
    // The command names a key that is not passed as one.
    let hidden = first.fence.write::<()>(&mut db, &token(20), &[], redis::cmd("SET").arg("elsewhere").arg(1)).await;
    assert_eq!(hidden.expect_err("a key of another slot").code(), "STORAGE_FAILED");

    // The slot moves to another primary, with the mark as it was.
    let mark: Vec<u8> = redis::cmd("DUMP").arg(first.fence.key()).query_async(&mut db).await.expect("dumped");
    slots = redis::cmd("CLUSTER");
    slots.arg("ADDSLOTSRANGE").arg(0).arg(16383).query_async::<()>(&mut other).await.expect("assigned");
    wait_for_cluster(&mut other).await;
    let mut restore = redis::cmd("RESTORE");
    restore.arg(first.fence.key()).arg(0).arg(mark).query_async::<()>(&mut other).await.expect("migrated");
    let mut writer = second.writer().await;
    for late in [20, 21] {
        assert!(is_moved(&writer.write(&token(late), "late").await.expect_err("another server stored it")));
    }
}

/// A server of a cluster, which needs an address.
async fn cluster_node() -> Redis {
    let address = leasehold_testkit::ports::unused_address();
    let words = format!("--cluster-enabled yes --appendonly yes --bind {} --port {}", address.ip(), address.port());
    let words: Vec<&'static str> = words.leak().split(' ').collect();
    Redis::start(words.leak()).await
}

async fn wait_for_cluster(db: &mut MultiplexedConnection) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query_async(db).await.expect("read");
        if info.contains("cluster_state:ok") {
            return;
        }
        assert!(Instant::now() < deadline, "{info}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
