//! The etcd journal against a real etcd, of one and of three members: conformance, takeover, and lost or delayed requests.

mod etcd_support;

use std::cell::Cell;
use std::future::Future;

use etcd_support::etcd_location;
use leasehold_server::journal::conformance::{self, Fencing, RecordedReplay, batch};
use leasehold_server::journal::etcd::{EtcdEndpoints, EtcdJournal, EtcdLocation};
use leasehold_server::journal::{AppendOutcome, Journal, JournalLocation, OpenedJournal, SnapshotStore, WriterStatus};
use leasehold_testkit::etcd::EtcdCluster;
use leasehold_testkit::tcp_proxy::{Flow, TcpProxy};

/// Runs a future on a multi-threaded runtime, as a server does.
fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("the runtime starts").block_on(future)
}

async fn open<P: JournalLocation<Journal = EtcdJournal>>(location: &P) -> (EtcdJournal, RecordedReplay) {
    let mut replay = RecordedReplay::default();
    let OpenedJournal { journal, .. } = location.open(&mut replay).await.expect("the journal opens");
    (journal, replay)
}

fn check_conformance(etcd: &EtcdCluster) {
    let count = Cell::new(0);
    let new = || {
        count.set(count.get() + 1);
        etcd_location(etcd, &format!("conformance/{}", count.get()), &format!("server-{}", count.get()))
    };
    let obligations = block_on(conformance::run(new, Fencing::Takeover)).expect("the etcd journal conforms");
    assert_eq!(obligations.len(), 13, "{obligations:?}");
}

#[test]
fn the_etcd_journal_conforms_on_one_member() {
    check_conformance(&EtcdCluster::single());
}

#[test]
fn the_etcd_journal_conforms_on_three_members() {
    check_conformance(&EtcdCluster::three());
}

#[test]
fn a_batch_larger_than_a_request_is_stored_in_parts_and_read_whole() {
    let etcd = EtcdCluster::single();
    let location = etcd_location(&etcd, "large", "server");
    block_on(async {
        let (mut journal, _) = open(&location).await;
        let large: Vec<u8> = (0..1_700_000_u32).map(|at| (at % 251) as u8).collect();
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        assert_eq!(journal.append(2, &large).await, Ok(AppendOutcome::Durable));
        assert_eq!(journal.append(2, &large).await, Ok(AppendOutcome::Durable), "a resend");
        assert_eq!(journal.append(3, &batch(3)).await, Ok(AppendOutcome::Durable));
        let (journal, replay) = open(&location).await;
        assert!(replay.batches == vec![(1, batch(1)), (2, large), (3, batch(3))], "the large batch is read whole");
        let snapshots = journal.snapshots();
        assert_eq!(snapshots.save(3, &vec![9; 1_200_000]).await, Ok(AppendOutcome::Durable));
        assert_eq!(snapshots.trim(3).await, Ok(AppendOutcome::Durable));
    });
    let left = etcd.ctl_ok(&["get", "/large/", "--prefix", "--keys-only"]);
    assert!(!left.contains("/large/part/"), "the parts are deleted with their batch: {left}");
    assert_eq!(left.matches("/large/snap/").count(), 3, "{left}");
}

#[test]
fn deleting_the_leader_key_fences_the_writer_while_its_lease_is_alive() {
    let etcd = EtcdCluster::single();
    let location = etcd_location(&etcd, "deleted", "server");
    block_on(async {
        let (mut journal, _) = open(&location).await;
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        etcd.ctl_ok(&["del", "/deleted/leader"]);
        assert_eq!(journal.confirm().await, Ok(WriterStatus::Fenced));
        assert_eq!(journal.append(2, &batch(2)).await, Ok(AppendOutcome::Fenced));
        let (mut journal, replay) = open(&location).await;
        assert_eq!(replay.batches, vec![(1, batch(1))]);
        assert_eq!(journal.append(2, &batch(2)).await, Ok(AppendOutcome::Durable));
        // A rewritten key has a higher revision, so it is another leader's, even with the same value.
        let value = etcd.ctl_ok(&["get", "/deleted/leader", "--print-value-only"]);
        etcd.ctl_ok(&["put", "/deleted/leader", value.trim_end()]);
        assert_eq!(journal.append(3, &batch(3)).await, Ok(AppendOutcome::Fenced));
    });
}

#[test]
fn the_writer_survives_the_crash_of_any_member() {
    let mut etcd = EtcdCluster::three();
    let location = etcd_location(&etcd, "crash", "server");
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    let (mut journal, _) = runtime.block_on(open(&location));
    let mut sequence = 0;
    for at in 0..3 {
        etcd.kill(at);
        for _ in 0..5 {
            sequence += 1;
            assert_eq!(runtime.block_on(journal.append(sequence, &batch(sequence))), Ok(AppendOutcome::Durable));
        }
        assert_eq!(runtime.block_on(journal.confirm()), Ok(WriterStatus::Current));
        etcd.restart_member(at);
    }
    let (_, replay) = runtime.block_on(open(&location));
    assert_eq!(replay.batches, (1..=sequence).map(|at| (at, batch(at))).collect::<Vec<_>>());
}

/// A journal that reaches etcd only through these proxies.
fn through(etcd: &EtcdCluster, proxies: &[&TcpProxy], prefix: &str) -> EtcdLocation {
    let endpoints = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let data = etcd.dir().join(format!("{prefix}-data"));
    let location =
        EtcdLocation::new(EtcdEndpoints { endpoints, ..EtcdEndpoints::default() }, prefix, "127.0.0.1:7421", &data);
    location.expect("the data directory is usable").with_lease(600)
}

#[test]
fn an_append_whose_reply_was_lost_is_resent_and_stored_once() {
    let etcd = EtcdCluster::single();
    let (first, second) = (TcpProxy::start(etcd.members[0].client), TcpProxy::start(etcd.members[0].client));
    let location = through(&etcd, &[&first, &second], "lost");
    block_on(async {
        let (mut journal, _) = open(&location).await;
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        // Both links lose replies, until the second opens again.
        first.set_flow(Flow::Pass, Flow::Drop);
        second.set_flow(Flow::Pass, Flow::Drop);
        let two = batch(2);
        let (outcome, ()) = tokio::join!(journal.append(2, &two), async {
            let mut keys = String::new();
            while keys.is_empty() {
                keys = etcd.ctl_ok(&["get", "/lost/log/00000000000000000002", "--keys-only"]);
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            second.set_both(Flow::Pass);
        });
        assert_eq!(outcome, Ok(AppendOutcome::Durable), "the batch is already stored, with equal bytes");
        assert_eq!(journal.append(3, &batch(3)).await, Ok(AppendOutcome::Durable));
        first.set_both(Flow::Pass);
        let (_, replay) = open(&location).await;
        assert_eq!(replay.batches, (1..=3).map(|at| (at, batch(at))).collect::<Vec<_>>());
    });
}

#[test]
fn a_delayed_request_that_arrives_after_its_timeout_changes_nothing() {
    let etcd = EtcdCluster::single();
    let (first, second) = (TcpProxy::start(etcd.members[0].client), TcpProxy::start(etcd.members[0].client));
    let location = through(&etcd, &[&first, &second], "late");
    let other = etcd_location(&etcd, "late", "other");
    block_on(async {
        let (mut journal, _) = open(&location).await;
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        // Requests on the first link are delayed; their retries pass on the second.
        first.set_both(Flow::Hold);
        assert_eq!(journal.append(2, &batch(2)).await, Ok(AppendOutcome::Durable));
        assert_eq!(journal.append(3, &batch(3)).await, Ok(AppendOutcome::Durable));
        let (mut successor, replay) = open(&other).await;
        assert_eq!(replay.batches.len(), 3);
        first.set_both(Flow::Pass);
        assert_eq!(journal.append(4, b"late").await, Ok(AppendOutcome::Fenced));
        assert_eq!(successor.append(4, &batch(4)).await, Ok(AppendOutcome::Durable));
        let (_, replay) = open(&other).await;
        assert_eq!(replay.batches, (1..=4).map(|at| (at, batch(at))).collect::<Vec<_>>());
    });
}

#[test]
fn an_append_that_is_delayed_beyond_its_timeout_is_stored_once() {
    let etcd = EtcdCluster::single();
    let (first, second) = (TcpProxy::start(etcd.members[0].client), TcpProxy::start(etcd.members[0].client));
    let location = through(&etcd, &[&first, &second], "held");
    block_on(async {
        let (mut journal, _) = open(&location).await;
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        first.set_both(Flow::Hold);
        second.set_both(Flow::Hold);
        let two = batch(2);
        // Long enough for a timeout on each link; then all attempts arrive.
        let (outcome, ()) = tokio::join!(journal.append(2, &two), async {
            tokio::time::sleep(std::time::Duration::from_secs(8)).await;
            first.set_both(Flow::Pass);
            second.set_both(Flow::Pass);
        });
        assert_eq!(outcome, Ok(AppendOutcome::Durable));
        assert_eq!(journal.append(3, &batch(3)).await, Ok(AppendOutcome::Durable));
        let (_, replay) = open(&location).await;
        assert_eq!(replay.batches, (1..=3).map(|at| (at, batch(at))).collect::<Vec<_>>());
    });
}
