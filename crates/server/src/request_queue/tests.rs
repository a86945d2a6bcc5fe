//! Limits of the lanes: unary callers are rejected, streams wait, and no permit is lost.

use std::sync::Arc;
use std::time::Instant;

use leasehold_core::command::{Proof, Request};
use leasehold_core::ids::LeaseId;
use leasehold_core::token::{Cluster, Incarnation};
use leasehold_wire::{CommandContext, TokenIssuer, v1};
use tokio::sync::oneshot;

use super::*;
use crate::identity::{Identity, Via, current_or_local};
use crate::request::{ReplyTo, RequestPayload};

fn request(bytes: usize) -> QueuedRequest {
    let issuer = TokenIssuer { cluster: Cluster([1; 8]), incarnation: Incarnation(1) };
    let body = v1::delivery_command::Command::Enqueue(v1::Enqueue { body: vec![0; bytes], ..Default::default() });
    let operation = v1::request::Operation::Delivery(v1::DeliveryCommand { queue: "q".into(), command: Some(body) });
    let (to, _) = oneshot::channel();
    QueuedRequest::new(
        Request::tagged(0),
        RequestPayload::Operation(Box::new(operation)),
        CommandContext { session: None, issuer },
        ReplyTo::Caller(to),
    )
}

fn renewals(count: usize) -> RenewalBatch {
    let lease = LeaseId { slot: 1, reuse: 0 };
    let session = SessionId { slot: 1, reuse: 0 };
    RenewalBatch {
        to: Arc::default(),
        session,
        proof: Proof::NONE,
        number: 1,
        leases: vec![(lease, 1); count],
        seen: None,
        identity: current_or_local(),
        arrived: Instant::now(),
    }
}

#[test]
fn large_requests_weigh_more() {
    for (bytes, max) in [(0, MAX_REQUESTS), (64 << 10, 64 << 20 >> 16)] {
        let queue = RequestQueue::default();
        let taken = (0..=MAX_REQUESTS).take_while(|_| queue.submit(request(bytes)).is_ok()).count();
        assert!(taken <= max && taken * 10 > max * 9, "{taken} of {bytes} bytes");
        assert_eq!(queue.submit(request(bytes)), Err(SubmitError::Full));
        let mut inputs = TurnInputs::default();
        queue.drain(&mut inputs);
        assert_eq!(queue.submit(request(bytes)), Ok(()), "capacity was returned");
    }
}

fn renewal() -> QueuedRequest {
    let issuer = TokenIssuer { cluster: Cluster([1; 8]), incarnation: Incarnation(1) };
    let body = RequestPayload::Operation(Box::new(v1::request::Operation::Renew(v1::Renew::default())));
    let (to, _) = oneshot::channel();
    QueuedRequest::new(Request::tagged(0), body, CommandContext { session: None, issuer }, ReplyTo::Caller(to))
}

#[tokio::test]
async fn unary_renewals_bypass_a_flood_of_requests() {
    let queue = RequestQueue::default();
    while queue.submit(request(0)).is_ok() {}
    assert_eq!(queue.submit(renewal()), Ok(()), "renewals have their own capacity");
    assert_eq!(queue.submit_all(vec![renewal(), renewal()]).await, Ok(()));
    let mut inputs = TurnInputs::default();
    queue.drain(&mut inputs);
    assert_eq!((inputs.priority.len(), inputs.requests.len()), (3, TURN_REQUESTS), "the first turn takes all renewals");
    assert_eq!(queue.renewal_permits.available_permits(), MAX_RENEWALS);
}

#[test]
fn drained_requests_return_all_permits() {
    let queue = RequestQueue::default();
    for round in 0..3 {
        let mut inputs = TurnInputs::default();
        for i in 0..10_000 {
            queue.submit(request(i * 7 % 3_000)).expect("capacity");
        }
        while {
            queue.drain(&mut inputs);
            !inputs.requests.is_empty()
        } {
            // Requests left over from a turn were counted once.
            let left = inputs.requests.len() / 2;
            inputs.requests.truncate(left);
        }
        assert_eq!(queue.request_permits.available_permits(), MAX_REQUESTS, "round {round}");
    }
}

#[tokio::test]
async fn a_stream_waits_for_capacity_and_is_never_rejected() {
    let queue = Arc::new(RequestQueue::default());
    for _ in 0..MAX_RENEWALS / 8_192 {
        queue.renew(renewals(8_192)).await.expect("capacity");
    }
    while queue.submit(request(60_000)).is_ok() {}
    let waits = [
        tokio::spawn({
            let queue = queue.clone();
            async move { queue.renew(renewals(8_192)).await }
        }),
        tokio::spawn({
            let queue = queue.clone();
            async move { queue.submit_all((0..4).map(|_| request(60_000)).collect()).await }
        }),
    ];
    tokio::task::yield_now().await;
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    let mut inputs = TurnInputs::default();
    queue.drain(&mut inputs);
    assert_eq!(inputs.renewals.len(), MAX_RENEWALS / 8_192);
    for wait in waits {
        assert_eq!(wait.await.expect("no panic"), Ok(()));
    }
    assert!(!queue.lanes().renewals.is_empty());
    let queued = std::iter::from_fn(|| queue.lanes().requests.pop()).count();
    assert!(queued >= 4, "{queued}");
}

#[tokio::test]
async fn a_closed_queue_rejects_requests_and_wakes_waiting_streams() {
    let queue = Arc::new(RequestQueue::default());
    while queue.submit(request(60_000)).is_ok() {}
    let wait = tokio::spawn({
        let queue = queue.clone();
        async move { queue.submit_all(vec![request(60_000)]).await }
    });
    tokio::task::yield_now().await;
    let left = queue.close(&v1::Problem::default());
    assert!(!left.requests.is_empty());
    assert_eq!(wait.await.expect("no panic"), Err(SubmitError::Stopping));
    assert_eq!(queue.submit(request(0)), Err(SubmitError::Stopping));
    assert_eq!(queue.renew(renewals(1)).await, Err(SubmitError::Stopping));
    assert!(queue.close(&v1::Problem::default()).is_empty());
}

fn identity(principal: &str) -> Arc<Identity> {
    Arc::new(Identity { principal: principal.into(), via: Via::Uid, ..Identity::local(None) })
}

#[tokio::test]
async fn the_flood_of_one_identity_leaves_capacity_and_the_next_turn_to_another() {
    let queue = RequestQueue::default();
    let (flooder, worker) = (identity("uid:1"), identity("uid:2"));
    let of = |identity: &Arc<Identity>, request: QueuedRequest| request.with_identity(identity.clone());
    let queued = (0..MAX_REQUESTS).take_while(|_| queue.submit(of(&flooder, request(0))).is_ok()).count();
    assert_eq!(queued, IDENTITY_REQUESTS);
    assert_eq!(queue.submit(of(&flooder, request(0))), Err(SubmitError::IdentityFull));
    let query = || -> StateRead { Box::new(|_| Box::new(|_| ())) };
    assert_eq!(queue.query(&flooder, query()), Err(SubmitError::IdentityFull));
    assert_eq!(queue.query(&worker, query()), Ok(()));
    assert_eq!(queue.submit(of(&worker, request(0))), Ok(()), "there is capacity");
    assert_eq!(queue.submit(of(&flooder, renewal())), Ok(()), "renewals have a share of their own");
    let mut inputs = TurnInputs::default();
    queue.drain(&mut inputs);
    assert_eq!(&*inputs.requests[1].identity.principal, "uid:2", "it is second, not behind the flood");
    assert_eq!((inputs.requests.len(), inputs.queries.len(), inputs.priority.len()), (TURN_REQUESTS, 1, 1));
    assert_eq!(queue.submit(of(&flooder, request(0))), Ok(()), "a turn returns its share");
}

#[tokio::test]
async fn the_renewals_of_one_identity_leave_capacity_to_another() {
    let queue = Arc::new(RequestQueue::default());
    let batch = |principal: &str| RenewalBatch { identity: identity(principal), ..renewals(8_192) };
    for _ in 0..IDENTITY_RENEWALS / 8_192 {
        queue.renew(batch("uid:1")).await.expect("its share");
    }
    let waits = tokio::spawn({
        let (queue, batch) = (queue.clone(), batch("uid:1"));
        async move { queue.renew(batch).await }
    });
    tokio::task::yield_now().await;
    assert!(!waits.is_finished(), "its share is used up");
    assert_eq!(queue.submit(renewal().with_identity(identity("uid:1"))), Err(SubmitError::IdentityFull));
    assert_eq!(queue.renew(batch("uid:2")).await, Ok(()));
    queue.drain(&mut TurnInputs::default());
    assert_eq!(waits.await.expect("no panic"), Ok(()), "a turn takes every renewal");
}

#[test]
fn the_bytes_of_a_turn_are_divided_between_identities() {
    let queue = RequestQueue::default();
    let bytes_of = |requests: &VecDeque<QueuedRequest>, principal: &str| {
        let of = requests.iter().filter(|request| &*request.identity.principal == principal);
        of.map(|request| request.weight() as usize).sum::<usize>()
    };
    for _ in 0..100 {
        queue.submit(request(60_000).with_identity(identity("uid:1"))).expect("its share");
    }
    for _ in 0..4_000 {
        queue.submit(request(100).with_identity(identity("uid:2"))).expect("its share");
    }
    let mut inputs = TurnInputs::default();
    queue.drain(&mut inputs);
    let (large, small) = (bytes_of(&inputs.requests, "uid:1"), bytes_of(&inputs.requests, "uid:2"));
    assert!(large.abs_diff(small) <= 120, "large requests {large}, small ones {small}");
    assert!(large + small >= TURN_REQUESTS, "the turn is full: {large} and {small}");
}

#[test]
fn large_requests_of_one_identity_are_left_for_later_turns() {
    let queue = RequestQueue::default();
    for _ in 0..100 {
        queue.submit(request(60_000).with_identity(identity("uid:1"))).expect("its share");
    }
    let mut inputs = TurnInputs::default();
    queue.drain(&mut inputs);
    let weight = inputs.requests.iter().map(|request| request.weight() as usize).sum::<usize>();
    assert!((TURN_REQUESTS..TURN_REQUESTS + 200).contains(&weight), "{weight}");
    queue.submit(request(0).with_identity(identity("uid:2"))).expect("its share");
    inputs.requests.drain(..3);
    queue.drain(&mut inputs);
    let is_queued = inputs.requests.iter().any(|request| &*request.identity.principal == "uid:2");
    assert!(is_queued, "the turn after three of them takes a request of another identity");
}
