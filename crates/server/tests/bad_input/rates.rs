//! A connection that asks too often is refused what is new, and keeps what it holds.

use leasehold_server::transport::TransportLimits;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;

use crate::transports::{Doors, Http, acquire, connect, held, open_with};

/// Far more than a second's worth, in one go.
const FLOOD: u64 = 64;

async fn bounded() -> Doors {
    open_with(TransportLimits { request_rate: Some(1), ..TransportLimits::default() }).await
}

async fn figures(doors: &Doors) -> u64 {
    // A connection of its own, and nothing that is counted.
    let (status, text) = Http::connect(doors.running.address).await.ask("GET /metrics", "", "").await;
    assert_eq!(status, 200);
    let line =
        text.lines().find_map(|line| line.strip_prefix("leasehold_limits_reached_total{limit=\"request_rate\"} "));
    line.and_then(|count| count.parse().ok()).expect("the figure is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_on_a_stream_is_refused_and_its_holds_go_on() {
    let mut doors = bounded().await;
    let Answer::Granted(grant) = doors.stream.ask(Operation::Acquire(acquire("mine", "streams"))).await else {
        panic!("the first request of a connection is taken")
    };
    let ask = |sequence| v1::Request {
        sequence,
        operation: Some(Operation::Acquire(acquire(&format!("more/{sequence}"), "w"))),
    };
    let requests = (2..2 + FLOOD).map(ask).collect();
    doors.stream.skip(FLOOD);
    doors.stream.send(v1::ClientBatch { requests, lowest_pending: 1, ..Default::default() });
    let (mut taken, mut refused) = (0, 0);
    while taken + refused < FLOOD {
        for response in doors.stream.next().await.expect("the stream goes on").responses {
            match response.answer {
                Some(Answer::Granted(_)) => taken += 1,
                Some(Answer::Refused(problem)) => {
                    assert_eq!((problem.code.as_str(), problem.limit.as_str()), ("RESOURCE_EXHAUSTED", "request_rate"));
                    assert_eq!((problem.max, problem.got), (Some(1), Some(2)));
                    assert!(problem.retry_after_ms.is_some_and(|ms| (1..=1_000).contains(&ms)), "{problem:?}");
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(refused > 0);
    assert_eq!(figures(&doors).await, refused);
    let held_now = doors.running.api().query(|grantor| grantor.status().held).await.expect("the server serves");
    assert_eq!(held_now as u64, 1 + taken, "what was refused was not done");
    for _ in 0..FLOOD {
        let renew = v1::Renew { lease: Some(held("mine", &grant.token)), ..Default::default() };
        let told = doors.stream.ask(Operation::Renew(renew)).await;
        assert!(matches!(told, Answer::Current(_)), "{told:?}");
    }
    let told = doors.stream.ask(Operation::Release(held("mine", &grant.token))).await;
    assert!(matches!(told, Answer::Done(_)), "{told:?}");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_single_requests_is_refused_and_its_holds_go_on() {
    let mut doors = bounded().await;
    let (status, told) = doors.http.ask("POST /v1/leases/mine:acquire", "", r#"{"holder":"w","ttl":"60s"}"#).await;
    assert_eq!(status, 200, "{told}");
    let grant: serde_json::Value = serde_json::from_str(&told).expect("a grant");
    let mut refused = 0;
    for _ in 0..10_000 {
        let (status, told) = doors.http.ask("GET /v1/status", "", "").await;
        if status == 429 {
            assert!(told.contains(r#""limit":"request_rate","max":1,"got":2"#), "{told}");
            refused += 1;
            break;
        }
        assert_eq!(status, 200, "{told}");
    }
    assert_eq!(refused, 1, "nobody is as slow as that");
    let held = format!(r#"{{"token":{}}}"#, grant["token"]);
    for _ in 0..FLOOD {
        let (status, told) = doors.http.ask("POST /v1/leases/mine:renew", "", &held).await;
        assert_eq!(status, 200, "{told}");
        assert_eq!(doors.http.ask("GET /healthz", "", "").await.0, 200);
    }
    let (status, told) = doors.http.ask("POST /v1/leases/mine:release", "", &held).await;
    assert_eq!(status, 200, "{told}");

    let mut calls = connect(doors.running.address).await;
    let status = loop {
        if let Err(status) = calls.status(v1::StatusRequest::default()).await {
            break status;
        }
    };
    let problem = leasehold_wire::problem_from_status(&status);
    assert_eq!((problem.code.as_str(), problem.limit.as_str()), ("RESOURCE_EXHAUSTED", "request_rate"));
    assert_eq!(figures(&doors).await, 2);
    doors.running.rate_limit.set(None);
    for _ in 0..FLOOD {
        calls.status(v1::StatusRequest::default()).await.expect("without a bound everybody is answered");
    }
    doors.running.stop().await;
}
