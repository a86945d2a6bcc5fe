//! Tests of `leasehold coverage` and `leasehold fence` with real databases and a real server.

mod coverage;
mod etcd;
#[allow(dead_code, reason = "the fence crate's tests use all of it")]
#[path = "../../../fence/tests/etcd/server.rs"]
mod etcd_server;
mod http;
mod nats;
#[allow(dead_code, reason = "the fence crate's tests use all of it")]
#[path = "../../../fence/tests/nats/server.rs"]
mod nats_server;
mod operator;
mod pages;
mod postgres;
mod probes;
mod redis;
#[allow(dead_code, reason = "the fence crate's tests use all of it")]
#[path = "../../../fence/tests/redis/server.rs"]
mod redis_server;
mod remote_targets;
mod sealed;
#[allow(dead_code, reason = "the fence crate's tests use all of it")]
#[path = "../../../fence/tests/postgres/server.rs"]
mod server;
#[path = "../support/mod.rs"]
mod support;
mod zombies;

use std::path::{Path, PathBuf};

use leasehold::{Client, Endpoints};
use leasehold_core::charter::{Charter, Target, TargetMode};
use leasehold_core::token::Cluster;
use leasehold_fence::FenceId;
use leasehold_fence::sqlite::Fence;
use rusqlite::Connection;
use support::Server;
use tempfile::TempDir;

const RESOURCE: &str = "jobs/settle";

fn client(server: &Server) -> Client {
    Client::from(Endpoints::parse(&server.address).expect("an address with a port"))
}

fn cluster(server: &Server) -> Cluster {
    support::text(&server.json(&["status"])["cluster"]).parse().expect("a cluster id")
}

/// A SQLite database whose fence was armed by the command line.
struct Ledger {
    _dir: TempDir,
    path: PathBuf,
    url: String,
}

impl Ledger {
    fn fenced(server: &Server) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger.db");
        let db = open(&path);
        db.pragma_update(None, "journal_mode", "wal").expect("a mode");
        db.execute_batch("CREATE TABLE paid (invoice INTEGER PRIMARY KEY) STRICT").expect("a table");
        let url = format!("sqlite:{}", path.display());
        server.run(&["fence", "arm", &url, "--resource", RESOURCE]).ok();
        Self { _dir: dir, path, url }
    }

    fn open(&self) -> Connection {
        open(&self.path)
    }
}

fn open(path: &Path) -> Connection {
    let db = Connection::open(path).expect("a database");
    db.pragma_update(None, "synchronous", "FULL").expect("a setting");
    db
}

fn fence(server: &Server) -> Fence {
    Fence::new(&fence_id(server))
}

fn fence_id(server: &Server) -> FenceId {
    FenceId::new(cluster(server), RESOURCE).expect("a name")
}

/// Declares a target in the charter of `jobs`.
async fn declare(server: &Server, name: &str, at: &str, mode: TargetMode) {
    let target = Target { name: name.into(), at: at.into(), mode: Some(mode), reporter: None };
    let charter = Charter { targets: vec![target], ..Charter::default() };
    client(server).set_charter("jobs", &charter, "agreed").await.expect("a valid charter");
}

/// The tokens of a zombie and of its successor.
fn zombie_and_successor(server: &Server) -> (String, String) {
    let zombie = server.acquire(RESOURCE, "w1");
    server.run(&["revoke", RESOURCE, "--comment", "for the test"]).ok();
    (zombie, server.acquire(RESOURCE, "w2"))
}

/// The number of a token.
fn number(token: &str) -> String {
    leasehold_core::token::Token::parse(token).expect("a token").number.to_string()
}
