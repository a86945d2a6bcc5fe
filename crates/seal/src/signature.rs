//! Seals: a key id and an Ed25519 signature.

use crate::base64url;
use crate::kid::Kid;
use leasehold_core::token::TokenError;
use std::fmt;
use std::str::FromStr;

/// A signature and the id of the key that made it. Its text is the id, `-`, and 86 characters base64url.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// The key.
    pub kid: Kid,
    /// The Ed25519 signature.
    pub signature: [u8; 64],
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.kid, base64url::encode(&self.signature))
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seal({self})")
    }
}

impl FromStr for Seal {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        // The signature may contain dashes; the id may not.
        let (kid, signature) = text.split_once('-').ok_or(TokenError::Shape)?;
        let kid = kid.parse().map_err(|_| TokenError::Shape)?;
        let signature = base64url::decode(signature).ok_or(TokenError::Shape)?;
        Ok(Self { kid, signature })
    }
}
