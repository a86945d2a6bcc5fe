//! One leads, the others stand by, anybody watches.
//!
//! `cargo run -p leasehold --example leader -- NAME` campaigns under a name, `… --watch` observes; the server is named by
//! LEASEHOLD_ADDR. End the leader with SIGTERM (or Ctrl-C): the next one leads at once. End it with SIGKILL: the next one
//! leads when the ttl of ten seconds is over.

use std::time::Duration;

use leasehold::{Client, Endpoints, Error, Options};
use tokio::signal::unix::{SignalKind, signal};

const RESOURCE: &str = "examples/leader";

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let name = std::env::args().nth(1).ok_or_else(|| Error::config("arguments", "NAME, or --watch"))?;
    let holder = (name != "--watch").then(|| name.clone());
    let client = Client::with(Endpoints::parse(&address)?, Options { holder, ..Options::default() });
    let election = client.election(RESOURCE).ttl(Duration::from_secs(10)).announce(&format!("{name} is here"));
    if name == "--watch" {
        let mut observing = election.observe().await?;
        loop {
            match observing.next().await? {
                Some(leader) => println!("{} leads under {}: {}", leader.holder, leader.token_number, leader.announced),
                None => println!("nobody leads"),
            }
        }
    }
    println!("{name} campaigns");
    let led = election.lead(stop(), |hold| async move {
        println!("leading under token number {}", hold.token_number());
        hold.leaving().await;
        println!("asked to go; finishing");
    });
    match led.await? {
        Some(()) => println!("handed over"),
        None => println!("did not lead"),
    }
    client.close().await
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
