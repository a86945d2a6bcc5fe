//! Waits that can never end, waiters that are gone, receipts and holds that are over, and the end of a maximum hold.

use std::time::Duration;

use leasehold_wire::problem_from_status;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use tonic::Request;

use crate::transports::{Stream, acquire, connect, held, open, refused, within};

fn waiting(resource: &str) -> Operation {
    let terms = Some(v1::AcquireOptions { wait_ms: 60_000, ..Default::default() });
    Operation::Acquire(v1::Acquire { options: terms, ..acquire(resource, "") })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_who_wait_for_each_other_have_one_victim() {
    let mut doors = open().await;
    let names = ["ring/a", "ring/b", "ring/c"];
    let mut ring = Vec::new();
    for name in names {
        let mut stream = Stream::open(connect(doors.running.address).await).await;
        let told = stream.ask(Operation::Acquire(acquire(name, ""))).await;
        let Answer::Granted(grant) = told else { panic!("{told:?}") };
        ring.push((stream, grant));
    }
    for (i, (stream, _)) in ring.iter_mut().enumerate() {
        let told = stream.ask(waiting(names[(i + 1) % 3])).await;
        assert!(matches!(told, Answer::Waiting(_)) || i == 2, "{told:?}");
    }
    // Each looks whether its wait was refused; exactly one's was.
    let mut victims = 0;
    for (i, (stream, _)) in ring.iter_mut().enumerate() {
        let again = stream.ask_as(2, Some(waiting(names[(i + 1) % 3]))).await;
        match again {
            Answer::Waiting(_) => {}
            Answer::Refused(problem) => {
                assert_eq!((problem.code.as_str(), problem.field.as_str()), ("DEADLOCK", ""));
                assert_eq!(problem.cycle.expect("it is told the cycle").length, 3);
                victims += 1;
            }
            told => panic!("{told:?}"),
        }
    }
    assert_eq!(victims, 1);
    // Told once as it was found, and once when it was asked again.
    let (_, figures) = doors.http.ask("GET /metrics", "", "").await;
    assert!(figures.contains(r#"leasehold_invalid_requests_total{code="DEADLOCK",field=""} 2"#), "{figures}");
    assert!(figures.contains("leasehold_deadlocks_total 1"), "{figures}");
    for (name, (_, grant)) in names.iter().zip(&ring) {
        doors.calls.clone().check(held(name, &grant.token)).await.expect("nobody lost what it holds");
    }
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_session_ends_is_told_and_never_granted() {
    let mut doors = open().await;
    let grant = doors.take("wanted", 60_000).await;
    let told = doors.stream.ask_as(1, Some(waiting("wanted"))).await;
    assert!(matches!(told, Answer::Waiting(_)), "{told:?}");
    let close = v1::Request { sequence: 2, operation: Some(Operation::CloseSession(v1::CloseSession::default())) };
    doors.stream.send(v1::ClientBatch { requests: vec![close], lowest_pending: 1, ..Default::default() });
    let mut heard = Vec::new();
    while heard.len() < 2 {
        heard.extend(doors.stream.next().await.expect("a last word").responses);
    }
    let wait = heard.iter().find(|response| response.sequence == 1).expect("the wait is answered");
    let Some(Answer::Refused(problem)) = &wait.answer else { panic!("{wait:?}") };
    assert_eq!((problem.code.as_str(), problem.reason.as_str()), ("LEASE_LOST", "session"));
    let (_, figures) = doors.http.ask("GET /metrics", "", "").await;
    assert!(figures.contains(r#"leasehold_invalid_requests_total{code="LEASE_LOST",field=""} 1"#), "{figures}");
    doors.calls.release(held("wanted", &grant.token)).await.expect("given back");
    let view = doors.calls.show(v1::ShowRequest { resource: "wanted".into(), min_position: 0 }).await;
    assert!(view.is_err() || view.is_ok_and(|view| view.into_inner().held == 0), "nobody holds it");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_receipt_changes_nothing_and_the_message_stays() {
    use v1::delivery_command::Command as Queue;
    let mut doors = open().await;
    let queue = |ask| Operation::Delivery(v1::DeliveryCommand { queue: "mail".into(), command: Some(ask) });
    let enqueue = v1::Enqueue { body: b"hello".to_vec(), ..Default::default() };
    let told = doors.stream.ask(queue(Queue::Enqueue(enqueue))).await;
    assert!(matches!(told, Answer::Delivery(_)), "{told:?}");
    let receive = || v1::Receive { holder: "w".into(), visibility_ms: 60_000, limit: 1, ..Default::default() };
    let told = doors.stream.ask(queue(Queue::Receive(receive()))).await;
    let Answer::Delivery(v1::DeliveryAnswer { answer: Some(v1::delivery_answer::Answer::Received(first)) }) = told
    else {
        panic!("{told:?}")
    };
    let first = first.deliveries[0].clone();
    let old = v1::Receipt { item: first.item, receipt: first.receipt };
    let told = doors.stream.ask(queue(Queue::Nack(v1::Nack { delivery: Some(old), delay_ms: 0 }))).await;
    assert!(matches!(told, Answer::Delivery(_)), "{told:?}");
    let told = doors.stream.ask(queue(Queue::Receive(receive()))).await;
    assert!(matches!(told, Answer::Delivery(_)), "{told:?}");
    let stale = refused("STALE_TOKEN", "", "is stale");
    doors.grpc("an old receipt", &queue(Queue::Ack(old)), stale).await;
    let never = v1::Receipt { item: 777, receipt: first.receipt };
    let missing = refused("NOT_FOUND", "", "message not found");
    doors.grpc("a message that never was", &queue(Queue::Ack(never)), missing).await;
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_ran_out_is_not_confirmed() {
    let mut doors = open().await;
    doors.calls.set_capacity(v1::SetCapacity { resource: "seats".into(), units: 2 }).await.expect("two seats");
    let units = |ttl_ms| {
        let access = v1::Access::Units.into();
        Operation::Acquire(v1::Acquire { access, units: 2, ttl_ms: Some(ttl_ms), ..acquire("seats", "") })
    };
    let told = doors.stream.ask(units(100)).await;
    let Answer::Granted(late) = told else { panic!("{told:?}") };
    let next = loop {
        match doors.stream.ask(units(60_000)).await {
            Answer::Granted(next) => break next,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let over = refused("LEASE_LOST", "", "ttl");
    doors.grpc("a hold that ran out", &Operation::ConfirmHold(held("seats", &late.token)), over).await;
    let told = doors.stream.ask(Operation::ConfirmHold(held("seats", &next.token))).await;
    assert!(matches!(told, Answer::Done(_)), "{told:?}");
    let (_, view) = doors.http.ask("GET /v1/leases/seats", "", "").await;
    assert!(view.contains(r#""confirmed":2"#), "counted once: {view}");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_tells_the_truth_up_to_the_maximum_hold_and_none_goes_beyond() {
    let mut doors = open().await;
    let terms = Some(v1::AcquireOptions { max_hold_ms: Some(700), ..Default::default() });
    let ask = v1::Acquire { options: terms, ttl_ms: Some(500), ..acquire("short", "w") };
    let mut calls = doors.calls.clone();
    let grant = calls.acquire(ask).await.expect("it is free").into_inner();
    let (granted, until) = (std::time::Instant::now(), std::time::Instant::now() + Duration::from_secs(60));
    let problem = loop {
        let renew = v1::Renew { lease: Some(held("short", &grant.token)), ttl_ms: None, progress: None };
        let asked = granted.elapsed().as_millis() as u64;
        match calls.renew(renew).await {
            Ok(current) => {
                let remaining = current.into_inner().remaining_ms;
                assert!(remaining <= 500, "never more than the ttl: {remaining}");
                // A millisecond more, because clocks are read in whole ones.
                assert!(remaining + asked <= 701, "never beyond the maximum hold: {remaining} after {asked}");
                assert!(std::time::Instant::now() < until, "held for ever");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(status) => break problem_from_status(&status),
        }
    };
    let text = doors.http.ask("GET /metrics", "", "").await.1;
    assert_eq!((problem.code.as_str(), problem.reason.as_str()), ("LEASE_LOST", "max_hold"));
    assert!(text.contains(r#"leasehold_invalid_requests_total{code="LEASE_LOST",field=""} 1"#), "{text}");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_time_is_over_has_no_effect() {
    let doors = open().await;
    let mut calls = doors.calls.clone();
    let before = doors.state().await;
    let mut request = Request::new(acquire("never", "w"));
    // A digit more than this client counts itself: otherwise it gives up before the server has said anything.
    request.metadata_mut().insert("grpc-timeout", "000000000n".parse().expect("plain text"));
    let status = within(calls.acquire(request)).await.expect_err("no time at all");
    let expected = refused("TIMEOUT", "grpc-timeout", "nothing happened");
    doors.check("no time at all", &problem_from_status(&status), expected, &before).await;
    let show = v1::ShowRequest { resource: "never".into(), min_position: 0 };
    assert_eq!(problem_from_status(&calls.show(show).await.expect_err("nobody took it")).code, "NOT_FOUND");
    doors.running.stop().await;
}
