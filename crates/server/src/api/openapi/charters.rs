//! OpenAPI specification of charters.

use leasehold_wire::Code;
use leasehold_wire::json::{CharterEntryBody, DoneBody, SetCharterBody};
use serde_json::json;
use utoipa::openapi::path::HttpMethod;

use super::Document;
use super::operation::{LIMIT, OperationSpec};

const PREFIX: &str = "Prefix of whole segments; `*` for all resources";

pub fn describe(document: &mut Document) {
    let terms = json!({ "ttl_max_ms": 60_000, "after_revocation": "hold_for_operator" });
    let listed = OperationSpec::new("charters", "listCharters", "List charters, or those that apply to a resource")
        .text_parameter(
            "resource",
            "Only the charters that apply to this resource, the most specific first",
            "jobs/settle",
        )
        .text_parameter("after", "Only prefixes after this one, the last of the previous page", "jobs")
        .number_parameter("limit", LIMIT, 100)
        .responds_list::<CharterEntryBody>("Charters", json!([{ "prefix": "jobs", "charter": terms }]))
        .problems(&[])
        .served_by_standby();
    document.get("/v1/charters", listed);
    let change = |id: &str, summary: &str| {
        let refused = [Code::Conflict, Code::RequestTooOld, Code::LeaseLost, Code::NotFound, Code::TokenInvalid];
        OperationSpec::new("charters", id, summary)
            .path("prefix", PREFIX, "jobs")
            .command_headers()
            .responds::<DoneBody>("Done and durable", json!({ "done": true }))
            .problems(&refused)
            .problems(&[Code::WrongCluster, Code::RolledBack, Code::StorageFull])
            .may_need_approval()
    };
    let set = change("setCharter", "Set the charter of a prefix")
        .body::<SetCharterBody>(true, json!({ "comment": "agreed on Monday", "charter": terms }));
    document.add(HttpMethod::Put, "/v1/charters/{prefix}", set);
    let remove = change("removeCharter", "Remove the charter of a prefix").text_parameter(
        "comment",
        "Comment for the audit log",
        "moved away",
    );
    document.add(HttpMethod::Delete, "/v1/charters/{prefix}", remove);
}
