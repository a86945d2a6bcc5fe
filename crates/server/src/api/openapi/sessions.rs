//! OpenAPI specification of sessions.

use leasehold_wire::Code;
use leasehold_wire::json::{DoneBody, OpenSessionBody, SessionBody, SessionStateBody};
use serde_json::json;

use super::Document;
use super::operation::OperationSpec;

pub fn describe(document: &mut Document) {
    let opened = json!({
        "session": "17.0", "secret": "5f3a…64 digits", "cluster": "00c0ffee00c0ffee", "incarnation": "0badcafe",
        "validity": "session", "max_ttl_ms": 600_000, "ttl_ms": 30_000, "remaining_ms": 30_000
    });
    let open = OperationSpec::new("sessions", "openSession", "Open a session")
        .description("The secret is returned once; with it the session can be resumed over gRPC. A session that is not renewed ends, together \
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
    let state = json!({ "session": "17.0", "ttl_ms": 30_000, "remaining_ms": 30_000 });
    let renew = one("renewSession", "Renew a session").responds::<SessionStateBody>("The session is open", state);
    document.post("/v1/sessions/{session}:renew", renew);
    let close = one("closeSession", "Close a session and end its leases");
    document.post(
        "/v1/sessions/{session}:close",
        close.responds::<DoneBody>("The session is closed", json!({ "done": true })),
    );
}
