//! OpenAPI specification of the audit log and backups.

use leasehold_wire::Code;
use leasehold_wire::json::{AuditPageBody, AuditVerificationBody, DenialsBody};
use serde_json::json;

use super::operation::{LIMIT, NAME, OperationSpec};
use super::{Document, NUMBER};

/// Problems of reading stored data.
const READ_PROBLEMS: [Code; 1] = [Code::StorageFailed];
const HASH: &str = "2bc3b8660294f840c201acca6fad54fba3742b47d036e84a34d12b60e1f81982";

pub fn describe(document: &mut Document) {
    let history = |id: &str, summary: &str| OperationSpec::new("history", id, summary).problems(&READ_PROBLEMS);
    let entry = json!({
        "entry": 4, "position": 3, "step": 0, "time_ms": 984, "wall_ms": 1_770_000_000_020_u64, "kind": "ended",
        "resource": "jobs/settle", "holder": "worker-1", "lease": "0.0", "token_number": NUMBER,
        "access": "exclusive", "slot": 0, "state": "released", "reason": "released", "hash": HASH
    });
    let page = json!({ "entries": [entry], "last": 4, "hash": HASH, "position": 3 });
    let page_of = |spec: OperationSpec| {
        spec.number_parameter("after", "Only entries with a higher number", 0)
            .number_parameter("before", "Only entries with a lower number; 0 for no limit", 0)
            .flag_parameter("oldest_first", "Oldest entry first; otherwise newest first")
            .number_parameter("limit", LIMIT, 100)
            .responds::<AuditPageBody>("Entries and the end of the audit log", page.clone())
    };
    let all = history("listHistory", "List audit entries, newest first");
    document.get("/v1/history", page_of(all));
    let one = history("getHistory", "List audit entries of a resource, newest first").path("name", NAME, "jobs/settle");
    document.get("/v1/history/{name}", page_of(one));
    let line = format!(r#"{{"trail":1,"cluster":"00c0ffee00c0ffee","first":1,"before":"{}"}}"#, "0".repeat(64));
    let export = history("exportAudit", "Export the retained audit log")
        .description("One JSON object per line; the first line names the first entry, the last line the last entry. Verify the file with \
             `leasehold audit verify FILE`.")
        .responds_raw("200", "application/jsonl", "Lines of JSON", Some(&line));
    document.get("/v1/audit", export);
    let verify = history("verifyAudit", "Verify the audit log").responds_unpositioned::<AuditVerificationBody>(
        "The result; `intact` is false if the log is damaged",
        json!({ "intact": true, "first": 1, "last": 4, "entries": 4, "hash": HASH }),
    );
    document.get("/v1/audit:verify", verify);
    let head = json!({
        "cluster": "00c0ffee00c0ffee", "entry": 4, "hash": HASH, "position": 3, "wall_ms": 1_770_000_000_020_u64,
        "kid": "5f2d90aa", "signature": "A".repeat(86)
    });
    let heads = history("listAuditHeads", "List signed heads of the audit log, oldest first")
        .description("One JSON object per line. Store them elsewhere: `leasehold audit verify --heads FILE --keys FILE` then reveals a \
             log that was cut or rewritten. Empty on a server without a seal key.")
        .responds_raw("200", "application/jsonl", "Lines of JSON", Some(&head.to_string()));
    document.get("/v1/audit-heads", heads);
    let denial = json!({
        "wall_ms": 1_770_000_000_020_u64, "principal": "spiffe://example/jobs/worker", "via": "mtls",
        "credential": "00112233aabbccdd", "from": "192.0.2.7:4711", "action": "revoke", "reason": "role"
    });
    let denials = history("listDenials", "List the last requests that the access rules refused, newest first")
        .description("The last 1,000 of the server that answers, since it started. They are in memory only.")
        .responds_unpositioned::<DenialsBody>("The denials", json!({ "denials": [denial], "total": 1 }));
    document.get("/v1/denials", denials);
    let backup = history("takeBackup", "Download a backup of the current state")
        .description("The last 32 bytes are the SHA-256 of all bytes before them. `leasehold restore FILE --data DIR` restores it.")
        .responds_raw("200", "application/octet-stream", "The backup", None);
    document.get("/v1/backup", backup);
}
