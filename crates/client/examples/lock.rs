//! Mutual exclusion: work under one lock, or under several at once.
//!
//! `cargo run -p leasehold --example lock -- SECONDS NAME…`. The environment variable LEASEHOLD_ADDR names the server. Start two
//! processes with the same name, or with names that overlap: the second one waits. Stop the first one with SIGSTOP for longer than
//! thirty seconds and continue it: its work is stopped when it wakes up.

use std::time::Duration;

use leasehold::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::new(&address)?;
    let mut args = std::env::args().skip(1);
    let usage = "usage: lock SECONDS NAME…";
    let seconds: u64 = args.next().ok_or(usage)?.parse()?;
    let lock = client.lock(args.next().ok_or(usage)?).wait(Duration::from_secs(600));
    let lock = args.fold(lock, |lock, name| lock.also(name));
    println!("waiting");
    let work = lock.run_all(|leases| async move {
        for lease in &leases {
            println!("holding {}, token number {}", lease.resource(), lease.token_number());
        }
        for second in 0..seconds {
            println!("second {second} of {seconds}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    match work.await {
        Ok(()) => println!("done and released"),
        Err(error) => println!("stopped: {error}"),
    }
    Ok(client.close().await?)
}
