//! Signing keys and their life: published, signed with, kept for what they signed, withdrawn.

use std::fmt;
use std::time::SystemTime;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};

use super::claims::seconds;
use super::faults::{self, Fault};
use crate::{Code, Error};

/// Most keys of one issuer at a time.
const MOST: usize = 16;
/// Most bytes of a key's name.
const NAME_BYTES: usize = 64;

/// A signing key with a name. The name is public, the key is not: it is never printed.
#[derive(Clone)]
pub struct Key {
    name: String,
    signing: EncodingKey,
    public: Jwk,
}

impl Key {
    /// A new key.
    pub fn generate(name: &str) -> Result<Self, Error> {
        let unable = |_| Error::new(Code::StorageFailed, "no key could be drawn; the machine gives no randomness");
        let pair = Ed25519KeyPair::generate().map_err(unable)?;
        Self::of(name, pair.to_pkcs8v1().map_err(unable)?.as_ref(), &pair)
    }

    /// A key that was kept, in PKCS #8.
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
        let mut public = Jwk::from_decoding_key(&public, Some(Algorithm::EdDSA)).map_err(Error::garbled)?;
        public.common.key_id = Some(name.to_owned());
        public.common.public_key_use = Some(PublicKeyUse::Signature);
        Ok(Self { name: name.to_owned(), signing: EncodingKey::from_ed_der(der), public })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key itself in PKCS #8, to be kept where secrets are kept.
    pub fn pkcs8(&self) -> &[u8] {
        self.signing.as_bytes()
    }

    pub(super) const fn signing(&self) -> &EncodingKey {
        &self.signing
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The keys of an issuer: one signs, all are published. A rotation is [`Keys::introduce`], then, when every verifier has
/// loaded the new set, [`Keys::sign_with`], then, when nothing that the old key signed is valid any more,
/// [`Keys::withdraw`] (K4).
#[derive(Clone, Debug)]
pub struct Keys {
    published: Vec<Published>,
    signs: usize,
}

#[derive(Clone, Debug)]
struct Published {
    key: Key,
    /// Until when something that it signed may be valid, in seconds since 1970.
    live_until: u64,
}

impl Keys {
    /// One key, which signs.
    pub fn new(key: Key) -> Self {
        Self { published: vec![Published { key, live_until: 0 }], signs: 0 }
    }

    /// Publishes a key that does not sign yet.
    pub fn introduce(&mut self, key: Key) -> Result<(), Error> {
        if self.find(&key.name).is_some() {
            return Err(Error::invalid("key name", "one that no published key has"));
        }
        if self.published.len() >= MOST {
            return Err(Error::invalid("key", format_args!("at most {MOST} at a time; withdraw an old one")));
        }
        self.published.push(Published { key, live_until: 0 });
        Ok(())
    }

    /// Signs with this key from now on. The one before stays published.
    pub fn sign_with(&mut self, name: &str) -> Result<(), Error> {
        self.signs = self.find(name).ok_or_else(unknown)?;
        Ok(())
    }

    /// Withdraws a key. Refused while it signs, and while something that it signed may be valid.
    pub fn withdraw(&mut self, name: &str, now: SystemTime) -> Result<(), Error> {
        let at = self.find(name).ok_or_else(unknown)?;
        let left = self.published[at].live_until.saturating_sub(seconds(now));
        if left > 0 && !faults::on(Fault::WithdrawnTooEarly) {
            return Err(Error::invalid(
                "key",
                format_args!("what it signed is valid for {left} s more; wait, or give it up"),
            ));
        }
        self.give_up(name)
    }

    /// Withdraws a key at once, and everything that it signed with it: for one that was stolen. Refused while it signs.
    pub fn give_up(&mut self, name: &str) -> Result<(), Error> {
        let at = self.find(name).ok_or_else(unknown)?;
        if at == self.signs {
            return Err(Error::invalid("key", "it signs; sign with another one first"));
        }
        self.published.remove(at);
        self.signs -= usize::from(self.signs > at);
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

    /// The key that signs, which now answers for something until then.
    pub(super) fn sign_until(&mut self, until: u64) -> &Key {
        let signs = &mut self.published[self.signs];
        signs.live_until = signs.live_until.max(until);
        &signs.key
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.published.iter().position(|one| one.key.name == name)
    }
}

fn unknown() -> Error {
    Error::invalid("key", "no published key has this name")
}
