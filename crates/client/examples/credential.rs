//! An issuer that signs credentials for holders, and a verifier that needs neither of them nor the server.
//!
//! `cargo run -p leasehold --features credential --example credential [-- SECONDS]` acquires a lease, issues a credential for it,
//! verifies it every second as a target would, and revokes it half-way. The environment variable LEASEHOLD_ADDR names the server.

use std::time::{Duration, SystemTime};

use leasehold::Client;
use leasehold::recipes::credential::{
    CredentialIssuer, CredentialRequest, CredentialVerifier, SigningKey, SigningKeys,
};

const ISSUER: &str = "https://issuer.example";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(10), |text| text.parse())?;
    let (issuing, worker) = (Client::new(&address)?, Client::new(&address)?);

    // The issuer's own lease makes it the only issuer.
    let issuer_lease = issuing.lock("issuers/demo").acquire().await?;
    let keys = SigningKeys::new(SigningKey::generate("2026-1")?);
    let issuer = CredentialIssuer::new(ISSUER, issuer_lease.handle().clone(), keys)?.skew(Duration::from_secs(1));
    println!("keys: {}", issuer.jwks());

    // The holder presents its token, and the issuer checks it with the grantor.
    let lease = worker.lock("jobs/demo").acquire().await?;
    let request = CredentialRequest::new("ledger", "worker", Duration::from_secs(3_600));
    let credential = issuer.issue_for_token(&issuing, "jobs/demo", &lease.token(), &request).await?;
    println!("requested one hour, under a lease of 30 seconds: {} bytes", credential.len());

    // The verifier has the keys and a revocation list, and sends no request.
    let mut verifier = CredentialVerifier::new(ISSUER, "ledger", &issuer.jwks())?.skew(Duration::from_secs(1));
    for second in 0..seconds {
        if second == seconds / 2 {
            issuer.revoke(lease.token_number(), SystemTime::now())?;
            println!("revoked; the next list contains it");
        }
        verifier.set_revocation_list(&issuer.revocation_list(SystemTime::now())?)?;
        match verifier.verify(&credential, "jobs/demo") {
            Ok(verified) => println!("{second} s: valid, token number {}", verified.token.number.get()),
            Err(error) => println!("{second} s: {error}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    lease.release().await?;
    issuer_lease.release().await?;
    Ok(())
}
