//! What is done with leases.

use leasehold_wire::Code;
use leasehold_wire::json::{
    AcquireBody, CapacityBody, CheckBody, CurrentBody, DoneBody, FreeBody, GrantBody, HandoffBody, ReleaseBody,
    RenewBody, RevokeBody, WaiveBody,
};
use serde_json::json;

use super::describe::{Describe, NAME};
use super::{Document, NUMBER, TOKEN};

/// How a lease that is not the caller's to use is refused.
const NOT_HELD: [Code; 6] = [
    Code::LeaseLost,
    Code::NotCurrent,
    Code::StaleToken,
    Code::TokenInvalid,
    Code::TokenImplausible,
    Code::WrongCluster,
];

/// How any change is refused.
const CHANGE: [Code; 7] = [
    Code::Conflict,
    Code::RequestTooOld,
    Code::LeaseLost,
    Code::TokenInvalid,
    Code::WrongCluster,
    Code::RolledBack,
    Code::StorageFull,
];

fn on(id: &str, summary: &str) -> Describe {
    Describe::new("leases", id, summary).path("name", NAME, "jobs/settle").changes()
}

fn done(described: Describe) -> Describe {
    described.tells::<DoneBody>("It is done, and durable", json!({ "done": true }))
}

pub fn describe(document: &mut Document) {
    let grant = json!({
        "resource": "jobs/settle", "lease": "0.0", "holder": "worker-1", "token": TOKEN, "token_number": NUMBER,
        "slot": 0, "ttl_ms": 30_000, "remaining_ms": 30_000, "rung": "session", "state": "held", "reason": null
    });
    let current = json!({
        "resource": "jobs/settle", "token_number": NUMBER, "remaining_ms": 30_000, "state": "held"
    });
    let acquire = on("acquireLease", "Take a lease")
        .about(
            "With `wait` the answer comes when it is granted or the wait is over: a long poll. Without a session both \
             `holder` and `ttl` are needed. Under a key the wait, and what it is granted, belong to the key's session.",
        )
        .takes::<AcquireBody>(true, json!({ "holder": "worker-1", "ttl": "30s", "wait": "5s" }))
        .tells::<GrantBody>("Granted, and durable", grant)
        .refuses(&CHANGE)
        .refuses(&[
            Code::Busy,
            Code::HeldForOperator,
            Code::Deadlock,
            Code::Timeout,
            Code::Quarantined,
            Code::TokenExhausted,
            Code::PermissionDenied,
        ]);
    document.post("/v1/leases/{name}:acquire", acquire);
    let renew = on("renewLease", "Extend a lease")
        .shows_token()
        .takes::<RenewBody>(false, json!({ "ttl": "30s", "progress": "42" }))
        .tells::<CurrentBody>("It is held", current.clone())
        .refuses(&NOT_HELD)
        .refuses(&CHANGE);
    document.post("/v1/leases/{name}:renew", renew);
    let release = on("releaseLease", "Give a lease back").shows_token().takes::<ReleaseBody>(false, json!({}));
    document.post("/v1/leases/{name}:release", done(release).refuses(&NOT_HELD).refuses(&CHANGE));
    let check = on("checkLease", "Ask whether a lease is current")
        .about("True of a moment inside of the call. It is no fence: only the check inside of the target stops a late write.")
        .shows_token()
        .takes::<CheckBody>(false, json!({}))
        .tells::<CurrentBody>("It is held", current)
        .refuses(&NOT_HELD)
        .refuses(&CHANGE);
    document.post("/v1/leases/{name}:check", check);
    let draining = json!({
        "resource": "jobs/settle", "token_number": NUMBER, "remaining_ms": 10_000, "drain_ms": 10_000, "state": "held"
    });
    let missing = [Code::NotFound];
    let handoff = on("handOffLease", "Begin a planned transfer")
        .shows_token()
        .takes::<HandoffBody>(false, json!({ "to": "worker-2", "style": "gap", "drain": "10s" }))
        .tells::<CurrentBody>("It is being handed over; its holder drains", draining)
        .refuses(&NOT_HELD)
        .refuses(&CHANGE)
        .refuses(&missing);
    document.post("/v1/leases/{name}:handoff", handoff);
    let revoke = on("revokeLeases", "Take all leases on a resource away")
        .takes::<RevokeBody>(true, json!({ "reason": "wrong version deployed", "grace": "5s" }));
    document.post("/v1/leases/{name}:revoke", done(revoke).refuses(&CHANGE).refuses(&missing));
    let free = on("freeResource", "Free a resource that a revocation left to an operator")
        .takes::<FreeBody>(true, json!({ "reason": "books were compared by hand" }));
    document.post("/v1/leases/{name}:free", done(free).refuses(&CHANGE).refuses(&missing));
    let capacity = on("setCapacity", "Set how many units a resource has")
        .about("Below what is taken it drains: nobody is let in until enough were given back.")
        .takes::<CapacityBody>(true, json!({ "units": 3 }));
    document.post("/v1/leases/{name}:capacity", done(capacity).refuses(&CHANGE));
    let waive = Describe::new("leases", "waiveQuarantine", "End the quarantine after a restore before its time")
        .changes()
        .takes::<WaiveBody>(true, json!({ "reason": "every old holder was stopped by hand" }));
    document.post("/v1/quarantine:waive", done(waive).refuses(&CHANGE).refuses(&missing));
}
