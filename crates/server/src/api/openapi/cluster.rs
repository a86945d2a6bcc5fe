//! The servers over one journal, and how one of them gives its place up.

use leasehold_wire::Code;
use leasehold_wire::json::{ClusterBody, DoneBody, StepDownBody};
use serde_json::json;

use super::Document;
use super::describe::Describe;

pub fn describe(document: &mut Document) {
    let member = json!({
        "endpoint": "h1:2379", "healthy": true, "version": "3.5.21", "leads": true, "database_bytes": 20_480,
        "in_use_bytes": 16_384
    });
    let view = json!({
        "address": "lease-1:7421", "role": "leads", "since_ms": 86_400_000, "position": 42, "leader": "lease-1:7421",
        "servers": ["lease-1:7421", "lease-2:7421"], "etcd": [member], "database_bytes": 20_480,
        "quota_bytes": 2_147_483_648_u64
    });
    let told = Describe::new("server", "getCluster", "Tell which servers there are, and which one leads")
        .about("Every server answers this about itself, whether it leads or not.")
        .tells::<ClusterBody>("The servers, as this one sees them", view)
        .refuses(&[]);
    document.get("/v1/cluster", told);
    let refused = [Code::Conflict, Code::RequestTooOld, Code::LeaseLost, Code::TokenInvalid, Code::WrongCluster];
    let step_down = Describe::new("server", "stepDown", "Let another server lead")
        .about(
            "Nothing that is held ends by it. Refused where the journal is on one machine, or where nobody stands by.",
        )
        .changes()
        .takes::<StepDownBody>(false, json!({}))
        .tells::<DoneBody>("This server decides nothing more", json!({ "done": true }))
        .refuses(&refused)
        .refuses(&[Code::RolledBack, Code::NotFound]);
    document.post("/v1/cluster:step_down", step_down);
}
