//! Renewal of leases, and the holder's behavior without a connection to the grantor.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold_core::charter::{Charter, TokenOnRenewal};
use leasehold_core::command::{Acquire, Command};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::EndReason;

use super::{TTL, acquire, held, wait_until};
use futures::StreamExt;
use futures::future::join_all;

use crate::blocking::block_on;
use crate::testing::TestServer;
use crate::{Code, Guard, GuardState, Lock, Loss, MetricsHook, RequestError};

#[test]
fn a_guard_is_renewed_while_it_lives_and_released_when_dropped() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let token = guard.token();
    server.advance(10 * TTL);
    assert_eq!((guard.state(), guard.token()), (GuardState::Held, token));
    assert!(token.starts_with("lh1-") && token.contains(&guard.token_number().to_string()));
    assert!(guard.deadline().earliest < guard.deadline().latest && guard.remaining() < TTL);
    block_on(guard.check()).expect("the lease is current");
    drop(guard);
    server.advance(Duration::from_millis(10));
    assert_eq!(held(&server, "a"), 0);
}

#[test]
fn a_partitioned_holder_stops_at_its_local_deadline_and_resumes_under_the_same_token() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let token = guard.token_number();
    server.partition(&client);
    server.advance(TTL / 2);
    assert_eq!(guard.state(), GuardState::Held);
    server.advance(TTL / 2 - Duration::from_millis(20));
    assert_eq!(
        (guard.state(), held(&server, "a")),
        (GuardState::Suspended, 1),
        "the holder stops before the grantor ends the lease"
    );
    server.heal(&client);
    // Healed between the holder's deadline and the grantor's: the reconnect decides.
    server.advance(2 * TTL);
    match guard.state() {
        GuardState::Held => assert_eq!(guard.token_number(), token),
        state => assert_eq!(state, GuardState::Lost(Loss::Ended(EndReason::Ttl))),
    }
}

#[test]
fn a_broken_stream_is_reconnected_with_the_same_session() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let session = |server: &TestServer| server.show("a").and_then(|view| view.leases[0].session);
    let before = session(&server);
    server.partition(&client);
    server.heal(&client);
    server.advance(TTL);
    assert_eq!((session(&server), guard.state()), (before, GuardState::Held));
    block_on(guard.put("k", b"v")).expect("requests are answered again");
}

#[test]
fn leases_that_the_client_does_not_know_end_when_the_session_is_reconciled() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let session = server.show("a").and_then(|view| view.leases[0].session).expect("the lease has a session");
    server.execute(orphan("b", session)).expect("the resource is free");
    assert_eq!(held(&server, "b"), 1);
    server.advance(Duration::from_secs(20));
    assert_eq!((held(&server, "a"), held(&server, "b")), (1, 0), "only the unknown lease ends");
    assert_eq!(guard.state(), GuardState::Held);
}

/// A lease in a client's session that the client never requested.
fn orphan(resource: &'static str, session: SessionId) -> Command<'static> {
    Command::Acquire(Acquire { session: Some(session), ..Acquire::exclusive(resource, "orphan", 600_000) })
}

#[test]
fn raised_tokens_are_reported_by_updates() {
    let server = TestServer::new();
    let charter = Charter { token_on_renewal: TokenOnRenewal::Rotate, ..Charter::default() };
    server.set_charter("a", charter).expect("the charter is valid");
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let first = guard.token_number();
    let mut updates = guard.updates();
    assert_eq!(block_on(updates.next()).map(|status| status.token.number()), Some(first));
    server.advance(4 * TTL);
    assert!(guard.state() == GuardState::Held && guard.token_number() > first);
    let status = block_on(updates.next()).expect("the lease continues");
    assert_eq!((status.token.number(), status.state), (guard.token_number(), GuardState::Held));
    block_on(guard.release()).expect("under the newest token");
}

#[test]
fn a_raised_token_whose_reply_was_lost_is_reported_again() {
    let server = TestServer::new();
    let charter = Charter { token_on_renewal: TokenOnRenewal::Rotate, ..Charter::default() };
    server.set_charter("a", charter).expect("the charter is valid");
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let mut newest = guard.token_number();
    for _ in 0..5 {
        server.drop_replies(&client);
        // Now the grantor has raised the token, and its reply was dropped.
        while server.dropped_replies(&client) == 0 {
            server.advance(Duration::from_millis(50));
        }
        server.partition(&client);
        server.heal(&client);
        server.advance(Duration::from_millis(500));
        assert!(guard.state() == GuardState::Held && guard.token_number() > newest, "{:?}", guard.state());
        newest = guard.token_number();
        block_on(guard.put("k", b"v")).expect("under the newest token");
    }
}

#[test]
fn a_lease_that_is_released_while_its_token_is_raised_is_released() {
    let server = TestServer::new();
    let charter = Charter { token_on_renewal: TokenOnRenewal::Rotate, ..Charter::default() };
    server.set_charter("a", charter).expect("the charter is valid");
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    server.drop_replies(&client);
    while server.dropped_replies(&client) == 0 {
        server.advance(Duration::from_millis(50));
    }
    drop(guard);
    server.settle();
    assert_eq!(held(&server, "a"), 1, "the release presented an old token");
    server.partition(&client);
    server.heal(&client);
    server.advance(Duration::from_millis(500));
    assert_eq!(held(&server, "a"), 0);
}

#[test]
fn a_write_with_a_token_that_is_being_raised_is_retried_with_the_new_one() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let (put, rotated) = (guard.put("k", b"v"), guard.rotate());
    let (mut put, mut rotated) = (Box::pin(put), Box::pin(rotated));
    let mut context = Context::from_waker(Waker::noop());
    server.pause(&client);
    assert!(rotated.as_mut().poll(&mut context).is_pending() && put.as_mut().poll(&mut context).is_pending());
    server.resume(&client);
    let token = block_on(rotated).expect("the lease is current");
    assert_eq!(block_on(put).expect("under the token that was raised before it"), 1);
    assert_eq!(token, guard.token());
}

#[test]
fn an_indeterminate_outcome_is_resolved_under_the_same_request_id() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    server.drop_replies(&client);
    let hold = guard.handle().clone();
    let put = std::thread::spawn(move || block_on(hold.put("k", b"v")));
    wait_until(|| server.dropped_replies(&client) > 0);
    server.partition(&client);
    server.advance(Duration::from_secs(11));
    let Err(RequestError::Indeterminate(open)) = put.join().expect("the thread did not panic") else {
        panic!("the reply was dropped")
    };
    assert!(open.request_id().contains(':'));
    server.heal(&client);
    let resolving = std::thread::spawn(move || block_on(open.resolve()));
    server.advance(TTL);
    assert!(resolving.join().expect("the thread did not panic").expect("it had happened, once") > 0);
}

#[test]
fn invalid_timing_is_refused_without_a_request() {
    let client = TestServer::new().client("w1");
    let lock = || client.lock("a");
    let wrong = [
        ("ttl", lock().ttl(Duration::from_millis(99))),
        ("renew_every", lock().ttl(TTL).renew_every(TTL)),
        ("wait", lock().wait(Duration::from_secs(25 * 3_600))),
        ("max_hold", lock().max_hold(Duration::ZERO)),
        ("progress", lock().require_progress(Duration::from_millis(1))),
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
fn closing_releases_all_leases_in_one_step() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guards: Vec<Guard> =
        (0..20).map(|at| acquire(&client, &format!("a/{at}")).expect("the resource is free")).collect();
    block_on(client.close()).expect("it is there");
    assert!((0..20).all(|at| held(&server, &format!("a/{at}")) == 0));
    assert!(guards.iter().all(|guard| guard.state() != GuardState::Held));
    let error = block_on(guards[0].check()).expect_err("the client is closed");
    assert!(error.is_retryable(), "{error}");
}

#[test]
fn progress_lost_with_a_stream_is_sent_again() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = block_on(client.lock("a").ttl(TTL).require_progress(2 * TTL).acquire()).expect("the resource is free");
    server.advance(TTL);
    // From here on replies are dropped, so requests may be lost, too.
    server.drop_replies(&client);
    guard.progress(1);
    wait_until(|| server.dropped_replies(&client) > 0);
    server.partition(&client);
    assert!(guard.lease.take_progress().is_some(), "the progress was not acknowledged");
}

#[test]
fn a_reconcile_list_is_never_older_than_the_grants_before_it() {
    const MANY: usize = 3_000;
    let server = TestServer::new();
    let client = server.client("w1");
    let lock = client.lock("a").ttl(Duration::from_secs(30));
    let guard = block_on(lock.acquire()).expect("the resource is free");
    let session = server.show("a").and_then(|view| view.leases[0].session).expect("the lease has a session");
    server.execute(orphan("b", session)).expect("the resource is free");
    // After the pause it renews the session, learns of a mismatch, and has more requests than fit into one batch.
    server.pause(&client);
    server.advance(Duration::from_secs(11));
    let locks: Vec<Lock> = (0..MANY).map(|at| client.lock(format!("many/{at}")).ttl(Duration::from_secs(30))).collect();
    let mut requests: Vec<_> = locks.iter().map(|lock| Box::pin(lock.acquire())).collect();
    let mut context = Context::from_waker(Waker::noop());
    for one in &mut requests {
        assert!(one.as_mut().poll(&mut context).is_pending());
    }
    server.resume(&client);
    let guards: Vec<Guard> = requests.into_iter().map(|one| block_on(one).expect("the resource is free")).collect();
    server.settle();
    assert_eq!(held(&server, "b"), 0, "the list was sent");
    assert!(guards.iter().all(|guard| guard.is_held()) && guard.is_held());
    assert!((0..MANY).all(|at| held(&server, &format!("many/{at}")) == 1), "and none of these was missing on it");
}

#[test]
fn a_list_longer_than_a_message_is_sent_in_parts() {
    const MANY: usize = 33_000;
    let server = TestServer::new();
    let client = server.client("w1");
    let first = block_on(client.lock("first").ttl(Duration::from_secs(30)).acquire()).expect("the resource is free");
    let session = server.show("first").and_then(|view| view.leases[0].session).expect("the lease has a session");
    server.execute(orphan("low", session)).expect("the resource is free");
    let locks: Vec<Lock> = (0..MANY).map(|at| client.lock(format!("many/{at}")).ttl(Duration::from_secs(30))).collect();
    let guards: Vec<Guard> = block_on(join_all(locks.iter().map(|lock| lock.acquire())))
        .into_iter()
        .map(|got| got.expect("the resource is free"))
        .collect();
    server.execute(orphan("high", session)).expect("the resource is free");
    server.advance(Duration::from_secs(11));
    wait_until(|| held(&server, "low") + held(&server, "high") == 0);
    assert!(guards.iter().all(|guard| guard.is_held()) && first.is_held());
    assert!((0..MANY).all(|at| held(&server, &format!("many/{at}")) == 1), "what was in another part stays");
}

#[test]
fn the_worker_of_a_dropped_client_stops_without_a_server() {
    struct NoMetrics;
    impl MetricsHook for NoMetrics {}
    let server = TestServer::new();
    let hook: Arc<dyn MetricsHook> = Arc::new(NoMetrics);
    let ends = Arc::downgrade(&hook);
    let client = server.client_with(|client| client.holder("w1").metrics(hook));
    let guard = acquire(&client, "a").expect("the resource is free");
    server.drop_replies(&client);
    let lock = client.lock("b").ttl(TTL);
    let mut request = Box::pin(lock.acquire());
    assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait_until(|| server.dropped_replies(&client) > 0);
    server.partition(&client);
    drop(request);
    drop((lock, guard, client));
    server.advance(Duration::from_secs(2));
    wait_until(|| ends.upgrade().is_none());
}

#[test]
fn blocking_calls_work_inside_an_async_runtime() {
    let server = TestServer::new();
    let client = server.client("w1");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let guard = acquire(&client, "a").expect("the resource is free");
        // More calls than a task may make before it yields to its event loop.
        for at in 1..1_000_u64 {
            assert_eq!(block_on(guard.put("at", b"x")).expect("the lease is current"), at);
        }
    });
}

#[test]
fn closing_ends_pending_waits_and_restarts_nothing() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let lock = client.lock("b").ttl(TTL);
    let (mut lost, mut begun) = (Box::pin(guard.wait_lost()), 0);
    let mut running = Box::pin(lock.run(|_| {
        begun += 1;
        std::future::pending::<()>()
    }));
    let mut context = Context::from_waker(Waker::noop());
    assert!(lost.as_mut().poll(&mut context).is_pending());
    wait_until(|| running.as_mut().poll(&mut context).is_pending() && held(&server, "b") == 1);
    assert!(running.as_mut().poll(&mut context).is_pending(), "it works");
    block_on(client.close()).expect("it is there");
    assert_eq!(block_on(lost), Loss::Ended(EndReason::Released));
    assert_eq!(block_on(running).expect_err("the lease was released").end_reason(), Some(EndReason::Released));
    assert_eq!((begun, held(&server, "b")), (1, 0));
}

#[test]
fn closing_without_a_server_reports_an_unknown_outcome() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    server.partition(&client);
    let closing = std::thread::spawn(move || block_on(client.close()));
    wait_until(|| {
        server.advance(Duration::from_secs(1));
        closing.is_finished()
    });
    let error = closing.join().expect("the thread did not panic").expect_err("no server replied");
    assert!(error.outcome_unknown() && !guard.is_held(), "{error}");
}

#[test]
fn a_closing_client_stops_before_its_successor_starts_even_without_a_reply() {
    let server = TestServer::new();
    let (client, other) = (server.client("w1"), server.client("w2"));
    let guard = acquire(&client, "a").expect("the resource is free");
    server.drop_replies(&client);
    let closing = std::thread::spawn({
        let client = client.clone();
        move || block_on(client.close())
    });
    wait_until(|| {
        server.settle();
        held(&server, "a") == 0
    });
    assert_eq!(
        guard.state(),
        GuardState::Lost(Loss::Ended(EndReason::Released)),
        "the work stopped before the request"
    );
    let successor = acquire(&other, "a").expect("the resource is free");
    for _ in 0..200 {
        assert!(!guard.is_held() && successor.is_held());
        server.advance(Duration::from_millis(50));
    }
    wait_until(|| {
        server.advance(Duration::from_secs(1));
        closing.is_finished()
    });
}

#[test]
fn a_panicking_metrics_hook_loses_no_lease() {
    struct PanickingHook;
    impl MetricsHook for PanickingHook {
        fn renewed(&self, _: usize, _: Duration) {
            panic!("a hook of the program's");
        }
    }
    let server = TestServer::new();
    let client = server.client_with(|client| client.holder("w1").metrics(Arc::new(PanickingHook)));
    let guard = acquire(&client, "a").expect("the resource is free");
    for _ in 0..10 {
        server.advance(TTL / 2);
    }
    assert!(guard.is_held());
}

#[test]
fn work_stops_when_the_session_worker_dies() {
    struct PanickingWaker;
    impl std::task::Wake for PanickingWaker {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the program's");
        }
    }
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let work = std::thread::spawn(move || block_on(guard.run(|_| std::future::pending::<()>())));
    let lock = client.lock("b").ttl(TTL);
    let mut request = Box::pin(lock.acquire());
    server.pause(&client);
    assert!(
        request.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(PanickingWaker)))).is_pending(),
        "there is no reply yet"
    );
    server.resume(&client);
    wait_until(|| work.is_finished());
    assert!(work.join().expect("the thread did not panic").is_err(), "the work was stopped");
}
