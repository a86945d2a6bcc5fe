//! The credential recipe: the issuer confirms a token with the server before it signs.

use std::time::{Duration, SystemTime};

use leasehold::Code;
use leasehold::recipes::credential::{
    CredentialError, CredentialIssuer, CredentialRequest, CredentialVerifier, SigningKey, SigningKeys,
};

use crate::client;
use crate::support::Server;

const ISSUER: &str = "https://issuer.example";
const REQUEST: CredentialRequest<'_> = CredentialRequest::new("ledger", "worker", Duration::from_secs(3_600));

#[tokio::test]
async fn a_credential_is_signed_only_for_a_current_token() {
    let server = Server::start();
    let (issuing, worker) = (client(&server, "issuer"), client(&server, "worker"));
    let issuer_lease = issuing.lock("issuers/example").acquire().await.expect("the resource is free");
    let keys = SigningKeys::new(SigningKey::generate("k1").expect("a key"));
    let issuer = CredentialIssuer::new(ISSUER, issuer_lease.handle().clone(), keys)
        .expect("a name")
        .skew(Duration::from_secs(1));
    let lease = worker.lock("jobs/settle").acquire().await.expect("the resource is free");
    let credential =
        issuer.issue_for_token(&issuing, "jobs/settle", &lease.token(), &REQUEST).await.expect("the lease is current");
    let mut verifier =
        CredentialVerifier::new(ISSUER, "ledger", &issuer.jwks()).expect("a key set").skew(Duration::from_secs(1));
    verifier
        .set_revocation_list(&issuer.revocation_list(SystemTime::now()).expect("the lease is held"))
        .expect("the first list is accepted");
    let verified = verifier.verify(&credential, "jobs/settle").expect("the credential is valid");
    assert_eq!((verified.token, verified.subject.as_str()), (lease.token().parsed(), "worker"));
    let (token, number) = (lease.token(), lease.token_number());
    let other = issuer
        .issue_for_token(&issuing, "jobs/other", &token, &REQUEST)
        .await
        .expect_err("the token belongs to another resource");
    assert_eq!(other.code(), Some(Code::TokenInvalid));
    lease.release().await.expect("the lease is held");
    let over =
        issuer.issue_for_token(&issuing, "jobs/settle", &token, &REQUEST).await.expect_err("the lease was released");
    assert_eq!(over.code(), Some(Code::LeaseLost), "{over}");
    // A credential signed earlier is rejected once the next revocation list is published.
    issuer.revoke(number, SystemTime::now()).expect("the lease is held");
    verifier
        .set_revocation_list(&issuer.revocation_list(SystemTime::now()).expect("the lease is held"))
        .expect("a newer list is accepted");
    assert_eq!(verifier.verify(&credential, "jobs/settle"), Err(CredentialError::Revoked));
}
