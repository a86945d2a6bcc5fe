//! A token that was checked once for a place, so that the hot way compares a number and not a text.

use leasehold_core::token::{Guarded, Number, TokenError};

use crate::place::Shown;
use crate::{Error, Refusal};

/// A token that is for one cluster, resource and slot, and believable. Whether it is current is asked at every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    pub(super) guarded: Guarded,
    pub(super) shown: Shown,
}

impl Checked {
    /// Its number.
    pub const fn number(&self) -> Number {
        self.shown.number
    }

    /// The token, if it was checked for this place. For another it is refused as its text would be (T6, F4).
    pub(super) fn at(&self, guarded: &Guarded) -> Result<Shown, Error> {
        if self.guarded == *guarded {
            return Ok(self.shown);
        }
        let why = if self.guarded.cluster != guarded.cluster {
            TokenError::WrongCluster
        } else if self.guarded.resource != guarded.resource {
            TokenError::Resource
        } else {
            TokenError::Slot
        };
        Err(Refusal::Token(why).into())
    }
}

/// What a writer shows: a token's text, or a token that was checked before.
#[derive(Clone, Copy, Debug)]
pub enum Presented<'t> {
    /// Read and checked anew each time.
    Text(&'t str),
    /// Checked before.
    Checked(&'t Checked),
}

impl<'t> From<&'t str> for Presented<'t> {
    fn from(text: &'t str) -> Self {
        Self::Text(text)
    }
}

impl<'t> From<&'t String> for Presented<'t> {
    fn from(text: &'t String) -> Self {
        Self::Text(text)
    }
}

impl<'t> From<&'t Checked> for Presented<'t> {
    fn from(checked: &'t Checked) -> Self {
        Self::Checked(checked)
    }
}
