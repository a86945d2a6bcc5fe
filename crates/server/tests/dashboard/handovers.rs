//! Changes of holder: each is in the ledger once, with its earlier holder and the terms of its charter.

use serde_json::{Value, json};

use crate::access_server::{ADMIN, AccessServer};
use crate::scene::{ok, page};
use crate::transport_clients::HttpConnection;

/// More audit entries than one page of the ledger has.
async fn fill_a_page(http: &mut HttpConnection, name: &str) {
    for batch in 0..11 {
        let resources: Vec<_> = (0..100).map(|at| json!({ "resource": format!("{name}/{batch}/{at}") })).collect();
        let all = json!({ "resources": resources, "holder": "filler", "ttl": "600s" });
        ok(http, "POST /v1/leases:acquire_all", all).await;
    }
}

async fn acquire(http: &mut HttpConnection, resource: &str, body: Value) -> Value {
    ok(http, &format!("POST /v1/leases/{resource}:acquire"), body).await
}

async fn release(http: &mut HttpConnection, resource: &str, granted: &Value) {
    let token = format!("Lease-Token: {}\r\n", granted["token"].as_str().expect("a text"));
    let secret = granted["secret"].as_str().map(|secret| format!("Lease-Secret: {secret}\r\n")).unwrap_or_default();
    let (status, text) = http.request(&format!("POST /v1/leases/{resource}:release"), &(token + &secret), "{}").await;
    assert_eq!(status, 200, "{text}");
}

/// The texts of the cells of each row.
fn rows(page: &str) -> Vec<Vec<String>> {
    let text = |cell: &str| {
        let cell = cell.split_once('>').map_or("", |(_, cell)| cell);
        cell.split('<')
            .enumerate()
            .map(|(at, part)| if at == 0 { part } else { part.split_once('>').map_or("", |(_, rest)| rest) })
            .collect()
    };
    page.split(" data-row=")
        .skip(1)
        .map(|row| row.split("</tr>").next().unwrap_or_default().split("<td").skip(1).map(text).collect())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_holder_is_in_the_ledger_although_its_entries_are_on_different_pages() {
    let mut server = AccessServer::start(&[]).await;
    let mut admin = server.http_as(ADMIN).await;
    let exclusive = |holder: &str| json!({ "holder": holder, "ttl": "600s" });
    // The grants of the earlier holders are on an older page than their ends.
    let first = acquire(&mut admin, "jobs/long", exclusive("long-1")).await;
    let slot = acquire(&mut admin, "jobs/slots", json!({ "holder": "slot-1", "ttl": "600s", "slots": 2 })).await;
    acquire(&mut admin, "jobs/slots", json!({ "holder": "slot-2", "ttl": "600s", "slots": 2 })).await;
    let apart = acquire(&mut admin, "jobs/apart", exclusive("apart-1")).await;
    fill_a_page(&mut admin, "one").await;
    // The end of an earlier holder is on an older page than the grant of the later one.
    release(&mut admin, "jobs/apart", &apart).await;
    // The end of an earlier holder is on a newer page: both hold it for a while.
    let overlapping = acquire(&mut admin, "jobs/overlap", exclusive("overlap-1")).await;
    let mut waiter = server.http_as(ADMIN).await;
    let waiting = tokio::spawn(async move {
        let wait = json!({ "holder": "overlap-2", "ttl": "600s", "wait": "600s" });
        acquire(&mut waiter, "jobs/overlap", wait).await;
    });
    while ok(&mut admin, "GET /v1/leases/jobs/overlap", Value::Null).await["waiters"] == json!(0) {
        tokio::task::yield_now().await;
    }
    let handoff = json!({ "mode": "overlap", "drain": "600s" });
    ok(&mut admin, "POST /v1/leases/jobs/overlap:handoff", handoff).await;
    waiting.await.expect("the waiter is granted");
    fill_a_page(&mut admin, "two").await;
    release(&mut admin, "jobs/long", &first).await;
    release(&mut admin, "jobs/slots", &slot).await;
    release(&mut admin, "jobs/overlap", &overlapping).await;
    acquire(&mut admin, "jobs/long", exclusive("long-2")).await;
    acquire(&mut admin, "jobs/slots", json!({ "holder": "slot-3", "ttl": "600s", "slots": 2 })).await;
    acquire(&mut admin, "jobs/apart", exclusive("apart-2")).await;
    let mut found = Vec::new();
    let mut next = Some("/ui/handovers".to_owned());
    let mut pages = 0;
    while let Some(path) = next {
        let text = page(&mut admin, &path).await;
        pages += 1;
        found.extend(rows(&text).into_iter().map(|row| (row[2].clone(), row[3].clone(), row[0].contains("overlap"))));
        let link = text.split("href=\"").find(|part| part.starts_with("/ui/handovers?before="));
        next = link.map(|part| part.split('"').next().unwrap_or_default().to_owned());
    }
    found.sort();
    let change = |from: &str, to: &str, overlaps| (from.to_owned(), to.to_owned(), overlaps);
    let expected = [
        change("apart-1", "apart-2", false),
        change("long-1", "long-2", false),
        change("overlap-1", "overlap-2", true),
        change("slot-1", "slot-3", false),
    ];
    assert_eq!((pages, found.as_slice()), (3, expected.as_slice()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_earlier_holder_is_the_one_of_the_same_slot() {
    let mut server = AccessServer::start(&[]).await;
    let mut admin = server.http_as(ADMIN).await;
    let slot = |holder: &str| json!({ "holder": holder, "ttl": "600s", "slots": 3 });
    let mut granted = Vec::new();
    for holder in ["a-1", "b-1", "c-1"] {
        granted.push(acquire(&mut admin, "pool", slot(holder)).await);
    }
    release(&mut admin, "pool", &granted[0]).await;
    acquire(&mut admin, "pool", slot("a-2")).await;
    release(&mut admin, "pool", &granted[1]).await;
    acquire(&mut admin, "pool", slot("b-2")).await;
    let expected = [["a-1", "a-2"], ["b-1", "b-2"]];
    let resource = page(&mut admin, "/ui/resource/pool").await;
    let part = resource.split("Changes of holder").nth(1).and_then(|part| part.split("History").next());
    let mut changes: Vec<_> =
        rows(part.expect("the page has both parts")).into_iter().map(|row| [row[1].clone(), row[2].clone()]).collect();
    changes.sort();
    assert_eq!(changes, expected);
    let ledger = rows(&page(&mut admin, "/ui/handovers").await);
    let mut changes: Vec<_> = ledger.into_iter().map(|row| [row[2].clone(), row[3].clone()]).collect();
    changes.sort();
    assert_eq!(changes, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_compared_with_its_charter_however_many_there_are() {
    let mut server = AccessServer::start(&[("uid:1", "operator", "")]).await;
    let mut admin = server.http_as(ADMIN).await;
    let mut operator = server.http_as("uid:1").await;
    let set = async |admin: &mut HttpConnection, prefix: &str, terms: Value| {
        let charter = json!({ "charter": { "handoff": terms }, "comment": "terms" });
        ok(admin, &format!("PUT /v1/charters/{prefix}"), charter).await;
    };
    for at in 0..1_005 {
        // One identity may have 1,000.
        let by = if at % 2 == 0 { &mut admin } else { &mut operator };
        set(by, &format!("c{at:04}"), json!({ "mode": "gap", "drain_ms": 1_000 })).await;
    }
    set(&mut admin, "last/jobs", json!({ "mode": "overlap", "drain_ms": 7_000 })).await;
    let exclusive = |holder: &str| json!({ "holder": holder, "ttl": "600s" });
    for resource in ["last/jobs/a", "undeclared"] {
        let granted = acquire(&mut admin, resource, exclusive("one")).await;
        release(&mut admin, resource, &granted).await;
        acquire(&mut admin, resource, exclusive("two")).await;
    }
    let ledger = rows(&page(&mut admin, "/ui/handovers").await);
    let terms = |resource: &str| ledger.iter().find(|row| row[1] == resource).map(|row| row[5].clone());
    assert_eq!(terms("last/jobs/a").as_deref(), Some("overlap, drain 7.0 s"), "{ledger:?}");
    assert_eq!(terms("undeclared").as_deref(), Some("not declared"), "{ledger:?}");
}
