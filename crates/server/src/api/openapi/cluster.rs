//! OpenAPI specification of cluster status, maximum ttl and step-down.

use leasehold_wire::Code;
use leasehold_wire::json::{ClusterBody, DoneBody, SealKeySetBody, SetMaxTtlBody, StepDownBody};
use serde_json::json;

use super::Document;
use super::operation::OperationSpec;

pub fn describe(document: &mut Document) {
    let member = json!({
        "endpoint": "h1:2379", "healthy": true, "version": "3.5.21", "is_leader": true, "database_bytes": 20_480,
        "in_use_bytes": 16_384
    });
    let view = json!({
        "address": "lease-1:7421", "role": "leader", "role_age_ms": 86_400_000, "position": 42, "leader": "lease-1:7421",
        "servers": ["lease-1:7421", "lease-2:7421"], "etcd": [member], "database_bytes": 20_480,
        "quota_bytes": 2_147_483_648_u64
    });
    let status = OperationSpec::new("server", "getCluster", "Get the servers of the cluster and the leader")
        .description("Every server answers this, whether it leads or not.")
        .responds::<ClusterBody>("The cluster as this server sees it", view)
        .problems(&[]);
    document.get("/v1/cluster", status);
    let set = json!({
        "version": 1, "keys": [{ "kid": "0c349504", "public": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "active_ms": 1_790_000_000_000_u64 }]
    });
    let keys = OperationSpec::new("server", "getKeys", "Get the public keys that verify sealed tokens")
        .description("Every server answers this. A fence reads the same text as a key file.")
        .responds::<SealKeySetBody>("The keys; none if the server does not seal tokens", set)
        .problems(&[]);
    document.get("/v1/keys", keys);
    let refused = [Code::Conflict, Code::RequestTooOld, Code::LeaseLost, Code::TokenInvalid, Code::WrongCluster];
    let set_max_ttl = OperationSpec::new("server", "setMaxTtl", "Change the maximum ttl of the cluster")
        .description(
            "Raised at once; lowered only if no lease, session, wait, message, cached key or charter has a longer ttl.",
        )
        .command_headers()
        .body::<SetMaxTtlBody>(true, json!({ "max_ttl": "1h", "comment": "the nightly batch takes longer" }))
        .responds::<DoneBody>("The maximum ttl is recorded", json!({ "done": true }))
        .problems(&refused)
        .problems(&[Code::RolledBack, Code::StorageFull])
        .may_need_approval();
    document.post("/v1/cluster:set_max_ttl", set_max_ttl);
    let step_down = OperationSpec::new("server", "stepDown", "Let another server lead")
        .description("No lease ends. Refused if the journal is not shared, or if no other server stands by.")
        .command_headers()
        .body::<StepDownBody>(false, json!({}))
        .responds::<DoneBody>("This server no longer leads", json!({ "done": true }))
        .problems(&refused)
        .problems(&[Code::RolledBack, Code::NotFound, Code::StorageFull])
        .may_need_approval();
    document.post("/v1/cluster:step_down", step_down);
}
