//! How long and how much: nothing means for ever, nothing is clamped unasked, nothing overflows.

use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;

use crate::transports::{acquire, open, refused};

const ACQUIRE: &str = "POST /v1/leases/jobs/a:acquire";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_outside_its_bounds_is_refused() {
    let mut doors = open().await;
    let least = refused("INVALID_ARGUMENT", "ttl", "at least 100 ms");
    let most = refused("INVALID_ARGUMENT", "ttl", "at most the cluster's longest ttl");
    let table = [
        ("no time at all", 0, "0s", least),
        ("99 ms", 99, "99ms", least),
        ("one millisecond too long", 600_001, "600001ms", most),
        ("all there is", u64::MAX, "18446744073709551615ms", most),
    ];
    for (what, ttl_ms, text, expected) in table {
        let ask = Operation::Acquire(v1::Acquire { ttl_ms: Some(ttl_ms), ..acquire("jobs/a", "w") });
        let body = format!(r#"{{"holder":"w","ttl":"{text}"}}"#);
        doors.all(what, &ask, (ACQUIRE, &body), expected).await;
    }
    let without = refused("INVALID_ARGUMENT", "ttl", "required without a session");
    doors.http("none", ACQUIRE, "", r#"{"holder":"w"}"#, without).await;
    let example = refused("INVALID_ARGUMENT", "ttl", "10s");
    for text in [r#""10 s""#, r#""10""#, "10", "-1", "1e3", r#""NaN""#, r#""∞""#, r#""""#, r#""1.5s""#, "null"] {
        let body = format!(r#"{{"holder":"w","ttl":{text}}}"#);
        if text == "null" {
            doors.http(text, ACQUIRE, "", &body, without).await;
        } else {
            doors.http(text, ACQUIRE, "", &body, example).await;
        }
    }
    doors.http("more than can be counted", ACQUIRE, "", r#"{"holder":"w","ttl":"99999999999999d"}"#, example).await;
    let grant = doors.take("jobs/b", 60_000).await;
    let renew =
        v1::Renew { lease: Some(crate::transports::held("jobs/b", &grant.token)), ttl_ms: Some(0), progress: None };
    let body = format!(r#"{{"token":"{}","ttl":"0s"}}"#, grant.token);
    doors.http("renewed for nothing", "POST /v1/leases/jobs/b:renew", "", &body, least).await;
    let before = doors.state().await;
    let told =
        crate::transports::call(&mut doors.calls, Operation::Renew(renew)).await.expect("a call").expect_err("no ttl");
    doors.check("renewed for nothing", &leasehold_wire::problem_from_status(&told), least, &before).await;
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_a_hold_and_a_rank_have_bounds() {
    let mut doors = open().await;
    let terms = |terms| Operation::Acquire(v1::Acquire { options: Some(terms), ..acquire("jobs/a", "w") });
    let day = refused("INVALID_ARGUMENT", "wait", "at most 24 hours");
    let wait = terms(v1::AcquireOptions { wait_ms: 86_400_001, ..Default::default() });
    doors.all("a day and a bit", &wait, (ACQUIRE, r#"{"holder":"w","ttl":"60s","wait":"86400001ms"}"#), day).await;
    let minus = refused("INVALID_ARGUMENT", "wait", "10s");
    doors.http("less than nothing", ACQUIRE, "", r#"{"holder":"w","ttl":"60s","wait":-1}"#, minus).await;
    let hold = refused("INVALID_ARGUMENT", "max_hold", "from 100 ms to 366 days");
    let held = terms(v1::AcquireOptions { max_hold_ms: Some(0), ..Default::default() });
    doors.all("held for nothing", &held, (ACQUIRE, r#"{"holder":"w","ttl":"60s","max_hold":"0s"}"#), hold).await;
    let progress = refused("INVALID_ARGUMENT", "progress", "from 100 ms");
    let moved = terms(v1::AcquireOptions { progress_ms: Some(1), ..Default::default() });
    doors.all("no time to move", &moved, (ACQUIRE, r#"{"holder":"w","ttl":"60s","progress":"1ms"}"#), progress).await;
    let rank = refused("INVALID_ARGUMENT", "priority", "from 0 to 255");
    let first = terms(v1::AcquireOptions { priority: Some(256), ..Default::default() });
    doors.all("before everybody", &first, (ACQUIRE, r#"{"holder":"w","ttl":"60s","priority":256}"#), rank).await;
    let words = refused("RESOURCE_EXHAUSTED", "", "at most 4096, requested 4097");
    let many = terms(v1::AcquireOptions { metadata: vec![b'x'; 4_097], ..Default::default() });
    let body = format!(r#"{{"holder":"w","ttl":"60s","metadata":"{}"}}"#, "x".repeat(4_097));
    doors.all("too much to say", &many, (ACQUIRE, &body), words).await;
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_and_slots_are_counted_before_anybody_waits() {
    let mut doors = open().await;
    let none = refused("INVALID_ARGUMENT", "capacity", "1");
    let set = |units| Operation::SetCapacity(v1::SetCapacity { resource: "pool".into(), units });
    doors.all("no units", &set(0), ("POST /v1/leases/pool:capacity", r#"{"units":0}"#), none).await;
    doors.calls.set_capacity(v1::SetCapacity { resource: "pool".into(), units: 8 }).await.expect("a capacity");
    let units = |units| {
        let terms = Some(v1::AcquireOptions { wait_ms: 60_000, ..Default::default() });
        let access = v1::Access::Units.into();
        Operation::Acquire(v1::Acquire { access, units, options: terms, ..acquire("pool", "w") })
    };
    let pool = "POST /v1/leases/pool:acquire";
    let one = refused("INVALID_ARGUMENT", "units", "at least 1");
    doors.all("nothing", &units(0), (pool, r#"{"holder":"w","ttl":"60s","wait":"60s","units":0}"#), one).await;
    for (what, many) in [("one too many", 9), ("all there are", u32::MAX)] {
        let expected = refused("RESOURCE_EXHAUSTED", "", "at most 8");
        let body = format!(r#"{{"holder":"w","ttl":"60s","wait":"60s","units":{many}}}"#);
        doors.all(what, &units(many), (pool, &body), expected).await;
    }
    let slots =
        Operation::Acquire(v1::Acquire { access: v1::Access::Slot.into(), slots: Some(0), ..acquire("slots", "w") });
    let some = refused("INVALID_ARGUMENT", "slots", "from 1 to 1048576");
    doors
        .all("no slots", &slots, ("POST /v1/leases/slots:acquire", r#"{"holder":"w","ttl":"60s","slots":0}"#), some)
        .await;
    let both = refused("INVALID_ARGUMENT", "shared", "only one of shared, slots and units");
    doors.http("both", pool, "", r#"{"holder":"w","ttl":"60s","shared":true,"units":1}"#, both).await;

    // Below its use is no error: nothing is taken away, and nobody is let in.
    let ask = v1::Acquire { access: v1::Access::Units.into(), units: 6, ..acquire("pool", "w") };
    doors.calls.acquire(ask).await.expect("6 of 8");
    doors.calls.set_capacity(v1::SetCapacity { resource: "pool".into(), units: 2 }).await.expect("it drains");
    let (_, view) = doors.http.ask("GET /v1/leases/pool", "", "").await;
    assert!(view.contains(r#""used":6"#) && view.contains(r#""draining":true"#), "{view}");
    doors.running.stop().await;
}
