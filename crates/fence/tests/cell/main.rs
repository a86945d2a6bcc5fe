//! Tests of the fenced cell with several threads.

mod conformance;
#[path = "../support/invalid_tokens.rs"]
mod invalid_tokens;
mod sealed;
mod subject;
#[path = "../support/mod.rs"]
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use leasehold_core::token::Cluster;
use leasehold_fence::cell::FencedCell;
use leasehold_fence::{FenceEvent, FenceRefusal, Observer, Operation};

use support::{CLUSTER, RESOURCE, fence_id, id_of, number, token};

fn cell() -> FencedCell<Vec<u64>> {
    FencedCell::new(&fence_id(), Vec::new())
}

#[test]
fn a_stale_thread_changes_nothing_and_gets_the_mark() {
    let cell = cell();
    let (old, new) = (cell.verify(token(33)).expect("a token"), cell.verify(token(34)).expect("a token"));
    cell.claim(&old).expect("claimed");
    cell.write(&old, |value| value.push(33)).expect("current");
    cell.claim(&new).expect("a successor");
    let error = cell.write(&old, |value| value.push(33)).expect_err("a stale token");
    assert_eq!(error.refusal(), Some(&FenceRefusal::Stale { presented: number(33), mark: number(34) }));
    cell.write(&new, |value| value.push(34)).expect("current");
    assert_eq!(cell.read(Clone::clone).expect("whole"), [33, 34]);
    let counters = cell.counters().snapshot();
    assert_eq!((counters.claims, counters.admitted, counters.stale), (2, 2, 1));
}

#[test]
fn a_claim_waits_for_a_write_in_progress_and_reads_its_result() {
    let cell = cell();
    let (started, is_started) = mpsc::channel();
    let (finish, may_finish) = mpsc::channel::<()>();
    thread::scope(|threads| {
        let cell = &cell;
        threads.spawn(move || {
            cell.write(&token(33), |value| {
                started.send(()).expect("the test waits");
                may_finish.recv().expect("the test continues");
                value.push(33);
            })
            .expect("no claim between check and change");
        });
        is_started.recv().expect("a write is in progress");
        let claim = threads.spawn(|| {
            cell.claim(&token(34)).expect("claimed");
            cell.read(Clone::clone).expect("whole")
        });
        finish.send(()).expect("it is waiting");
        assert_eq!(claim.join().expect("not poisoned"), [33]);
    });
}

#[test]
fn invalid_tokens_are_rejected_and_change_nothing() {
    let cell = cell();
    cell.claim(&token(40)).expect("claimed");
    for (text, code, reason) in invalid_tokens::mistakes() {
        for error in [
            cell.verify(&text).expect_err(reason),
            cell.claim(&text).expect_err(reason),
            cell.write(&text, |value| value.push(0)).expect_err(reason),
        ] {
            assert_eq!((error.code(), error.refusal().expect(reason).reason()), (code, reason), "{text}");
        }
    }
    assert_eq!(cell.mark().expect("a mark"), Some(number(40)));
    assert!(cell.read(Vec::is_empty).expect("whole"));
}

#[test]
fn a_token_verified_for_another_cell_is_rejected_like_its_text() {
    let other_cell = FencedCell::new(&id_of(CLUSTER, "jobs/other"), ());
    let token = cell().verify(token(50)).expect("a token");
    assert_eq!(
        other_cell.claim(&token).expect_err("another resource").refusal().expect("refused").reason(),
        "resource"
    );
    let other_cell = FencedCell::new(&id_of(Cluster(*b"another!"), RESOURCE), ());
    assert_eq!(other_cell.claim(&token).expect_err("another cluster").code(), "WRONG_CLUSTER");
    let other_cell = FencedCell::new(&fence_id().with_slot(1), ());
    assert_eq!(
        other_cell.write(&token, |()| ()).expect_err("another slot").refusal().expect("refused").reason(),
        "slot"
    );
}

#[test]
fn after_a_panic_inside_a_write_all_tokens_are_rejected_until_re_armed() {
    let cell = cell();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        cell.write(&token(33), |value| {
            value.push(33);
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(cell.write(&token(34), |value| value.push(34)).expect_err("poisoned").code(), "STORAGE_FAILED");
    assert_eq!(cell.rearm(number(32)).expect_err("below the mark").code(), "CONFLICT");
    cell.rearm(number(40)).expect("inspected");
    assert_eq!(cell.write(&token(39), |_| ()).expect_err("an earlier holder").code(), "STALE_TOKEN");
    cell.write(&token(41), |value| value.push(41)).expect("a later holder");
}

#[derive(Default)]
struct RecordingObserver(Mutex<Vec<(Operation, Option<u64>, bool)>>);

impl Observer for RecordingObserver {
    fn on_event(&self, event: &FenceEvent<'_>) {
        let number = event.number.map(|number| number.get());
        self.0.lock().expect("not poisoned").push((event.operation, number, event.refusal.is_some()));
    }
}

#[test]
fn an_observer_receives_every_decision() {
    let observer = Arc::new(RecordingObserver::default());
    let cell = cell().with_observer(observer.clone());
    cell.claim(&token(34)).expect("claimed");
    cell.write(&token(34), |_| ()).expect("current");
    cell.write(&token(33), |_| ()).expect_err("stale");
    let expected =
        [(Operation::Claim, Some(34), false), (Operation::Write, Some(34), false), (Operation::Write, Some(33), true)];
    assert_eq!(*observer.0.lock().expect("not poisoned"), expected);
}
