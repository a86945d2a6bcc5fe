//! Cost of the Redis fence: fenced writes against plain SET with 64 requests in flight, in alternating rounds on one machine.
//! Measures TCP, the common case, and a Unix socket, where the server's work is a larger share.

use std::time::{Duration, Instant};

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};
use leasehold_fence::FenceId;
use leasehold_fence::redis::{Fence, install};
use leasehold_testkit::ports::unused_address;
use leasehold_testkit::third_party_server::ThirdPartyServer;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

const CLUSTER: Cluster = Cluster(*b"benching");
const RESOURCE: &str = "jobs/settle";
const IN_FLIGHT: usize = 64;
const ROUNDS: usize = 10;
const ROUND: Duration = Duration::from_millis(1000);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let compare = |transport, settings| runtime.block_on(compare(transport, settings));
    let (durable, volatile): (&[&str], &[&str]) =
        (&["--appendonly", "yes", "--appendfsync", "always"], &["--appendonly", "no"]);
    let (always, without) = (compare(Transport::Tcp, durable), compare(Transport::Tcp, volatile));
    compare(Transport::Socket, durable);
    compare(Transport::Socket, volatile);
    // `cargo test --benches` only checks that it runs.
    if std::env::args().any(|arg| arg == "--bench") && (always < 0.55 || without < 0.7) {
        eprintln!("ratio below the target: 0.55 with appendfsync always, 0.7 without");
        std::process::exit(1);
    }
}

/// Transport to the server.
#[derive(Clone, Copy, Debug)]
enum Transport {
    Tcp,
    Socket,
}

async fn compare(transport: Transport, settings: &'static [&'static str]) -> f64 {
    // On a real disk, because fsync must have its real cost.
    let disk = tempfile::tempdir().expect("a directory");
    let dir = disk.path().display().to_string();
    let tcp = unused_address();
    let server = ThirdPartyServer::start("redis-server", move |at| {
        let (socket, host, port) =
            (at.join("socket").display().to_string(), tcp.ip().to_string(), tcp.port().to_string());
        let defaults = ["--bind", &host, "--port", &port, "--save", "", "--dir", &dir, "--unixsocket", &socket];
        defaults.into_iter().chain(settings.iter().copied()).map(str::to_owned).collect()
    });
    let address = match transport {
        Transport::Tcp => format!("redis://{tcp}"),
        Transport::Socket => format!("unix:{}", server.dir().join("socket").display()),
    };
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let connect =
        || async { redis::Client::open(address.as_str())?.get_multiplexed_async_connection_with_config(&config).await };
    let mut connections: Vec<MultiplexedConnection> = Vec::new();
    for _ in 0..IN_FLIGHT {
        connections.push(server.retry(&connect).await);
    }
    install(&mut connections[0]).await.expect("installed");
    let fence = Fence::new(&FenceId::new(CLUSTER, RESOURCE).expect("a name"));
    fence.arm(&mut connections[0]).await.expect("armed");
    fence.claim(&mut connections[0], &token()).await.expect("claimed");
    let (mut plain, mut fenced) = (0, 0);
    for _ in 0..ROUNDS {
        plain += round(&connections, None).await;
        fenced += round(&connections, Some(&fence)).await;
    }
    let rate = |count: u64| count as f64 / (ROUND.as_secs_f64() * ROUNDS as f64);
    let ratio = fenced as f64 / plain as f64;
    println!(
        "{transport:?}, {}: plain SET {:.0}/s, fenced {:.0}/s, ratio {ratio:.2}",
        settings.join(" "),
        rate(plain),
        rate(fenced)
    );
    ratio
}

/// Number of replies in one round; each connection has one request in flight.
async fn round(connections: &[MultiplexedConnection], fence: Option<&Fence>) -> u64 {
    let deadline = Instant::now() + ROUND;
    let mut tasks = Vec::new();
    for (n, connection) in connections.iter().enumerate() {
        let (mut connection, fence, token) = (connection.clone(), fence.cloned(), token());
        tasks.push(tokio::spawn(async move {
            let key = format!("{{{RESOURCE}}}:{n}");
            let mut set = redis::cmd("SET");
            set.arg(&key).arg("a value of some length");
            let mut count = 0;
            while Instant::now() < deadline {
                match &fence {
                    Some(fence) => fence.write::<()>(&mut connection, &token, &[&key], &set).await.expect("admitted"),
                    None => set.query_async::<()>(&mut connection).await.expect("set"),
                }
                count += 1;
            }
            count
        }));
    }
    let mut count = 0;
    for task in tasks {
        count += task.await.expect("no panic");
    }
    count
}

fn token() -> String {
    let number = Number::new(240_000_000_000_000_007).expect("a number");
    let resource = resource_hash(RESOURCE);
    Token { cluster: CLUSTER, incarnation: Incarnation(1), resource, scope: TokenScope::Slot(0), number }.to_string()
}
