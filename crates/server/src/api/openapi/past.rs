//! What is told about the past.

use leasehold_wire::Code;
use leasehold_wire::json::{ProofBody, TrailBody};
use serde_json::json;

use super::describe::{Describe, NAME, PAGE};
use super::{Document, NUMBER};

/// How reading what is kept fails.
const KEPT: [Code; 1] = [Code::StorageFailed];
const HASH: &str = "2bc3b8660294f840c201acca6fad54fba3742b47d036e84a34d12b60e1f81982";

pub fn describe(document: &mut Document) {
    let past = |id: &str, summary: &str| Describe::new("past", id, summary).refuses(&KEPT);
    let entry = json!({
        "entry": 4, "position": 3, "step": 0, "time_ms": 984, "wall_ms": 1_770_000_000_020_u64, "kind": "ended",
        "resource": "jobs/settle", "holder": "worker-1", "lease": "0.0", "token_number": NUMBER, "state": "expired",
        "reason": "released", "hash": HASH
    });
    let page = json!({ "entries": [entry], "last": 4, "hash": HASH, "position": 3 });
    let asked = |described: Describe| {
        described
            .counts("after", "Only entries with a higher number", 0)
            .counts("before", "Only entries with a lower number; 0 for no such bound", 0)
            .says("oldest_first", "From the oldest on; otherwise from the newest back")
            .counts("most", PAGE, 100)
            .tells::<TrailBody>("Entries, and where the trail ends", page.clone())
    };
    let all = past("listHistory", "Tell what happened, newest first");
    document.get("/v1/history", asked(all));
    let one = past("getHistory", "Tell what happened to a resource, newest first").path("name", NAME, "jobs/settle");
    document.get("/v1/history/{name}", asked(one));
    let line = format!(r#"{{"trail":1,"cluster":"00c0ffee00c0ffee","first":1,"before":"{}"}}"#, "0".repeat(64));
    let export = past("exportTrail", "Give all of the audit trail that is kept")
        .about("One JSON object a line; the first says where it begins, the last where it ends. `leasehold trail verify FILE` proves it.")
        .gives("200", "application/jsonl", "Lines of JSON", Some(&line));
    document.get("/v1/trail", export);
    let verify = past("verifyTrail", "Prove that the audit trail is whole").tells_plainly::<ProofBody>(
        "What a walk through all of it found; `whole` says how it went",
        json!({ "whole": true, "first": 1, "last": 4, "entries": 4, "hash": HASH }),
    );
    document.get("/v1/trail:verify", verify);
    let backup = past("takeBackup", "Copy the whole state as of now")
        .about("Its last 32 bytes are the SHA-256 of all before. `leasehold restore FILE --data DIR` makes a directory of it.")
        .gives("200", "application/octet-stream", "One file", None);
    document.get("/v1/backup", backup);
}
