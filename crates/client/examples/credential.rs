//! An issuer that signs for holders, a holder that asks it, and a verifier that needs neither of them nor the server.
//!
//! `cargo run -p leasehold --features credential --example credential [-- SECONDS]`: takes a lease, issues a credential for
//! it, checks it every second as a target would, revokes it half-way, and goes on checking. The server is named by
//! LEASEHOLD_ADDR.

use std::time::{Duration, SystemTime};

use leasehold::recipes::credential::{Issuer, Key, Keys, Verifier, Wish};
use leasehold::{Client, Error};

const ISSUER: &str = "https://issuer.example";

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let seconds = std::env::args().nth(1).map_or(Ok(10), |text| text.parse::<u64>());
    let seconds = seconds.map_err(|_| Error::config("seconds", "a plain number"))?;
    let (office, worker) = (Client::try_from(address.as_str())?, Client::try_from(address.as_str())?);

    // The issuer's own lease makes it the only one.
    let desk = office.lock("issuers/demo").acquire().await?;
    let issuer = Issuer::new(ISSUER, desk.hold().clone(), Keys::new(Key::generate("2026-1")?))?;
    let issuer = issuer.skew(Duration::from_secs(1));
    println!("keys: {}", issuer.jwks());

    // The holder shows its token, and the issuer asks the grantor.
    let lease = worker.lock("jobs/demo").acquire().await?;
    let wish = Wish { audience: "ledger", subject: "worker", life: Duration::from_secs(3_600) };
    let credential = issuer.for_token(&office, "jobs/demo", &lease.token(), &wish).await?;
    println!("asked for an hour, under a lease of thirty seconds: {} bytes", credential.len());

    // The verifier has the keys and a list, and asks nobody.
    let mut verifier = Verifier::new(ISSUER, "ledger", &issuer.jwks())?.skew(Duration::from_secs(1));
    for second in 0..seconds {
        if second == seconds / 2 {
            issuer.revoke(lease.token_number(), SystemTime::now())?;
            println!("revoked; the next list says so");
        }
        verifier.set_list(&issuer.list(SystemTime::now())?)?;
        match verifier.verify(&credential, "jobs/demo") {
            Ok(verified) => println!("{second} s: believed, token number {}", verified.token.number.get()),
            Err(denied) => println!("{second} s: {denied}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    lease.release().await?;
    desk.release().await?;
    Ok(())
}
