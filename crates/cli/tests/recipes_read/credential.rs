//! Credentials for what another process holds: the grantor is asked before anything is signed.

use std::time::{Duration, SystemTime};

use leasehold::Code;
use leasehold::recipes::credential::{Denied, Issuer, Key, Keys, Verifier, Wish};

use crate::client;
use crate::support::Server;

const ISSUER: &str = "https://issuer.example";
const WISH: Wish<'_> = Wish { audience: "ledger", subject: "worker", life: Duration::from_secs(3_600) };

#[tokio::test]
async fn a_credential_is_signed_for_a_token_that_is_current_and_for_no_other() {
    let server = Server::start();
    let (office, worker) = (client(&server, "office"), client(&server, "worker"));
    let desk = office.lock("issuers/example").acquire().await.expect("it is free");
    let keys = Keys::new(Key::generate("k1").expect("a key"));
    let issuer = Issuer::new(ISSUER, desk.hold().clone(), keys).expect("a name").skew(Duration::from_secs(1));
    let lease = worker.lock("jobs/settle").acquire().await.expect("it is free");
    let credential =
        issuer.for_token(&office, "jobs/settle", &lease.token(), &WISH).await.expect("the lease is current");
    let mut verifier = Verifier::new(ISSUER, "ledger", &issuer.jwks()).expect("a key set").skew(Duration::from_secs(1));
    verifier.set_list(&issuer.list(SystemTime::now()).expect("it holds")).expect("it is the first");
    let verified = verifier.verify(&credential, "jobs/settle").expect("it is fresh");
    assert_eq!((verified.token.to_string(), verified.subject.as_str()), (lease.token(), "worker"));
    let (token, number) = (lease.token(), lease.token_number());
    let other = issuer.for_token(&office, "jobs/other", &token, &WISH).await.expect_err("another resource's");
    assert_eq!(other.code(), Some(Code::TokenInvalid));
    lease.release().await.expect("it is held");
    let over = issuer.for_token(&office, "jobs/settle", &token, &WISH).await.expect_err("it was given back");
    assert_eq!(over.code(), Some(Code::LeaseLost), "{over}");
    // What was signed before is refused when the next list is there.
    issuer.revoke(number, SystemTime::now()).expect("it holds");
    verifier.set_list(&issuer.list(SystemTime::now()).expect("it holds")).expect("it is the newest");
    assert_eq!(verifier.verify(&credential, "jobs/settle"), Err(Denied::Revoked));
}
