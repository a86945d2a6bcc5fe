//! What can be looked at.

use leasehold_wire::Code;
use leasehold_wire::json::{
    DeadlockBody, EndedBody, LeaseBody, ResourceBody, ResourcesBody, StatusBody, UsageBody, WaiterBody,
};
use serde_json::json;

use super::describe::{Describe, LEAST, NAME, PAGE};
use super::{Document, NUMBER, lease};

const PREFIX: &str = "Only what lies under this prefix of whole segments";

pub fn describe(document: &mut Document) {
    let look = |id: &str, summary: &str| Describe::new("looks", id, summary).refuses(&[]).may_be_of_standby();
    let resource = json!({
        "resource": "jobs/settle", "capacity": 1, "used": 1, "confirmed": 0, "draining": false,
        "held_for_operator": false, "held": 1, "leases": [lease()], "waiters": 0, "floor": "0"
    });
    let list = look("listLeases", "List resources and who holds them")
        .about("A page may be empty and not the last: go on with `next` until it is null.")
        .asks("prefix", PREFIX, "jobs")
        .counts("from", "Where an earlier page said to go on", 0)
        .counts("most", PAGE, 100)
        .counts("min_position", LEAST, 0)
        .tells::<ResourcesBody>("Resources", json!({ "resources": [resource], "next": null, "position": 42 }));
    document.get("/v1/leases", list);
    let show = look("showResource", "Show a resource and everything that stands at it")
        .path("name", NAME, "jobs/settle")
        .counts("min_position", LEAST, 0)
        .tells::<ResourceBody>("The resource", resource)
        .refuses(&[Code::NotFound]);
    document.get("/v1/leases/{name}", show);
    let held = look("listHeldBy", "List everything that holders of a name hold")
        .path("holder", "The name", "worker-1")
        .asks("after", "Only higher token numbers: the last that was told", NUMBER)
        .counts("most", PAGE, 100)
        .tells_all::<LeaseBody>("Leases, by token number", json!([lease()]));
    document.get("/v1/holders/{holder}", held);
    let waiter = json!({
        "holder": "worker-2", "session": "17.0", "access": "exclusive", "priority": 100, "effective": 100,
        "remaining_ms": 4_800, "heard": true
    });
    let waiters = look("listWaiters", "List who waits, in the order in which they are served")
        .path("name", NAME, "jobs/settle")
        .counts("from", "How many to leave out", 0)
        .counts("most", PAGE, 100)
        .tells_all::<WaiterBody>("Waiters", json!([waiter]));
    document.get("/v1/waiters/{name}", waiters);
    let end = json!({
        "resource": "jobs/settle", "holder": "worker-1", "token_number": NUMBER, "granted_ms": 4_711,
        "ended_ms": 9_422, "state": "expired", "reason": "released"
    });
    let ends = look("listEnds", "List the last ends that are still in memory, latest first")
        .about("What is kept for good is the audit trail: `/v1/history/{name}`.")
        .path("name", NAME, "jobs/settle")
        .counts("most", PAGE, 100)
        .tells_all::<EndedBody>("Ends", json!([end]));
    document.get("/v1/ends/{name}", ends);
    let members = json!([{ "holder": "a", "waits_for": "x" }, { "holder": "b", "waits_for": "y" }]);
    let deadlock = json!({ "at_ms": 4_711, "cycle": members, "length": 2, "victim": "b" });
    let deadlocks = look("listDeadlocks", "List the last deadlocks, latest last")
        .counts("most", PAGE, 100)
        .tells_all::<DeadlockBody>("Deadlocks", json!([deadlock]));
    document.get("/v1/deadlocks", deadlocks);
    let rows = json!([{ "state": "expired", "reason": "released", "ended": 3, "held_ms": 14_133 }]);
    let usage = look("listUsage", "Tell for how long holders held, by the reason of the end")
        .asks("holder", "One holder only", "worker-1")
        .asks("after", "Only names behind this one: the last that was told", "worker-0")
        .counts("most", PAGE, 100)
        .tells_all::<UsageBody>(
            "Holders; the last, without a name, is all others together",
            json!([{ "holder": "worker-1", "rows": rows }]),
        );
    document.get("/v1/usage", usage);
    let status = json!({
        "cluster": "00c0ffee00c0ffee", "incarnation": "0badcafe", "generation": 1, "tenure": 1, "rung": "session",
        "time_ms": 4_711, "counter": NUMBER, "max_ttl_ms": 600_000, "held": 1, "sessions": 0, "waiters": 0,
        "ended": rows, "deadlocks": 0, "quarantine_ms": null, "rolled_back": false, "stalled_ms": 0, "position": 42
    });
    let told = look("getStatus", "Tell how the cluster is doing")
        .counts("min_position", LEAST, 0)
        .tells::<StatusBody>("The grantor in figures", status);
    document.get("/v1/status", told);
    let event = format!(
        "id: 42\nevent: granted\ndata: {}\n\n",
        json!({ "event": "granted", "position": 42, "resource": "jobs/settle", "holder": "worker-1", "lease": "0.0",
            "token_number": NUMBER })
    );
    let events = Describe::new("looks", "watchEvents", "Hear events as they happen")
        .refuses(&[])
        .about(
            "Server-sent events. The id of each is the journal position it depends on, its data is one JSON object. \
             Whoever reads too slowly hears one event `problem`, and nothing after it: list, then watch again.",
        )
        .asks("prefix", PREFIX, "jobs")
        .gives("200", "text/event-stream", "Events, until the connection ends", Some(&event));
    document.get("/v1/events", events);
}
