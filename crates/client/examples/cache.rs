//! A cache of a file that several processes read and one writes. No copy is used while the file is written.
//!
//! Run `cargo run -p leasehold --example cache -- FILE read` in some terminals and `… FILE write TEXT` in another. The environment
//! variable LEASEHOLD_ADDR names the server. Stop a reader with SIGSTOP and write: the write waits until the reader's lease ends.

use std::time::{Duration, Instant};

use leasehold::recipes::cache::Cache;
use leasehold::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::new(&address)?;
    let cache: Cache<String> = client.cache().ttl(Duration::from_secs(10)).build()?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [file, "read"] => tokio::select! {
            never = read(&cache, file) => never,
            _ = tokio::signal::ctrl_c() => {}
        },
        [file, "write", text] => write(&cache, file, text).await?,
        _ => return Err("usage: cache FILE read | FILE write TEXT".into()),
    }
    Ok(client.close().await?)
}

async fn read(cache: &Cache<String>, file: &str) {
    loop {
        let from = if cache.peek("files/demo").is_some() { "copy" } else { "file" };
        match cache.get("files/demo", || std::future::ready(std::fs::read_to_string(file))).await {
            Ok(text) => println!("{from}: {text}"),
            Err(error) => println!("{from}: {error}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn write(cache: &Cache<String>, file: &str, text: &str) -> Result<(), Error> {
    let started = Instant::now();
    let write = cache.write("files/demo", Duration::from_secs(60), |intent| async move {
        let waited = started.elapsed().as_secs_f64();
        println!("no reader is left after {waited:.1} s; writing under token number {}", intent.number.get());
        std::fs::write(file, text)
    });
    let write = write.await?;
    println!("written: {:?}, version {:?}", write.output, write.version);
    Ok(())
}
