//! Rollback of a data directory: no token number is issued twice, and a lost token reveals the rollback.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use leasehold_core::token::{Number, Token};
use leasehold_testkit::depth::depth;
use leasehold_wire::headers::TOKEN_SEEN;
use leasehold_wire::v1;
use tonic::Request;

use crate::history::History;
use crate::server::{Server, exclusive_run};
use crate::transport::{GrpcClient, Reply, connect, held, reply, within};

/// The files of a directory; the socket of a server is none.
fn copy(data: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(data).expect("the directory exists").map(|entry| entry.expect("the entry is readable"));
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    files.map(|entry| (entry.file_name().into_string().expect("a UTF-8 name"), read(&entry.path()))).collect()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Restores the files in place, so that only the contents of the directory change.
fn restore_files(data: &Path, files: &BTreeMap<String, Vec<u8>>) {
    for name in copy(data).keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(data.join(name)).expect("the file exists");
    }
    for (name, bytes) in files {
        fs::write(data.join(name), bytes).expect("the file is writable");
    }
}

struct SessionClient<'a> {
    calls: GrpcClient,
    history: &'a History,
    requests: &'a mut u64,
}

impl SessionClient<'_> {
    /// Acquires new resources; each token number is above all acknowledged ones.
    async fn acquire_new(&mut self, prefix: &str, names: usize) -> Vec<v1::Grant> {
        let mut grants = Vec::new();
        for name in 0..names {
            let resource = format!("{prefix}/{name}");
            *self.requests += 1;
            let floor = self.history.floor();
            let grant = match self.acquire(&resource).await {
                Reply::Granted(grant) => *grant,
                other => panic!("{resource}: {other:?}"),
            };
            self.history.granted(&resource, &(prefix.to_owned(), *self.requests), grant.token_number, floor);
            grants.push(v1::Grant { resource, ..grant });
        }
        grants
    }

    async fn acquire(&mut self, resource: &str) -> Reply {
        let holder = "holder".into();
        let request = v1::Acquire { resource: resource.into(), holder, ttl_ms: Some(600_000), ..Default::default() };
        reply(within(self.calls.acquire(request)).await, |grant| Reply::Granted(Box::new(grant)))
            .expect("the server responds")
    }

    async fn renew(&mut self, grant: &v1::Grant, newer_token: Option<&str>) -> Reply {
        let request = v1::Renew { lease: Some(held(&grant.resource, &grant.token)), ..Default::default() };
        let mut request = Request::new(request);
        if let Some(token) = newer_token {
            request.metadata_mut().insert(TOKEN_SEEN, token.parse().expect("plain text"));
        }
        reply(within(self.calls.renew(request)).await, |current| Reply::Current(current.token_number))
            .expect("the server responds")
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// T4: the clock raises the numbers above everything issued before the rollback. T9: a lost token, shown in any way, reveals it.
#[test]
fn a_rolled_back_directory_issues_no_number_twice_and_a_lost_token_reveals_it() {
    let _exclusive = exclusive_run();
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let history = History::default();
    let mut requests = 0;
    for round in 0..depth(1, 2, 20) {
        for (when, live) in [("stopped", false), ("serving", true)] {
            runtime().block_on(async {
                let prefix = |name: &str| format!("{round}/{when}/{name}");
                let server = Server::start(&data);
                let calls = connect(&server.address).await.expect("the server responds");
                let mut client = SessionClient { calls, history: &history, requests: &mut requests };
                let kept = client.acquire_new(&prefix("kept"), 20).await;
                let (server, before) = if live {
                    let before = copy(&data);
                    (server, before)
                } else {
                    server.stop();
                    let before = copy(&data);
                    (Server::start(&data), before)
                };
                client.calls = connect(&server.address).await.expect("the server responds");
                let lost = client.acquire_new(&prefix("lost"), 20).await;
                drop(server);
                restore_files(&data, &before);

                let server = Server::start(&data);
                client.calls = connect(&server.address).await.expect("the server responds");
                client.acquire_new(&prefix("after"), 20).await;
                for grant in &kept {
                    assert_eq!(client.renew(grant, None).await, Reply::Current(grant.token_number));
                }
                // The clock is correct, so lost tokens are below the counter; the opening lifted it over them.
                let unknown = Reply::refused("NOT_CURRENT", "unknown");
                match live {
                    true => assert_eq!(
                        client.renew(&kept[0], Some(&lost[7].token)).await,
                        Reply::Current(kept[0].token_number),
                        "shown in the header"
                    ),
                    false => assert_eq!(client.renew(&lost[7], None).await, unknown, "shown by its renewal"),
                }
                let refused = client.acquire(&lost[7].resource).await;
                assert!(matches!(&refused, Reply::Refused(code, _) if code == "ROLLED_BACK"), "{refused:?}");
                let proofs = "\nleasehold_rollback_proofs_total 1\n";
                assert!(server.metrics().contains(proofs), "{}", server.metrics());
                let log = server.wait_for_log("ROLLED_BACK");
                assert!(log.contains("peer=\"127.0.0.1:"), "{log}");
                for grant in &kept {
                    assert_eq!(
                        client.renew(grant, None).await,
                        Reply::Current(grant.token_number),
                        "held leases continue"
                    );
                }
                let waive = v1::WaiveQuarantine { comment: "a test".into() };
                within(client.calls.waive_quarantine(waive)).await.expect("the quarantine is waived");
                for grant in &lost {
                    assert_eq!(client.renew(grant, None).await, unknown);
                }
                client.acquire_new(&prefix("after-that"), 5).await;
                server.stop();
            });
        }
    }
}

/// The token of the same lease if the clock had been ahead by `ms` milliseconds.
fn ahead(token: &str, ms: u64) -> Token {
    let token = Token::parse(token).expect("a token of the server");
    Token { number: Number::new(token.number.get() + (ms << 22)).expect("below the end of numbers"), ..token }
}

#[test]
fn a_token_issued_before_a_rollback_stops_grants_also_after_a_crash() {
    let _exclusive = exclusive_run();
    const HOUR: u64 = 3_600_000;
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let history = History::default();
    let mut requests = 0;
    runtime().block_on(async {
        let mut server = Server::start(&data);
        let calls = connect(&server.address).await.expect("the server responds");
        let mut client = SessionClient { calls, history: &history, requests: &mut requests };
        let kept = client.acquire_new("kept", 1).await.remove(0);
        // Further ahead than clock skew explains: rejected without an effect.
        let never = ahead(&kept.token, 48 * HOUR).to_string();
        assert_eq!(client.renew(&kept, Some(&never)).await, Reply::refused("TOKEN_IMPLAUSIBLE", ""));
        client.acquire_new("unaffected", 1).await;
        // A token that a server with a clock one hour ahead would have issued before the rollback.
        let newer = ahead(&kept.token, HOUR);
        assert_eq!(client.renew(&kept, Some(&newer.to_string())).await, Reply::Current(kept.token_number));
        let Reply::Refused(code, _) = client.acquire("wanted").await else { panic!("the server still grants (T9)") };
        assert_eq!(code, "ROLLED_BACK");
        server.kill();

        let server = Server::start(&data);
        client.calls = connect(&server.address).await.expect("the server responds");
        let Reply::Refused(code, _) = client.acquire("wanted").await else {
            panic!("the server forgot the rollback (T9)")
        };
        assert_eq!(code, "ROLLED_BACK");
        let status = within(client.calls.status(v1::StatusRequest {})).await.expect("the server responds").into_inner();
        assert!(status.rolled_back && status.quarantine_ms.is_some_and(|ms| ms > 0), "{status:?}");
        assert_eq!(client.renew(&kept, None).await, Reply::Current(kept.token_number), "held leases continue");
        let waive = v1::WaiveQuarantine { comment: "a test".into() };
        within(client.calls.waive_quarantine(waive)).await.expect("the quarantine is waived");
        let granted = client.acquire_new("after", 1).await.remove(0);
        assert!(granted.token_number > newer.number.get(), "above every presented token (T9)");
        server.stop();
    });
}
