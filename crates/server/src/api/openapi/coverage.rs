//! OpenAPI specification of fence reports and coverage.

use leasehold_wire::Code;
use leasehold_wire::json::{CoverageBody, DoneBody, FenceReportsBody};
use serde_json::json;
use utoipa::openapi::path::HttpMethod;

use super::operation::{MIN_POSITION, NAME, OperationSpec};
use super::{Document, NUMBER};

pub fn describe(document: &mut Document) {
    let change = |id: &str, summary: &str| {
        OperationSpec::new("coverage", id, summary)
            .command_headers()
            .responds::<DoneBody>("Done and durable", json!({ "done": true }))
            .problems(&[Code::NotFound, Code::TokenInvalid, Code::TokenImplausible, Code::WrongCluster])
            .problems(&[Code::StorageFull, Code::ResourceExhausted])
    };
    let zombie = json!({ "presented": NUMBER, "mark": "258755447193600008", "times": 2 });
    let report = json!({
        "resource": "jobs/settle", "slot": 0, "target": "ledger", "mode": "forced", "checks": 40, "refusals": 2,
        "checked_ago": "250ms", "highest": "258755447193600008", "zombie": zombie
    });
    let report_fences = change("reportFences", "Report what fences checked since their last report")
        .description(
            "All entries are applied, or none. Reports are not deduplicated: one that is sent twice counts twice. A highest \
             number above the grantor's counter proves that the cluster was rolled back.",
        )
        .body::<FenceReportsBody>(true, json!({ "cluster": "00c0ffee00c0ffee", "reports": [report] }));
    document.post("/v1/coverage", report_fences);
    let last = json!({ "at_ms": 1_790_000_000_000_u64, "presented": NUMBER, "mark": "258755447193600008",
        "holder": "worker-1" });
    let slot = json!({
        "slot": 0, "mode": "forced", "since_ms": 1_780_000_000_000_u64, "checks": 40, "refusals": 2,
        "checked_ms": 1_790_000_000_000_u64, "zombies": 2, "last_zombie": last
    });
    let target = json!({
        "name": "ledger", "at": "postgres://db/ledger", "declared": true, "mode": "forced", "slots": [slot],
        "hole": null
    });
    let coverage = OperationSpec::new("coverage", "getCoverage", "Get the targets that a lease covers, and the holes")
        .path("name", NAME, "jobs/settle")
        .number_parameter("min_position", MIN_POSITION, 0)
        .responds::<CoverageBody>("The targets", json!({ "resource": "jobs/settle", "targets": [target] }))
        .problems(&[]);
    document.get("/v1/coverage/{name}", coverage);
    let forget = change("forgetTarget", "Remove a target that no longer exists")
        .path("name", NAME, "jobs/settle")
        .text_parameter("target", "Name of the target", "ledger")
        .text_parameter("comment", "Comment for the audit log", "moved away");
    document.add(HttpMethod::Delete, "/v1/coverage/{name}", forget);
}
