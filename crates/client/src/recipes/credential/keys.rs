//! Signing keys and their rotation: publish, sign with, withdraw.

use std::fmt;
use std::time::SystemTime;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};

use super::claims::seconds;
use super::mutants::{self, CredentialMutant};
use crate::{Code, Error};

/// Limit on the keys of one issuer.
const MAX_KEYS: usize = 16;
/// Limit on the length of a key's name.
const NAME_BYTES: usize = 64;

/// A signing key with a public name. `Debug` does not print the key.
#[derive(Clone)]
pub struct SigningKey {
    name: String,
    signing: EncodingKey,
    public: Jwk,
}

impl SigningKey {
    /// Generates a key.
    pub fn generate(name: &str) -> Result<Self, Error> {
        let failed =
            |_| Error::new(Code::StorageFailed, "cannot generate a key: no randomness from the operating system");
        let pair = Ed25519KeyPair::generate().map_err(failed)?;
        Self::of(name, pair.to_pkcs8v1().map_err(failed)?.as_ref(), &pair)
    }

    /// A stored key in PKCS #8.
    pub fn from_pkcs8(name: &str, der: &[u8]) -> Result<Self, Error> {
        let pair = Ed25519KeyPair::from_pkcs8(der).map_err(|_| Error::invalid("key", "an Ed25519 key in PKCS #8"))?;
        Self::of(name, der, &pair)
    }

    fn of(name: &str, der: &[u8], pair: &Ed25519KeyPair) -> Result<Self, Error> {
        let fits = (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !fits {
            return Err(Error::invalid("key name", format_args!("1 to {NAME_BYTES} visible ASCII characters")));
        }
        let public = DecodingKey::from_ed_der(pair.public_key().as_ref());
        let mut public = Jwk::from_decoding_key(&public, Some(Algorithm::EdDSA)).map_err(Error::invalid_reply)?;
        public.common.key_id = Some(name.to_owned());
        public.common.public_key_use = Some(PublicKeyUse::Signature);
        Ok(Self { name: name.to_owned(), signing: EncodingKey::from_ed_der(der), public })
    }

    /// Name of the key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The private key in PKCS #8. Store it as a secret.
    pub fn pkcs8(&self) -> &[u8] {
        self.signing.as_bytes()
    }

    pub(super) const fn signing(&self) -> &EncodingKey {
        &self.signing
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The keys of an issuer: one signs, all are published (K4).
///
/// To rotate: [`publish`](Self::publish) the new key; when every verifier has loaded it, [`sign_with`](Self::sign_with) it; when
/// nothing that the old key signed is valid any more, [`withdraw`](Self::withdraw) the old key.
#[derive(Clone, Debug)]
pub struct SigningKeys {
    published: Vec<PublishedKey>,
    /// Index of the key that signs.
    active: usize,
}

#[derive(Clone, Debug)]
struct PublishedKey {
    key: SigningKey,
    /// Until when a text that it signed may be valid, in seconds since 1970.
    live_until: u64,
}

impl SigningKeys {
    /// One key, which signs.
    pub fn new(key: SigningKey) -> Self {
        Self { published: vec![PublishedKey { key, live_until: 0 }], active: 0 }
    }

    /// Publishes a key that does not sign yet.
    pub fn publish(&mut self, key: SigningKey) -> Result<(), Error> {
        if self.find(&key.name).is_some() {
            return Err(Error::invalid("key name", "already in use by a published key"));
        }
        if self.published.len() >= MAX_KEYS {
            return Err(Error::invalid("key", format_args!("at most {MAX_KEYS} at a time; withdraw an old one")));
        }
        self.published.push(PublishedKey { key, live_until: 0 });
        Ok(())
    }

    /// Signs with this key from now on. The previous key stays published.
    pub fn sign_with(&mut self, name: &str) -> Result<(), Error> {
        self.active = self.find(name).ok_or_else(unknown_key)?;
        Ok(())
    }

    /// Withdraws a key. Fails while it signs, and while a text that it signed may be valid.
    pub fn withdraw(&mut self, name: &str, now: SystemTime) -> Result<(), Error> {
        let index = self.find(name).ok_or_else(unknown_key)?;
        let remaining = self.published[index].live_until.saturating_sub(seconds(now));
        if remaining > 0 && !mutants::on(CredentialMutant::WithdrawnTooEarly) {
            return Err(Error::invalid(
                "key",
                format_args!("a credential that it signed is valid for {remaining} s more; wait, or revoke the key"),
            ));
        }
        self.revoke(name)
    }

    /// Withdraws a key immediately, which invalidates everything that it signed: for a stolen key. Fails while it signs.
    pub fn revoke(&mut self, name: &str) -> Result<(), Error> {
        let index = self.find(name).ok_or_else(unknown_key)?;
        if index == self.active {
            return Err(Error::invalid("key", "it is the signing key; sign with another one first"));
        }
        self.published.remove(index);
        self.active -= usize::from(self.active > index);
        Ok(())
    }

    /// The public keys as a JSON web key set.
    pub fn jwks(&self) -> String {
        let set = JwkSet { keys: self.published.iter().map(|one| one.key.public.clone()).collect() };
        serde_json::to_string(&set).expect("a key set is plain JSON")
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.published.iter().map(|one| one.key.name.clone()).collect()
    }

    /// The signing key, for a text that is valid until then.
    pub(super) fn sign_until(&mut self, until: u64) -> &SigningKey {
        let active = &mut self.published[self.active];
        active.live_until = active.live_until.max(until);
        &active.key
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.published.iter().position(|one| one.key.name == name)
    }
}

fn unknown_key() -> Error {
    Error::invalid("key", "no published key has this name")
}
