//! OpenAPI specification of queries.

use leasehold_wire::Code;
use leasehold_wire::json::{
    DeadlockBody, EndedLeaseBody, LeaseBody, ListedLeasesBody, ResourceBody, ResourcesBody, StatusBody, UsageBody,
    WaiterBody,
};
use serde_json::json;

use super::operation::{LIMIT, MIN_POSITION, NAME, OperationSpec};
use super::{Document, NUMBER, lease};

const PREFIX: &str = "Only resources under this prefix of whole segments";

pub fn describe(document: &mut Document) {
    let query = |id: &str, summary: &str| OperationSpec::new("queries", id, summary).problems(&[]).served_by_standby();
    let resource = json!({
        "resource": "jobs/settle", "capacity": 1, "used": 1, "confirmed": 0, "draining": false,
        "held_for_operator": false, "held": 1, "leases": [lease()], "waiters": 0, "floor": "0"
    });
    let list = query("listLeases", "List resources and their leases")
        .description("A page may be empty without being the last: continue with `next_cursor` until it is null.")
        .text_parameter("prefix", PREFIX, "jobs")
        .number_parameter("cursor", "`next_cursor` of the previous page", 0)
        .number_parameter("limit", LIMIT, 100)
        .number_parameter("min_position", MIN_POSITION, 0)
        .responds::<ResourcesBody>(
            "Resources",
            json!({ "resources": [resource], "next_cursor": null, "position": 42 }),
        );
    document.get("/v1/leases", list);
    let show = query("showResource", "Get a resource with its leases")
        .path("name", NAME, "jobs/settle")
        .number_parameter("min_position", MIN_POSITION, 0)
        .responds::<ResourceBody>("The resource", resource)
        .problems(&[Code::NotFound]);
    document.get("/v1/leases/{name}", show);
    let listed = json!({
        "lease": lease(), "age_ms": 4_711, "silent_ms": 1_200, "idle_ms": null, "stuck": false, "waiters": 0
    });
    let order = "Order of `sort`: `asc`, smallest first, or `desc`; equal values are in a stable order";
    let sort = "`name` of the resource, `age` since the grant, `remaining` lifetime, `last_progress` (time since the last progress, or \
         since the last renewal if the lease requires none), or number of `waiters`. Without it the order is stable and says nothing, \
         and costs the server the least.";
    let leases = query("listHeldLeases", "List held leases, filtered and sorted")
        .description(
            "Every condition must hold. A listing that is read to its end, by `next_cursor` until it is null and with the same \
             parameters, contains every matching lease that is held all the time exactly once. A page may have fewer leases than the \
             limit, or none. The order of a sorted listing is that of its first page; the server keeps it for a minute after each page.",
        )
        .text_parameter("prefix", PREFIX, "jobs")
        .text_parameter("holder", "Only leases of holders with this name", "worker-1")
        .text_parameter("older_than", "Only leases that were granted at least this long ago", "10m")
        .text_parameter("younger_than", "Only leases that were granted less than this long ago", "1h")
        .flag_parameter("stuck", "Only leases that are stuck (see the response), or only others")
        .text_parameter("state", "Only leases that are `draining`, or only others: `active`", "active")
        .text_parameter("sort", sort, "age")
        .text_parameter("order", order, "desc")
        .text_parameter("cursor", "`next_cursor` of the previous page", "00000000c0ffee00.100")
        .number_parameter("limit", "Maximum number of leases; 0 for the maximum of 500", 100)
        .number_parameter("min_position", MIN_POSITION, 0)
        .responds::<ListedLeasesBody>(
            "Leases",
            json!({ "leases": [listed], "next_cursor": null, "position": 42 }),
        )
        .problems(&[Code::NotFound]);
    document.get("/v1/held-leases", leases);
    let held = query("listHeldBy", "List the leases of a holder")
        .path("holder", "Name of the holder", "worker-1")
        .text_parameter("after", "Only higher token numbers, the last of the previous page", NUMBER)
        .number_parameter("limit", LIMIT, 100)
        .responds_list::<LeaseBody>("Leases, by token number", json!([lease()]));
    document.get("/v1/holders/{holder}", held);
    let waiter = json!({
        "holder": "worker-2", "session": "17.0", "access": "exclusive", "priority": 100, "effective_priority": 100,
        "remaining_ms": 4_800, "seen_in_tenure": true
    });
    let waiters = query("listWaiters", "List waiters in the order in which they are served")
        .path("name", NAME, "jobs/settle")
        .number_parameter("offset", "Number of waiters to skip", 0)
        .number_parameter("limit", LIMIT, 100)
        .responds_list::<WaiterBody>("Waiters", json!([waiter]));
    document.get("/v1/waiters/{name}", waiters);
    let end = json!({
        "resource": "jobs/settle", "holder": "worker-1", "token_number": NUMBER, "granted_ms": 4_711,
        "ended_ms": 9_422, "state": "released", "reason": "released"
    });
    let ended = query("listEndedLeases", "List ended leases that are still in memory, latest first")
        .description("The full history is in the audit log: `/v1/history/{name}`.")
        .path("name", NAME, "jobs/settle")
        .number_parameter("limit", LIMIT, 100)
        .responds_list::<EndedLeaseBody>("Ended leases", json!([end]));
    document.get("/v1/ended-leases/{name}", ended);
    let members = json!([{ "holder": "a", "waits_for": "x" }, { "holder": "b", "waits_for": "y" }]);
    let deadlock = json!({ "at_ms": 4_711, "cycle": members, "length": 2, "victim": "b" });
    let deadlocks = query("listDeadlocks", "List recent deadlocks, latest last")
        .number_parameter("limit", LIMIT, 100)
        .responds_list::<DeadlockBody>("Deadlocks", json!([deadlock]));
    document.get("/v1/deadlocks", deadlocks);
    let rows = json!([{ "state": "released", "reason": "released", "count": 3, "held_ms": 14_133 }]);
    let usage = query("listUsage", "List how long holders held leases, by reason of the end")
        .text_parameter("holder", "Only this holder", "worker-1")
        .text_parameter("after", "Only names after this one, the last of the previous page", "worker-0")
        .number_parameter("limit", LIMIT, 100)
        .responds_list::<UsageBody>(
            "Holders; an entry without a name is the sum of all others",
            json!([{ "holder": "worker-1", "rows": rows }]),
        );
    document.get("/v1/usage", usage);
    let status = json!({
        "cluster": "00c0ffee00c0ffee", "incarnation": "0badcafe", "generation": 1, "tenure": 1, "validity": "session",
        "time_ms": 4_711, "counter": NUMBER, "max_ttl_ms": 600_000, "held": 1, "sessions": 0, "waiters": 0,
        "ended": rows, "deadlocks": 0, "quarantine_ms": null, "rolled_back": false, "stalled_ms": 0, "position": 42
    });
    let get_status = query("getStatus", "Get the status of the grantor")
        .number_parameter("min_position", MIN_POSITION, 0)
        .responds::<StatusBody>("Status of the grantor", status);
    document.get("/v1/status", get_status);
    let event = format!(
        "id: 42\nevent: granted\ndata: {}\n\n",
        json!({ "event": "granted", "position": 42, "resource": "jobs/settle", "holder": "worker-1", "lease": "0.0",
            "token_number": NUMBER })
    );
    let events = OperationSpec::new("queries", "watchEvents", "Watch events")
        .problems(&[])
        .description(
            "Server-sent events. The id of an event is the journal position it depends on, its data is one JSON object. A \
             reader that is too slow gets one event `problem`, and the stream ends: list, then watch again.",
        )
        .text_parameter("prefix", PREFIX, "jobs")
        .responds_raw("200", "text/event-stream", "Events, until the connection ends", Some(&event));
    document.get("/v1/events", events);
}
