//! Twelve shards over any number of workers. Every shard counts, and continues from its last checkpoint.
//!
//! `cargo run -p leasehold --example shard -- NAME`. The environment variable LEASEHOLD_ADDR names the server. Start several workers,
//! end one with SIGTERM (its shards move immediately) and one with SIGKILL (they move when the ttl of ten seconds has ended): no
//! count is lost or repeated.

use std::time::Duration;

use leasehold::Client;
use leasehold::recipes::shard::Shard;
use tokio::signal::unix::{SignalKind, signal};

const SHARDS: u32 = 12;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let name = std::env::args().nth(1).ok_or("usage: shard NAME")?;
    let client = Client::builder(&address)?.holder(&name).build();
    let shards = client.shards("examples/counts", SHARDS).ttl(Duration::from_secs(10));
    println!("{name} works");
    shards.run(stop(), count).await?;
    println!("{name} has left");
    Ok(client.close().await?)
}

/// Counts until the shard moves. Every count is recorded under the token before the next owner reads it.
async fn count(shard: Shard) {
    let start = match shard.resume().await {
        Ok(found) => found.and_then(|found| String::from_utf8(found.bytes).ok()?.parse().ok()).unwrap_or(0_u64),
        Err(error) => return println!("shard {}: {error}", shard.index()),
    };
    println!("shard {}: from {start}, token number {}", shard.index(), shard.token_number());
    let mut count = start;
    loop {
        tokio::select! {
            () = shard.draining_started() => return println!("shard {}: leaving at {count}", shard.index()),
            () = tokio::time::sleep(Duration::from_millis(500)) => count += 1,
        }
        if let Err(error) = shard.checkpoint(count.to_string().as_bytes()).await {
            return println!("shard {}: {error}", shard.index());
        }
    }
}

/// Waits for SIGTERM or SIGINT.
async fn stop() {
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
