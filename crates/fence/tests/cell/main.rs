//! The fenced value, held to its promises by threads of one process.

#[path = "../support/mistakes.rs"]
mod mistakes;
mod subject;
#[path = "../support/mod.rs"]
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_fence::cell::Fenced;
use leasehold_fence::{Act, Event, Observer, Refusal};

use support::{CLUSTER, name, number, token};

fn cell() -> Fenced<Vec<u64>> {
    Fenced::new(CLUSTER, name(), 0, Vec::new())
}

#[test]
fn a_thread_that_was_overtaken_changes_nothing_and_is_told_what_stands() {
    let cell = cell();
    let (old, new) = (cell.check(&token(33)).expect("a token"), cell.check(&token(34)).expect("a token"));
    cell.claim(&old).expect("claimed");
    cell.write(&old, |value| value.push(33)).expect("current");
    cell.claim(&new).expect("a successor");
    let error = cell.write(&old, |value| value.push(33)).expect_err("a zombie");
    assert_eq!(error.refusal(), Some(&Refusal::Stale { presented: number(33), mark: number(34) }));
    cell.write(&new, |value| value.push(34)).expect("current");
    assert_eq!(cell.read(Clone::clone).expect("whole"), [33, 34]);
    let counted = cell.counters().read();
    assert_eq!((counted.claims, counted.admitted, counted.stale), (2, 2, 1));
}

#[test]
fn a_claim_waits_for_the_write_that_is_inside_and_reads_what_it_left() {
    let cell = cell();
    let (inside, is_inside) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    thread::scope(|threads| {
        let cell = &cell;
        threads.spawn(move || {
            cell.write(&token(33), |value| {
                inside.send(()).expect("the test waits");
                may_leave.recv().expect("the test goes on");
                value.push(33);
            })
            .expect("nobody came between its check and its change");
        });
        is_inside.recv().expect("a write is inside");
        let claim = threads.spawn(|| {
            cell.claim(&token(34)).expect("claimed");
            cell.read(Clone::clone).expect("whole")
        });
        leave.send(()).expect("it listens");
        assert_eq!(claim.join().expect("no panic"), [33]);
    });
}

#[test]
fn what_is_shown_by_mistake_is_refused_as_text_and_moves_nothing() {
    let cell = cell();
    cell.claim(&token(40)).expect("claimed");
    for (shown, code, why) in mistakes::mistakes() {
        for error in [
            cell.check(&shown).expect_err(why),
            cell.claim(&shown).expect_err(why),
            cell.write(&shown, |value| value.push(0)).expect_err(why),
        ] {
            assert_eq!((error.code(), error.refusal().expect(why).why()), (code, why), "{shown}");
        }
    }
    assert_eq!(cell.mark().expect("kept"), Some(number(40)));
    assert!(cell.read(Vec::is_empty).expect("whole"));
}

#[test]
fn a_token_that_was_checked_for_another_cell_is_refused_like_its_text() {
    let other = Name::parse("jobs/other").expect("a name");
    let elsewhere = Fenced::new(CLUSTER, other, 0, ());
    let token = cell().check(&token(50)).expect("a token");
    assert_eq!(elsewhere.claim(&token).expect_err("another resource's").refusal().expect("refused").why(), "resource");
    let elsewhere = Fenced::new(Cluster(*b"another!"), name(), 0, ());
    assert_eq!(elsewhere.claim(&token).expect_err("another cluster's").code(), "WRONG_CLUSTER");
    let elsewhere = Fenced::new(CLUSTER, name(), 1, ());
    assert_eq!(elsewhere.write(&token, |()| ()).expect_err("another slot's").refusal().expect("refused").why(), "slot");
}

#[test]
fn a_thread_that_panics_inside_leaves_a_cell_that_refuses_until_somebody_answers_for_it() {
    let cell = cell();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        cell.write(&token(33), |value| {
            value.push(33);
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(cell.write(&token(34), |value| value.push(34)).expect_err("half changed").code(), "STORAGE_FAILED");
    assert_eq!(cell.rearm(number(32)).expect_err("below what was seen").code(), "CONFLICT");
    cell.rearm(number(40)).expect("somebody looked");
    assert_eq!(cell.write(&token(39), |_| ()).expect_err("a holder of before").code(), "STALE_TOKEN");
    cell.write(&token(41), |value| value.push(41)).expect("a holder of after");
}

#[derive(Default)]
struct Told(Mutex<Vec<(Act, Option<u64>, bool)>>);

impl Observer for Told {
    fn told(&self, event: &Event<'_>) {
        let number = event.number.map(|number| number.get());
        self.0.lock().expect("no panic").push((event.act, number, event.refusal.is_some()));
    }
}

#[test]
fn an_observer_is_told_every_answer() {
    let told = Arc::new(Told::default());
    let cell = cell().observed_by(told.clone());
    cell.claim(&token(34)).expect("claimed");
    cell.write(&token(34), |_| ()).expect("current");
    cell.write(&token(33), |_| ()).expect_err("stale");
    let expected = [(Act::Claim, Some(34), false), (Act::Write, Some(34), false), (Act::Write, Some(33), true)];
    assert_eq!(*told.0.lock().expect("no panic"), expected);
}
