//! Twelve shards over as many workers as there are; each counts, and goes on where the last owner stopped.
//!
//! `cargo run -p leasehold --example shard -- NAME`; the server is named by LEASEHOLD_ADDR. Start several, end one with SIGTERM
//! (its shards move at once) and one with SIGKILL (they move when the ttl of ten seconds is over): no count is lost, and none is
//! taken back.

use std::time::Duration;

use leasehold::recipes::shard::Shard;
use leasehold::{Client, Endpoints, Error, Options};
use tokio::signal::unix::{SignalKind, signal};

const SHARDS: u32 = 12;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let name = std::env::args().nth(1).ok_or_else(|| Error::config("arguments", "NAME: who works"))?;
    let options = Options { holder: Some(name.clone()), ..Options::default() };
    let client = Client::with(Endpoints::parse(&address)?, options);
    let shards = client.shards("examples/counts", SHARDS).ttl(Duration::from_secs(10));
    println!("{name} works");
    shards.run(stop(), count).await?;
    println!("{name} has left");
    client.close().await
}

/// Counts until the shard is to move. What it has counted is on record, under its token, before the next owner reads it.
async fn count(shard: Shard) {
    let begun = match shard.resume().await {
        Ok(found) => found.and_then(|found| String::from_utf8(found.bytes).ok()?.parse().ok()).unwrap_or(0_u64),
        Err(error) => return println!("shard {}: {error}", shard.index()),
    };
    println!("shard {}: from {begun}, under {}", shard.index(), shard.token_number());
    let mut at = begun;
    loop {
        tokio::select! {
            () = shard.leaving() => return println!("shard {}: leaving at {at}", shard.index()),
            () = tokio::time::sleep(Duration::from_millis(500)) => at += 1,
        }
        if let Err(failure) = shard.checkpoint(at.to_string().as_bytes()).await {
            return println!("shard {}: {failure}", shard.index());
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
