//! Seats that are held, then paid for or given back.
//!
//! `cargo run -p leasehold --example reservation -- size SEATS`, `… hold SEATS SECONDS` (prints the token), `… confirm TOKEN`,
//! `… cancel TOKEN`, `… resize TOKEN SEATS`, `… veto TOKEN SECONDS`, `… show TOKEN`; the server is named by LEASEHOLD_ADDR. Hold,
//! wait until the time is over, and confirm: it is refused.

use std::time::Duration;

use leasehold::{Client, Error};

const HALL: &str = "examples/hall";

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::try_from(address.as_str())?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let hold = |token: &str| client.reservation(HALL, token);
    match args[..] {
        ["size", seats] => client.set_capacity(HALL, number(seats)?).await?,
        ["hold", seats, seconds] => {
            let keep = Duration::from_secs(number(seconds)?.into());
            let held = client.reserve(HALL, number(seats)?).keep_for(keep).hold().await?;
            println!("{}", held.token());
        }
        ["confirm", token] => hold(token)?.confirm().await?,
        ["cancel", token] => hold(token)?.cancel().await?,
        ["resize", token, seats] => hold(token)?.resize(number(seats)?).await?,
        ["veto", token, seconds] => {
            let stands = hold(token)?.veto(Duration::from_secs(number(seconds)?.into())).await?;
            println!("stands for {stands:?}");
        }
        ["show", token] => println!("{:?}", hold(token)?.outcome().await?),
        _ => return Err(Error::config("arguments", "size, hold, confirm, cancel, resize, veto or show")),
    }
    let hall = client.show(HALL).await?;
    println!("{} of {} seats held, {} sold", hall.used, hall.capacity, hall.confirmed);
    Ok(())
}

fn number(text: &str) -> Result<u32, Error> {
    text.parse().map_err(|_| Error::config("arguments", format!("{text} is no number")))
}
