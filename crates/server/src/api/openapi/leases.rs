//! OpenAPI specification of commands on leases.

use leasehold_wire::Code;
use leasehold_wire::json::{
    AcquireAllBody, AcquireBody, CapacityBody, CheckBody, CollectBelowBody, CollectBody, CurrentLeaseBody, DoneBody,
    FreeBody, GrantBody, GrantsBody, HandoffBody, PinBody, ProgressBody, PutBody, ReleaseBody, RenewBody,
    RenewLeasesBody, RenewedLeasesBody, ResizeBody, RevisionBody, RevokeBody, TokenBody, VetoBody, WaiveBody,
};
use serde_json::{Value, json};

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

/// Problems of an acquire that is not granted.
const NOT_GRANTED: [Code; 9] = [
    Code::Busy,
    Code::HeldForOperator,
    Code::Deadlock,
    Code::AccessChange,
    Code::Cancelled,
    Code::Timeout,
    Code::Quarantined,
    Code::TokenExhausted,
    Code::PermissionDenied,
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
        "secret": "00112233445566778899aabbccddeeff", "slot": 0, "ttl_ms": 30_000, "remaining_ms": 30_000, "validity": "session", "state": "held", "reason": null,
        "drain_ms": 30_000
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
        .responds::<GrantBody>("Granted and durable", grant.clone())
        .problems(&COMMAND)
        .problems(&NOT_GRANTED);
    document.post("/v1/leases/{name}:acquire", acquire);
    let acquire_all = OperationSpec::new("leases", "acquireAllLeases", "Acquire several leases: all of them or none")
        .description("The leases are granted in one step, so that two callers that want the same ones cannot deadlock.")
        .command_headers()
        .body::<AcquireAllBody>(
            true,
            json!({ "resources": [{ "resource": "jobs/a" }, { "resource": "jobs/b", "shared": true }], "holder": "worker-1", "ttl": "30s" }),
        )
        .responds::<GrantsBody>("Granted and durable, in the order of the request", json!({ "grants": [grant] }))
        .problems(&COMMAND)
        .problems(&NOT_GRANTED);
    document.post("/v1/leases:acquire_all", acquire_all);
    let renew_many = OperationSpec::new("leases", "renewLeases", "Extend leases of one session")
        .description("Each lease has its own result: `remaining_ms`, or the `code` of the reason why it is not held.")
        .command_headers()
        .body::<RenewLeasesBody>(
            true,
            json!({ "session": "17.0", "leases": [{ "lease": "3.0", "token_number": NUMBER }] }),
        )
        .responds::<RenewedLeasesBody>(
            "Results in the order of the request",
            json!({ "results": [{ "remaining_ms": 30_000 }, { "code": "LEASE_LOST", "reason": "ttl", "state": "expired" }] }),
        )
        .problems(&COMMAND);
    document.post("/v1/leases:renew", renew_many);
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
        .description(
            "The result holds for a moment during the call. It is not a fence: only the check in the target stops a late write. A server \
             with access rules refuses a sealed text whose seal is broken; a plain text is compared by its number and not verified.",
        )
        .token_header()
        .body::<CheckBody>(false, json!({}))
        .responds::<CurrentLeaseBody>("The lease is held", current.clone())
        .problems(&NOT_HELD)
        .problems(&COMMAND);
    document.post("/v1/leases/{name}:check", check);
    describe_holder_commands(document, &current);
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

/// Commands that the holder of a lease sends while it works.
fn describe_holder_commands(document: &mut Document, current: &Value) {
    let held = |id: &str, summary: &str| {
        command(id, summary).token_header().problems(&NOT_HELD).problems(&COMMAND).problems(&[Code::NotFound])
    };
    let progress = held("reportProgress", "Report progress of the work under a lease")
        .body::<ProgressBody>(true, json!({ "progress": "7" }))
        .responds::<CurrentLeaseBody>("The lease is held", current.clone());
    document.post("/v1/leases/{name}:progress", progress);
    let rotate = held("rotateToken", "Give a lease a higher token")
        .body::<TokenBody>(false, json!({}))
        .responds::<CurrentLeaseBody>("The lease has the new token", current.clone());
    document.post("/v1/leases/{name}:rotate", rotate);
    let drained = held("finishDrain", "Report that the predecessor of a handoff has stopped writing")
        .body::<TokenBody>(false, json!({}));
    document.post("/v1/leases/{name}:drained", done(drained));
    let confirm = held("confirmHold", "Turn reserved units into a commitment; the lease ends")
        .body::<TokenBody>(false, json!({}));
    document.post("/v1/leases/{name}:confirm", done(confirm));
    let resize = held("resizeHold", "Change the number of reserved units")
        .body::<ResizeBody>(true, json!({ "units": 3 }))
        .responds::<CurrentLeaseBody>("The units are reserved", current.clone())
        .problems(&[Code::Busy]);
    document.post("/v1/leases/{name}:resize", resize);
    let veto = held("vetoExpiry", "Defer the expiry of a lease while an obligation is in flight")
        .body::<VetoBody>(true, json!({ "duration": "5s" }))
        .responds::<CurrentLeaseBody>("The lease is held", current.clone());
    document.post("/v1/leases/{name}:veto", veto);
    let put = held("putState", "Write small state under a lease, or delete it")
        .description(
            "The write applies only if the lease is current. Bytes that are not text are sent as `value_base64`. Without a value \
             the key is deleted. `GET /v1/state/{name}` reads it.",
        )
        .body::<PutBody>(true, json!({ "key": "checkpoint", "value": "120", "expected_revision": "3" }))
        .responds::<RevisionBody>("Written and durable", json!({ "revision": "4" }));
    document.post("/v1/leases/{name}:put", put);
    let pin = held("pinPosition", "Pin a position, so that a collector does not delete it")
        .body::<PinBody>(true, json!({ "position": "120" }))
        .responds::<CurrentLeaseBody>("The position is pinned while the lease is held", current.clone());
    document.post("/v1/leases/{name}:pin", pin);
    let collect = command("collect", "Request permission to delete data that readers may have pinned")
        .body::<CollectBody>(true, json!({ "below": "120" }))
        .responds::<CollectBelowBody>("Data below this position may be deleted", json!({ "collect_below": "100" }))
        .problems(&COMMAND)
        .problems(&[Code::NotFound]);
    document.post("/v1/leases/{name}:collect", collect);
}
