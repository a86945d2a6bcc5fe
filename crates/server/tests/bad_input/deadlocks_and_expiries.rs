//! Deadlocks, waiters of ended sessions, stale receipts, expired reservations, the maximum hold and call deadlines.

use std::time::Duration;

use leasehold_wire::problem_from_status;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use tonic::Request;

use crate::test_server::{refusal, start_server};
use crate::transport_clients::{SessionStream, acquire, connect, lease_ref, with_timeout};

fn waiting_acquire(resource: &str) -> Operation {
    let options = Some(v1::AcquireOptions { wait_ms: 60_000, ..Default::default() });
    Operation::Acquire(v1::Acquire { options, ..acquire(resource, "") })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cycle_of_three_waiters_has_one_victim() {
    let mut server = start_server().await;
    let names = ["ring/a", "ring/b", "ring/c"];
    let mut ring = Vec::new();
    for name in names {
        let mut stream = SessionStream::open(connect(server.handle.address).await).await;
        let answer = stream.request(Operation::Acquire(acquire(name, ""))).await;
        let Answer::Granted(grant) = answer else { panic!("{answer:?}") };
        ring.push((stream, grant));
    }
    for (i, (stream, _)) in ring.iter_mut().enumerate() {
        let answer = stream.request(waiting_acquire(names[(i + 1) % 3])).await;
        assert!(matches!(answer, Answer::Waiting(_)) || i == 2, "{answer:?}");
    }
    // A retry shows the outcome of each wait: exactly one was refused.
    let mut victims = 0;
    for (i, (stream, _)) in ring.iter_mut().enumerate() {
        let retry = stream.request_with_sequence(2, Some(waiting_acquire(names[(i + 1) % 3]))).await;
        match retry {
            Answer::Waiting(_) => {}
            Answer::Refused(problem) => {
                assert_eq!((problem.code.as_str(), problem.field.as_str()), ("DEADLOCK", ""));
                assert_eq!(problem.cycle.expect("the refusal contains the cycle").length, 3);
                victims += 1;
            }
            answer => panic!("{answer:?}"),
        }
    }
    assert_eq!(victims, 1);
    // Counted once when the deadlock was found, and once for the retry.
    let (_, metrics) = server.http.request("GET /metrics", "", "").await;
    assert!(metrics.contains(r#"leasehold_invalid_requests_total{code="DEADLOCK",field=""} 2"#), "{metrics}");
    assert!(metrics.contains("leasehold_deadlocks_total 1"), "{metrics}");
    for (name, (_, grant)) in names.iter().zip(&ring) {
        server.client.clone().check(lease_ref(name, &grant.token)).await.expect("every holder keeps its lease");
    }
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_session_ends_is_refused_and_never_granted() {
    let mut server = start_server().await;
    let grant = server.acquire_lease("wanted", 60_000).await;
    let answer = server.stream.request_with_sequence(1, Some(waiting_acquire("wanted"))).await;
    assert!(matches!(answer, Answer::Waiting(_)), "{answer:?}");
    let close = v1::Request {
        sequence: 2,
        operation: Some(Operation::CloseSession(v1::CloseSession::default())),
        alone: None,
        traceparent: None,
    };
    server.stream.send(v1::ClientBatch { requests: vec![close], lowest_pending: 1, ..Default::default() });
    let mut responses = Vec::new();
    while responses.len() < 2 {
        responses.extend(server.stream.next().await.expect("a last message").responses);
    }
    let wait = responses.iter().find(|response| response.sequence == 1).expect("the wait is answered");
    let Some(Answer::Refused(problem)) = &wait.answer else { panic!("{wait:?}") };
    assert_eq!((problem.code.as_str(), problem.reason.as_str()), ("LEASE_LOST", "session"));
    let (_, metrics) = server.http.request("GET /metrics", "", "").await;
    assert!(metrics.contains(r#"leasehold_invalid_requests_total{code="LEASE_LOST",field=""} 1"#), "{metrics}");
    server.client.release(lease_ref("wanted", &grant.token)).await.expect("the holder releases");
    let view = server.client.show(v1::ShowRequest { resource: "wanted".into(), min_position: 0 }).await;
    assert!(view.is_err() || view.is_ok_and(|view| view.into_inner().held == 0), "the resource is free");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_receipt_is_refused_and_the_message_is_kept() {
    use v1::delivery_command::Command as Queue;
    let mut server = start_server().await;
    let queue = |command| Operation::Delivery(v1::DeliveryCommand { queue: "mail".into(), command: Some(command) });
    let enqueue = v1::Enqueue { body: b"hello".to_vec(), ..Default::default() };
    let answer = server.stream.request(queue(Queue::Enqueue(enqueue))).await;
    assert!(matches!(answer, Answer::Delivery(_)), "{answer:?}");
    let receive = || v1::Receive { holder: "w".into(), visibility_ms: 60_000, limit: 1, ..Default::default() };
    let answer = server.stream.request(queue(Queue::Receive(receive()))).await;
    let Answer::Delivery(v1::DeliveryAnswer { answer: Some(v1::delivery_answer::Answer::Received(first)) }) = answer
    else {
        panic!("{answer:?}")
    };
    let first = first.deliveries[0].clone();
    let old = v1::Receipt { item: first.item, receipt: first.receipt };
    let answer = server.stream.request(queue(Queue::Nack(v1::Nack { delivery: Some(old), delay_ms: 0 }))).await;
    assert!(matches!(answer, Answer::Delivery(_)), "{answer:?}");
    let answer = server.stream.request(queue(Queue::Receive(receive()))).await;
    assert!(matches!(answer, Answer::Delivery(_)), "{answer:?}");
    let stale = refusal("STALE_TOKEN", "", "is stale");
    server.grpc_refuses("a stale receipt", &queue(Queue::Ack(old)), stale).await;
    let unknown = v1::Receipt { item: 777, receipt: first.receipt };
    let missing = refusal("NOT_FOUND", "", "receive another one");
    server.grpc_refuses("an unknown message", &queue(Queue::Ack(unknown)), missing).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_reservation_is_not_confirmed() {
    let mut server = start_server().await;
    server
        .client
        .set_capacity(v1::SetCapacity { resource: "seats".into(), units: 2 })
        .await
        .expect("the capacity is set");
    let units = |ttl_ms| {
        let access = v1::Access::Units.into();
        Operation::Acquire(v1::Acquire { access, units: 2, ttl_ms: Some(ttl_ms), ..acquire("seats", "") })
    };
    let answer = server.stream.request(units(100)).await;
    let Answer::Granted(expired) = answer else { panic!("{answer:?}") };
    let next = loop {
        match server.stream.request(units(60_000)).await {
            Answer::Granted(next) => break next,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let lost = refusal("LEASE_LOST", "", "ttl");
    server
        .grpc_refuses("an expired reservation", &Operation::ConfirmHold(lease_ref("seats", &expired.token)), lost)
        .await;
    let answer = server.stream.request(Operation::ConfirmHold(lease_ref("seats", &next.token))).await;
    assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    let (_, view) = server.http.request("GET /v1/leases/seats", "", "").await;
    assert!(view.contains(r#""confirmed":2"#), "the units are confirmed once: {view}");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_never_extends_a_lease_beyond_the_maximum_hold() {
    let mut server = start_server().await;
    let options = Some(v1::AcquireOptions { max_hold_ms: Some(700), ..Default::default() });
    let request = v1::Acquire { options, ttl_ms: Some(500), ..acquire("short", "w") };
    let mut client = server.client.clone();
    let grant = client.acquire(request).await.expect("the resource is free").into_inner();
    let (granted, deadline) = (std::time::Instant::now(), std::time::Instant::now() + Duration::from_secs(60));
    let problem = loop {
        let renew = v1::Renew { lease: Some(lease_ref("short", &grant.token)), ttl_ms: None, progress: None };
        let elapsed = granted.elapsed().as_millis() as u64;
        match client.renew(renew).await {
            Ok(current) => {
                let remaining = current.into_inner().remaining_ms;
                assert!(remaining <= 500, "more than the ttl: {remaining}");
                // One more millisecond, because both clocks are rounded.
                assert!(remaining + elapsed <= 701, "beyond the maximum hold: {remaining} after {elapsed}");
                assert!(std::time::Instant::now() < deadline, "the lease never ends");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(status) => break problem_from_status(&status),
        }
    };
    let text = server.http.request("GET /metrics", "", "").await.1;
    assert_eq!((problem.code.as_str(), problem.reason.as_str()), ("LEASE_LOST", "max_hold"));
    assert!(text.contains(r#"leasehold_invalid_requests_total{code="LEASE_LOST",field=""} 1"#), "{text}");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_deadline_has_passed_has_no_effect() {
    let server = start_server().await;
    let mut client = server.client.clone();
    let before = server.state().await;
    let mut request = Request::new(acquire("never", "w"));
    // One digit more than tonic's client parses; otherwise the client times out before the server responds.
    request.metadata_mut().insert("grpc-timeout", "000000000n".parse().expect("the header is ASCII"));
    let status = with_timeout(client.acquire(request)).await.expect_err("the deadline has passed");
    let expected = refusal("TIMEOUT", "grpc-timeout", "nothing happened");
    server.assert_refused("a passed deadline", &problem_from_status(&status), expected, &before).await;
    let show = v1::ShowRequest { resource: "never".into(), min_position: 0 };
    assert_eq!(problem_from_status(&client.show(show).await.expect_err("nothing was acquired")).code, "NOT_FOUND");
    server.handle.stop().await;
}
