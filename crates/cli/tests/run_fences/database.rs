//! Fixture: a Leasehold server, and a database whose table `paid` is protected by [`RESOURCE`](crate::RESOURCE).

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::Client;

use crate::RESOURCE;
use crate::harness::Fixture;
use crate::server::Server as PostgresServer;
use crate::support::{CommandRun, run};

pub struct FencedDatabase {
    pub fixture: Fixture,
    pub postgres: Arc<PostgresServer>,
    pub name: String,
}

impl FencedDatabase {
    /// A database with a protected table.
    pub async fn new() -> Self {
        let base = Self::without_fence().await;
        let url = base.url();
        base.fixture.server.run(&["fence", "arm", &url, "--resource", RESOURCE]).ok();
        base.fixture.server.run(&["fence", "protect", &url, "--resource", RESOURCE, "--table", "paid"]).ok();
        base
    }

    /// A database with a table that is not protected.
    pub async fn without_fence() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let postgres = tokio::task::spawn_blocking(PostgresServer::shared).await.expect("it starts");
        let name = format!("run{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let admin = postgres.connect("leasehold", "postgres").await.expect("connected");
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
        let base = Self { fixture: Fixture::new(), postgres, name };
        base.connect().await.batch_execute("CREATE TABLE paid (invoice bigint, cents bigint)").await.expect("a table");
        base
    }

    pub async fn connect(&self) -> Client {
        self.postgres.connect("leasehold", &self.name).await.expect("connected")
    }

    /// The socket directory, as a program gets it in `PGHOST`.
    pub fn host(&self) -> String {
        self.postgres.socket().to_str().expect("plain").to_owned()
    }

    pub fn url(&self) -> String {
        format!("postgres://leasehold@{}/{}", self.host().replace('/', "%2F"), self.name)
    }

    /// Number of rows in the table.
    pub async fn rows(&self) -> i64 {
        self.connect().await.query_one("SELECT count(*) FROM paid", &[]).await.expect("read").get(0)
    }

    /// A `leasehold` command whose program finds the database by the usual variables.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.fixture.command(args);
        command.env("PGHOST", self.host()).env("PGUSER", "leasehold").env("PGDATABASE", &self.name);
        for inherited in ["PGOPTIONS", "PGPASSWORD", "LEASEHOLD_FENCE_URL"] {
            command.env_remove(inherited);
        }
        command
    }

    /// Runs `leasehold run RESOURCE --fence URL -- sh -c SCRIPT` to its end.
    #[track_caller]
    pub fn run(&self, script: &str) -> CommandRun {
        run(&mut self.command(&["run", RESOURCE, "--fence", &self.url(), "--", "sh", "-c", script]))
    }
}
