//! What keeps a lease, and what the holder does when the way to the grantor is cut.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold_core::charter::{Charter, TokenOnRenewal};
use leasehold_core::command::{Acquire, Command};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Reason;

use super::{TTL, acquire, held, until};
use futures::future::join_all;

use crate::blocking::block_on;
use crate::testing::Grantor;
use crate::{Code, Failure, Guard, Lock, Loss, Meter, State};

#[test]
fn a_guard_is_renewed_for_as_long_as_it_lives_and_dropping_it_gives_back() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let token = guard.token();
    grantor.advance(10 * TTL);
    assert_eq!((guard.state(), guard.token()), (State::Held, token.clone()));
    assert!(token.starts_with("lh1-") && token.contains(&guard.token_number().to_string()));
    assert!(guard.deadline().earliest < guard.deadline().latest && guard.left() < TTL);
    block_on(guard.confirm()).expect("it is current");
    drop(guard);
    grantor.advance(Duration::from_millis(10));
    assert_eq!(held(&grantor, "a"), 0);
}

#[test]
fn a_partitioned_holder_stops_at_its_own_deadline_and_goes_on_under_the_same_token() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let token = guard.token_number();
    grantor.partition(&client);
    grantor.advance(TTL / 2);
    assert_eq!(guard.state(), State::Held);
    grantor.advance(TTL / 2 - Duration::from_millis(20));
    assert_eq!((guard.state(), held(&grantor, "a")), (State::Suspended, 1), "the holder stops before the grantor");
    grantor.heal(&client);
    // Healed between the holder's deadline and the grantor's: the reconnect is what decides.
    grantor.advance(2 * TTL);
    match guard.state() {
        State::Held => assert_eq!(guard.token_number(), token),
        state => assert_eq!(state, State::Lost(Loss::Ended(Reason::Ttl))),
    }
}

#[test]
fn a_stream_that_broke_goes_on_with_the_same_session() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let session = |grantor: &Grantor| grantor.show("a").and_then(|shown| shown.leases[0].session);
    let before = session(&grantor);
    grantor.partition(&client);
    grantor.heal(&client);
    grantor.advance(TTL);
    assert_eq!((session(&grantor), guard.state()), (before, State::Held));
    block_on(guard.put("k", b"v")).expect("its requests are answered again");
}

#[test]
fn leases_that_their_client_does_not_know_end_when_the_session_is_compared() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let session = grantor.show("a").and_then(|shown| shown.leases[0].session).expect("a session carries it");
    grantor.operate(orphan("b", session)).expect("it is free");
    assert_eq!(held(&grantor, "b"), 1);
    grantor.advance(Duration::from_secs(20));
    assert_eq!((held(&grantor, "a"), held(&grantor, "b")), (1, 0), "only what nobody knows ends");
    assert_eq!(guard.state(), State::Held);
}

/// A lease in somebody's session that its client never asked for.
fn orphan(resource: &'static str, session: SessionId) -> Command<'static> {
    Command::Acquire(Acquire { session: Some(session), ..Acquire::exclusive(resource, "orphan", 600_000) })
}

#[test]
fn a_charter_that_raises_tokens_is_followed_and_watched() {
    let grantor = Grantor::new();
    let charter = Charter { token_on_renewal: TokenOnRenewal::Rotate, ..Charter::default() };
    grantor.set_charter("a", charter).expect("a sound charter");
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let first = guard.token_number();
    let mut watching = guard.watch();
    assert_eq!(block_on(watching.next()).map(|sight| sight.token.number), Some(first));
    grantor.advance(4 * TTL);
    assert!(guard.state() == State::Held && guard.token_number() > first);
    let sight = block_on(watching.next()).expect("it goes on");
    assert_eq!((sight.token.number, sight.state), (guard.token_number(), State::Held));
    block_on(guard.release()).expect("under the newest token");
}

#[test]
fn a_raised_token_whose_telling_was_lost_is_told_again_and_nothing_is_lost() {
    let grantor = Grantor::new();
    let charter = Charter { token_on_renewal: TokenOnRenewal::Rotate, ..Charter::default() };
    grantor.set_charter("a", charter).expect("a sound charter");
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let mut newest = guard.token_number();
    for _ in 0..5 {
        grantor.deafen(&client);
        // By now the grantor has raised the token and said so to nobody.
        while grantor.unheard(&client) == 0 {
            grantor.advance(Duration::from_millis(50));
        }
        grantor.partition(&client);
        grantor.heal(&client);
        grantor.advance(Duration::from_millis(500));
        assert!(guard.state() == State::Held && guard.token_number() > newest, "{:?}", guard.state());
        newest = guard.token_number();
        block_on(guard.put("k", b"v")).expect("under the newest token");
    }
}

#[test]
fn a_lease_that_is_given_back_while_its_token_is_raised_is_given_back() {
    let grantor = Grantor::new();
    let charter = Charter { token_on_renewal: TokenOnRenewal::Rotate, ..Charter::default() };
    grantor.set_charter("a", charter).expect("a sound charter");
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.deafen(&client);
    while grantor.unheard(&client) == 0 {
        grantor.advance(Duration::from_millis(50));
    }
    drop(guard);
    grantor.settle();
    assert_eq!(held(&grantor, "a"), 1, "it showed a token that was gone");
    grantor.partition(&client);
    grantor.heal(&client);
    grantor.advance(Duration::from_millis(500));
    assert_eq!(held(&grantor, "a"), 0);
}

#[test]
fn a_write_that_shows_a_token_while_it_is_raised_is_shown_the_new_one() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let (put, rotated) = (guard.put("k", b"v"), guard.rotate());
    let (mut put, mut rotated) = (Box::pin(put), Box::pin(rotated));
    let mut context = Context::from_waker(Waker::noop());
    grantor.pause(&client);
    assert!(rotated.as_mut().poll(&mut context).is_pending() && put.as_mut().poll(&mut context).is_pending());
    grantor.resume(&client);
    let token = block_on(rotated).expect("it is current");
    assert_eq!(block_on(put).expect("under the token that was raised before it"), 1);
    assert_eq!(token, guard.token());
}

#[test]
fn an_unknown_outcome_is_an_answer_and_is_resolved_under_the_same_id() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.deafen(&client);
    let hold = guard.hold().clone();
    let put = std::thread::spawn(move || block_on(hold.put("k", b"v")));
    until(|| grantor.unheard(&client) > 0);
    grantor.partition(&client);
    grantor.advance(Duration::from_secs(11));
    let Err(Failure::Unknown(open)) = put.join().expect("it ran") else { panic!("nobody heard the answer") };
    assert!(open.request_id().contains(':'));
    grantor.heal(&client);
    let resolving = std::thread::spawn(move || block_on(open.resolve()));
    grantor.advance(TTL);
    assert!(resolving.join().expect("it ran").expect("it had happened, once") > 0);
}

#[test]
fn timing_that_must_fail_is_refused_before_anybody_is_asked() {
    let client = Grantor::new().client("w1");
    let lock = || client.lock("a");
    let wrong = [
        ("ttl", lock().ttl(Duration::from_millis(99))),
        ("renew_every", lock().ttl(TTL).renew_every(TTL)),
        ("wait", lock().wait(Duration::from_secs(25 * 3_600))),
        ("max_hold", lock().max_hold(Duration::ZERO)),
        ("progress", lock().progress(Duration::from_millis(1))),
        ("resource", client.lock("")),
        ("holder", lock().holder("")),
    ];
    for (field, lock) in wrong {
        let error = block_on(lock.acquire()).expect_err(field).into_error();
        assert_eq!(error.code(), Some(Code::InvalidArgument));
        assert!(error.fields().iter().any(|(_, value)| value == field), "{error}");
    }
}

#[test]
fn closing_gives_everything_back_in_one_step() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guards: Vec<Guard> = (0..20).map(|at| acquire(&client, &format!("a/{at}")).expect("it is free")).collect();
    block_on(client.close()).expect("it is there");
    assert!((0..20).all(|at| held(&grantor, &format!("a/{at}")) == 0));
    assert!(guards.iter().all(|guard| guard.state() != State::Held));
    let gone = block_on(guards[0].confirm()).expect_err("there is nobody to ask");
    assert!(gone.is_unavailable(), "{gone}");
}

#[test]
fn progress_that_a_broken_stream_swallowed_is_shown_again() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = block_on(client.lock("a").ttl(TTL).progress(2 * TTL).acquire()).expect("it is free");
    grantor.advance(TTL);
    // What the grantor says is lost from here on, and so may be what it is told.
    grantor.deafen(&client);
    guard.progress(1);
    until(|| grantor.unheard(&client) > 0);
    grantor.partition(&client);
    assert!(guard.cell.take_progress().is_some(), "nobody said that it arrived");
}

#[test]
fn a_list_of_leases_is_never_older_than_what_was_granted_since() {
    const MANY: usize = 3_000;
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let lock = client.lock("a").ttl(Duration::from_secs(30));
    let guard = block_on(lock.acquire()).expect("it is free");
    let session = grantor.show("a").and_then(|shown| shown.leases[0].session).expect("a session carries it");
    grantor.operate(orphan("b", session)).expect("it is free");
    // When it wakes up it renews the session, is told of a mismatch, and has more to ask for than fits at once.
    grantor.pause(&client);
    grantor.advance(Duration::from_secs(11));
    let locks: Vec<Lock> = (0..MANY).map(|at| client.lock(format!("many/{at}")).ttl(Duration::from_secs(30))).collect();
    let mut asked: Vec<_> = locks.iter().map(|lock| Box::pin(lock.acquire())).collect();
    let mut context = Context::from_waker(Waker::noop());
    for one in &mut asked {
        assert!(one.as_mut().poll(&mut context).is_pending());
    }
    grantor.resume(&client);
    let guards: Vec<Guard> = asked.into_iter().map(|one| block_on(one).expect("it is free")).collect();
    grantor.settle();
    assert_eq!(held(&grantor, "b"), 0, "the list was told");
    assert!(guards.iter().all(|guard| guard.is_held()) && guard.is_held());
    assert!((0..MANY).all(|at| held(&grantor, &format!("many/{at}")) == 1), "and none of these was missing on it");
}

#[test]
fn a_list_longer_than_a_message_is_told_in_parts() {
    const MANY: usize = 33_000;
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let first = block_on(client.lock("first").ttl(Duration::from_secs(30)).acquire()).expect("it is free");
    let session = grantor.show("first").and_then(|shown| shown.leases[0].session).expect("a session carries it");
    grantor.operate(orphan("low", session)).expect("it is free");
    let locks: Vec<Lock> = (0..MANY).map(|at| client.lock(format!("many/{at}")).ttl(Duration::from_secs(30))).collect();
    let guards: Vec<Guard> = block_on(join_all(locks.iter().map(|lock| lock.acquire())))
        .into_iter()
        .map(|got| got.expect("it is free"))
        .collect();
    grantor.operate(orphan("high", session)).expect("it is free");
    grantor.advance(Duration::from_secs(11));
    until(|| held(&grantor, "low") + held(&grantor, "high") == 0);
    assert!(guards.iter().all(|guard| guard.is_held()) && first.is_held());
    assert!((0..MANY).all(|at| held(&grantor, &format!("many/{at}")) == 1), "what was in another part stays");
}

#[test]
fn a_thread_that_nobody_needs_ends_though_nobody_can_be_reached() {
    struct Counts;
    impl Meter for Counts {}
    let grantor = Grantor::new();
    let meter: Arc<dyn Meter> = Arc::new(Counts);
    let ends = Arc::downgrade(&meter);
    let client = grantor.client("w1").metered(meter);
    let guard = acquire(&client, "a").expect("it is free");
    grantor.deafen(&client);
    let lock = client.lock("b").ttl(TTL);
    let mut asked = Box::pin(lock.acquire());
    assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until(|| grantor.unheard(&client) > 0);
    grantor.partition(&client);
    drop(asked);
    drop((lock, guard, client));
    grantor.advance(Duration::from_secs(2));
    until(|| ends.upgrade().is_none());
}

#[test]
fn blocking_calls_work_inside_of_an_event_loop() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let guard = acquire(&client, "a").expect("it is free");
        // More calls than a task may make before it yields to its event loop.
        for at in 1..1_000_u64 {
            assert_eq!(block_on(guard.put("at", b"x")).expect("it is current"), at);
        }
    });
}

#[test]
fn closing_is_told_to_whoever_waits_for_the_end_and_starts_nothing_again() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let lock = client.lock("b").ttl(TTL);
    let (mut lost, mut begun) = (Box::pin(guard.lost()), 0);
    let mut running = Box::pin(lock.run(|_| {
        begun += 1;
        std::future::pending::<()>()
    }));
    let mut context = Context::from_waker(Waker::noop());
    assert!(lost.as_mut().poll(&mut context).is_pending());
    until(|| running.as_mut().poll(&mut context).is_pending() && held(&grantor, "b") == 1);
    assert!(running.as_mut().poll(&mut context).is_pending(), "it works");
    block_on(client.close()).expect("it is there");
    assert_eq!(block_on(lost), Loss::Ended(Reason::Released));
    assert_eq!(block_on(running).expect_err("it was given back").lost(), Some(Reason::Released));
    assert_eq!((begun, held(&grantor, "b")), (1, 0));
}

#[test]
fn closing_where_nobody_hears_it_says_so() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.partition(&client);
    let closing = std::thread::spawn(move || block_on(client.close()));
    until(|| {
        grantor.advance(Duration::from_secs(1));
        closing.is_finished()
    });
    let error = closing.join().expect("it ran").expect_err("nobody heard it");
    assert!(error.is_indeterminate() && !guard.is_held(), "{error}");
}

#[test]
fn whoever_closes_has_stopped_before_its_successor_can_begin_though_no_answer_comes() {
    let grantor = Grantor::new();
    let (client, other) = (grantor.client("w1"), grantor.client("w2"));
    let guard = acquire(&client, "a").expect("it is free");
    grantor.deafen(&client);
    let closing = std::thread::spawn({
        let client = client.clone();
        move || block_on(client.close())
    });
    until(|| {
        grantor.settle();
        held(&grantor, "a") == 0
    });
    assert_eq!(guard.state(), State::Lost(Loss::Ended(Reason::Released)), "it stopped before it asked");
    let successor = acquire(&other, "a").expect("it is free");
    for _ in 0..200 {
        assert!(!guard.is_held() && successor.is_held());
        grantor.advance(Duration::from_millis(50));
    }
    until(|| {
        grantor.advance(Duration::from_secs(1));
        closing.is_finished()
    });
}

#[test]
fn a_hook_that_panics_costs_no_lease() {
    struct Bad;
    impl Meter for Bad {
        fn renewed(&self, _: usize, _: Duration) {
            panic!("a hook of the program's");
        }
    }
    let grantor = Grantor::new();
    let client = grantor.client("w1").metered(Arc::new(Bad));
    let guard = acquire(&client, "a").expect("it is free");
    for _ in 0..10 {
        grantor.advance(TTL / 2);
    }
    assert!(guard.is_held());
}

#[test]
fn work_stops_when_the_thread_that_keeps_its_lease_dies() {
    struct Bad;
    impl std::task::Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the program's");
        }
    }
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let work = std::thread::spawn(move || block_on(guard.run(|_| std::future::pending::<()>())));
    let lock = client.lock("b").ttl(TTL);
    let mut asked = Box::pin(lock.acquire());
    grantor.pause(&client);
    assert!(
        asked.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(Bad)))).is_pending(),
        "nobody answers yet"
    );
    grantor.resume(&client);
    until(|| work.is_finished());
    assert!(work.join().expect("it ran").is_err(), "it was stopped");
}
