//! The Rust blocks of `docs/how-to/fence/`, run against real targets. `crates/cli/tests/pages.rs` compares them with the pages.

#[path = "../cell/subject.rs"]
mod cell_subject;
#[allow(dead_code, reason = "the tests of the target use all of it")]
#[path = "../etcd/server.rs"]
mod etcd_server;
#[allow(dead_code, reason = "the tests of the target use all of it")]
#[path = "../cloud/moto.rs"]
mod moto;
#[allow(dead_code, reason = "the tests of the target use all of it")]
#[path = "../nats/server.rs"]
mod nats_server;
#[allow(dead_code, reason = "the tests of the target use all of it")]
#[path = "../redis/server.rs"]
mod redis_server;

use std::error::Error;
use std::sync::Arc;
use std::time::SystemTime;

use leasehold_fence::{
    Cluster, FenceId, Incarnation, Number, Token, TokenScope, cell, conformance, dynamodb, etcd, nats, objects, redis,
    resource_hash, sqlite,
};

type TestResult = Result<(), Box<dyn Error>>;

const CLUSTER: Cluster = Cluster(*b"examples");

/// A token of `jobs/settle`, as a server grants it.
fn token_text(number: u64) -> String {
    let number = Number::new(number).expect("a valid number");
    let resource = resource_hash("jobs/settle");
    Token { cluster: CLUSTER, incarnation: Incarnation(1), resource, scope: TokenScope::Slot(0), number }.to_string()
}

#[test]
fn in_process() -> TestResult {
    let (cluster, text) = (CLUSTER, &token_text(34));
    let paid = cell::FencedCell::new(&FenceId::new(cluster, "jobs/settle")?, Vec::new());
    let token = paid.verify(text)?; // once per lease
    paid.claim(&token)?; // before reading
    paid.write(&token, |paid| paid.push(7))?;
    assert_eq!(paid.read(Vec::len)?, 1);
    Ok(())
}

#[test]
fn sealed_log() -> TestResult {
    use leasehold_fence::file::FencedLog;
    use leasehold_fence::{SealKeys, SealVerifier};
    use leasehold_seal::SealKey;
    let dir = tempfile::tempdir()?;
    let (path, file) = (&dir.path().join("events.log"), &dir.path().join("seal-keys.json"));
    let (id, key) = (FenceId::new(CLUSTER, "jobs/settle")?, SealKey::generate(0)?);
    let newer = SealKeys::new([key.public()])?.to_json();
    std::fs::write(file, &newer)?;
    FencedLog::create(path, &id)?;
    let token = &key.seal(&Token::parse(&token_text(34))?, "jobs/settle").to_string();
    let keys = SealKeys::from_json(&std::fs::read_to_string(file)?)?; // seal-keys.json
    let verifier = SealVerifier::new(keys); // one for all fences of a process; clones share it
    let mut log = FencedLog::open(path, &id)?.with_seal_verifier(&verifier);
    log.claim(token)?;
    verifier.replace_keys(SealKeys::from_json(&newer)?); // after a rotation, or to withdraw a key at once
    assert_eq!(log.claim(token_text(35)).map_err(|error| error.code()), Err("TOKEN_INVALID"), "not sealed");
    log.claim(token)?;
    Ok(())
}

#[test]
fn sqlite_table() -> TestResult {
    let (cluster, token) = (CLUSTER, &token_text(34));
    let dir = tempfile::tempdir()?;
    let mut db = rusqlite::Connection::open(dir.path().join("ledger.db"))?;
    db.pragma_update(None, "journal_mode", "wal")?; // with SQLite's default, `synchronous = FULL`
    db.execute_batch("CREATE TABLE paid (invoice INTEGER PRIMARY KEY, cents INTEGER) STRICT")?;
    let fence = sqlite::Fence::new(&FenceId::new(cluster, "jobs/settle")?);
    sqlite::install(&mut db)?; // once per database; upgrades an older version
    fence.arm(&mut db)?; // once per resource
    fence.protect(&mut db, "paid")?; // optional: forced mode; or `leasehold fence protect`
    fence.claim(&mut db, token)?; // before reading
    fence.write(&mut db, token, |tx| tx.execute("INSERT INTO paid VALUES (7, 1200)", []))?;
    let late = fence.write(&mut db, token_text(33), |tx| tx.execute("DELETE FROM paid", []));
    assert_eq!(late.map_err(|error| error.code()), Err("STALE_TOKEN"));
    Ok(())
}

#[test]
fn append_only_log() -> TestResult {
    use leasehold_fence::file::FencedLog;
    let (cluster, token, dir) = (CLUSTER, &token_text(34), tempfile::tempdir()?);
    let path = &dir.path().join("settled.log");
    let id = FenceId::new(cluster, "jobs/settle")?;
    FencedLog::create(path, &id)?; // once
    let mut log = FencedLog::open(path, &id)?;
    log.claim(token)?; // before reading
    log.append(token, b"invoice 7 paid")?; // on disk when it returns; `append_once` takes a sequence
    assert_eq!(log.append(token_text(33), b"late").map_err(|error| error.code()), Err("STALE_TOKEN"));
    Ok(())
}

#[test]
fn replaced_file() -> TestResult {
    use leasehold_fence::file::FencedFile;
    let (cluster, token, dir) = (CLUSTER, &token_text(34), tempfile::tempdir()?);
    let path = &dir.path().join("proxy.conf");
    let id = FenceId::new(cluster, "jobs/settle")?;
    FencedFile::create(path, &id, b"")?; // once; `arm` for an existing file
    let file = FencedFile::open(path, &id)?;
    file.claim(token)?; // before reading
    file.write(token, b"listen 10.0.0.7\n")?; // or `update`, which receives the old content
    assert_eq!(file.read()?.0, b"listen 10.0.0.7\n");
    Ok(())
}

#[tokio::test]
async fn object_store() -> TestResult {
    use leasehold_fence::objects::ObjectChange;
    let (cluster, token) = (CLUSTER, &token_text(34));
    let store = Arc::new(::object_store::memory::InMemory::new());
    let fence = objects::Fence::new(store, "accounts/7", &FenceId::new(cluster, "jobs/settle")?)?;
    fence.arm().await?; // once
    fence.claim(token).await?; // before reading
    fence.write(token, &[ObjectChange::Put("balance", b"1200"), ObjectChange::Remove("hold")]).await?;
    fence.get("balance").await?; // readers need no token
    fence.delete_orphans().await?; // now and then: deletes unreferenced keys
    assert_eq!(fence.get("balance").await?.as_deref(), Some(&b"1200"[..]));
    Ok(())
}

#[tokio::test]
async fn object_store_without_conditional_writes() -> TestResult {
    let (cluster, token) = (CLUSTER, &token_text(34));
    let store = Arc::new(::object_store::memory::InMemory::new());
    let generations = objects::Generations::new(store, "accounts/7", &FenceId::new(cluster, "jobs/settle")?)?;
    generations.arm().await?; // once
    let mut own = generations.claim(token).await?; // inherits the objects of the previous generation
    own.write("balance", b"1200").await?;
    generations.get("balance").await?; // what readers follow, and its number
    assert_eq!(generations.get("balance").await?.map(|(_, content)| content), Some(b"1200".to_vec()));
    Ok(())
}

#[tokio::test]
async fn http_service() -> TestResult {
    use axum::Router;
    use axum::routing::post;
    use leasehold_fence::http::{Fence, GateTimeouts, Rules};
    use tower::ServiceExt;
    let (cluster, dir) = (CLUSTER, tempfile::tempdir()?);
    let marks = dir.path().join("marks");
    let pay = async || "paid";
    let rules = Rules::new(&FenceId::new(cluster, "jobs/settle")?).exempt("/search", &[])?;
    Fence::arm(&marks, &rules)?; // once
    let fence = Fence::open(&marks, rules, GateTimeouts::default())?;
    let app = Router::new().route("/invoices", post(pay)).layer(fence.layer());
    let request = |token: String| http::Request::post("/invoices").header("lease-token", token);
    let body = || axum::body::Body::empty();
    assert_eq!(app.clone().oneshot(request(token_text(34)).body(body())?).await?.status(), 200);
    assert_eq!(app.oneshot(request(token_text(33)).body(body())?).await?.status(), 412);
    Ok(())
}

#[test]
fn reader_fence() -> TestResult {
    use leasehold_fence::reader_fence::{ReaderFence, RecordVerdict};
    let (cluster, partition, appended) = (CLUSTER, "settled-0", SystemTime::now());
    let (mut records, mut applied) = (Vec::new(), Vec::new());
    let mut store = |applied: &[&str], checkpoint: String| records.push((applied.len(), checkpoint));
    let log =
        [format!("write {}", token_text(33)), format!("claim {}", token_text(34)), format!("write {}", token_text(33))];
    let mut fence = ReaderFence::new(&FenceId::new(cluster, "jobs/settle")?); // or `resume` with a checkpoint
    for (offset, stamp) in (0..).zip(&log) {
        // `stamp` is a header of the record: "write lh1-…" or "claim lh1-…"
        if let RecordVerdict::Accepted { .. } = fence.check(partition, offset, appended, stamp) {
            applied.push("one record");
        }
        store(&applied, fence.checkpoint()); // together, in one step
    }
    assert_eq!(
        records.iter().map(|(applied, _)| *applied).collect::<Vec<_>>(),
        [1, 1, 1],
        "the last one is a zombie's"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn own_target() -> TestResult {
    let mine = cell_subject::CellSubject::new(true);
    let passed = conformance::check(&mine).await?; // what holds, with the promise's id; the error names the broken one
    conformance::race(&mine, 8, 10_000, 1).await?; // holders that overtake each other, zombies among them
    conformance::crashes(&mine, 10, 1).await?; // the target's server is killed while it writes
    assert!(passed.len() > 5, "{passed:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_keys() -> TestResult {
    let (cluster, token) = (CLUSTER, &token_text(34));
    let server = redis_server::Redis::durable().await;
    let mut db = server.connect().await;
    redis::install(&mut db).await?; // the same, from Rust; it also upgrades an older version
    let fence = redis::Fence::new(&FenceId::new(cluster, "jobs/settle")?);
    fence.arm(&mut db).await?; // once per resource
    fence.claim(&mut db, token).await?; // before reading
    let paid = "{jobs/settle}:paid:7"; // in a cluster: the resource's name in braces, or `with_hash_tag`
    fence.write::<()>(&mut db, token, &[paid], ::redis::cmd("SET").arg(paid).arg(1200)).await?;
    let late = fence.write::<()>(&mut db, token_text(33), &[paid], ::redis::cmd("DEL").arg(paid)).await;
    assert_eq!(late.map_err(|error| error.code()), Err("STALE_TOKEN"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_keys() -> TestResult {
    use leasehold_fence::etcd::KvChange;
    let (cluster, token) = (CLUSTER, &token_text(34));
    let server = etcd_server::EtcdServer::start().await;
    let address = server.at().to_owned();
    let etcd = tonic::transport::Endpoint::from_shared(address)?.connect_lazy();
    let fence = etcd::Fence::new(etcd, &FenceId::new(cluster, "jobs/settle")?);
    fence.arm().await?; // once per resource
    fence.claim(token).await?; // before reading
    fence.write(token, &[KvChange::put("paid/7", "1200")]).await?;
    let late = fence.write(token_text(33), &[KvChange::put("paid/7", "0")]).await;
    assert_eq!(late.map_err(|error| error.code()), Err("STALE_TOKEN"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_subject() -> TestResult {
    let (cluster, token) = (CLUSTER, &token_text(34));
    let server = nats_server::NatsServer::start().await;
    let (jetstream, stream) = (server.jetstream().await, server.stream_name());
    let id = FenceId::new(cluster, "jobs/settle")?;
    let fence = nats::Fence::open(&jetstream, &stream, "writes.eu", &id).await?;
    fence.arm().await?; // once per subject
    fence.claim(token).await?; // before reading; at every subject that is written
    fence.append(token, "invoice 7 paid").await?;
    assert_eq!(fence.append(token_text(33), "late").await.map_err(|error| error.code()), Err("STALE_TOKEN"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamodb_items() -> TestResult {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put, ScalarAttributeType,
        TransactWriteItem,
    };
    let (cluster, token) = (CLUSTER, &token_text(34));
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(moto::server().url())
        .build();
    let client = aws_sdk_dynamodb::Client::from_conf(config);
    let attribute = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let create = client.create_table().table_name("paid").billing_mode(BillingMode::PayPerRequest);
    create.attribute_definitions(attribute.build()?).key_schema(key.build()?).send().await?;
    let paid = Put::builder().table_name("paid").item("id", AttributeValue::S("7".to_owned())).build()?;
    dynamodb::install(&client, "leasehold_marks").await?; // once per account and region
    let id = FenceId::new(cluster, "jobs/settle")?;
    let fence = dynamodb::Fence::open(client, "leasehold_marks", &id).await?;
    fence.arm().await?; // once per resource
    fence.claim(token).await?; // before reading, with consistent reads
    fence.write(token, [TransactWriteItem::builder().put(paid).build()]).await?;
    assert_eq!(fence.claim(token_text(33)).await.map_err(|error| error.code()), Err("STALE_TOKEN"));
    Ok(())
}
