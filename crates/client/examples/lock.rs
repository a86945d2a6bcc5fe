//! Several programs, one at a time: a job under one lock, or under several at once.
//!
//! `cargo run -p leasehold --example lock -- SECONDS NAME…`; the server is named by LEASEHOLD_ADDR. Start two with the same
//! name, or with names that overlap: the second waits. Stop the first with SIGSTOP for longer than thirty seconds and continue
//! it: its work is over when it wakes up.

use std::time::Duration;

use leasehold::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::try_from(address.as_str())?;
    let mut args = std::env::args().skip(1);
    let usage = || Error::config("arguments", "SECONDS NAME…: how long to work, and under which locks");
    let seconds: u64 = args.next().and_then(|text| text.parse().ok()).ok_or_else(usage)?;
    let lock = client.lock(args.next().ok_or_else(usage)?).wait(Duration::from_secs(600));
    let lock = args.fold(lock, |lock, name| lock.and(name));
    println!("waiting");
    let done = lock.run_all(|holds| async move {
        for hold in &holds {
            println!("holding {} under token number {}", hold.resource(), hold.token_number());
        }
        for second in 0..seconds {
            println!("second {second} of {seconds}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    match done.await {
        Ok(()) => println!("done, and given back"),
        Err(error) => println!("stopped: {error}"),
    }
    client.close().await
}
