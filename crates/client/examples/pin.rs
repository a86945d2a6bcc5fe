//! Readers that pin a position, and a collector that deletes below the lowest pin, in a directory of numbered files.
//!
//! Run `cargo run -p leasehold --example pin -- DIRECTORY write COUNT`, `… read FROM SECONDS` or `… collect BELOW`. The environment
//! variable LEASEHOLD_ADDR names the server. Stop a reader with SIGSTOP for longer than its ttl, collect, and continue it: it
//! reports that it was stopped.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::Client;

/// Resource of the readers.
const RESOURCE: &str = "pins/demo";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::new(&address)?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [directory, "write", count] => write(Path::new(directory), count.parse()?)?,
        [directory, "read", from, seconds] => {
            read(&client, directory.into(), from.parse()?, seconds.parse()?).await?;
        }
        [directory, "collect", below] => collect(&client, Path::new(directory), below.parse()?).await?,
        _ => return Err("usage: pin DIRECTORY write COUNT | read FROM SECONDS | collect BELOW".into()),
    }
    Ok(client.close().await?)
}

fn write(directory: &Path, count: u64) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    (0..count).try_for_each(|at| std::fs::write(directory.join(at.to_string()), at.to_string()))
}

/// Pins first and reads then: what is found under the pin stays until the pin is released.
async fn read(client: &Client, directory: PathBuf, from: u64, seconds: u64) -> Result<(), Box<dyn Error>> {
    let pin = client.pin(RESOURCE).ttl(Duration::from_secs(10)).acquire(from).await?;
    println!("pinned {from}");
    let read = pin.run(|lease| async move {
        for round in 0..seconds {
            let text = std::fs::read_to_string(directory.join(from.to_string()));
            println!("round {round}: {text:?}, {:?} remaining", lease.remaining());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    match read.await {
        Ok(()) => println!("done and unpinned"),
        Err(stopped) => println!("stopped: {stopped}"),
    }
    Ok(())
}

/// Asks first and deletes then: the answer is recorded, so a crash in between does no harm.
async fn collect(client: &Client, directory: &Path, below: u64) -> Result<(), Box<dyn Error>> {
    let allowed = client.collect(RESOURCE, below).await?;
    println!("may delete below {allowed}");
    let mut deleted = 0;
    for entry in std::fs::read_dir(directory)?.flatten() {
        let at = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
        if at.is_some_and(|at| at < allowed) {
            std::fs::remove_file(entry.path())?;
            deleted += 1;
        }
    }
    println!("deleted {deleted}");
    Ok(())
}
