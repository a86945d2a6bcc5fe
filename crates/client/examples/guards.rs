//! Many guards in one process: what it costs to keep them.
//!
//! `cargo run -p leasehold --release --example guards -- ADDR [COUNT] [SECONDS]`

use std::time::{Duration, Instant};

use futures::StreamExt;
use leasehold::{Client, Endpoints, Error, Failure, Guard};

/// How many are asked for at once.
const AT_ONCE: usize = 512;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let endpoints = Endpoints::parse(&args.next().unwrap_or_else(|| "127.0.0.1:7421".into()))?;
    let count: usize = number(args.next(), 100_000)?;
    let seconds: u64 = number(args.next(), 30)?;
    let client = Client::connect(endpoints);
    let began = Instant::now();
    let asked = futures::stream::iter(0..count).map(|at| {
        let lock = client.lock(format!("guards/{at}")).ttl(Duration::from_secs(30));
        async move { lock.acquire().await.map_err(Failure::into_error) }
    });
    let granted: Vec<Result<Guard, Error>> = asked.buffer_unordered(AT_ONCE).collect().await;
    let guards = granted.into_iter().collect::<Result<Vec<_>, _>>()?;
    println!("{} guards after {:.1} s", guards.len(), began.elapsed().as_secs_f64());
    // The first renewals come together with the last grants.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, began) = (busy(), Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let share = 100.0 * (busy() - before).as_secs_f64() / began.elapsed().as_secs_f64();
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    println!("{held} held; their thread was busy for {share:.2} % of a core");
    client.close().await
}

fn number<T: std::str::FromStr>(text: Option<String>, otherwise: T) -> Result<T, Error> {
    let wrong = || Error::config("count", "count and seconds are plain numbers");
    text.map_or(Ok(otherwise), |text| text.parse().map_err(|_| wrong()))
}

/// How long the threads that hold have been on a processor, by the kernel's word.
fn busy() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ours = tasks.filter(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim_end() == "leasehold")
    });
    let nanos = ours.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}
