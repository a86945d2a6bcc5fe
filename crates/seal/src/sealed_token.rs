//! Sealed tokens: their text, what is signed, and the verification that every fence shares (A8).

use crate::domain::Domain;
use crate::error::SealError;
use crate::key_set::SealKeys;
use crate::kid::Kid;
use crate::signature::Seal;
use leasehold_core::name::resource_hash;
use leasehold_core::token::{Token, TokenError};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// Where the seal starts in a sealed text, counted from 0.
const SEAL_AT: usize = 77;

/// A token and the seal that was presented with it. Parsing verifies nothing; [`verify`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedToken {
    /// The token.
    pub token: Token,
    /// The seal.
    pub seal: Seal,
}

impl SealedToken {
    /// Parses a sealed text strictly. A plain token is [`SealError::Unsealed`].
    pub fn parse(text: &str) -> Result<Self, SealError> {
        let token = Token::parse(text)?;
        if !text.starts_with("lh2-") {
            return Err(SealError::Unsealed);
        }
        let seal = text.get(SEAL_AT..).ok_or(TokenError::Shape)?.parse::<Seal>()?;
        Ok(Self { token, seal })
    }

    /// The token, if a key of `keys` that has not ended at `now_ms` signed it for the resource `name`.
    pub fn verify_at(&self, keys: &SealKeys, name: &str, now_ms: u64) -> Result<Token, SealError> {
        if self.token.resource != resource_hash(name) {
            return Err(SealError::Token(TokenError::Resource));
        }
        let key = keys.usable(self.seal.kid, now_ms)?;
        key.verify(&token_message(&self.token.sealed_body(), self.seal.kid, name), &self.seal)?;
        Ok(self.token)
    }
}

impl fmt::Display for SealedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.token.sealed_body(), self.seal)
    }
}

impl FromStr for SealedToken {
    type Err = SealError;

    fn from_str(text: &str) -> Result<Self, SealError> {
        Self::parse(text)
    }
}

/// The token in `text`, if one of `keys` signed it for the resource `name` and has not ended by this machine's clock.
pub fn verify(keys: &SealKeys, text: &str, name: &str) -> Result<Token, SealError> {
    verify_at(keys, text, name, crate::wall_ms())
}

/// As [`verify`], at a given wall clock in milliseconds since 1970.
pub fn verify_at(keys: &SealKeys, text: &str, name: &str, now_ms: u64) -> Result<Token, SealError> {
    SealedToken::parse(text)?.verify_at(keys, name, now_ms)
}

/// What a token's seal signs.
pub(crate) fn token_message(body: &str, kid: Kid, name: &str) -> Vec<u8> {
    let digest = Sha256::digest(name.as_bytes());
    Domain::TOKEN.message(&[body.as_bytes(), kid.to_string().as_bytes(), digest.as_slice()])
}
