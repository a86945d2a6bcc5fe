//! What is agreed, and how that is changed.

use leasehold_wire::Code;
use leasehold_wire::json::{CharterEntryBody, DoneBody, SetCharterBody};
use serde_json::json;
use utoipa::openapi::path::HttpMethod;

use super::Document;
use super::describe::{Describe, PAGE};

const PREFIX: &str = "The prefix of whole segments; `*` for all resources";

pub fn describe(document: &mut Document) {
    let terms = json!({ "ttl_max_ms": 60_000, "after_revocation": "hold_for_operator" });
    let listed = Describe::new("charters", "listCharters", "List charters, or those that a resource is under")
        .asks("resource", "Only the charters of this resource, the nearest first", "jobs/settle")
        .asks("after", "Only prefixes behind this one: the last that was told", "jobs")
        .counts("most", PAGE, 100)
        .tells_all::<CharterEntryBody>("Charters", json!([{ "prefix": "jobs", "charter": terms }]))
        .refuses(&[])
        .may_be_of_standby();
    document.get("/v1/charters", listed);
    let change = |id: &str, summary: &str| {
        let refused = [Code::Conflict, Code::RequestTooOld, Code::LeaseLost, Code::NotFound, Code::TokenInvalid];
        Describe::new("charters", id, summary)
            .path("prefix", PREFIX, "jobs")
            .changes()
            .tells::<DoneBody>("It is done, and durable", json!({ "done": true }))
            .refuses(&refused)
            .refuses(&[Code::WrongCluster, Code::RolledBack, Code::StorageFull])
    };
    let set = change("setCharter", "Agree on something")
        .takes::<SetCharterBody>(true, json!({ "reason": "agreed on Monday", "charter": terms }));
    document.add(HttpMethod::Put, "/v1/charters/{prefix}", set);
    let remove = change("removeCharter", "Agree on nothing any more").asks("reason", "Why, in words", "moved away");
    document.add(HttpMethod::Delete, "/v1/charters/{prefix}", remove);
}
