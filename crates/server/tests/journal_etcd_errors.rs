//! Errors of the etcd journal: an unusable etcd is refused with a code and a next step, and nothing is written to it.

mod etcd_support;

use std::future::Future;

use etcd_support::{endpoints, etcd_location};
use leasehold_server::journal::EtcdOpenError;
use leasehold_server::journal::conformance::{RecordedReplay, batch};
use leasehold_server::journal::etcd::{EtcdEndpoints, EtcdJournal, EtcdLocation};
use leasehold_server::journal::{
    AppendOutcome, DiskSpace, Journal, JournalError, JournalLocation, OpenError, SnapshotStore, WriterStatus,
};
use leasehold_testkit::etcd::{EtcdCluster, EtcdOptions};

/// Runs a future on a multi-threaded runtime, as a server does.
fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("the runtime starts").block_on(future)
}

async fn open(location: &EtcdLocation) -> (EtcdJournal, RecordedReplay) {
    let mut replay = RecordedReplay::default();
    let opened = location.open(&mut replay).await.expect("the journal opens");
    (opened.journal, replay)
}

/// The error of an open that must fail. Its text is one line with a next step.
fn open_error(location: &EtcdLocation) -> EtcdOpenError {
    let error = block_on(location.open(&mut RecordedReplay::default())).err().expect("the open fails");
    let line = error.to_string();
    assert!(!line.contains('\n') && line.contains(';'), "{line}");
    match error {
        OpenError::Etcd(reason) => reason,
        other => panic!("{other}"),
    }
}

fn keys(etcd: &EtcdCluster, prefix: &str) -> String {
    etcd.ctl_ok(&["get", prefix, "--prefix", "--keys-only"])
}

#[test]
fn an_etcd_that_does_not_respond_is_unreachable() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let endpoints = EtcdEndpoints { endpoints: vec!["127.0.0.1:1".to_owned()], ..EtcdEndpoints::default() };
    let location = EtcdLocation::new(endpoints, "p", "127.0.0.1:7421", &parent.path().join("data"))
        .expect("the data directory is usable");
    let reason = open_error(&location);
    assert_eq!(reason.code(), "UNAVAILABLE");
    assert!(matches!(&reason, EtcdOpenError::Unreachable { reason } if reason.contains("127.0.0.1:1")), "{reason}");
}

#[test]
fn a_prefix_with_foreign_keys_is_refused_and_unchanged() {
    let etcd = EtcdCluster::single();
    etcd.ctl_ok(&["put", "/taken/by", "another program"]);
    let reason = open_error(&etcd_location(&etcd, "taken", "server"));
    assert_eq!(reason.code(), "WRONG_CLUSTER");
    assert!(matches!(&reason, EtcdOpenError::Foreign { key, .. } if key == "/taken/by"), "{reason}");
    assert_eq!(keys(&etcd, "/taken/").trim(), "/taken/by", "nothing was written");
    etcd.ctl_ok(&["put", "/odd/meta", "not ours"]);
    assert!(matches!(open_error(&etcd_location(&etcd, "odd", "other")), EtcdOpenError::Foreign { .. }));
    etcd.ctl_ok(&["put", "/newer/meta", "leasehold-journal 9\nid x\n"]);
    let reason = open_error(&etcd_location(&etcd, "newer", "third"));
    assert_eq!((reason.code(), matches!(reason, EtcdOpenError::Newer { have: 9, .. })), ("UNSUPPORTED_VERSION", true));
}

#[test]
fn a_login_that_is_missing_wrong_or_read_only_is_refused() {
    let etcd = EtcdCluster::single();
    etcd.enable_auth("/kept/", &[("reader", "read"), ("writer", "readwrite")]);
    let location = |user: Option<(&str, &str)>, server_name: &str| {
        let login = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
        let endpoints = EtcdEndpoints { login, ..endpoints(&etcd) };
        let data = etcd.dir().join(server_name);
        EtcdLocation::new(endpoints, "kept", "127.0.0.1:7421", &data)
            .expect("the data directory is usable")
            .with_lease(600)
            .with_insecure(true) // Debian's etcd is older than the versions that protect leases from others
    };
    let reason = open_error(&location(None, "anonymous"));
    assert_eq!((reason.code(), matches!(reason, EtcdOpenError::Login { .. })), ("CONFIG", true), "{reason}");
    let reason = open_error(&location(Some(("writer", "wrong")), "wrong"));
    assert!(
        matches!(reason, EtcdOpenError::Login { .. }) && !reason.to_string().contains("wrong password"),
        "{reason}"
    );
    let reason = open_error(&location(Some(("reader", "secret")), "reader"));
    assert_eq!((reason.code(), matches!(reason, EtcdOpenError::ReadOnly { .. })), ("CONFIG", true), "{reason}");
    block_on(async {
        let (mut journal, _) = open(&location(Some(("writer", "secret")), "writer")).await;
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        assert_eq!(journal.confirm().await, Ok(WriterStatus::Current));
    });
}

#[test]
fn a_full_etcd_refuses_a_batch_and_accepts_it_when_it_has_space_again() {
    let quota = 16 << 20;
    let flags = vec!["--quota-backend-bytes".to_owned(), quota.to_string()];
    let etcd = EtcdCluster::start(EtcdOptions { flags, ..EtcdOptions::default() });
    let location = etcd_location(&etcd, "full", "server").with_quota(quota);
    let large = vec![7; 400_000];
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    let (mut journal, _) = runtime.block_on(open(&location));
    assert_eq!(journal.disk_space(), Ok(DiskSpace::Plenty));
    let mut sequence = 0;
    loop {
        sequence += 1;
        match runtime.block_on(journal.append(sequence, &large)) {
            Ok(AppendOutcome::Durable) => assert!(sequence < 100, "the quota of 16 MiB is reached"),
            Err(JournalError::Full) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(journal.next(), sequence, "the refused batch was not stored");
    let deadline = std::time::Instant::now() + leasehold_testkit::process::TIMEOUT;
    while journal.quota().read().0 < quota * 9 / 10 {
        assert!(std::time::Instant::now() < deadline, "the quota is polled");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_ne!(journal.disk_space(), Ok(DiskSpace::Plenty));
    let reason = open_error(&etcd_location(&etcd, "another", "other"));
    assert_eq!((reason.code(), matches!(reason, EtcdOpenError::Full { .. })), ("STORAGE_FULL", true), "{reason}");
    assert_eq!(keys(&etcd, "/another/").trim(), "", "nothing was written");
    // The operator's repair. etcd checks its own size only now and then and may be far above the quota, so delete every batch
    // except the last, which the next append compares.
    let last = format!("/full/log/{:020}", sequence - 1);
    etcd.ctl_ok(&["del", "/full/log/00000000000000000001", &last]);
    let status = etcd.ctl_ok(&["endpoint", "status", "-w", "json"]);
    let revision = status.split("\"revision\":").nth(1).expect("a revision").split([',', '}']).next().expect("digits");
    // Physical: otherwise compaction continues after the reply, and defragmentation finds nothing.
    etcd.ctl_ok(&["compact", revision, "--physical"]);
    etcd.ctl_ok(&["defrag"]);
    etcd.ctl_ok(&["alarm", "disarm"]);
    assert_eq!(runtime.block_on(journal.append(sequence, &large)), Ok(AppendOutcome::Durable), "the same batch");
}

#[test]
fn a_writer_that_failed_once_fails_permanently() {
    let etcd = EtcdCluster::single();
    let location = etcd_location(&etcd, "failed", "server");
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    let (mut journal, _) = runtime.block_on(open(&location));
    assert_eq!(runtime.block_on(journal.append(1, &batch(1))), Ok(AppendOutcome::Durable));
    etcd.enable_auth("/kept/", &[]);
    let failed = runtime.block_on(journal.append(2, &batch(2)));
    assert!(matches!(failed, Err(JournalError::Failed { .. })), "etcd rejects this writer: {failed:?}");
    // Removing the cause does not revive the writer (14).
    etcd.disable_auth();
    let snapshots = journal.snapshots();
    assert!(matches!(runtime.block_on(journal.append(2, &batch(2))), Err(JournalError::Failed { .. })));
    assert!(matches!(runtime.block_on(journal.confirm()), Err(JournalError::Failed { .. })));
    assert!(matches!(runtime.block_on(snapshots.save(1, b"state")), Err(JournalError::Failed { .. })));
    assert!(matches!(runtime.block_on(snapshots.trim(1)), Err(JournalError::Failed { .. })));
    drop(journal);
    assert!(!keys(&etcd, "/failed/log/").contains("00002"), "the failed append was not retried");
    let (_, replay) = runtime.block_on(open(&location));
    assert_eq!(replay.batches, vec![(1, batch(1))]);
}

#[test]
fn an_etcd_restored_from_a_snapshot_is_detected_although_its_cluster_id_is_the_same() {
    let mut etcd = EtcdCluster::single();
    let location = etcd_location(&etcd, "restored", "server");
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    let (mut journal, _) = runtime.block_on(open(&location));
    let snapshot = etcd.dir().join("snapshot.db");
    let snapshot = snapshot.to_str().expect("the path is UTF-8").to_owned();
    for sequence in 1..=6 {
        assert_eq!(runtime.block_on(journal.append(sequence, &batch(sequence))), Ok(AppendOutcome::Durable));
        if sequence == 3 {
            etcd.ctl_ok(&["snapshot", "save", &snapshot]);
        }
    }
    etcd.restore_snapshot(&snapshot);
    // For the running writer, the leader key is unchanged, and its last batches are gone.
    assert!(matches!(runtime.block_on(journal.append(7, &batch(7))), Err(JournalError::RolledBack { .. })));
    assert!(matches!(runtime.block_on(journal.confirm()), Err(JournalError::RolledBack { .. })));
    drop(journal);
    assert!(!keys(&etcd, "/restored/log/").contains("00007"), "no batch was stored after a gap");
    assert!(keys(&etcd, "/restored/").contains("/restored/rolled_back"), "a marker stops the other servers");
    let unaware = etcd_location(&etcd, "restored", "unaware");
    assert!(matches!(open_error(&unaware), EtcdOpenError::Marked { .. }), "one that has seen nothing, too");
    let reason = open_error(&location);
    assert_eq!((reason.code(), matches!(reason, EtcdOpenError::Restored { .. })), ("ROLLED_BACK", true), "{reason}");
    let accepting = location.clone().with_accept_restored(true);
    let (mut journal, replay) = runtime.block_on(open(&accepting));
    assert!(journal.was_restored());
    assert_eq!(replay.batches, (1..=3).map(|at| (at, batch(at))).collect::<Vec<_>>());
    assert_eq!(runtime.block_on(journal.append(4, b"after the restore")), Ok(AppendOutcome::Durable));
    assert!(!keys(&etcd, "/restored/").contains("/restored/rolled_back"), "the accepted restore removes the marker");
    // The server has now recorded the restored state.
    drop(journal);
    let (journal, _) = runtime.block_on(open(&location));
    assert!(!journal.was_restored());
    let other = etcd_location(&etcd, "elsewhere", "second");
    drop(runtime.block_on(open(&other)));
    etcd.ctl_ok(&["del", "/elsewhere/", "--prefix"]);
    assert!(
        matches!(open_error(&other), EtcdOpenError::OtherJournal { .. }),
        "another journal wrapper the same prefix"
    );
}

#[test]
fn a_restored_etcd_is_recognized_although_another_server_has_appended_more() {
    let mut etcd = EtcdCluster::single();
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    let (seen, unaware) = (etcd_location(&etcd, "content", "seen"), etcd_location(&etcd, "content", "unaware"));
    let snapshot = etcd.dir().join("snapshot.db");
    let snapshot = snapshot.to_str().expect("the path is UTF-8").to_owned();
    let (mut journal, _) = runtime.block_on(open(&seen));
    for sequence in 1..=6 {
        assert_eq!(runtime.block_on(journal.append(sequence, &batch(sequence))), Ok(AppendOutcome::Durable));
        if sequence == 3 {
            etcd.ctl_ok(&["snapshot", "save", &snapshot]);
        }
    }
    drop(journal);
    etcd.restore_snapshot(&snapshot);
    // It has seen nothing, so it leads, and appends more than was lost: neither revision nor sequence is lower any more.
    let (mut journal, _) = runtime.block_on(open(&unaware));
    for sequence in 4..=40 {
        let batch = format!("after the restore {sequence}");
        assert_eq!(runtime.block_on(journal.append(sequence, batch.as_bytes())), Ok(AppendOutcome::Durable));
    }
    let reason = open_error(&seen);
    assert_eq!((reason.code(), matches!(reason, EtcdOpenError::Restored { .. })), ("ROLLED_BACK", true), "{reason}");
    // What it found stops the leader, and stays known when it starts again.
    assert!(matches!(
        runtime.block_on(journal.append(41, b"x")),
        Err(JournalError::RolledBack { .. }) | Ok(AppendOutcome::Fenced)
    ));
    drop(journal);
    assert!(matches!(open_error(&unaware), EtcdOpenError::Marked { .. }));
    assert_eq!(open_error(&seen).code(), "ROLLED_BACK");
}

#[test]
fn a_snapshot_that_is_taken_while_etcd_is_restored_leaves_the_restored_journal_readable() {
    let mut etcd = EtcdCluster::single();
    let location = etcd_location(&etcd, "snapshots", "server");
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    let (mut journal, _) = runtime.block_on(open(&location));
    let snapshot = etcd.dir().join("snapshot.db");
    let snapshot = snapshot.to_str().expect("the path is UTF-8").to_owned();
    let store = journal.snapshots();
    for sequence in 1..=6 {
        assert_eq!(runtime.block_on(journal.append(sequence, &batch(sequence))), Ok(AppendOutcome::Durable));
        if sequence == 3 {
            assert_eq!(runtime.block_on(store.save(2, b"the state after batch 2")), Ok(AppendOutcome::Durable));
            etcd.ctl_ok(&["snapshot", "save", &snapshot]);
        }
    }
    etcd.restore_snapshot(&snapshot);
    // The leader key is unchanged, so only what is lost shows that the snapshot does not belong to this journal.
    let saved = runtime.block_on(store.save(5, b"the state after batch 5"));
    assert!(matches!(saved, Err(JournalError::RolledBack { .. })), "{saved:?}");
    assert!(matches!(runtime.block_on(store.trim(5)), Err(JournalError::RolledBack { .. })));
    drop((journal, store));
    let accepting = location.with_accept_restored(true);
    let (_, replay) = runtime.block_on(open(&accepting));
    assert_eq!(replay.snapshot, Some((2, b"the state after batch 2".to_vec())));
    assert_eq!(replay.batches, vec![(3, batch(3))]);
}
