//! Seats that are reserved, then sold or canceled.
//!
//! Run `cargo run -p leasehold --example reservation -- size SEATS`, `… reserve SEATS SECONDS` (prints the token), `… confirm TOKEN`,
//! `… cancel TOKEN`, `… resize TOKEN SEATS`, `… veto TOKEN SECONDS` or `… show TOKEN`. The environment variable LEASEHOLD_ADDR names
//! the server. Reserve, wait until the time is over, and confirm: it is refused.

use std::time::Duration;

use leasehold::Client;

const HALL: &str = "examples/hall";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::new(&address)?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let reservation = |token: &str| client.reservation(HALL, token);
    match args[..] {
        ["size", seats] => client.set_capacity(HALL, seats.parse()?).await?,
        ["reserve", seats, seconds] => {
            let ttl = Duration::from_secs(seconds.parse()?);
            let reservation = client.reserve(HALL, seats.parse()?).ttl(ttl).acquire().await?;
            println!("{}", reservation.token());
        }
        ["confirm", token] => reservation(token)?.confirm().await?,
        ["cancel", token] => reservation(token)?.cancel().await?,
        ["resize", token, seats] => reservation(token)?.resize(seats.parse()?).await?,
        ["veto", token, seconds] => {
            let remaining = reservation(token)?.veto(Duration::from_secs(seconds.parse()?)).await?;
            println!("{remaining:?} remaining");
        }
        ["show", token] => println!("{:?}", reservation(token)?.status().await?),
        _ => return Err("usage: reservation size | reserve | confirm | cancel | resize | veto | show …".into()),
    }
    let hall = client.show(HALL).await?;
    println!("{} of {} seats reserved, {} sold", hall.used, hall.capacity, hall.confirmed);
    Ok(())
}
