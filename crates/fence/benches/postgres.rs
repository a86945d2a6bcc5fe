//! What the fence costs in PostgreSQL: fenced against plain writes of 16 connections under one lease, in one run, in turns.
//!
//! `cargo bench -p leasehold-fence --bench postgres [-- ROUNDS]`. It starts a server of its own below the directory for
//! temporary files, with durable commits. Every slice of a variant has one of plain writes beside it, before it or after it in
//! turns; a ratio is the median of those pairs, so that what else the machine does falls on both alike.

// It is shared with the tests, which use all of it.
#[allow(dead_code)]
#[path = "../tests/postgres/server.rs"]
mod server;
#[allow(dead_code)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::name::{Name, resource_hash};
use leasehold_fence::postgres::{Fence, install};
use server::Server;
use support::{CLUSTER, name, parts, token};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

const CONNECTIONS: i64 = 16;
const SLICE: Duration = Duration::from_millis(150);
const ROWS: i64 = 64;
/// Guards the protected table. A place without one shows nothing to triggers.
const PROTECTED: &str = "jobs/protected";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Plain,
    Own,
    Folded,
    Pipelined,
    Forced,
    Held,
    Separate,
}

/// Each variant, what it is, and the least share of plain writes it should reach.
const VARIANTS: [(Variant, &str, Option<f64>); 6] = [
    (Variant::Own, "token in the row's own UPDATE", Some(0.97)),
    (Variant::Folded, "admit folded into the UPDATE", Some(0.75)),
    (Variant::Pipelined, "BEGIN, admit, UPDATE, COMMIT in one go", None),
    (Variant::Held, "held by the session, the table protected", Some(0.65)),
    (Variant::Forced, "folded, the table protected", Some(0.65)),
    (Variant::Separate, "BEGIN, admit, UPDATE, COMMIT one by one", None),
];

/// One connection and its prepared statements.
struct Way {
    db: Client,
    fence: Fence,
    token: String,
    protecting: Fence,
    protecting_token: String,
    first: i64,
    plain: Statement,
    own: Statement,
    folded: Statement,
    forced: Statement,
    /// A connection of its own: what a session holds bounds all that it does.
    holding: Client,
    held: Statement,
    admit: Statement,
}

impl Way {
    async fn new(server: &Server, index: i64) -> Self {
        let db = server.connect("leasehold", "postgres").await.expect("connected");
        let prepare = async |sql: &str| db.prepare(sql).await.expect("a statement");
        let folded = |table: &str| format!("UPDATE {table} SET cents = cents + 1 WHERE id = $4 AND {}", Fence::FOLDED);
        let holding = server.connect("leasehold", "postgres").await.expect("connected");
        protecting().hold(&holding, &protecting_token(), Duration::from_secs(10)).await.expect("held");
        Self {
            plain: prepare("UPDATE account SET cents = cents + 1 WHERE id = $1").await,
            own: prepare("UPDATE account SET cents = cents + 1, lease = $2 WHERE id = $1 AND lease <= $2").await,
            folded: prepare(&folded("account")).await,
            forced: prepare(&folded("guarded")).await,
            held: holding.prepare("UPDATE held SET cents = cents + 1 WHERE id = $1").await.expect("a statement"),
            holding,
            admit: prepare("SELECT leasehold.admit($1, $2)").await,
            fence: Fence::new(CLUSTER, name(), 0),
            token: token(33),
            protecting: protecting(),
            protecting_token: protecting_token(),
            first: index * ROWS,
            db,
        }
    }

    async fn write(&self, variant: Variant, count: i64) {
        let id = self.first + count % ROWS;
        let changed = match variant {
            Variant::Plain => self.db.execute(&self.plain, &[&id]).await.expect("written"),
            Variant::Held => self.holding.execute(&self.held, &[&id]).await.expect("written"),
            Variant::Own => self.db.execute(&self.own, &[&id, &33_i64]).await.expect("written"),
            Variant::Folded => self.fence.execute(&self.db, &self.token, &self.folded, &[&id]).await.expect("written"),
            Variant::Forced => {
                let (fence, token) = (&self.protecting, &self.protecting_token);
                fence.execute(&self.db, token, &self.forced, &[&id]).await.expect("written")
            }
            Variant::Pipelined => {
                let (shown, of): ([&(dyn ToSql + Sync); 2], [&(dyn ToSql + Sync); 1]) =
                    ([&self.token, &support::RESOURCE], [&id]);
                let (begun, admitted, changed, ended) = tokio::join!(
                    self.db.batch_execute("BEGIN"),
                    self.db.query(&self.admit, &shown),
                    self.db.execute(&self.plain, &of),
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

/// Writes of all connections in one slice of time, per second.
async fn slice(ways: &[Arc<Way>], variant: Variant) -> f64 {
    let began = Instant::now();
    let writers: Vec<_> = ways
        .iter()
        .cloned()
        .map(|way| {
            tokio::spawn(async move {
                let mut count = 0;
                while began.elapsed() < SLICE {
                    way.write(variant, count).await;
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut all = 0;
    for writer in writers {
        all += writer.await.expect("no panic");
    }
    f64::from(i32::try_from(all).expect("few")) / began.elapsed().as_secs_f64()
}

async fn set_up(server: &Server) -> Vec<Arc<Way>> {
    let db = server.connect("leasehold", "postgres").await.expect("connected");
    for table in ["account", "guarded", "held"] {
        let sql = format!(
            "CREATE TABLE public.{table} (id bigint PRIMARY KEY, cents bigint NOT NULL DEFAULT 0,
               lease bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50);
             INSERT INTO public.{table} (id) SELECT generate_series(0, {})",
            CONNECTIONS * ROWS
        );
        db.batch_execute(&sql).await.expect("a table");
    }
    install(&db).await.expect("installed");
    for (fence, token) in [(Fence::new(CLUSTER, name(), 0), token(33)), (protecting(), protecting_token())] {
        fence.arm(&db).await.expect("armed");
        fence.claim(&db, &token).await.expect("claimed");
    }
    for table in ["guarded", "held"] {
        protecting().protect(&db, table).await.expect("protected");
    }
    let mut ways = Vec::new();
    for index in 0..CONNECTIONS {
        ways.push(Arc::new(Way::new(server, index).await));
    }
    ways
}

fn protecting() -> Fence {
    Fence::new(CLUSTER, Name::parse(PROTECTED).expect("a name"), 0)
}

fn protecting_token() -> String {
    let mut token = parts(33);
    token.resource = resource_hash(PROTECTED);
    token.to_string()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(40);
    let server = Server::start_below(&std::env::temp_dir(), &["max_wal_size=4GB", "shared_buffers=64MB"]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut pairs = [const { Vec::new() }; VARIANTS.len()];
    runtime.block_on(async {
        let ways = set_up(&server).await;
        for (variant, ..) in VARIANTS {
            slice(&ways, variant).await; // plans and caches
        }
        for round in 0..rounds {
            for ((variant, ..), pairs) in VARIANTS.iter().zip(&mut pairs) {
                let first = if round % 2 == 0 { Variant::Plain } else { *variant };
                let second = if round % 2 == 0 { *variant } else { Variant::Plain };
                let rates = (slice(&ways, first).await, slice(&ways, second).await);
                pairs.push(if round % 2 == 0 { rates } else { (rates.1, rates.0) });
            }
        }
    });
    println!("{CONNECTIONS} connections under one lease, {rounds} pairs of {SLICE:?} for each, durable commits");
    println!("{:<42} {:>9} {:>9} {:>7} {:>7}", "", "plain/s", "fenced/s", "ratio", "wanted");
    for ((_, what, wanted), pairs) in VARIANTS.into_iter().zip(pairs) {
        let of = |what: fn(&(f64, f64)) -> f64| median(&mut pairs.iter().map(what).collect::<Vec<_>>());
        let (plain, fenced, ratio) = (of(|pair| pair.0), of(|pair| pair.1), of(|pair| pair.1 / pair.0));
        let wanted = wanted.map_or_else(String::new, |least: f64| format!("{least:.2}"));
        println!("{what:<42} {plain:>9.0} {fenced:>9.0} {ratio:>7.2} {wanted:>7}");
    }
}
