//! Keys of the journal that are changed or deleted in etcd by hand: nothing is acknowledged that would be lost, no server begins a new
//! journal over an old one, and a server that has seen more stops the others.

mod etcd_support;

use std::future::Future;

use etcd_support::etcd_location;
use leasehold_server::journal::conformance::{RecordedReplay, batch};
use leasehold_server::journal::etcd::{EtcdJournal, EtcdLocation, StandbyObserver};
use leasehold_server::journal::{AppendOutcome, Journal, JournalError, JournalLocation, OpenError, SnapshotStore};
use leasehold_testkit::etcd::EtcdCluster;

struct NoObserver;

impl StandbyObserver for NoObserver {
    fn leader(&mut self, _address: Option<&str>) {}

    fn reached(&mut self, _sequence: u64) {}
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("the runtime starts").block_on(future)
}

/// Opens a journal and appends three batches.
async fn with_batches(location: &EtcdLocation) -> EtcdJournal {
    let mut journal = location.open(&mut RecordedReplay::default()).await.expect("the journal opens").journal;
    for sequence in 1..=3 {
        assert_eq!(journal.append(sequence, &batch(sequence)).await, Ok(AppendOutcome::Durable));
    }
    journal
}

async fn open_error(location: &EtcdLocation) -> OpenError {
    location.open(&mut RecordedReplay::default()).await.err().expect("the open fails")
}

fn keys(etcd: &EtcdCluster, prefix: &str) -> String {
    etcd.ctl_ok(&["get", prefix, "--prefix", "--keys-only"])
}

fn log(prefix: &str, sequence: u64) -> String {
    format!("/{prefix}/log/{sequence:020}")
}

#[test]
fn a_leader_whose_last_batch_is_overwritten_acknowledges_nothing_more() {
    let etcd = EtcdCluster::single();
    block_on(async {
        for (prefix, appends) in [("appended", true), ("saved", false)] {
            let mut journal = with_batches(&etcd_location(&etcd, prefix, prefix)).await;
            etcd.ctl_ok(&["put", &log(prefix, 3), "garbage"]);
            if appends {
                let failed = journal.append(4, &batch(4)).await;
                assert!(
                    matches!(&failed, Err(JournalError::RolledBack { reason }) if reason.contains("batch 3")),
                    "{failed:?}"
                );
            } else {
                let failed = journal.snapshots().save(2, b"state").await;
                assert!(matches!(&failed, Err(JournalError::RolledBack { .. })), "{failed:?}");
            }
            assert!(matches!(journal.append(4, &batch(4)).await, Err(JournalError::RolledBack { .. })));
            let keys = keys(&etcd, &format!("/{prefix}/"));
            assert!(!keys.contains(&log(prefix, 4)) && keys.contains("rolled_back"), "{keys}");
        }
    });
}

/// A snapshot is saved while the leader appends: each of its transactions compares a batch that it has really seen last.
#[test]
fn a_snapshot_that_is_saved_during_appends_finds_the_last_batch_unchanged() {
    let etcd = EtcdCluster::single();
    block_on(async {
        let mut journal = with_batches(&etcd_location(&etcd, "both", "server")).await;
        let store = journal.snapshots();
        let saves = tokio::spawn(async move {
            for sequence in 1..=3 {
                assert_eq!(store.save(sequence, &vec![7; 1 << 20]).await, Ok(AppendOutcome::Durable));
                assert_eq!(store.trim(sequence).await, Ok(AppendOutcome::Durable));
            }
        });
        for sequence in 4..=40 {
            assert_eq!(journal.append(sequence, &batch(sequence)).await, Ok(AppendOutcome::Durable));
        }
        saves.await.expect("every snapshot is saved");
        // A writer that opened the journal knows the revision of the last batch too.
        drop(journal);
        let mut replay = RecordedReplay::default();
        let opened = etcd_location(&etcd, "both", "second").open(&mut replay).await.expect("the journal opens");
        let mut journal = opened.journal;
        etcd.ctl_ok(&["put", &log("both", 40), "garbage"]);
        assert!(matches!(journal.append(41, &batch(41)).await, Err(JournalError::RolledBack { .. })));
    });
}

#[test]
fn a_deleted_meta_is_reported_as_damage_and_never_written_again() {
    let etcd = EtcdCluster::single();
    block_on(async {
        let (seen, unaware) = (etcd_location(&etcd, "p", "seen"), etcd_location(&etcd, "p", "unaware"));
        let mut journal = with_batches(&seen).await;
        let mut standby = etcd_location(&etcd, "p", "standby").stand_by().await.expect("there is a journal");
        etcd.ctl_ok(&["del", "/p/meta"]);
        let failed = journal.append(4, &batch(4)).await;
        assert!(matches!(&failed, Err(JournalError::Failed { reason }) if reason.contains("/p/meta")), "{failed:?}");
        drop(journal);
        etcd.ctl_ok(&["del", "/p/leader"]);
        let followed = standby.follow(&mut RecordedReplay::default(), &mut NoObserver).await.map(drop);
        let errors = [followed.expect_err("a standby"), open_error(&seen).await, open_error(&unaware).await];
        for error in errors {
            assert_eq!(error.code(), "CORRUPT", "{error}");
            assert!(error.to_string().contains("/p/meta in etcd: missing, although there are batches"), "{error}");
        }
        let keys = keys(&etcd, "/p/");
        assert!(!keys.contains("/p/meta") && keys.contains(&log("p", 3)) && !keys.contains(&log("p", 4)), "{keys}");
    });
}

#[test]
fn a_deleted_journal_stops_servers_that_have_seen_batches_and_all_others() {
    let etcd = EtcdCluster::single();
    block_on(async {
        let (seen, unaware) = (etcd_location(&etcd, "p", "seen"), etcd_location(&etcd, "p", "unaware"));
        drop(with_batches(&seen).await);
        etcd.ctl_ok(&["del", "/p/", "--prefix"]);
        for location in
            [&seen, &unaware, &seen.clone().with_accept_restored(true), &unaware.clone().with_accept_restored(true)]
        {
            let error = open_error(location).await;
            assert_eq!(error.code(), "ROLLED_BACK", "{error}");
            let text = error.to_string();
            assert!(text.contains("batch 3") && !text.contains("--accept-restored") && text.contains(';'), "{text}");
            let keys = keys(&etcd, "/p/");
            assert!(keys.contains("/p/rolled_back") && !keys.contains("/p/meta"), "{keys}");
        }
    });
}

#[test]
fn a_standby_that_has_replayed_batches_finds_the_deleted_journal_and_creates_no_other() {
    let etcd = EtcdCluster::single();
    block_on(async {
        let journal = with_batches(&etcd_location(&etcd, "p", "leader")).await;
        let standby = etcd_location(&etcd, "p", "standby");
        // It has read the batches in an earlier life, so that its high-water mark names them.
        drop(standby.open(&mut RecordedReplay::default()).await.expect("the journal opens"));
        let mut standby = standby.stand_by().await.expect("there is a journal");
        drop(journal);
        etcd.ctl_ok(&["del", "/p/", "--prefix"]);
        let followed = standby.follow(&mut RecordedReplay::default(), &mut NoObserver).await.map(drop);
        let error = followed.expect_err("its journal is gone");
        assert_eq!(error.code(), "ROLLED_BACK", "{error}");
        let keys = keys(&etcd, "/p/");
        assert!(keys.contains("/p/rolled_back") && !keys.contains("/p/meta"), "{keys}");
    });
}
