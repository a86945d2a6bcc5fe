//! An etcd that cannot keep a journal is told in one line with its code, and nothing is begun there.

mod etcd_support;

use std::future::Future;

use etcd_support::Server;
use leasehold_server::journal::EtcdOpenError;
use leasehold_server::journal::conformance::{RecordedReplay, batch};
use leasehold_server::journal::etcd::{EtcdEndpoints, EtcdJournal, EtcdLocation};
use leasehold_server::journal::{
    AppendOutcome, DiskSpace, Journal, JournalError, JournalLocation, OpenError, SnapshotStore, WriterStatus,
};

fn wait<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

async fn opened(place: &EtcdLocation) -> (EtcdJournal, RecordedReplay) {
    let mut told = RecordedReplay::default();
    let opened = place.open(&mut told).await.expect("opened");
    (opened.journal, told)
}

/// What the open was refused with. It is one line, and ends with what to do.
fn refused(place: &EtcdLocation) -> EtcdOpenError {
    let refused = wait(place.open(&mut RecordedReplay::default())).err().expect("it cannot be opened");
    let line = refused.to_string();
    assert!(!line.contains('\n') && line.contains(';'), "{line}");
    match refused {
        OpenError::Etcd(reason) => reason,
        other => panic!("{other}"),
    }
}

fn keys(server: &Server, prefix: &str) -> String {
    server.ctl_ok(&["get", prefix, "--prefix", "--keys-only"])
}

#[test]
fn an_etcd_that_nobody_answers_for_is_unreachable() {
    let above = tempfile::tempdir().expect("a directory");
    let entry = EtcdEndpoints { endpoints: vec!["127.0.0.1:1".to_owned()], ..EtcdEndpoints::default() };
    let place = EtcdLocation::new(entry, "p", "127.0.0.1:7421", &above.path().join("data")).expect("a directory");
    let reason = refused(&place);
    assert_eq!(reason.code(), "UNAVAILABLE");
    assert!(matches!(&reason, EtcdOpenError::Unreachable { reason } if reason.contains("127.0.0.1:1")), "{reason}");
}

#[test]
fn a_prefix_that_holds_something_else_is_left_alone() {
    let server = Server::single();
    server.ctl_ok(&["put", "/taken/by", "somebody"]);
    let reason = refused(&server.place("taken", "server"));
    assert_eq!(reason.code(), "WRONG_CLUSTER");
    assert!(matches!(&reason, EtcdOpenError::Foreign { key, .. } if key == "/taken/by"), "{reason}");
    assert_eq!(keys(&server, "/taken/").trim(), "/taken/by", "nothing was begun there");
    server.ctl_ok(&["put", "/odd/meta", "not ours"]);
    assert!(matches!(refused(&server.place("odd", "other")), EtcdOpenError::Foreign { .. }));
    server.ctl_ok(&["put", "/newer/meta", "leasehold-journal 9\nid x\n"]);
    let reason = refused(&server.place("newer", "third"));
    assert_eq!((reason.code(), matches!(reason, EtcdOpenError::Newer { have: 9, .. })), ("UNSUPPORTED_VERSION", true));
}

#[test]
fn a_server_that_may_only_read_or_is_not_known_is_told_so() {
    let server = Server::single();
    server.know_only(&[("reader", "read"), ("writer", "readwrite")]);
    let place = |user: Option<(&str, &str)>, server_name: &str| {
        let login = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
        let entry = EtcdEndpoints { login, ..server.entry() };
        let data = server.above.path().join(server_name);
        EtcdLocation::new(entry, "kept", "127.0.0.1:7421", &data).expect("a directory").with_lease(600)
    };
    let reason = refused(&place(None, "nobody"));
    assert_eq!((reason.code(), matches!(reason, EtcdOpenError::Login { .. })), ("CONFIG", true), "{reason}");
    let reason = refused(&place(Some(("writer", "wrong")), "wrong"));
    assert!(
        matches!(reason, EtcdOpenError::Login { .. }) && !reason.to_string().contains("wrong password"),
        "{reason}"
    );
    let reason = refused(&place(Some(("reader", "secret")), "reader"));
    assert_eq!((reason.code(), matches!(reason, EtcdOpenError::ReadOnly { .. })), ("CONFIG", true), "{reason}");
    wait(async {
        let (mut journal, _) = opened(&place(Some(("writer", "secret")), "writer")).await;
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        assert_eq!(journal.confirm().await, Ok(WriterStatus::Current));
    });
}

#[test]
fn a_full_etcd_takes_nothing_and_takes_the_same_batch_when_it_has_room_again() {
    let quota = 16 << 20;
    let server = Server::start(1, &["--quota-backend-bytes", &quota.to_string()]);
    let place = server.place("full", "server").with_quota(quota);
    let large = vec![7; 400_000];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (mut journal, _) = runtime.block_on(opened(&place));
    assert_eq!(journal.disk_space(), Ok(DiskSpace::Plenty));
    let mut sequence = 0;
    loop {
        sequence += 1;
        match runtime.block_on(journal.append(sequence, &large)) {
            Ok(AppendOutcome::Durable) => assert!(sequence < 100, "a bound of 16 MiB is reached"),
            Err(JournalError::Full) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(journal.next(), sequence, "nothing was kept");
    let over = std::time::Instant::now() + etcd_support::PATIENCE;
    while journal.quota().read().0 < quota * 9 / 10 {
        assert!(std::time::Instant::now() < over, "it is looked at now and then");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_ne!(journal.disk_space(), Ok(DiskSpace::Plenty));
    let reason = refused(&server.place("another", "other"));
    assert_eq!((reason.code(), matches!(reason, EtcdOpenError::Full { .. })), ("STORAGE_FULL", true), "{reason}");
    assert_eq!(keys(&server, "/another/").trim(), "", "nothing was begun there");
    // What an operator does. etcd looks at its own size only now and then and may have grown far past its bound, so all
    // goes but the last batch, which the next one stands on.
    let last = format!("/full/log/{:020}", sequence - 1);
    server.ctl_ok(&["del", "/full/log/00000000000000000001", &last]);
    let status = server.ctl_ok(&["endpoint", "status", "-w", "json"]);
    let revision = status.split("\"revision\":").nth(1).expect("a revision").split([',', '}']).next().expect("digits");
    // Physically: else it goes on after the answer, and there is nothing yet to defragment.
    server.ctl_ok(&["compact", revision, "--physical"]);
    server.ctl_ok(&["defrag"]);
    server.ctl_ok(&["alarm", "disarm"]);
    assert_eq!(runtime.block_on(journal.append(sequence, &large)), Ok(AppendOutcome::Durable), "the same batch");
}

#[test]
fn a_writer_that_failed_once_fails_for_ever() {
    let server = Server::single();
    let place = server.place("failed", "server");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (mut journal, _) = runtime.block_on(opened(&place));
    assert_eq!(runtime.block_on(journal.append(1, &batch(1))), Ok(AppendOutcome::Durable));
    server.know_only(&[]);
    let failed = runtime.block_on(journal.append(2, &batch(2)));
    assert!(matches!(failed, Err(JournalError::Failed { .. })), "nobody knows this writer any more: {failed:?}");
    // The cause is gone, and it makes no difference (14).
    server.know_everybody();
    let snapshots = journal.snapshots();
    assert!(matches!(runtime.block_on(journal.append(2, &batch(2))), Err(JournalError::Failed { .. })));
    assert!(matches!(runtime.block_on(journal.confirm()), Err(JournalError::Failed { .. })));
    assert!(matches!(runtime.block_on(snapshots.save(1, b"state")), Err(JournalError::Failed { .. })));
    assert!(matches!(runtime.block_on(snapshots.trim(1)), Err(JournalError::Failed { .. })));
    drop(journal);
    assert!(!keys(&server, "/failed/log/").contains("00002"), "it was not tried again");
    let (_, told) = runtime.block_on(opened(&place));
    assert_eq!(told.batches, vec![(1, batch(1))]);
}

#[test]
fn an_etcd_that_was_set_back_is_known_although_it_kept_its_cluster_id() {
    let mut server = Server::single();
    let place = server.place("back", "server");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (mut journal, _) = runtime.block_on(opened(&place));
    let snapshot = server.above.path().join("snapshot.db");
    let snapshot = snapshot.to_str().expect("a path of text").to_owned();
    for sequence in 1..=6 {
        assert_eq!(runtime.block_on(journal.append(sequence, &batch(sequence))), Ok(AppendOutcome::Durable));
        if sequence == 3 {
            server.ctl_ok(&["snapshot", "save", &snapshot]);
        }
    }
    server.set_back(&snapshot);
    // The writer that lives: the leader key is as it left it, and what it wrote is gone.
    assert!(matches!(runtime.block_on(journal.append(7, &batch(7))), Err(JournalError::Failed { .. })));
    assert!(matches!(runtime.block_on(journal.confirm()), Err(JournalError::Failed { .. })));
    drop(journal);
    assert!(!keys(&server, "/back/log/").contains("00007"), "it left no gap");
    let reason = refused(&place);
    assert_eq!((reason.code(), matches!(reason, EtcdOpenError::Restored { .. })), ("ROLLED_BACK", true), "{reason}");
    let accepting = place.clone().with_accept_restored(true);
    let (mut journal, told) = runtime.block_on(opened(&accepting));
    assert!(journal.was_restored());
    assert_eq!(told.batches, (1..=3).map(|at| (at, batch(at))).collect::<Vec<_>>());
    assert_eq!(runtime.block_on(journal.append(4, b"another life")), Ok(AppendOutcome::Durable));
    // From here on this is what the server has seen.
    drop(journal);
    let (journal, _) = runtime.block_on(opened(&place));
    assert!(!journal.was_restored());
    let other = server.place("elsewhere", "second");
    drop(runtime.block_on(opened(&other)));
    server.ctl_ok(&["del", "/elsewhere/", "--prefix"]);
    assert!(matches!(refused(&other), EtcdOpenError::OtherJournal { .. }), "another journal under the same prefix");
}
