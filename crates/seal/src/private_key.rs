//! Seal keys: the private half, which only servers have.

use crate::domain::Domain;
use crate::error::SealKeyError;
use crate::key_file::{self, PrivateFile};
use crate::kid::Kid;
use crate::public_key::PublicSealKey;
use crate::sealed_token::{SealedToken, token_message};
use crate::signature::Seal;
use aws_lc_rs::encoding::AsBigEndian;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use leasehold_core::token::Token;
use std::fmt;
use zeroize::Zeroizing;

/// A key that seals tokens. Anyone who has it can grant at every fence that accepts it: it stays in files of mode 0600 on the
/// servers. It is not `Copy`, its `Debug` shows the id only, and the provider wipes its memory.
pub struct SealKey {
    pair: Ed25519KeyPair,
    public: PublicSealKey,
    created_ms: u64,
}

impl SealKey {
    /// A new random key, created and active at `now_ms`.
    pub fn generate(now_ms: u64) -> Result<Self, SealKeyError> {
        Self::from_pair(Ed25519KeyPair::generate().map_err(|_| SealKeyError::Provider)?, now_ms, now_ms, None)
    }

    fn from_pair(
        pair: Ed25519KeyPair,
        created_ms: u64,
        active_ms: u64,
        end_ms: Option<u64>,
    ) -> Result<Self, SealKeyError> {
        let bytes = pair.public_key().as_ref().try_into().map_err(|_| SealKeyError::Provider)?;
        Ok(Self { public: PublicSealKey::new(bytes, active_ms, end_ms)?, pair, created_ms })
    }

    /// The same key, which servers sign with from `active_ms` on. A delay lets every fence learn the key first.
    pub fn with_active(self, active_ms: u64) -> Result<Self, SealKeyError> {
        Self::from_pair(self.pair, self.created_ms, active_ms, self.public.end_ms())
    }

    /// The same key, accepted until `end_ms`.
    pub fn with_end(self, end_ms: Option<u64>) -> Result<Self, SealKeyError> {
        Self::from_pair(self.pair, self.created_ms, self.public.active_ms(), end_ms)
    }

    /// Reads a key file. An error never contains what the file holds.
    pub fn from_file_text(text: &str) -> Result<Self, SealKeyError> {
        let file = key_file::read_private(text)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(file.seed.as_slice()).map_err(|_| SealKeyError::Provider)?;
        let key = Self::from_pair(pair, file.created_ms, file.active_ms, file.end_ms)?;
        key_file::check_kid(file.kid, key.kid())?;
        Ok(key)
    }

    /// The text of its key file. Write it with mode 0600.
    pub fn to_file_text(&self) -> Result<Zeroizing<String>, SealKeyError> {
        let seed = self.pair.seed().and_then(|seed| seed.as_be_bytes()).map_err(|_| SealKeyError::Provider)?;
        let seed: &[u8] = seed.as_ref();
        key_file::write_private(&PrivateFile {
            kid: self.kid(),
            created_ms: self.created_ms,
            active_ms: self.public.active_ms(),
            end_ms: self.public.end_ms(),
            seed: Zeroizing::new(seed.try_into().map_err(|_| SealKeyError::Provider)?),
        })
    }

    /// Its id.
    pub const fn kid(&self) -> Kid {
        self.public.kid()
    }

    /// When it was created, in milliseconds since 1970.
    pub const fn created_ms(&self) -> u64 {
        self.created_ms
    }

    /// What verifiers need.
    pub fn public(&self) -> PublicSealKey {
        self.public.clone()
    }

    /// Whether a server signs with it at `now_ms`.
    pub fn is_active(&self, now_ms: u64) -> bool {
        self.public.active_ms() <= now_ms && !self.public.has_ended(now_ms)
    }

    /// Seals `token`, which was granted for the resource `name`.
    pub fn seal(&self, token: &Token, name: &str) -> SealedToken {
        let body = token.sealed_body();
        let signature = self.sign_message(&token_message(&body, self.kid(), name));
        SealedToken { token: *token, seal: Seal { kid: self.kid(), signature } }
    }

    /// Signs bytes of another kind. Verify with [`crate::SealKeys::verify_bytes`] and the same domain.
    pub fn sign_bytes(&self, domain: Domain, bytes: &[u8]) -> Seal {
        Seal { kid: self.kid(), signature: self.sign_message(&domain.message(&[bytes])) }
    }

    fn sign_message(&self, message: &[u8]) -> [u8; 64] {
        self.pair.sign(message).as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKey({})", self.kid())
    }
}
