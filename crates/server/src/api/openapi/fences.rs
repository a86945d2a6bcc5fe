//! What fences report, and which targets a lease covers.

use leasehold_wire::Code;
use leasehold_wire::json::{DoneBody, FencesBody, ReportsBody};
use serde_json::json;
use utoipa::openapi::path::HttpMethod;

use super::describe::{Describe, LEAST, NAME};
use super::{Document, NUMBER};

pub fn describe(document: &mut Document) {
    let change = |id: &str, summary: &str| {
        Describe::new("fences", id, summary)
            .changes()
            .tells::<DoneBody>("It is done, and durable", json!({ "done": true }))
            .refuses(&[Code::NotFound, Code::TokenInvalid, Code::TokenImplausible, Code::WrongCluster])
            .refuses(&[Code::StorageFull, Code::ResourceExhausted])
    };
    let zombie = json!({ "presented": NUMBER, "mark": "258755447193600008", "times": 2 });
    let report = json!({
        "resource": "jobs/settle", "slot": 0, "target": "ledger", "mode": "forced", "checks": 40, "refusals": 2,
        "checked_ago": "250ms", "highest": "258755447193600008", "zombie": zombie
    });
    let reported = change("reportFences", "Tell what fences saw since they last said")
        .about(
            "All entries are taken in, or none. A report is not remembered: one that is sent twice counts twice. A highest \
             number above the grantor's counter proves that the cluster was rolled back.",
        )
        .takes::<ReportsBody>(true, json!({ "cluster": "00c0ffee00c0ffee", "reports": [report] }));
    document.post("/v1/fences", reported);
    let last = json!({ "at_ms": 1_790_000_000_000_u64, "presented": NUMBER, "mark": "258755447193600008",
        "holder": "worker-1" });
    let place = json!({
        "slot": 0, "mode": "forced", "since_ms": 1_780_000_000_000_u64, "checks": 40, "refusals": 2,
        "checked_ms": 1_790_000_000_000_u64, "zombies": 2, "last": last
    });
    let target = json!({
        "name": "ledger", "at": "postgres://db/ledger", "declared": true, "mode": "forced", "places": [place],
        "hole": null
    });
    let shown = Describe::new("fences", "showFences", "Tell every target that a lease covers, and the holes")
        .path("name", NAME, "jobs/settle")
        .counts("min_position", LEAST, 0)
        .tells::<FencesBody>("The targets", json!({ "resource": "jobs/settle", "targets": [target] }))
        .refuses(&[]);
    document.get("/v1/fences/{name}", shown);
    let forget = change("forgetTarget", "Say that a target is no more")
        .path("name", NAME, "jobs/settle")
        .asks("target", "Its name", "ledger")
        .asks("reason", "Why, in words", "moved away");
    document.add(HttpMethod::Delete, "/v1/fences/{name}", forget);
}
