//! How leases end, what work does then, and what follows by itself.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::command::{Command, Revoke, Which};
use leasehold_core::lease::Reason;

use super::{TTL, acquire, held};
use crate::blocking::block_on;
use crate::testing::Grantor;
use crate::{Code, Error, Loss, State, Stopped};

#[test]
fn an_expired_lease_is_lost_by_the_grantors_word() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.expire("a");
    grantor.advance(TTL);
    let loss = block_on(guard.lost());
    assert_eq!((loss, guard.state()), (Loss::Ended(Reason::Ttl), State::Lost(loss)));
    let error = block_on(guard.put("k", b"v")).expect_err("nothing is written after the end").into_error();
    assert_eq!(error.lost(), Some(Reason::Ttl));
}

#[test]
fn a_paused_holder_finds_out_that_its_session_is_over_and_a_new_lock_works() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.pause(&client);
    grantor.advance(Duration::from_secs(100));
    assert_eq!((guard.state(), held(&grantor, "a")), (State::Suspended, 0));
    grantor.resume(&client);
    grantor.advance(TTL);
    assert!(matches!(guard.state(), State::Lost(Loss::Ended(Reason::Ttl | Reason::Session))), "{:?}", guard.state());
    assert_eq!(acquire(&client, "a").expect("a new session").state(), State::Held);
}

#[test]
fn a_revoked_lease_is_told_and_never_asked_for_again() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let mut begun = 0;
    let lock = client.lock("a").ttl(TTL);
    let ran: Result<(), Error> = block_on(lock.run(|_| {
        begun += 1;
        let grantor = grantor.clone();
        async move {
            std::thread::spawn(move || grantor.revoke("a")).join().expect("it ran").expect("it is held");
            std::future::pending().await
        }
    }));
    assert_eq!(ran.expect_err("it was revoked").lost(), Some(Reason::Operator));
    assert_eq!(begun, 1);
}

#[test]
fn an_expired_lease_is_asked_for_again_where_that_was_asked() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let mut begun = 0;
    let ran = block_on(client.lock("a").ttl(TTL).run(|hold| {
        begun += 1;
        let (first, grantor) = (begun == 1, grantor.clone());
        async move {
            if first {
                std::thread::spawn(move || {
                    grantor.expire("a");
                    grantor.advance(TTL);
                });
                std::future::pending::<()>().await;
            }
            hold.token_number()
        }
    }));
    assert!(ran.is_ok() && begun == 2);
}

#[test]
fn a_revocation_that_a_dead_session_hides_is_still_told_as_one() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.partition(&client);
    grantor.revoke("a").expect("it is held");
    grantor.advance(Duration::from_secs(100));
    grantor.heal(&client);
    grantor.advance(TTL);
    assert_eq!(block_on(guard.lost()), Loss::Ended(Reason::Operator));
}

#[test]
fn work_is_dropped_at_the_local_deadline_and_only_then_the_lease_goes() {
    struct Working(Grantor);
    impl Drop for Working {
        fn drop(&mut self) {
            assert_eq!(held(&self.0, "a"), 1, "the work ends before the lease does");
        }
    }
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.partition(&client);
    let late = std::thread::spawn({
        let grantor = grantor.clone();
        move || grantor.advance(TTL - Duration::from_millis(20))
    });
    let work = Working(grantor.clone());
    let stopped = block_on(guard.run(|_| async move {
        let _work = work;
        std::future::pending::<()>().await
    }));
    assert_eq!(stopped, Err(Stopped::Suspended));
    late.join().expect("time passed");
}

#[test]
fn work_that_is_done_gives_its_lease_back_after_it_returned() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let seen = block_on(guard.run(|hold| async move { (hold.state(), hold.token_number()) })).expect("it was held");
    assert_eq!((seen.0, held(&grantor, "a")), (State::Held, 0));
}

#[test]
fn a_write_is_the_check_and_a_late_one_is_refused() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let first = block_on(guard.put("at", b"1")).expect("it is current");
    assert!(block_on(guard.store("at", Some(b"2"), Some(first))).expect("it stands there") > first);
    grantor.pause(&client);
    grantor.advance(2 * TTL);
    let other = grantor.client("w2");
    let second = acquire(&other, "a").expect("the first one is over");
    block_on(second.put("at", b"3")).expect("it is current");
    grantor.resume(&client);
    let stale = block_on(guard.put("at", b"late")).expect_err("its authority is over").into_error();
    assert!(matches!(stale.code(), Some(Code::LeaseLost | Code::NotCurrent)), "{stale}");
}

#[test]
fn a_holder_that_pulses_without_progress_loses_its_lease_as_stalled() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let lock = client.lock("a").ttl(TTL).progress(2 * TTL);
    let guard = block_on(lock.acquire()).expect("it is free");
    for at in 1..6 {
        guard.progress(at);
        grantor.advance(TTL);
        assert_eq!(guard.state(), State::Held, "it makes progress");
    }
    for _ in 0..4 {
        guard.progress(5);
        grantor.advance(TTL);
    }
    assert_eq!(block_on(guard.lost()), Loss::Ended(Reason::Stalled));
}

#[test]
fn work_is_not_polled_after_its_deadline_though_the_thread_that_renews_has_not_looked() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let mut polled = 0;
    let mut running = Box::pin(guard.run(|_| {
        std::future::poll_fn(|_| {
            polled += 1;
            Poll::<()>::Pending
        })
    }));
    let mut context = Context::from_waker(Waker::noop());
    assert!(running.as_mut().poll(&mut context).is_pending());
    // As a machine that slept: nobody has done anything, and it is late.
    grantor.pause(&client);
    grantor.advance(2 * TTL);
    assert_eq!(running.as_mut().poll(&mut context), Poll::Ready(Err(Stopped::Suspended)));
    drop(running);
    assert_eq!(polled, 1);
    grantor.resume(&client);
}

#[test]
fn a_holder_that_is_revoked_with_grace_finishes_and_gives_back_before_it_is_over() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let (which, reason) = (Which::Resource("a"), Reason::Operator);
    let revoke = Revoke { which, reason, why: "a test", grace_ms: 60_000 };
    grantor.operate(Command::Revoke(revoke)).expect("it is held");
    grantor.advance(Duration::from_millis(100));
    assert!(guard.draining().is_some() && guard.is_held(), "it was given time to finish");
    block_on(guard.release()).expect("it is done");
    assert_eq!(held(&grantor, "a"), 0);
}
