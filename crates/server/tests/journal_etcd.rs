//! The journal on etcd on trial, on a real one: of one member, and of three.

mod etcd_support;

use std::cell::Cell;
use std::future::Future;

use etcd_support::Server;
use etcd_support::proxy::{Proxy, Way};
use leasehold_server::journal::conformance::{self, Fencing, RecordedReplay, batch};
use leasehold_server::journal::etcd::{EtcdEndpoints, EtcdJournal, EtcdLocation};
use leasehold_server::journal::{AppendOutcome, Journal, JournalLocation, OpenedJournal, SnapshotStore, WriterStatus};

/// On threads of its own, as in a server.
fn wait<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

async fn open<P: JournalLocation<Journal = EtcdJournal>>(place: &P) -> (EtcdJournal, RecordedReplay) {
    let mut told = RecordedReplay::default();
    let OpenedJournal { journal, .. } = place.open(&mut told).await.expect("opened");
    (journal, told)
}

fn conforms(server: &Server) {
    let count = Cell::new(0);
    let new = || {
        count.set(count.get() + 1);
        server.place(&format!("conformance/{}", count.get()), &format!("server-{}", count.get()))
    };
    let held = wait(conformance::run(new, Fencing::Takeover)).expect("the journal on etcd conforms");
    assert_eq!(held.len(), 13, "{held:?}");
}

#[test]
fn the_journal_on_one_member_meets_every_obligation() {
    conforms(&Server::single());
}

#[test]
fn the_journal_on_three_members_meets_every_obligation() {
    conforms(&Server::three());
}

#[test]
fn a_batch_larger_than_a_request_is_kept_whole() {
    let server = Server::single();
    let place = server.place("large", "server");
    wait(async {
        let (mut journal, _) = open(&place).await;
        let large: Vec<u8> = (0..1_700_000_u32).map(|at| (at % 251) as u8).collect();
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        assert_eq!(journal.append(2, &large).await, Ok(AppendOutcome::Durable));
        assert_eq!(journal.append(2, &large).await, Ok(AppendOutcome::Durable), "a resend");
        assert_eq!(journal.append(3, &batch(3)).await, Ok(AppendOutcome::Durable));
        let (journal, told) = open(&place).await;
        assert!(told.batches == vec![(1, batch(1)), (2, large), (3, batch(3))], "all of it came back");
        let snapshots = journal.snapshots();
        assert_eq!(snapshots.save(3, &vec![9; 1_200_000]).await, Ok(AppendOutcome::Durable));
        assert_eq!(snapshots.trim(3).await, Ok(AppendOutcome::Durable));
    });
    let left = server.ctl_ok(&["get", "/large/", "--prefix", "--keys-only"]);
    assert!(!left.contains("/large/part/"), "the parts went with their batch: {left}");
    assert_eq!(left.matches("/large/snap/").count(), 3, "{left}");
}

#[test]
fn a_leader_key_that_was_deleted_while_its_lease_lives_ends_the_writer() {
    let server = Server::single();
    let place = server.place("deleted", "server");
    wait(async {
        let (mut journal, _) = open(&place).await;
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        server.ctl_ok(&["del", "/deleted/leader"]);
        assert_eq!(journal.confirm().await, Ok(WriterStatus::Fenced));
        assert_eq!(journal.append(2, &batch(2)).await, Ok(AppendOutcome::Fenced));
        let (mut journal, told) = open(&place).await;
        assert_eq!(told.batches, vec![(1, batch(1))]);
        assert_eq!(journal.append(2, &batch(2)).await, Ok(AppendOutcome::Durable));
        // Written again, it is another's: the revision is higher, whatever the value says.
        let value = server.ctl_ok(&["get", "/deleted/leader", "--print-value-only"]);
        server.ctl_ok(&["put", "/deleted/leader", value.trim_end()]);
        assert_eq!(journal.append(3, &batch(3)).await, Ok(AppendOutcome::Fenced));
    });
}

#[test]
fn a_member_that_dies_does_not_stop_the_writer() {
    let mut server = Server::three();
    let place = server.place("survives", "server");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (mut journal, _) = runtime.block_on(open(&place));
    let mut sequence = 0;
    for at in 0..3 {
        server.kill(at);
        for _ in 0..5 {
            sequence += 1;
            assert_eq!(runtime.block_on(journal.append(sequence, &batch(sequence))), Ok(AppendOutcome::Durable));
        }
        assert_eq!(runtime.block_on(journal.confirm()), Ok(WriterStatus::Current));
        server.begin(at);
        assert!(server.is_up(at), "member {at} comes back");
    }
    let (_, told) = runtime.block_on(open(&place));
    assert_eq!(told.batches, (1..=sequence).map(|at| (at, batch(at))).collect::<Vec<_>>());
}

/// A journal whose server reaches etcd by these ways only.
fn by_way_of(server: &Server, ways: &[&Proxy], prefix: &str) -> EtcdLocation {
    let endpoints = ways.iter().map(|way| format!("127.0.0.1:{}", way.port)).collect();
    let data = server.above.path().join(format!("{prefix}-data"));
    let place =
        EtcdLocation::new(EtcdEndpoints { endpoints, ..EtcdEndpoints::default() }, prefix, "127.0.0.1:7421", &data);
    place.expect("a directory of its own").with_lease(600)
}

#[test]
fn an_append_whose_answer_was_lost_is_sent_again_and_stands_once() {
    let server = Server::single();
    let (first, second) = (Proxy::to(server.members[0].client), Proxy::to(server.members[0].client));
    let place = by_way_of(&server, &[&first, &second], "lost");
    wait(async {
        let (mut journal, _) = open(&place).await;
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        // Whichever way is taken, the answer is lost, until the second is open again.
        first.set(Way::Mute);
        second.set(Way::Mute);
        let two = batch(2);
        let (kept, ()) = tokio::join!(journal.append(2, &two), async {
            let mut there = String::new();
            while there.is_empty() {
                there = server.ctl_ok(&["get", "/lost/log/00000000000000000002", "--keys-only"]);
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            second.set(Way::Open);
        });
        assert_eq!(kept, Ok(AppendOutcome::Durable), "it was there already, and equal bytes are one's own");
        assert_eq!(journal.append(3, &batch(3)).await, Ok(AppendOutcome::Durable));
        first.set(Way::Open);
        let (_, told) = open(&place).await;
        assert_eq!(told.batches, (1..=3).map(|at| (at, batch(at))).collect::<Vec<_>>());
    });
}

#[test]
fn an_append_that_lands_after_its_time_out_changes_nothing() {
    let server = Server::single();
    let (first, second) = (Proxy::to(server.members[0].client), Proxy::to(server.members[0].client));
    let place = by_way_of(&server, &[&first, &second], "late");
    let other = server.place("late", "other");
    wait(async {
        let (mut journal, _) = open(&place).await;
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        // What goes the first way waits there; the second brings it through.
        first.set(Way::Held);
        assert_eq!(journal.append(2, &batch(2)).await, Ok(AppendOutcome::Durable));
        assert_eq!(journal.append(3, &batch(3)).await, Ok(AppendOutcome::Durable));
        let (mut successor, told) = open(&other).await;
        assert_eq!(told.batches.len(), 3);
        first.set(Way::Open);
        assert_eq!(journal.append(4, b"late").await, Ok(AppendOutcome::Fenced));
        assert_eq!(successor.append(4, &batch(4)).await, Ok(AppendOutcome::Durable));
        let (_, told) = open(&other).await;
        assert_eq!(told.batches, (1..=4).map(|at| (at, batch(at))).collect::<Vec<_>>());
    });
}

#[test]
fn an_append_that_is_held_up_beyond_its_time_out_stands_once_when_it_lands() {
    let server = Server::single();
    let (first, second) = (Proxy::to(server.members[0].client), Proxy::to(server.members[0].client));
    let place = by_way_of(&server, &[&first, &second], "held");
    wait(async {
        let (mut journal, _) = open(&place).await;
        assert_eq!(journal.append(1, &batch(1)).await, Ok(AppendOutcome::Durable));
        first.set(Way::Held);
        second.set(Way::Held);
        let two = batch(2);
        // So long that it was given up at least once on either way; then all of them land.
        let (kept, ()) = tokio::join!(journal.append(2, &two), async {
            tokio::time::sleep(std::time::Duration::from_secs(8)).await;
            first.set(Way::Open);
            second.set(Way::Open);
        });
        assert_eq!(kept, Ok(AppendOutcome::Durable));
        assert_eq!(journal.append(3, &batch(3)).await, Ok(AppendOutcome::Durable));
        let (_, told) = open(&place).await;
        assert_eq!(told.batches, (1..=3).map(|at| (at, batch(at))).collect::<Vec<_>>());
    });
}
