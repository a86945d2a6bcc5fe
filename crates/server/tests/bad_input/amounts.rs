//! Durations, counts and sizes: no value means forever, none is clamped silently, none overflows.

use leasehold_wire::v1::request::Operation;
use leasehold_wire::{problem_from_status, v1};

use crate::test_server::{refusal, start_server};
use crate::transport_clients::{acquire, lease_ref, unary_call};

const ACQUIRE: &str = "POST /v1/leases/jobs/a:acquire";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_outside_its_limits_is_refused() {
    let mut server = start_server().await;
    let too_short = refusal("INVALID_ARGUMENT", "ttl", "allows 100ms to");
    let too_long = refusal("INVALID_ARGUMENT", "ttl", "the cluster allows 100ms to");
    let table = [
        ("zero", 0, "0s", too_short),
        ("99 ms", 99, "99ms", too_short),
        ("one millisecond too long", 600_001, "600001ms", too_long),
        ("the maximum integer", u64::MAX, "18446744073709551615ms", too_long),
    ];
    for (case, ttl_ms, text, expected) in table {
        let operation = Operation::Acquire(v1::Acquire { ttl_ms: Some(ttl_ms), ..acquire("jobs/a", "w") });
        let body = format!(r#"{{"holder":"w","ttl":"{text}"}}"#);
        server.refuses(case, &operation, (ACQUIRE, &body), expected).await;
    }
    let missing = refusal("INVALID_ARGUMENT", "ttl", "required without a session");
    server.http_refuses("no ttl", ACQUIRE, "", r#"{"holder":"w"}"#, missing).await;
    let malformed = refusal("INVALID_ARGUMENT", "ttl", "10s");
    for text in [r#""10 s""#, r#""10""#, "10", "-1", "1e3", r#""NaN""#, r#""∞""#, r#""""#, r#""1.5s""#, "null"] {
        let body = format!(r#"{{"holder":"w","ttl":{text}}}"#);
        if text == "null" {
            server.http_refuses(text, ACQUIRE, "", &body, missing).await;
        } else {
            server.http_refuses(text, ACQUIRE, "", &body, malformed).await;
        }
    }
    server
        .http_refuses("an overflowing duration", ACQUIRE, "", r#"{"holder":"w","ttl":"99999999999999d"}"#, malformed)
        .await;
    let grant = server.acquire_lease("jobs/b", 60_000).await;
    let renew = v1::Renew { lease: Some(lease_ref("jobs/b", &grant.token)), ttl_ms: Some(0), progress: None };
    let body = format!(r#"{{"token":"{}","ttl":"0s"}}"#, grant.token);
    server.http_refuses("a renewal with a zero ttl", "POST /v1/leases/jobs/b:renew", "", &body, too_short).await;
    let before = server.state().await;
    let result = unary_call(&mut server.client, Operation::Renew(renew)).await.expect("renew is a unary call");
    let status = result.expect_err("the ttl is zero");
    server.assert_refused("a renewal with a zero ttl", &problem_from_status(&status), too_short, &before).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_max_hold_progress_priority_and_metadata_have_limits() {
    let mut server = start_server().await;
    let with_options = |options| Operation::Acquire(v1::Acquire { options: Some(options), ..acquire("jobs/a", "w") });
    let too_long = refusal("INVALID_ARGUMENT", "wait", "at most 24 hours");
    let wait = with_options(v1::AcquireOptions { wait_ms: 86_400_001, ..Default::default() });
    server
        .refuses("more than 24 hours", &wait, (ACQUIRE, r#"{"holder":"w","ttl":"60s","wait":"86400001ms"}"#), too_long)
        .await;
    let malformed = refusal("INVALID_ARGUMENT", "wait", "10s");
    server.http_refuses("a negative wait", ACQUIRE, "", r#"{"holder":"w","ttl":"60s","wait":-1}"#, malformed).await;
    let max_hold = refusal("INVALID_ARGUMENT", "max_hold", "from 100 ms to 366 days");
    let zero_hold = with_options(v1::AcquireOptions { max_hold_ms: Some(0), ..Default::default() });
    server
        .refuses("a zero max_hold", &zero_hold, (ACQUIRE, r#"{"holder":"w","ttl":"60s","max_hold":"0s"}"#), max_hold)
        .await;
    let progress = refusal("INVALID_ARGUMENT", "progress", "from 100 ms");
    let short_progress = with_options(v1::AcquireOptions { progress_ms: Some(1), ..Default::default() });
    server
        .refuses(
            "a progress interval of 1 ms",
            &short_progress,
            (ACQUIRE, r#"{"holder":"w","ttl":"60s","progress":"1ms"}"#),
            progress,
        )
        .await;
    let priority = refusal("INVALID_ARGUMENT", "priority", "from 0 to 255");
    let too_high = with_options(v1::AcquireOptions { priority: Some(256), ..Default::default() });
    server
        .refuses("a priority of 256", &too_high, (ACQUIRE, r#"{"holder":"w","ttl":"60s","priority":256}"#), priority)
        .await;
    let too_large = refusal("RESOURCE_EXHAUSTED", "", "at most 4096, requested 4097");
    let metadata = with_options(v1::AcquireOptions { metadata: vec![b'x'; 4_097], ..Default::default() });
    let body = format!(r#"{{"holder":"w","ttl":"60s","metadata":"{}"}}"#, "x".repeat(4_097));
    server.refuses("4097 bytes of metadata", &metadata, (ACQUIRE, &body), too_large).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_units_and_slots_are_refused_without_waiting() {
    let mut server = start_server().await;
    let zero_capacity = refusal("INVALID_ARGUMENT", "capacity", "1");
    let set = |units| Operation::SetCapacity(v1::SetCapacity { resource: "pool".into(), units });
    server
        .refuses("a zero capacity", &set(0), ("POST /v1/leases/pool:capacity", r#"{"units":0}"#), zero_capacity)
        .await;
    server
        .client
        .set_capacity(v1::SetCapacity { resource: "pool".into(), units: 8 })
        .await
        .expect("the capacity is set");
    let units = |units| {
        let options = Some(v1::AcquireOptions { wait_ms: 60_000, ..Default::default() });
        let access = v1::Access::Units.into();
        Operation::Acquire(v1::Acquire { access, units, options, ..acquire("pool", "w") })
    };
    let pool = "POST /v1/leases/pool:acquire";
    let zero_units = refusal("INVALID_ARGUMENT", "units", "at least 1");
    server
        .refuses("zero units", &units(0), (pool, r#"{"holder":"w","ttl":"60s","wait":"60s","units":0}"#), zero_units)
        .await;
    for (case, count) in [("one more than the capacity", 9), ("the maximum integer", u32::MAX)] {
        let expected = refusal("RESOURCE_EXHAUSTED", "", "at most 8");
        let body = format!(r#"{{"holder":"w","ttl":"60s","wait":"60s","units":{count}}}"#);
        server.refuses(case, &units(count), (pool, &body), expected).await;
    }
    let slots =
        Operation::Acquire(v1::Acquire { access: v1::Access::Slot.into(), slots: Some(0), ..acquire("slots", "w") });
    let slot_range = refusal("INVALID_ARGUMENT", "slots", "from 1 to 1048576");
    server
        .refuses(
            "zero slots",
            &slots,
            ("POST /v1/leases/slots:acquire", r#"{"holder":"w","ttl":"60s","slots":0}"#),
            slot_range,
        )
        .await;
    let exclusive = refusal("INVALID_ARGUMENT", "shared", "only one of shared, slots and units");
    server
        .http_refuses("shared and units", pool, "", r#"{"holder":"w","ttl":"60s","shared":true,"units":1}"#, exclusive)
        .await;

    // A capacity below the current use is valid: nothing is revoked, and nothing is granted until it drains.
    let request = v1::Acquire { access: v1::Access::Units.into(), units: 6, ..acquire("pool", "w") };
    server.client.acquire(request).await.expect("6 of 8 units are free");
    server
        .client
        .set_capacity(v1::SetCapacity { resource: "pool".into(), units: 2 })
        .await
        .expect("the capacity is set");
    let (_, view) = server.http.request("GET /v1/leases/pool", "", "").await;
    assert!(view.contains(r#""used":6"#) && view.contains(r#""draining":true"#), "{view}");
    server.handle.stop().await;
}
