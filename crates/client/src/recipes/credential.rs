//! Credentials: an issuer signs that a lease is held, and a verifier with the public keys checks it offline.
//!
//! A credential is bound to one lease: it ends before the lease does, names the resource and the audience, and contains the
//! lease's token, which the target's fence compares as usual. It proves what was true when it was signed. Leases that ended early
//! are on the issuer's revocation list, and a verifier without a recent list rejects every credential.

mod claims;
mod error;
mod issuer;
mod keys;
mod mutants;
#[cfg(test)]
mod tests;
mod verifier;

pub use error::CredentialError;
pub use issuer::{CredentialIssuer, CredentialRequest};
pub use keys::{SigningKey, SigningKeys};
pub use verifier::{CredentialVerifier, VerifiedCredential};
