//! Cost of the PostgreSQL fence: fenced against plain writes of 16 connections under one lease.
//!
//! `cargo bench -p leasehold-fence --bench postgres [-- ROUNDS]`. It starts its own server below the temporary directory, with
//! durable commits. Each slice of a variant is paired with one of plain writes, alternately before and after it. A ratio is the
//! median of the pairs, so that other load on the machine affects both alike.

// Shared with the tests, which use all of it.
#[allow(dead_code)]
#[path = "../tests/postgres/server.rs"]
mod server;
#[allow(dead_code)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::name::resource_hash;
use leasehold_fence::postgres::{Fence, install};
use server::Server;
use support::{CLUSTER, fence_id, id_of, parts, token};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

const CONNECTIONS: i64 = 16;
const SLICE: Duration = Duration::from_millis(150);
const ROWS: i64 = 64;
/// Resource of the protected tables. A fence without protected tables skips the work for their triggers.
const PROTECTED: &str = "jobs/protected";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Plain,
    RowMark,
    Inline,
    Pipelined,
    InlineProtected,
    SessionToken,
    ConnectionToken,
    Separate,
}

/// Each variant with its description and the minimum ratio to plain writes.
const VARIANTS: [(Variant, &str, Option<f64>); 7] = [
    (Variant::RowMark, "token in the row's own UPDATE", Some(0.97)),
    (Variant::Inline, "check inside the UPDATE", Some(0.75)),
    (Variant::Pipelined, "BEGIN, admit, UPDATE, COMMIT pipelined", None),
    (Variant::SessionToken, "session token, table protected", Some(0.65)),
    (Variant::ConnectionToken, "token of the connection, table protected", Some(0.6)),
    (Variant::InlineProtected, "check inside the UPDATE, table protected", Some(0.65)),
    (Variant::Separate, "BEGIN, admit, UPDATE, COMMIT one by one", None),
];

/// One connection and its prepared statements.
struct Connection {
    db: Client,
    fence: Fence,
    token: String,
    protected_fence: Fence,
    protected_token: String,
    first: i64,
    plain: Statement,
    row_mark: Statement,
    inline: Statement,
    inline_protected: Statement,
    /// A dedicated connection, because the timeouts of a session token apply to all its transactions.
    session: Client,
    session_update: Statement,
    /// A connection whose startup options set the token.
    connection: Client,
    connection_update: Statement,
    admit: Statement,
}

impl Connection {
    async fn new(server: &Server, index: i64) -> Self {
        let db = server.connect("leasehold", "postgres").await.expect("connected");
        let prepare = async |sql: &str| db.prepare(sql).await.expect("a statement");
        let inline =
            |table: &str| format!("UPDATE {table} SET cents = cents + 1 WHERE id = $4 AND {}", Fence::inline_check(1));
        let session = server.connect("leasehold", "postgres").await.expect("connected");
        protected_fence().set_session_token(&session, &protected_token(), Duration::from_secs(10)).await.expect("set");
        let options = format!("-c leasehold.token={}", protected_token());
        let connection = server.connect_with_options("leasehold", "postgres", &options).await.expect("connected");
        let update = "UPDATE session SET cents = cents + 1 WHERE id = $1";
        Self {
            plain: prepare("UPDATE account SET cents = cents + 1 WHERE id = $1").await,
            row_mark: prepare("UPDATE account SET cents = cents + 1, lease = $2 WHERE id = $1 AND lease <= $2").await,
            inline: prepare(&inline("account")).await,
            inline_protected: prepare(&inline("guarded")).await,
            session_update: session.prepare(update).await.expect("a statement"),
            session,
            connection_update: connection.prepare(update).await.expect("a statement"),
            connection,
            admit: prepare("SELECT leasehold.admit($1, $2)").await,
            fence: Fence::new(&fence_id()),
            token: token(33),
            protected_fence: protected_fence(),
            protected_token: protected_token(),
            first: index * ROWS,
            db,
        }
    }

    async fn write(&self, variant: Variant, count: i64) {
        let id = self.first + count % ROWS;
        let changed = match variant {
            Variant::Plain => self.db.execute(&self.plain, &[&id]).await.expect("written"),
            Variant::SessionToken => self.session.execute(&self.session_update, &[&id]).await.expect("written"),
            Variant::ConnectionToken => {
                self.connection.execute(&self.connection_update, &[&id]).await.expect("written")
            }
            Variant::RowMark => self.db.execute(&self.row_mark, &[&id, &33_i64]).await.expect("written"),
            Variant::Inline => self.fence.write(&self.db, &self.token, &self.inline, &[&id]).await.expect("written"),
            Variant::InlineProtected => {
                let (fence, token) = (&self.protected_fence, &self.protected_token);
                fence.write(&self.db, token, &self.inline_protected, &[&id]).await.expect("written")
            }
            Variant::Pipelined => {
                let (admit_params, params): ([&(dyn ToSql + Sync); 2], [&(dyn ToSql + Sync); 1]) =
                    ([&self.token, &support::RESOURCE], [&id]);
                let (begun, admitted, changed, ended) = tokio::join!(
                    self.db.batch_execute("BEGIN"),
                    self.db.query(&self.admit, &admit_params),
                    self.db.execute(&self.plain, &params),
                    self.db.batch_execute("COMMIT"),
                );
                begun.and(admitted.map(|_| ())).and(ended).expect("committed");
                changed.expect("written")
            }
            Variant::Separate => {
                self.db.batch_execute("BEGIN").await.expect("begun");
                self.db.query(&self.admit, &[&self.token, &support::RESOURCE]).await.expect("admitted");
                let changed = self.db.execute(&self.plain, &[&id]).await.expect("written");
                self.db.batch_execute("COMMIT").await.expect("committed");
                changed
            }
        };
        assert_eq!(changed, 1);
    }
}

/// Writes per second of all connections in one time slice.
async fn slice(connections: &[Arc<Connection>], variant: Variant) -> f64 {
    let started = Instant::now();
    let writers: Vec<_> = connections
        .iter()
        .cloned()
        .map(|connection| {
            tokio::spawn(async move {
                let mut count = 0;
                while started.elapsed() < SLICE {
                    connection.write(variant, count).await;
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut total = 0;
    for writer in writers {
        total += writer.await.expect("no panic");
    }
    f64::from(i32::try_from(total).expect("fits")) / started.elapsed().as_secs_f64()
}

async fn set_up(server: &Server) -> Vec<Arc<Connection>> {
    let db = server.connect("leasehold", "postgres").await.expect("connected");
    for table in ["account", "guarded", "session"] {
        let sql = format!(
            "CREATE TABLE public.{table} (id bigint PRIMARY KEY, cents bigint NOT NULL DEFAULT 0,
               lease bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50);
             INSERT INTO public.{table} (id) SELECT generate_series(0, {})",
            CONNECTIONS * ROWS
        );
        db.batch_execute(&sql).await.expect("a table");
    }
    install(&db).await.expect("installed");
    for (fence, token) in [(Fence::new(&fence_id()), token(33)), (protected_fence(), protected_token())] {
        fence.arm(&db).await.expect("armed");
        fence.claim(&db, &token).await.expect("claimed");
    }
    for table in ["guarded", "session"] {
        protected_fence().protect(&db, table).await.expect("protected");
    }
    let mut connections = Vec::new();
    for index in 0..CONNECTIONS {
        connections.push(Arc::new(Connection::new(server, index).await));
    }
    connections
}

fn protected_fence() -> Fence {
    Fence::new(&id_of(CLUSTER, PROTECTED))
}

fn protected_token() -> String {
    let mut token = parts(33);
    token.resource = resource_hash(PROTECTED);
    token.to_string()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(40);
    let server =
        Server::start_in(tempfile::tempdir().expect("a directory"), &["max_wal_size=4GB", "shared_buffers=64MB"]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut pairs = [const { Vec::new() }; VARIANTS.len()];
    runtime.block_on(async {
        let connections = set_up(&server).await;
        for (variant, ..) in VARIANTS {
            slice(&connections, variant).await; // warms plans and caches
        }
        for round in 0..rounds {
            for ((variant, ..), pairs) in VARIANTS.iter().zip(&mut pairs) {
                let first = if round % 2 == 0 { Variant::Plain } else { *variant };
                let second = if round % 2 == 0 { *variant } else { Variant::Plain };
                let rates = (slice(&connections, first).await, slice(&connections, second).await);
                pairs.push(if round % 2 == 0 { rates } else { (rates.1, rates.0) });
            }
        }
    });
    println!("{CONNECTIONS} connections under one lease, {rounds} pairs of {SLICE:?} for each, durable commits");
    println!("{:<42} {:>9} {:>9} {:>7} {:>7}", "", "plain/s", "fenced/s", "ratio", "target");
    for ((_, description, target), pairs) in VARIANTS.into_iter().zip(pairs) {
        let median_of = |value: fn(&(f64, f64)) -> f64| median(&mut pairs.iter().map(value).collect::<Vec<_>>());
        let (plain, fenced, ratio) =
            (median_of(|pair| pair.0), median_of(|pair| pair.1), median_of(|pair| pair.1 / pair.0));
        let target = target.map_or_else(String::new, |min: f64| format!("{min:.2}"));
        println!("{description:<42} {plain:>9.0} {fenced:>9.0} {ratio:>7.2} {target:>7}");
    }
}
