//! Readers that pin a position and a collector that deletes below the lowest pin, over a directory of numbered files.
//!
//! `cargo run -p leasehold --example pin -- DIRECTORY write COUNT`, `… read FROM SECONDS`, `… collect BELOW`; the server is
//! named by LEASEHOLD_ADDR. Stop a reader with SIGSTOP for longer than its ttl, collect, and continue it: it says that it lost.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Client, Error};

/// What the pins are among.
const RESOURCE: &str = "pins/demo";

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::try_from(address.as_str())?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [directory, "write", count] => write(Path::new(directory), number(count)?),
        [directory, "read", from, seconds] => read(&client, directory.into(), number(from)?, number(seconds)?).await,
        [directory, "collect", below] => collect(&client, Path::new(directory), number(below)?).await,
        _ => Err(Error::config("arguments", "DIRECTORY write COUNT, read FROM SECONDS, or collect BELOW")),
    }?;
    client.close().await
}

fn write(directory: &Path, count: u64) -> Result<(), Error> {
    std::fs::create_dir_all(directory).map_err(unable)?;
    (0..count).try_for_each(|at| std::fs::write(directory.join(at.to_string()), at.to_string())).map_err(unable)
}

/// Pins first, reads after: what is found under the pin stays until the pin goes.
async fn read(client: &Client, directory: PathBuf, from: u64, seconds: u64) -> Result<(), Error> {
    let pinned = client.pin(RESOURCE).ttl(Duration::from_secs(10)).at(from).await?;
    println!("pinned {from}");
    let read = pinned.run(|hold| async move {
        for round in 0..seconds {
            let text = std::fs::read_to_string(directory.join(from.to_string()));
            println!("round {round}: {text:?}, {:?} left", hold.left());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    match read.await {
        Ok(()) => println!("done, and unpinned"),
        Err(stopped) => println!("stopped: {stopped}"),
    }
    Ok(())
}

/// Asks first, deletes after: what is answered is on record, so that a crash in between costs nothing.
async fn collect(client: &Client, directory: &Path, below: u64) -> Result<(), Error> {
    let allowed = client.collect(RESOURCE, below).await?;
    println!("may delete below {allowed}");
    let mut deleted = 0;
    for entry in std::fs::read_dir(directory).map_err(unable)?.flatten() {
        let at = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
        if at.is_some_and(|at| at < allowed) {
            std::fs::remove_file(entry.path()).map_err(unable)?;
            deleted += 1;
        }
    }
    println!("deleted {deleted}");
    Ok(())
}

fn number(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| Error::config("arguments", format!("{text} is not a plain number")))
}

fn unable(why: std::io::Error) -> Error {
    Error::config("directory", why.to_string())
}
