//! The public keys of a cluster: what a fence needs to verify sealed tokens.

use crate::domain::Domain;
use crate::error::{SealError, SealKeyError};
use crate::key_file;
use crate::kid::Kid;
use crate::public_key::PublicSealKey;
use crate::signature::Seal;
use std::collections::BTreeMap;

/// Most keys in one set. A rotation needs two.
pub const MAX_KEYS: usize = 64;

/// Public seal keys by id. An unknown id is a refusal, never a reason to skip the check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealKeys(BTreeMap<Kid, PublicSealKey>);

impl SealKeys {
    /// A set of these keys.
    pub fn new(keys: impl IntoIterator<Item = PublicSealKey>) -> Result<Self, SealKeyError> {
        let mut set = BTreeMap::new();
        for key in keys {
            let kid = key.kid();
            if set.insert(kid, key).is_some() {
                return Err(SealKeyError::Duplicate { kid });
            }
        }
        if set.len() > MAX_KEYS {
            return Err(SealKeyError::TooMany { have: set.len(), max: MAX_KEYS });
        }
        Ok(Self(set))
    }

    /// Parses the JSON text of a set: what `leasehold keys export` and `GET /v1/keys` print.
    pub fn from_json(text: &str) -> Result<Self, SealKeyError> {
        Self::new(key_file::read_public(text)?)
    }

    /// The JSON text of the set, in the order of the ids, with a newline at its end.
    pub fn to_json(&self) -> String {
        key_file::write_public(self.0.values())
    }

    /// The key with this id.
    pub fn get(&self, kid: Kid) -> Option<&PublicSealKey> {
        self.0.get(&kid)
    }

    /// All keys, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &PublicSealKey> {
        self.0.values()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks that `seal` is the signature of `bytes` in `domain` by a key that has not ended at `now_ms`: the present for
    /// a statement about now, the time of the statement for a record of the past.
    pub fn verify_bytes(&self, domain: Domain, bytes: &[u8], seal: &Seal, now_ms: u64) -> Result<(), SealError> {
        self.usable(seal.kid, now_ms)?.verify(&domain.message(&[bytes]), seal)
    }

    pub(crate) fn usable(&self, kid: Kid, now_ms: u64) -> Result<&PublicSealKey, SealError> {
        let key = self.0.get(&kid).ok_or(SealError::UnknownKey { kid })?;
        match key.end_ms() {
            Some(end_ms) if key.has_ended(now_ms) => Err(SealError::EndedKey { kid, end_ms }),
            _ => Ok(key),
        }
    }
}
