//! Stamps outside of a server: a stamp for a sealed token that was verified here (A8).
//!
//! PostgreSQL has no Ed25519, so it verifies a stamp of a [`StampKey`], which it computes with its built-in `sha256`. Servers
//! with the key stamp the tokens that they grant.

pub use leasehold_seal::{StampKey, TargetStampKey};

use crate::seal_verifier::SealCheck;
use crate::{Error, FenceId, SealVerifier};

/// Stamps a sealed token of this fence. A token that no key of `verifier` signed for the resource gets no stamp.
pub fn stamp(key: &StampKey, verifier: &SealVerifier, id: &FenceId, token: impl AsRef<str>) -> Result<String, Error> {
    let token = token.as_ref();
    SealCheck::new(verifier).present(id, token)?;
    Ok(key.stamp(token))
}

/// The sealed or plain text of a token that may carry a stamp.
pub(super) fn without_stamp(token: &str) -> &str {
    token.split_once('.').map_or(token, |(text, _)| text)
}
