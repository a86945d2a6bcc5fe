//! Commands about leases: several at once, and those that a holder sends while it works.

use serde_json::{Value, json};

use crate::api_client::{ApiClient, token};

async fn acquire(client: &mut ApiClient, name: &str, body: Value) -> Value {
    let mut all = json!({ "holder": "w1", "ttl": "60s" });
    all.as_object_mut().expect("an object").extend(body.as_object().expect("an object").clone());
    client.ok(&format!("POST /v1/leases/{name}:acquire"), "", all).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_leases_are_granted_together_or_not_at_all() {
    let mut client = ApiClient::start().await;
    let wanted = json!([{ "resource": "a" }, { "resource": "b", "shared": true }, { "resource": "c", "units": 2 }]);
    client.ok("POST /v1/leases/c:capacity", "", json!({ "units": 3 })).await;
    let body = json!({ "resources": wanted, "holder": "w1", "ttl": "60s" });
    let grants = client.ok("POST /v1/leases:acquire_all", "", body.clone()).await;
    let grants = grants["grants"].as_array().expect("a list").clone();
    let names: Vec<_> = grants.iter().map(|grant| grant["resource"].clone()).collect();
    assert_eq!(names, ["a", "b", "c"], "in the order of the request");
    assert!(grants.iter().all(|grant| grant["secret"].as_str().is_some_and(|secret| secret.len() == 32)), "{grants:?}");
    assert_eq!((&grants[0]["slot"], &grants[1]["slot"], &grants[2]["slot"]), (&json!(0), &json!(null), &json!(null)));
    for grant in &grants {
        let check = format!("POST /v1/leases/{}:check", grant["resource"].as_str().expect("a text"));
        client.ok(&check, &token(grant), json!({})).await;
    }
    let partly = json!({ "resources": [{ "resource": "d" }, { "resource": "a" }], "holder": "w2", "ttl": "60s" });
    let (code, busy) = client.refused("POST /v1/leases:acquire_all", "", partly).await;
    assert_eq!((code.as_str(), &busy["holder"]), ("BUSY", &"w1".into()), "{busy}");
    assert_eq!(client.refused("GET /v1/leases/d", "", Value::Null).await.0, "NOT_FOUND", "none was granted");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_renews_the_leases_of_a_session_and_reports_each_that_is_lost() {
    let mut client = ApiClient::start().await;
    let (session, other) = (client.open_session("w1").await, client.open_session("w2").await);
    let own = json!({ "session": session.id, "ttl": "30s" });
    let a = client.ok("POST /v1/leases/a:acquire", &session.secret, own.clone()).await;
    let b = client.ok("POST /v1/leases/b:acquire", &session.secret, own.clone()).await;
    let c = client.ok("POST /v1/leases/c:acquire", &session.secret, own).await;
    let foreign = client.acquire_in(&other, "d").await;
    client.ok("POST /v1/leases/b:revoke", "", json!({ "comment": "for the test" })).await;
    client.ok("POST /v1/leases/c:handoff", &token(&c), json!({ "to": "w3", "mode": "gap", "drain": "45s" })).await;
    let before = draining_for(&mut client, "c").await;
    let one = |grant: &Value| json!({ "lease": grant["lease"], "token_number": grant["token_number"] });
    let wrong = json!({ "lease": a["lease"], "token_number": "1" });
    let leases = json!([one(&a), one(&b), one(&c), one(&foreign), wrong]);
    let body = json!({ "session": session.id, "leases": leases });
    let reply = client.ok("POST /v1/leases:renew", &session.secret, body).await;
    let results = reply["results"].as_array().expect("a list");
    assert_eq!(results.len(), 5, "{reply}");
    assert!(results[0]["remaining_ms"].as_u64().is_some_and(|ms| ms > 25_000), "{reply}");
    assert_eq!(results[1], json!({ "code": "LEASE_LOST", "reason": "operator", "state": "revoked" }));
    let (drain, after) = (results[2]["drain_ms"].as_u64().expect("it drains"), draining_for(&mut client, "c").await);
    assert!(before <= 45_000 && before > 30_000, "as requested, beyond its ttl: {before}");
    assert!(
        before >= drain && drain >= after,
        "a renewal does not move the end of the drain: {before} {drain} {after}"
    );
    assert_eq!(results[3]["code"], "NOT_CURRENT", "of another session: {reply}");
    assert_eq!(results[4]["code"], "NOT_CURRENT", "with another number: {reply}");
    client.server.stop().await;
}

/// The remaining drain time of the one lease of a resource.
async fn draining_for(client: &mut ApiClient, name: &str) -> u64 {
    let shown = client.ok(&format!("GET /v1/leases/{name}"), "", Value::Null).await;
    shown["leases"][0]["drain_ms"].as_u64().unwrap_or_else(|| panic!("it drains: {shown}"))
}

/// A holder without contact may continue for the drain period of its grant, so no handoff ends its lease earlier (L2).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_is_no_shorter_than_its_holder_may_hear_nothing() {
    let mut client = ApiClient::start().await;
    let charter = json!({ "handoff": { "mode": "gap", "drain_ms": 20_000 } });
    client.ok("PUT /v1/charters/short", "", json!({ "charter": charter, "comment": "agreed" })).await;
    // Name, ttl, requested drain, and what the drain is at most and above.
    for (name, ttl, requested, at_most, above) in [
        // The grant says 30 seconds, which is the default.
        ("plain/a", "60s", "20s", 30_000, 20_000),
        // The lease itself ends earlier.
        ("plain/b", "10s", "5s", 10_000, 5_000),
        ("plain/c", "60s", "40s", 40_000, 30_000),
        // The charter says 20 seconds.
        ("short/a", "60s", "5s", 20_000, 5_000),
    ] {
        let lease = acquire(&mut client, name, json!({ "ttl": ttl })).await;
        let handoff = json!({ "to": "w2", "mode": "gap", "drain": requested });
        client.ok(&format!("POST /v1/leases/{name}:handoff"), &token(&lease), handoff).await;
        let drain = draining_for(&mut client, name).await;
        assert!(drain <= at_most && drain > above, "{name}: {drain} ms");
    }
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_renewals_is_bounded() {
    let mut client = ApiClient::start().await;
    let session = client.open_session("w1").await;
    for count in [0, 1_001] {
        let leases: Vec<_> = (0..count).map(|at| json!({ "lease": format!("{at}.0"), "token_number": "7" })).collect();
        let body = json!({ "session": session.id, "leases": leases });
        let (code, refused) = client.refused("POST /v1/leases:renew", &session.secret, body).await;
        assert_eq!((code.as_str(), &refused["field"]), ("INVALID_ARGUMENT", &"leases".into()), "{count}: {refused}");
    }
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_reports_progress_and_rotates_its_token() {
    let mut client = ApiClient::start().await;
    let lease = acquire(&mut client, "a", json!({ "progress": "30s" })).await;
    let reported = client.ok("POST /v1/leases/a:progress", &token(&lease), json!({ "progress": "7" })).await;
    assert_eq!(reported["token_number"], lease["token_number"], "{reported}");
    let shown = client.ok("GET /v1/leases/a", "", Value::Null).await;
    assert_eq!(shown["leases"][0]["progress"], "7", "{shown}");
    let rotated = client.ok("POST /v1/leases/a:rotate", &token(&lease), json!({})).await;
    assert!(rotated["token"].is_string() && rotated["token"] != lease["token"], "{rotated}");
    assert!(rotated["secret"].is_string(), "{rotated}");
    let (code, _) = client.refused("POST /v1/leases/a:renew", &token(&lease), json!({})).await;
    assert_eq!(code, "NOT_CURRENT", "the earlier token does not hold the lease");
    client.ok("POST /v1/leases/a:renew", &token(&rotated), json!({})).await;
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_predecessor_of_a_handoff_reports_that_it_has_drained() {
    let mut client = ApiClient::start().await;
    let lease = acquire(&mut client, "a", json!({})).await;
    client.ok("POST /v1/leases/a:handoff", &token(&lease), json!({ "to": "w2", "mode": "gap", "drain": "60s" })).await;
    client.ok("POST /v1/leases/a:drained", &token(&lease), json!({})).await;
    let (code, lost) = client.refused("POST /v1/leases/a:renew", &token(&lease), json!({})).await;
    assert_eq!((code.as_str(), &lost["reason"]), ("LEASE_LOST", &"handed_off".into()), "{lost}");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_is_resized_kept_and_confirmed() {
    let mut client = ApiClient::start().await;
    client.ok("POST /v1/leases/seats:capacity", "", json!({ "units": 5 })).await;
    let lease = acquire(&mut client, "seats", json!({ "units": 2 })).await;
    client.ok("POST /v1/leases/seats:resize", &token(&lease), json!({ "units": 4 })).await;
    assert_eq!(client.ok("GET /v1/leases/seats", "", Value::Null).await["used"], 4);
    let (code, _) = client.refused("POST /v1/leases/seats:resize", &token(&lease), json!({ "units": 6 })).await;
    assert_eq!(code, "RESOURCE_EXHAUSTED");
    let kept = client.ok("POST /v1/leases/seats:veto", &token(&lease), json!({ "duration": "90s" })).await;
    assert!(kept["remaining_ms"].as_u64().is_some_and(|ms| ms > 60_000), "beyond its ttl: {kept}");
    client.ok("POST /v1/leases/seats:confirm", &token(&lease), json!({})).await;
    let shown = client.ok("GET /v1/leases/seats", "", Value::Null).await;
    assert_eq!((&shown["confirmed"], &shown["held"]), (&json!(4), &json!(0)), "{shown}");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_deletes_below_the_lowest_pin() {
    let mut client = ApiClient::start().await;
    let reader = acquire(&mut client, "log", json!({ "shared": true })).await;
    client.ok("POST /v1/leases/log:pin", &token(&reader), json!({ "position": "100" })).await;
    let collect = "POST /v1/leases/log:collect";
    assert_eq!(client.ok(collect, "", json!({ "below": "120" })).await, json!({ "collect_below": "100" }));
    let (code, _) = client.refused("POST /v1/leases/log:pin", &token(&reader), json!({ "position": "99" })).await;
    assert_eq!(code, "CONFLICT", "it may be deleted already");
    client.ok("POST /v1/leases/log:release", &token(&reader), json!({})).await;
    assert_eq!(client.ok(collect, "", json!({ "below": "120" })).await, json!({ "collect_below": "120" }));
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_state_is_written_under_a_current_lease_only() {
    let mut client = ApiClient::start().await;
    let lease = acquire(&mut client, "jobs/a", json!({})).await;
    let put = "POST /v1/leases/jobs/a:put";
    let first = client.ok(put, &token(&lease), json!({ "key": "checkpoint", "value": "120" })).await;
    let revision = first["revision"].as_str().expect("a text").to_owned();
    let bytes = json!({ "key": "raw", "value_base64": "/wA=" });
    client.ok(put, &token(&lease), bytes).await;
    let stale = json!({ "key": "checkpoint", "value": "121", "expected_revision": "999" });
    assert_eq!(client.refused(put, &token(&lease), stale).await.0, "CONFLICT");
    let next = json!({ "key": "checkpoint", "value": "122", "expected_revision": revision });
    let next = client.ok(put, &token(&lease), next).await;
    assert_ne!(next["revision"].as_str(), Some(revision.as_str()));
    let deleted = client.ok(put, &token(&lease), json!({ "key": "raw" })).await;
    assert_eq!(deleted, json!({ "revision": null }));
    for (field, body) in [
        ("value_base64", json!({ "key": "raw", "value_base64": "_wA" })),
        ("value", json!({ "key": "raw", "value": "a", "value_base64": "YQ==" })),
        ("expected_revision", json!({ "key": "raw", "value": "a", "expected_revision": "-1" })),
    ] {
        let (code, refused) = client.refused(put, &token(&lease), body).await;
        assert_eq!((code.as_str(), &refused["field"]), ("INVALID_ARGUMENT", &field.into()), "{refused}");
    }
    client.ok("POST /v1/leases/jobs/a:release", &token(&lease), json!({})).await;
    let late = json!({ "key": "checkpoint", "value": "late" });
    assert_eq!(client.refused(put, &token(&lease), late).await.0, "LEASE_LOST");
    client.server.stop().await;
}
