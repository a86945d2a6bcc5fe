//! OpenAPI specification of commands on leases.

use leasehold_wire::Code;
use leasehold_wire::json::{
    AcquireBody, CapacityBody, CheckBody, CurrentLeaseBody, DoneBody, FreeBody, GrantBody, HandoffBody, ReleaseBody,
    RenewBody, RevokeBody, WaiveBody,
};
use serde_json::json;

use super::operation::{NAME, OperationSpec};
use super::{Document, NUMBER, TOKEN};

/// Problems of a token that is not current.
const NOT_HELD: [Code; 6] = [
    Code::LeaseLost,
    Code::NotCurrent,
    Code::StaleToken,
    Code::TokenInvalid,
    Code::TokenImplausible,
    Code::WrongCluster,
];

/// Problems of every command.
const COMMAND: [Code; 7] = [
    Code::Conflict,
    Code::RequestTooOld,
    Code::LeaseLost,
    Code::TokenInvalid,
    Code::WrongCluster,
    Code::RolledBack,
    Code::StorageFull,
];

fn command(id: &str, summary: &str) -> OperationSpec {
    OperationSpec::new("leases", id, summary).path("name", NAME, "jobs/settle").command_headers()
}

fn done(spec: OperationSpec) -> OperationSpec {
    spec.responds::<DoneBody>("Done and durable", json!({ "done": true }))
}

pub fn describe(document: &mut Document) {
    let grant = json!({
        "resource": "jobs/settle", "lease": "0.0", "holder": "worker-1", "token": TOKEN, "token_number": NUMBER,
        "secret": "00112233445566778899aabbccddeeff", "slot": 0, "ttl_ms": 30_000, "remaining_ms": 30_000, "validity": "session", "state": "held", "reason": null
    });
    let current = json!({
        "resource": "jobs/settle", "token_number": NUMBER, "remaining_ms": 30_000, "state": "held"
    });
    let acquire = command("acquireLease", "Acquire a lease")
        .description(
            "With `wait` the response arrives when the lease is granted or the wait ends (long polling). Without a session \
             `holder` and `ttl` are required. With a key the wait and the lease belong to the session of the key.",
        )
        .body::<AcquireBody>(true, json!({ "holder": "worker-1", "ttl": "30s", "wait": "5s" }))
        .responds::<GrantBody>("Granted and durable", grant)
        .problems(&COMMAND)
        .problems(&[
            Code::Busy,
            Code::HeldForOperator,
            Code::Deadlock,
            Code::Timeout,
            Code::Quarantined,
            Code::TokenExhausted,
            Code::PermissionDenied,
        ]);
    document.post("/v1/leases/{name}:acquire", acquire);
    let renew = command("renewLease", "Extend a lease")
        .token_header()
        .body::<RenewBody>(false, json!({ "ttl": "30s", "progress": "42" }))
        .responds::<CurrentLeaseBody>("The lease is held", current.clone())
        .problems(&NOT_HELD)
        .problems(&COMMAND);
    document.post("/v1/leases/{name}:renew", renew);
    let release = command("releaseLease", "Release a lease").token_header().body::<ReleaseBody>(false, json!({}));
    document.post("/v1/leases/{name}:release", done(release).problems(&NOT_HELD).problems(&COMMAND));
    let check = command("checkLease", "Check whether a lease is current")
        .description("The result holds for a moment during the call. It is not a fence: only the check in the target stops a late write.")
        .token_header()
        .body::<CheckBody>(false, json!({}))
        .responds::<CurrentLeaseBody>("The lease is held", current)
        .problems(&NOT_HELD)
        .problems(&COMMAND);
    document.post("/v1/leases/{name}:check", check);
    let draining = json!({
        "resource": "jobs/settle", "token_number": NUMBER, "remaining_ms": 10_000, "drain_ms": 10_000, "state": "held"
    });
    let missing = [Code::NotFound];
    let handoff = command("handoffLease", "Start a planned handoff")
        .token_header()
        .body::<HandoffBody>(false, json!({ "to": "worker-2", "mode": "gap", "drain": "10s" }))
        .responds::<CurrentLeaseBody>("The handoff has started; the holder drains", draining)
        .problems(&NOT_HELD)
        .problems(&COMMAND)
        .problems(&missing)
        .may_need_approval();
    document.post("/v1/leases/{name}:handoff", handoff);
    let revoke = command("revokeLeases", "Revoke all leases of a resource")
        .body::<RevokeBody>(true, json!({ "comment": "wrong version deployed", "grace": "5s" }));
    document.post("/v1/leases/{name}:revoke", done(revoke).problems(&COMMAND).problems(&missing).may_need_approval());
    let free = command("freeResource", "Free a resource that is held for an operator after a revocation")
        .body::<FreeBody>(true, json!({ "comment": "books were compared by hand" }));
    document.post("/v1/leases/{name}:free", done(free).problems(&COMMAND).problems(&missing).may_need_approval());
    let capacity = command("setCapacity", "Set the capacity of a resource in units")
        .description("Below the units in use the resource drains: nothing is granted until enough units are released.")
        .body::<CapacityBody>(true, json!({ "units": 3 }));
    document.post("/v1/leases/{name}:capacity", done(capacity).problems(&COMMAND));
    let waive = OperationSpec::new("leases", "waiveQuarantine", "End the quarantine after a restore early")
        .command_headers()
        .body::<WaiveBody>(true, json!({ "comment": "every old holder was stopped by hand" }));
    document.post("/v1/quarantine:waive", done(waive).problems(&COMMAND).problems(&missing).may_need_approval());
}
