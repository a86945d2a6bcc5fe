//! The audit log of a running server, over HTTP and gRPC.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_server::audit::verify_export;
use leasehold_server::backup;
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::start;
use leasehold_server::snapshotter::SnapshotConfig;
use serde_json::Value;

use crate::fixture::small_files;
use crate::http_client::{field, free_port_config, http};
use crate::journal_support::small_directory;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_log_contains_exactly_the_acknowledged_changes_across_restarts() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let directory = small_directory(folder.path().join("data"));
    let mut config = free_port_config();
    config.snapshots = SnapshotConfig { log_bytes: 2_000, ..small_files() };
    let mut granted = BTreeMap::new();
    let mut ended = BTreeMap::new();
    for round in 0..3 {
        let server = start(directory.clone(), config.clone()).await.expect("the server starts");
        let address = server.address;
        for turn in 0..20 {
            let name = format!("r{round}/t{turn}");
            let body = format!(r#"{{"holder":"w{turn}","ttl":"60s"}}"#);
            let (status, grant) = http(address, "POST", &format!("/v1/leases/{name}:acquire"), &body).await;
            assert_eq!(status, 200, "{grant}");
            granted.insert(field(&grant, "token_number"), (name.clone(), format!("w{turn}")));
            if turn % 2 == 0 {
                let token = format!(r#"{{"token":"{}"}}"#, field(&grant, "token"));
                assert_eq!(http(address, "POST", &format!("/v1/leases/{name}:release"), &token).await.0, 200);
                ended.insert(field(&grant, "token_number"), name);
            }
        }
        server.stop().await;
    }
    let server = start(directory, config).await.expect("the server starts");
    let address = server.address;
    let (_, lines) = http(address, "GET", "/v1/audit", "").await;
    let verified = verify_export(lines.as_bytes()).expect("the export verifies");
    let (mut logged_grants, mut logged_ends) = (BTreeMap::new(), BTreeMap::new());
    for line in lines.lines() {
        let entry: Value = serde_json::from_str(line).expect("a line is JSON");
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let duplicate = match text("kind").as_str() {
            "granted" => logged_grants.insert(text("token_number"), (text("resource"), text("holder"))).is_some(),
            "ended" => logged_ends.insert(text("token_number"), text("resource")).is_some(),
            _ => false,
        };
        assert!(!duplicate, "{line}");
    }
    assert_eq!(logged_grants, granted);
    assert_eq!(logged_ends, ended);
    let (status, verification) = http(address, "GET", "/v1/audit:verify", "").await;
    let verification: Value = serde_json::from_str(&verification).expect("the body is JSON");
    assert_eq!(
        (status, &verification["intact"], &verification["entries"]),
        (200, &true.into(), &verified.entries().into())
    );
    let (status, history) = http(address, "GET", "/v1/history/r1/t0", "").await;
    let history: Value = serde_json::from_str(&history).expect("the body is JSON");
    let kinds: Vec<_> =
        history["entries"].as_array().expect("entries are an array").iter().map(|entry| &entry["kind"]).collect();
    assert_eq!((status, kinds), (200, vec![&Value::from("ended"), &Value::from("granted")]), "newest first");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_serves_audit_export_and_backup_like_http() {
    use futures::StreamExt;
    use leasehold_server::api::GrpcService;
    use leasehold_wire::v1::{self, leasehold_server::Leasehold};
    use tonic::Request;
    let server = start(Memory::new(), free_port_config()).await.expect("the server starts");
    let service = GrpcService { api: server.api().clone(), hello_timeout: Duration::from_secs(1) };
    let acquire = v1::Acquire { resource: "a".into(), holder: "w".into(), ttl_ms: Some(60_000), ..Default::default() };
    let granted = service.acquire(Request::new(acquire)).await.expect("the resource is free");
    let position = granted.metadata().get("leasehold-position").expect("every response has a position").clone();
    let request = v1::AuditRequest { resource: "a".into(), ..Default::default() };
    let page = service.audit(Request::new(request)).await.expect("the call succeeds").into_inner();
    let [entry] = &page.entries[..] else { panic!("expected one entry: {page:?}") };
    assert_eq!((entry.kind.as_str(), entry.holder.as_str()), ("granted", "w"));
    assert_eq!(entry.token_number, Some(granted.get_ref().token_number));
    assert_eq!(entry.position.to_string(), position.to_str().expect("the position is ASCII"));
    assert_eq!(entry.hash, page.hash, "the entry is the newest");
    let verification =
        service.verify_audit(Request::new(v1::VerifyAuditRequest {})).await.expect("the call succeeds").into_inner();
    assert!(
        verification.intact && verification.last == page.last && verification.hash == page.hash,
        "{verification:?}"
    );
    let mut lines =
        service.export_audit(Request::new(v1::ExportAuditRequest {})).await.expect("the call succeeds").into_inner();
    let mut file = Vec::new();
    while let Some(chunk) = lines.next().await {
        file.extend(chunk.expect("the stream does not fail").bytes);
    }
    assert_eq!(verify_export(&file[..]).expect("the export verifies").last, page.last);
    let mut chunks = service.backup(Request::new(v1::BackupRequest {})).await.expect("the call succeeds").into_inner();
    let mut file = Vec::new();
    while let Some(chunk) = chunks.next().await {
        file.extend(chunk.expect("the stream does not fail").bytes);
    }
    let backup = backup::decode(&file).expect("the backup is intact");
    assert!(backup.header.position >= entry.position);
    let late = v1::ShowRequest { resource: "a".into(), min_position: u64::MAX };
    assert_eq!(
        service.show(Request::new(late)).await.expect_err("the position is not reached").code(),
        tonic::Code::Unavailable
    );
    server.stop().await;
}
