//! Service discovery: instances that register, and a list that stays current.
//!
//! `cargo run -p leasehold --example session -- watch [SERVICE]` in one terminal, `… join NAME DETAILS [SERVICE]` in others;
//! the server is named by LEASEHOLD_ADDR. Kill one with -9, or the server, and see what is told.

use std::time::Duration;

use leasehold::recipes::session::{Change, Discovery};
use leasehold::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::try_from(address.as_str())?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["join", name, details] => join(&client, "services/demo", name, details).await,
        ["join", name, details, service] => join(&client, service, name, details).await,
        [] | ["watch"] => watch(client.discover("services/demo").await?).await,
        ["watch", service] => watch(client.discover(service).await?).await,
        _ => Err(Error::config("arguments", "watch [SERVICE], or join NAME DETAILS [SERVICE]")),
    }
}

/// Registers, and stays registered until the process is told to end.
async fn join(client: &Client, service: &str, name: &str, details: &str) -> Result<(), Error> {
    let announce = client.announce(service, name).details(details).ttl(Duration::from_secs(10));
    let staying = announce.wait(Duration::from_secs(30));
    let told = |registration: &leasehold::recipes::session::Registration| {
        println!("registered as {name}, number {}", registration.token_number().get());
    };
    tokio::select! {
        why = staying.stay(told) => return Err(why),
        _ = tokio::signal::ctrl_c() => println!("going"),
    }
    client.close().await
}

/// Prints who is there, and then who comes and goes.
async fn watch(mut discovery: Discovery) -> Result<(), Error> {
    for one in discovery.instances() {
        println!("= {} at {} ({})", one.name, one.details, one.holder);
    }
    loop {
        match discovery.next().await {
            Ok(Change::Joined(one)) => println!("+ {} at {} ({})", one.name, one.details, one.holder),
            Ok(Change::Left(one)) => println!("- {}", one.name),
            Err(error) => println!("! {error}"),
        }
    }
}
