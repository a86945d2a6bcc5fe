//! A token that was verified once, so that the hot path compares numbers and does not parse text.

use leasehold_core::token::{FenceKey, Number, TokenError};

use crate::admission::PresentedToken;
use crate::{Error, FenceRefusal};

/// A plausible token for one cluster, resource and slot. Every write still checks whether it is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    pub(super) key: FenceKey,
    pub(super) presented: PresentedToken,
}

impl VerifiedToken {
    /// The number of the token.
    pub const fn number(&self) -> Number {
        self.presented.number
    }

    /// The token, if it was verified for this fence. Another fence rejects it as it would reject its text (T6, F4).
    pub(super) fn for_key(&self, key: &FenceKey) -> Result<PresentedToken, Error> {
        if self.key == *key {
            return Ok(self.presented);
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
