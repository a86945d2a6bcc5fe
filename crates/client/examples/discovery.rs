//! Service discovery: instances that register, and a list that stays current.
//!
//! Run `cargo run -p leasehold --example discovery -- watch [SERVICE]` in one terminal and `… join NAME DETAILS [SERVICE]` in others.
//! The environment variable LEASEHOLD_ADDR names the server. Kill an instance with SIGKILL, or the server, and see what is reported.

use std::error::Error;
use std::time::Duration;

use futures::StreamExt;
use leasehold::Client;
use leasehold::recipes::discovery::{Discovery, InstanceChange, Registration};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::new(&address)?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["join", name, details] => join(&client, "services/demo", name, details).await?,
        ["join", name, details, service] => join(&client, service, name, details).await?,
        [] | ["watch"] => watch(client.discover("services/demo").await?).await,
        ["watch", service] => watch(client.discover(service).await?).await,
        _ => return Err("usage: discovery watch [SERVICE] | join NAME DETAILS [SERVICE]".into()),
    }
    Ok(())
}

/// Registers, and stays registered until Ctrl-C.
async fn join(client: &Client, service: &str, name: &str, details: &str) -> Result<(), Box<dyn Error>> {
    let instance = client.service(service, name).details(details).ttl(Duration::from_secs(10));
    let instance = instance.wait(Duration::from_secs(30));
    let on_registered = |registration: &Registration| {
        println!("registered as {name}, token number {}", registration.token_number());
    };
    tokio::select! {
        error = instance.keep_registered(on_registered) => return Err(error.into()),
        _ = tokio::signal::ctrl_c() => println!("leaving"),
    }
    Ok(client.close().await?)
}

/// Prints the instances, and then every change.
async fn watch(mut discovery: Discovery) {
    for instance in discovery.instances() {
        println!("= {} at {} ({})", instance.name, instance.details, instance.holder);
    }
    while let Some(change) = discovery.next().await {
        match change {
            Ok(InstanceChange::Joined(one)) => println!("+ {} at {} ({})", one.name, one.details, one.holder),
            Ok(InstanceChange::Left(one)) => println!("- {}", one.name),
            Ok(other) => println!("? {other:?}"),
            Err(error) => println!("! {error}"),
        }
    }
}
