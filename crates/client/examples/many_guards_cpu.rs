//! The cost of many guards in one process.
//!
//! `cargo run -p leasehold --release --example many_guards_cpu -- ADDR [COUNT] [SECONDS]`

use std::time::{Duration, Instant};

use futures::StreamExt;
use leasehold::{Client, Error, Guard};

/// Acquire requests in flight.
const IN_FLIGHT: usize = 512;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let client = Client::new(&args.next().unwrap_or_else(|| "127.0.0.1:7421".into()))?;
    let count: usize = args.next().map_or(Ok(100_000), |text| text.parse())?;
    let seconds: u64 = args.next().map_or(Ok(30), |text| text.parse())?;
    let started = Instant::now();
    let requests = futures::stream::iter(0..count).map(|index| {
        let lock = client.lock(format!("guards/{index}")).ttl(Duration::from_secs(30));
        async move { Ok(lock.acquire().await?) }
    });
    let granted: Vec<Result<Guard, Error>> = requests.buffer_unordered(IN_FLIGHT).collect().await;
    let guards = granted.into_iter().collect::<Result<Vec<_>, _>>()?;
    println!("{} guards after {:.1} s", guards.len(), started.elapsed().as_secs_f64());
    // The first renewals overlap with the last grants.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, started) = (cpu_time(), Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let share = 100.0 * (cpu_time() - before).as_secs_f64() / started.elapsed().as_secs_f64();
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    println!("{held} held; their thread used {share:.2} % of a core");
    Ok(client.close().await?)
}

/// CPU time of the client's threads, from the Linux kernel.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let workers = tasks.filter(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim_end() == "leasehold")
    });
    let nanos = workers.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}
