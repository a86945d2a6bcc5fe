//! Stamps: a server with the stamp key of a target gives its holders, and no one else, stamped tokens for it (A8).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use leasehold_seal::{SealKey, TargetStampKey};
use leasehold_server::sealing::{TokenSealer, key_file_name, stamp_file_name};
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use serde_json::Value;
use tonic::Request;

use crate::access_server::{ADMIN, AccessServer, hex, http_code};
use crate::transport_clients::{acquire, lease_ref};

const GRANTS: [(&str, &str, &str); 3] =
    [("uid:1", "holder", "jobs"), ("uid:1", "holder", "team"), ("uid:2", "observer", "")];

fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the file is writable");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("the mode is set");
}

fn store(directory: &Path, key: &TargetStampKey) {
    write_private(&directory.join(stamp_file_name(key.key.id())), &key.to_file_text().expect("a text"));
}

struct Scene {
    server: AccessServer,
    /// Of the target `ledger` under `jobs`.
    key: TargetStampKey,
    directory: tempfile::TempDir,
}

impl Scene {
    /// Charters of `jobs` and `team` declare the same targets. The only stamp key is that of `ledger` under `jobs`.
    async fn start(more: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let seal = SealKey::generate(0).expect("a key");
        write_private(&directory.path().join(key_file_name(seal.kid())), &seal.to_file_text().expect("a text"));
        let key = TargetStampKey::generate("ledger", "jobs", 0, 0).expect("a key");
        store(directory.path(), &key);
        let sealer = TokenSealer::open(directory.path().to_owned()).expect("the keys are active");
        let mut server = AccessServer::start_sealed(&GRANTS, Arc::new(sealer)).await;
        let mut admin = server.http_as(ADMIN).await;
        for prefix in ["jobs", "team"] {
            let targets = r#"[{"name":"ledger","at":"db"},{"name":"mail","at":"elsewhere"}]"#;
            let body = format!(r#"{{"comment":"","charter":{{"targets":{targets}{more}}}}}"#);
            let set = admin.request(&format!("PUT /v1/charters/{prefix}"), "", &body).await;
            assert_eq!(http_code(&set), "OK", "{set:?}");
        }
        Self { server, key, directory }
    }

    /// Checks that the only stamped token is that of the ledger.
    fn assert_stamped(&self, stamped: &[v1::StampedToken], token: &str) {
        let found: Vec<_> = stamped.iter().map(|one| (&*one.target, &*one.token)).collect();
        assert_eq!(found, [("ledger", &*self.key.key.stamp(token))]);
    }
}

fn with_secret<M>(message: M, secret: &[u8]) -> Request<M> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("lease-secret", hex(secret).parse().expect("hexadecimal digits"));
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_receives_a_stamped_token_with_its_grant_and_its_renewals_over_every_transport() {
    let mut scene = Scene::start("").await;
    let mut holder = scene.server.client_as("uid:1").await;
    let grant = holder.acquire(acquire("jobs/a", "w")).await.expect("the name is free").into_inner();
    scene.assert_stamped(&grant.stamped_tokens, &grant.token);
    let renew = v1::Renew { lease: Some(lease_ref("jobs/a", &grant.token)), ..Default::default() };
    let renewed = holder.renew(with_secret(renew, &grant.secret)).await.expect("the holder renews").into_inner();
    scene.assert_stamped(&renewed.stamped_tokens, &grant.token);
    let both = v1::AcquireAll {
        holder: "w".into(),
        resources: ["jobs/b", "team/b"]
            .map(|name| v1::ResourceAccess { resource: name.into(), access: v1::Access::Exclusive.into(), units: 0 })
            .to_vec(),
        ttl_ms: Some(60_000),
        ..Default::default()
    };
    let both = holder.acquire_all(both).await.expect("both are free").into_inner().grants;
    scene.assert_stamped(&both[0].stamped_tokens, &both[0].token);
    assert_eq!(both[1].stamped_tokens, [], "the key is for another prefix");

    let mut http = scene.server.http_as("uid:1").await;
    let body = r#"{"holder":"w","ttl":"60s"}"#;
    let granted = http.request("POST /v1/leases/jobs/c:acquire", "", body).await;
    assert_eq!(http_code(&granted), "OK", "{granted:?}");
    let granted: Value = serde_json::from_str(&granted.1).expect("JSON");
    let token = granted["token"].as_str().expect("a text");
    assert_eq!(granted["stamped_tokens"], serde_json::json!({ "ledger": scene.key.key.stamp(token) }));

    let mut stream = scene.server.stream_as("uid:1").await;
    let Answer::Granted(grant) = stream.request(Operation::Acquire(acquire("jobs/d", ""))).await else {
        panic!("the name is free");
    };
    scene.assert_stamped(&grant.stamped_tokens, &grant.token);
    let lease = v1::LeaseRef { token_number: grant.token_number, token: String::new(), ..lease_ref("jobs/d", "") };
    let Answer::Current(raised) = stream.request(Operation::Rotate(lease)).await else { panic!("it is current") };
    assert_ne!(raised.token, grant.token);
    scene.assert_stamped(&raised.stamped_tokens, &raised.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_raises_the_token_brings_its_stamp_and_one_after_a_rotation_the_newest_key() {
    let mut scene = Scene::start(r#","token_on_renewal":"rotate""#).await;
    let mut holder = scene.server.client_as("uid:1").await;
    let grant = holder.acquire(acquire("jobs/a", "w")).await.expect("the name is free").into_inner();
    let renew = |token: &str| v1::Renew { lease: Some(lease_ref("jobs/a", token)), ..Default::default() };
    let raised = holder.renew(with_secret(renew(&grant.token), &grant.secret)).await.expect("renewed").into_inner();
    assert!(raised.token_number > grant.token_number);
    scene.assert_stamped(&raised.stamped_tokens, &raised.token);
    scene.key = TargetStampKey::generate("ledger", "jobs", 0, 1).expect("a key");
    store(scene.directory.path(), &scene.key);
    assert!(scene.server.handle.api().sealer.reload().expect("the keys are valid"), "the keys changed");
    let again = holder.renew(with_secret(renew(&raised.token), &raised.secret)).await.expect("renewed").into_inner();
    scene.assert_stamped(&again.stamped_tokens, &again.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_one_but_the_holder_receives_a_stamp_and_no_list_contains_one() {
    let mut scene = Scene::start("").await;
    let mut holder = scene.server.client_as("uid:1").await;
    let grant = holder.acquire(acquire("jobs/a", "w")).await.expect("the name is free").into_inner();
    let stamp = scene.key.key.stamp(&grant.token);
    let (_, stamp) = stamp.split_once('.').expect("a stamp");
    let renew = v1::Renew { lease: Some(lease_ref("jobs/a", &grant.token)), ..Default::default() };
    for principal in ["uid:1", "uid:2", "uid:3"] {
        let mut other = scene.server.client_as(principal).await;
        let refused = other.renew(renew.clone()).await.expect_err("the secret is missing");
        assert!(!format!("{refused:?}").contains(stamp));
    }
    let checked = holder.check(with_secret(lease_ref("jobs/a", &grant.token), &grant.secret)).await.expect("current");
    assert_eq!(checked.into_inner().stamped_tokens, [], "a check brings none");
    for principal in ["uid:1", "uid:2", ADMIN] {
        let mut http = scene.server.http_as(principal).await;
        for path in ["leases", "leases/jobs/a", "ended-leases/jobs/a", "charters", "keys", "status", "audit"] {
            let (_, text) = http.request(&format!("GET /v1/{path}"), "", "").await;
            assert!(!text.contains(stamp) && !text.contains("stamped_tokens"), "{principal} {path}: {text}");
        }
    }
    let team = holder.acquire(acquire("team/a", "w")).await.expect("the name is free").into_inner();
    assert_eq!(team.stamped_tokens, [], "a charter of another prefix names the same target");
}
