//! OpenAPI specification of sessions.

use leasehold_wire::Code;
use leasehold_wire::json::{
    CancelWaitBody, DoneBody, OpenSessionBody, ReconcileBody, RenewSessionBody, SessionBody, SessionLeasesBody,
    SessionStateBody,
};
use serde_json::json;

use super::operation::{LIMIT, OperationSpec};
use super::{Document, NUMBER};

pub fn describe(document: &mut Document) {
    let opened = json!({
        "session": "17.0", "secret": "5f3a…64 digits", "cluster": "00c0ffee00c0ffee", "incarnation": "0badcafe",
        "validity": "session", "max_ttl_ms": 600_000, "ttl_ms": 30_000, "remaining_ms": 30_000
    });
    let open = OperationSpec::new("sessions", "openSession", "Open a session")
        .description("It takes no idempotency key that the client makes. The secret is returned once; with it the session can be resumed \
             over gRPC. A session that is not renewed ends, together \
             with its leases.")
        .command_headers()
        .body::<OpenSessionBody>(true, json!({ "holder": "worker-1", "ttl": "30s" }))
        .responds::<SessionBody>("Opened and durable", opened)
        .problems(&[Code::TokenInvalid, Code::WrongCluster, Code::RolledBack, Code::StorageFull]);
    document.post("/v1/sessions", open);
    let one = |id: &str, summary: &str| {
        let over = [Code::LeaseLost, Code::NotFound, Code::Conflict, Code::RequestTooOld, Code::TokenInvalid];
        OperationSpec::new("sessions", id, summary)
            .path("session", "Id of the session", "17.0")
            .command_headers()
            .problems(&over)
            .problems(&[Code::WrongCluster, Code::RolledBack, Code::StorageFull])
    };
    let state = json!({ "session": "17.0", "ttl_ms": 30_000, "remaining_ms": 30_000, "mismatch": false });
    let renew = one("renewSession", "Renew a session")
        .description(
            "All leases that live as long as the session are renewed with it. With `held`, the reply says whether the server holds the \
             same leases for it.",
        )
        .body::<RenewSessionBody>(false, json!({ "held": { "count": 1, "digest": NUMBER } }))
        .responds::<SessionStateBody>("The session is open", state.clone());
    document.post("/v1/sessions/{session}:renew", renew);
    let reconcile = one("reconcileSession", "End the leases of a session that its client does not know")
        .description(
            "A lease in the range that the list omits is ended, unless the reply to its acquire may still be asked for.",
        )
        .body::<ReconcileBody>(true, json!({ "leases": ["3.0", "17.2"] }))
        .responds::<SessionStateBody>("The leases of the session are those of the client", state);
    document.post("/v1/sessions/{session}:reconcile", reconcile);
    let cancel = one("cancelWait", "Withdraw a wait of a session")
        .description(
            "The waiting request is answered with `CANCELLED`. A wait that was granted meanwhile is not found.",
        )
        .body::<CancelWaitBody>(true, json!({ "sequence": "12" }))
        .responds::<DoneBody>("The wait is withdrawn", json!({ "done": true }));
    document.post("/v1/sessions/{session}:cancel", cancel);
    let query = |id: &str, summary: &str| {
        OperationSpec::new("sessions", id, summary)
            .path("session", "Id of the session", "17.0")
            .session_secret_header()
            .problems(&[Code::LeaseLost, Code::NotFound])
    };
    let held = json!({
        "lease": "3.0", "resource": "jobs/settle", "holder": "worker-1", "token_number": NUMBER, "remaining_ms": 29_120
    });
    let leases = query("listSessionLeases", "List the leases that the server holds for a session, by id")
        .text_parameter("cursor", "`next` of the previous page", "")
        .number_parameter("limit", LIMIT, 100)
        .responds::<SessionLeasesBody>("Leases", json!({ "leases": [held], "next": null }));
    document.get("/v1/sessions/{session}/leases", leases);
    let event = "id: 42\nevent: draining\ndata: {\"event\":\"draining\",\"position\":42,\"lease\":\"3.0\",\"until_ms\":4711}\n\n";
    let events = query("sessionEvents", "Stream the events of a session")
        .description(
            "Server-sent events: `granted`, `ended`, `draining`, `drained`, `invalidate`, `clear` and `ready`. An event only means \
             that the client should ask now; the past is not repeated. The session has one listener: a new one, or a gRPC stream, \
             replaces it. Connecting renews the session once. The stream ends with the event `close` and a problem.",
        )
        .responds_raw("200", "text/event-stream", "Events, until the connection ends", Some(event));
    document.get("/v1/sessions/{session}/events", events);
    let close = one("closeSession", "Close a session and end its leases");
    document.post(
        "/v1/sessions/{session}:close",
        close.responds::<DoneBody>("The session is closed", json!({ "done": true })),
    );
}
