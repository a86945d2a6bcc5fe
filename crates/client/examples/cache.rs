//! A file that several processes cache and one writes: no copy is used while it is written.
//!
//! `cargo run -p leasehold --example cache -- FILE read` in some terminals, `… FILE write TEXT` in another; the server is named
//! by LEASEHOLD_ADDR. Stop a reader with SIGSTOP and write: the write waits for its time to be over.

use std::time::{Duration, Instant};

use leasehold::recipes::cache::Cache;
use leasehold::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::try_from(address.as_str())?;
    let cache: Cache<String> = client.cache().ttl(Duration::from_secs(10)).open()?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [file, "read"] => tokio::select! {
            never = read(&cache, file) => never,
            _ = tokio::signal::ctrl_c() => {}
        },
        [file, "write", text] => write(&cache, file, text).await?,
        _ => return Err(Error::config("arguments", "FILE read, or FILE write TEXT")),
    }
    client.close().await
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
    let began = Instant::now();
    let written = cache.write("files/demo", Duration::from_secs(60), |intent| async move {
        println!("nobody reads after {:.1} s; writing under {}", began.elapsed().as_secs_f64(), intent.number.get());
        std::fs::write(file, text)
    });
    let written = written.await?;
    println!("written: {:?}, version {:?}", written.done, written.version);
    Ok(())
}
