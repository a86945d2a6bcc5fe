//! Leader election: one process leads, the others wait, and anyone can observe.
//!
//! `cargo run -p leasehold --example leader -- NAME` campaigns, `… --watch` observes. The environment variable LEASEHOLD_ADDR names
//! the server. End the leader with SIGTERM or Ctrl-C: the next one leads immediately. End it with SIGKILL: the next one leads when
//! the ttl of ten seconds has ended.

use std::time::Duration;

use futures::TryStreamExt;
use leasehold::Client;
use tokio::signal::unix::{SignalKind, signal};

const RESOURCE: &str = "examples/leader";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let name = std::env::args().nth(1).ok_or("usage: leader NAME | --watch")?;
    let client = Client::builder(&address)?.holder(name.trim_start_matches('-')).build();
    let election = client.election(RESOURCE).ttl(Duration::from_secs(10)).metadata(&format!("{name} is here"));
    if name == "--watch" {
        let mut updates = election.observe().await?;
        while let Some(leader) = updates.try_next().await? {
            match leader {
                Some(leader) => {
                    println!("{} leads, token number {}: {}", leader.holder, leader.token_number, leader.metadata);
                }
                None => println!("there is no leader"),
            }
        }
        return Ok(());
    }
    println!("{name} campaigns");
    let led = election.lead(stop(), |lease| async move {
        println!("leading, token number {}", lease.token_number());
        lease.draining_started().await;
        println!("handoff started; finishing");
    });
    match led.await? {
        Some(()) => println!("handed off"),
        None => println!("did not lead"),
    }
    Ok(client.close().await?)
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
