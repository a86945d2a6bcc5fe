//! A worker in a process of its own: holds a lease, writes to a fenced PostgreSQL table, and reports what the fence decides.

use std::io::{Write, stdin, stdout};
use std::time::Duration;

use leasehold::Client;
use leasehold::report::{FenceMode, Reporter};
use leasehold_fence::FenceId;
use leasehold_fence::postgres::Fence;
use tokio_postgres::{Config, NoTls};

/// Argument that selects this role.
pub const ROLE: &str = "worker";
/// The target, as the charter declares it.
pub const TARGET: &str = "ledger";

/// `ADDRESS RESOURCE HOLDER TTL_MS SOCKET_DIRECTORY`: prints each step. A line `INVOICE` on standard input is a write with the token of
/// the grant, whatever the worker knows about its lease by then: the write was already on its way.
pub fn run(args: &[String]) {
    let [address, resource, holder, ttl, host] = args else { panic!("five arguments: {args:?}") };
    let ttl = Duration::from_millis(ttl.parse().expect("milliseconds"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("threads start").block_on(async {
        let client = Client::new(address).expect("an address");
        let cluster = client.cluster_id().await.expect("the server responds");
        let reporter = Reporter::with_interval(&client, cluster, Duration::from_millis(100)).expect("a reporter");
        let observer = reporter.target(TARGET, FenceMode::Forced).expect("a name");
        let fence = Fence::new(&FenceId::new(cluster, resource).expect("a name")).with_observer(observer);
        let config = Config::new().host_path(host).user("leasehold").dbname("postgres").clone();
        let (mut db, connection) = config.connect(NoTls).await.expect("the database accepts connections");
        tokio::spawn(connection);
        print("waiting");
        let lock = client.lock(resource).holder(holder).ttl(ttl).wait(Duration::from_secs(3_600));
        let guard = lock.acquire().await.expect("the lease is free in time");
        let token = guard.token();
        print(&format!("granted {}", guard.token_number()));
        fence.claim(&db, &token).await.expect("no later holder has claimed");
        print("claimed");
        for line in stdin().lines().map_while(Result::ok) {
            let invoice: i64 = line.parse().expect("an invoice number");
            let tx = db.transaction().await.expect("the connection is open");
            let written = match fence.admit(&tx, &token, Duration::from_secs(60)).await {
                Ok(_) => {
                    tx.execute("INSERT INTO paid VALUES ($1)", &[&invoice]).await.expect("the table exists");
                    tx.commit().await.expect("the transaction is admitted");
                    "written".to_owned()
                }
                Err(error) => format!("refused {error}"),
            };
            print(&written);
        }
    });
}

fn print(line: &str) {
    let mut out = stdout().lock();
    // The reader is gone: exit.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
