//! A token that was verified once, so that the hot path compares numbers and does not parse text.

use leasehold_core::token::{FenceKey, Number, TokenError};
use sha2::{Digest, Sha256};

use crate::admission::PresentedToken;
use crate::fence_id::wall_clock;
use crate::seal_verifier::{SealCheck, SealProof};
use crate::{Error, FenceId, FenceRefusal};

/// A plausible token for one cluster, resource and slot. Every write still checks whether it is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    pub(super) key: FenceKey,
    pub(super) presented: PresentedToken,
    pub(super) seal: Option<TokenSeal>,
}

/// The verification of a seal: with which keys, and for which name. The key of a fence holds 64 bits of the name's hash, which
/// another name can share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenSeal {
    proof: SealProof,
    name: NameDigest,
}

impl TokenSeal {
    pub(super) const fn new(name: NameDigest, proof: SealProof) -> Self {
        Self { proof, name }
    }

    /// Whether it still proves the seal at a fence with this name.
    fn holds(&self, name: &NameDigest, generation: u64) -> bool {
        let ended = self.proof.end_ms.is_some_and(|end| wall_clock().0 >= end);
        self.proof.generation == generation && self.name == *name && !ended
    }
}

/// The SHA-256 of a resource's name.
pub(super) type NameDigest = [u8; 32];

pub(super) fn name_digest(id: &FenceId) -> NameDigest {
    Sha256::digest(id.resource().as_bytes()).into()
}

impl VerifiedToken {
    /// The number of the token.
    pub const fn number(&self) -> Number {
        self.presented.number
    }

    /// The token, if it was verified for this fence. Another fence rejects it as it would reject its text (T6, F4). A fence
    /// with keys rejects it unless the same keys verified it for the whole name (A8).
    pub(super) fn for_fence(
        &self,
        key: &FenceKey,
        name: &NameDigest,
        seals: &SealCheck,
    ) -> Result<PresentedToken, Error> {
        if self.key == *key {
            return match &seals.0 {
                Some(verifier) if !self.seal.is_some_and(|seal| seal.holds(name, verifier.generation())) => {
                    Err(FenceRefusal::NotVerified.into())
                }
                _ => Ok(self.presented),
            };
        }
        let error = if self.key.cluster != key.cluster {
            TokenError::WrongCluster
        } else if self.key.resource != key.resource {
            TokenError::Resource
        } else {
            TokenError::Slot
        };
        Err(FenceRefusal::Token(error).into())
    }
}

/// A token as an argument: its text, or a token verified before.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum TokenInput<'t> {
    /// Parsed and verified at each call.
    Text(&'t str),
    /// Verified before.
    Verified(&'t VerifiedToken),
}

impl<'t, T: AsRef<str> + ?Sized> From<&'t T> for TokenInput<'t> {
    fn from(text: &'t T) -> Self {
        Self::Text(text.as_ref())
    }
}

impl<'t> From<&'t VerifiedToken> for TokenInput<'t> {
    fn from(token: &'t VerifiedToken) -> Self {
        Self::Verified(token)
    }
}
