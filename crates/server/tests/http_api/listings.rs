//! Listings of held leases: filters, orders, pages that neither lose nor repeat a lease, and refused parameters.

use std::collections::BTreeSet;

use leasehold_wire::v1;
use serde_json::{Value, json};

use crate::api_client::{ApiClient, token};
use crate::transport_clients::connect;

async fn acquire(client: &mut ApiClient, name: &str, holder: &str, ttl: &str) -> Value {
    let body = json!({ "holder": holder, "ttl": ttl });
    client.ok(&format!("POST /v1/leases/{name}:acquire"), "", body).await
}

/// The resources of one page.
async fn page(client: &mut ApiClient, query: &str) -> (Vec<String>, Option<String>) {
    let reply = client.ok(&format!("GET /v1/held-leases?{query}"), "", Value::Null).await;
    let leases = reply["leases"].as_array().unwrap_or_else(|| panic!("{query}: {reply}"));
    let names = leases.iter().map(|one| one["lease"]["resource"].as_str().expect("a text").to_owned()).collect();
    (names, reply["next_cursor"].as_str().map(str::to_owned))
}

/// The resources of a listing that fits on one page.
async fn listed(client: &mut ApiClient, query: &str) -> Vec<String> {
    let (names, next) = page(client, query).await;
    assert_eq!(next, None, "{query}");
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_filtered_by_prefix_holder_age_and_state() {
    let mut client = ApiClient::start().await;
    let a = acquire(&mut client, "team/a", "w1", "60s").await;
    acquire(&mut client, "team/b", "w2", "60s").await;
    acquire(&mut client, "teams/c", "w1", "60s").await;
    client.ok("POST /v1/leases/team/a:handoff", &token(&a), json!({ "to": "w3", "mode": "gap" })).await;
    assert_eq!(listed(&mut client, "").await, ["team/a", "team/b", "teams/c"]);
    assert_eq!(listed(&mut client, "prefix=team").await, ["team/a", "team/b"], "whole segments");
    assert_eq!(listed(&mut client, "holder=w1").await, ["team/a", "teams/c"]);
    assert_eq!(listed(&mut client, "prefix=team&holder=w1").await, ["team/a"], "every condition holds");
    assert_eq!(listed(&mut client, "state=draining").await, ["team/a"]);
    assert_eq!(listed(&mut client, "state=active").await, ["team/b", "teams/c"]);
    assert_eq!(listed(&mut client, "holder=nobody").await, [""; 0]);
    assert_eq!(listed(&mut client, "older_than=1h").await, [""; 0]);
    assert_eq!(listed(&mut client, "younger_than=1h&state=active").await, ["team/b", "teams/c"]);
    assert_eq!(listed(&mut client, "older_than=0s&prefix=teams").await, ["teams/c"]);
    let reply = client.ok("GET /v1/held-leases?prefix=team/b", "", Value::Null).await;
    let one = &reply["leases"][0];
    assert_eq!((&one["stuck"], &one["waiters"], &one["idle_ms"]), (&json!(false), &json!(0), &Value::Null), "{one}");
    assert!(one["age_ms"].as_u64() >= one["silent_ms"].as_u64() && one["lease"].get("token").is_none(), "{one}");
    client.server.stop().await;
}

/// A lease is stuck after half its ttl without a renewal, or half its window without progress.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_leases_are_those_that_are_silent_or_make_no_progress() {
    let mut client = ApiClient::start().await;
    acquire(&mut client, "fresh", "w1", "10m").await;
    let idle = json!({ "holder": "w1", "ttl": "10m", "progress": "60s" });
    client.ok("POST /v1/leases/working:acquire", "", idle).await;
    let silent = acquire(&mut client, "silent", "w1", "20s").await;
    let no_progress = json!({ "holder": "w1", "ttl": "10m", "progress": "20s" });
    let no_progress = client.ok("POST /v1/leases/idle:acquire", "", no_progress).await;
    assert_eq!(listed(&mut client, "stuck=true").await, [""; 0]);
    // Each is stuck for ten seconds before it ends.
    while listed(&mut client, "stuck=true&sort=name").await != ["idle", "silent"] {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(listed(&mut client, "stuck=false&sort=name").await, ["fresh", "working"]);
    client.ok("POST /v1/leases/silent:renew", &token(&silent), json!({})).await;
    assert_eq!(listed(&mut client, "stuck=true").await, ["idle"], "a renewal is a sign of life");
    client.ok("POST /v1/leases/idle:renew", &token(&no_progress), json!({})).await;
    assert_eq!(listed(&mut client, "stuck=true").await, ["idle"], "and no progress");
    client.ok("POST /v1/leases/idle:progress", &token(&no_progress), json!({ "progress": "1" })).await;
    assert_eq!(listed(&mut client, "stuck=true").await, [""; 0]);
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_sorted_by_every_key_in_both_directions() {
    let mut client = ApiClient::start().await;
    for (name, ttl) in [("c", "50s"), ("a", "5m"), ("b", "100s")] {
        acquire(&mut client, name, "w1", ttl).await;
        // The age is in milliseconds.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let waiters = [client.open_session("w2").await, client.open_session("w3").await, client.open_session("w4").await];
    let mut waits = Vec::new();
    for (name, waiter) in [("b", &waiters[0]), ("b", &waiters[1]), ("a", &waiters[2])] {
        let (address, headers) = (client.server.address, waiter.secret.clone());
        let body = json!({ "session": waiter.id, "wait": "60s" }).to_string();
        waits.push(tokio::spawn(async move {
            let mut http = crate::transport_clients::HttpConnection::connect(address).await;
            http.request(&format!("POST /v1/leases/{name}:acquire"), &headers, &body).await
        }));
    }
    while client.ok("GET /v1/status", "", Value::Null).await["waiters"] != 3 {
        tokio::task::yield_now().await;
    }
    for (sort, ascending) in [
        ("name", ["a", "b", "c"]),
        ("age", ["b", "a", "c"]),
        ("remaining", ["c", "b", "a"]),
        ("last_progress", ["b", "a", "c"]),
        ("waiters", ["c", "a", "b"]),
    ] {
        assert_eq!(listed(&mut client, &format!("sort={sort}")).await, ascending, "{sort}");
        assert_eq!(listed(&mut client, &format!("sort={sort}&order=asc")).await, ascending, "{sort}");
        let descending: Vec<_> = ascending.into_iter().rev().collect();
        assert_eq!(listed(&mut client, &format!("sort={sort}&order=desc")).await, descending, "{sort}");
    }
    waits.into_iter().for_each(|wait| wait.abort());
    client.server.stop().await;
}

/// Between the pages, leases are renewed so that their places in the order change, others end, and new ones take their slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_a_listing_contain_every_lease_that_is_held_all_the_time_once() {
    let mut client = ApiClient::start().await;
    for query in ["", "sort=remaining", "sort=remaining&order=desc", "sort=last_progress", "sort=age", "sort=name"] {
        let mut held = Vec::new();
        for at in 0..30 {
            held.push(acquire(&mut client, &format!("jobs/{at:02}"), "w1", &format!("{}s", 60 + at)).await);
        }
        let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let (names, next) = page(&mut client, &format!("{query}&limit=7&cursor={cursor}")).await;
            assert!(names.len() <= 7, "{query}");
            seen.extend(names);
            pages += 1;
            let Some(next) = next else { break };
            cursor = next;
            // The last third ends, two in each round; the others are renewed, and so change their places.
            for _ in 0..2 {
                let ended = held.pop().expect("more than ten are left");
                let name = ended["resource"].as_str().expect("a text");
                client.ok(&format!("POST /v1/leases/{name}:release"), &token(&ended), json!({})).await;
                acquire(&mut client, &format!("new{pages}/{name}"), "w2", "60s").await;
            }
            for lease in held.iter().take(10) {
                let name = lease["resource"].as_str().expect("a text");
                client.ok(&format!("POST /v1/leases/{name}:renew"), &token(lease), json!({ "ttl": "9m" })).await;
            }
        }
        assert!(pages >= 4, "{query}: {pages} pages");
        let unique: BTreeSet<_> = seen.iter().cloned().collect();
        assert_eq!(unique.len(), seen.len(), "{query}: one was repeated: {seen:?}");
        for lease in &held {
            let name = lease["resource"].as_str().expect("a text");
            assert!(unique.contains(name), "{query}: {name} was lost: {seen:?}");
        }
        for resource in listed(&mut client, "sort=name").await {
            let revoke = format!("POST /v1/leases/{resource}:revoke");
            client.ok(&revoke, "", json!({ "comment": "the next order" })).await;
        }
    }
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_parameter_is_refused_by_its_name() {
    let mut client = ApiClient::start().await;
    for at in 0..3 {
        acquire(&mut client, &format!("jobs/{at}"), "w1", "60s").await;
    }
    for (query, field) in [
        ("prefix=a//b", "prefix"),
        ("holder=", "holder"),
        ("older_than=10", "older_than"),
        ("older_than=-1s", "older_than"),
        ("younger_than=soon", "younger_than"),
        ("younger_than=99999999999999999999s", "younger_than"),
        ("older_than=10s&younger_than=10s", "younger_than"),
        ("stuck=perhaps", "stuck"),
        ("state=held", "state"),
        ("sort=size", "sort"),
        ("sort=Name", "sort"),
        ("order=desc", "order"),
        ("sort=name&order=down", "order"),
        ("limit=-1", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=-1", "cursor"),
        ("sort=name&cursor=1", "cursor"),
        ("cursor=00000000000000ff.1", "cursor"),
        ("owner=w1", "owner"),
    ] {
        let (code, refused) = client.refused(&format!("GET /v1/held-leases?{query}"), "", Value::Null).await;
        assert_eq!((code.as_str(), &refused["field"]), ("INVALID_ARGUMENT", &field.into()), "{query}: {refused}");
    }
    let (_, next) = page(&mut client, "sort=age&limit=1").await;
    let next = next.expect("three leases");
    for other in ["sort=name&limit=1", "sort=age&order=desc", "sort=age&holder=w1"] {
        let path = format!("GET /v1/held-leases?{other}&cursor={next}");
        let (code, refused) = client.refused(&path, "", Value::Null).await;
        assert_eq!((code.as_str(), &refused["field"]), ("INVALID_ARGUMENT", &"cursor".into()), "{other}: {refused}");
    }
    let unknown = "GET /v1/held-leases?sort=age&cursor=00000000000000ff.1";
    let (code, ended) = client.refused(unknown, "", Value::Null).await;
    assert_eq!((code.as_str(), &ended["subject"]), ("NOT_FOUND", &"listing".into()), "{ended}");
    assert_eq!(page(&mut client, &format!("sort=age&limit=2&cursor={next}")).await.0.len(), 2, "the listing is kept");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_listing_is_a_unary_grpc_call() {
    let mut client = ApiClient::start().await;
    for (name, holder) in [("b", "w1"), ("a", "w1"), ("c", "w2")] {
        acquire(&mut client, name, holder, "60s").await;
    }
    let mut grpc = connect(client.server.address).await;
    let request = v1::ListLeasesRequest {
        holder: Some("w1".into()),
        sort: v1::LeaseSort::Name.into(),
        descending: true,
        limit: 1,
        ..Default::default()
    };
    let first = grpc.list_leases(request.clone()).await.expect("a page").into_inner();
    let names = |page: &v1::ListedLeases| -> Vec<String> {
        page.leases.iter().map(|one| one.lease.clone().expect("a lease").resource).collect()
    };
    assert_eq!(names(&first), ["b"]);
    let next = v1::ListLeasesRequest { cursor: first.next_cursor, ..request.clone() };
    let second = grpc.list_leases(next).await.expect("a page").into_inner();
    assert_eq!((names(&second), second.next_cursor.as_str()), (vec!["a".to_owned()], ""));
    for (request, field) in [
        (v1::ListLeasesRequest { sort: 99, ..request.clone() }, "sort"),
        (v1::ListLeasesRequest { state: 99, ..request.clone() }, "state"),
        (v1::ListLeasesRequest { sort: 0, ..request.clone() }, "order"),
        (v1::ListLeasesRequest { holder: Some(String::new()), ..request.clone() }, "holder"),
        (v1::ListLeasesRequest { cursor: "x".into(), ..request }, "cursor"),
    ] {
        let refused = grpc.list_leases(request).await.expect_err("refused");
        let problem = leasehold_wire::problem_from_status(&refused);
        assert_eq!((problem.code.as_str(), problem.field.as_str()), ("INVALID_ARGUMENT", field));
    }
    client.server.stop().await;
}
