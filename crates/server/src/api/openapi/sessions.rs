//! What is done with sessions.

use leasehold_wire::Code;
use leasehold_wire::json::{DoneBody, OpenBody, SessionBody, SessionStateBody};
use serde_json::json;

use super::Document;
use super::describe::Describe;

pub fn describe(document: &mut Document) {
    let opened = json!({
        "session": "17.0", "secret": "5f3a…64 digits", "cluster": "00c0ffee00c0ffee", "incarnation": "0badcafe",
        "rung": "session", "max_ttl_ms": 600_000, "ttl_ms": 30_000, "remaining_ms": 30_000
    });
    let open = Describe::new("sessions", "openSession", "Open a session")
        .about("The secret is told once; whoever has it can go on with the session over gRPC. A session that is not renewed ends, and with it everything it holds.")
        .changes()
        .takes::<OpenBody>(true, json!({ "holder": "worker-1", "ttl": "30s" }))
        .tells::<SessionBody>("Opened, and durable", opened)
        .refuses(&[Code::TokenInvalid, Code::WrongCluster, Code::RolledBack, Code::StorageFull]);
    document.post("/v1/sessions", open);
    let one = |id: &str, summary: &str| {
        let over = [Code::LeaseLost, Code::NotFound, Code::Conflict, Code::RequestTooOld, Code::TokenInvalid];
        Describe::new("sessions", id, summary)
            .path("session", "Its id, as it was told", "17.0")
            .changes()
            .refuses(&over)
            .refuses(&[Code::WrongCluster, Code::RolledBack, Code::StorageFull])
    };
    let state = json!({ "session": "17.0", "ttl_ms": 30_000, "remaining_ms": 30_000 });
    let renew = one("renewSession", "Extend a session").tells::<SessionStateBody>("It lives", state);
    document.post("/v1/sessions/{session}:renew", renew);
    let close = one("closeSession", "End a session and all that it holds");
    document.post("/v1/sessions/{session}:close", close.tells::<DoneBody>("It is over", json!({ "done": true })));
}
