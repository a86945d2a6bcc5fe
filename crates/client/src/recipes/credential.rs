//! Authority that travels: an issuer signs that a lease is held, and whoever has the public keys can check it offline.
//!
//! A credential is bound to one hold: it ends before its lease does, names the resource and the audience, and carries the
//! lease's token, which the target's fence compares as ever. It proves what was true when it was signed. What ended early
//! is on the issuer's list, and a verifier without a recent list refuses everything.

mod claims;
mod denied;
mod faults;
mod issuer;
mod keys;
#[cfg(test)]
mod tests;
mod verifier;

pub use denied::Denied;
pub use issuer::{Issuer, Wish};
pub use keys::{Key, Keys};
pub use verifier::{Verified, Verifier};
