//! The verifier: offline, with the issuer's public keys and its last list, by its own clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, SystemTime};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use leasehold_core::lease::Rung;
use leasehold_core::name::resource_hash;
use leasehold_core::token::Token;
use serde::de::DeserializeOwned;

use super::claims::{CREDENTIAL, Claims, LIFE_MOST, LIST, List, SKEW, SKEW_MOST, TEXT_BYTES, seconds};
use super::denied::Denied;
use super::faults::{self, Fault};
use crate::Error;

/// How old a list may be, unless said otherwise: a revoked credential is believed for so long at most (K3).
const LIST_AGE: Duration = Duration::from_secs(60);

/// Checks credentials of one issuer for one audience.
#[derive(Clone)]
pub struct Verifier {
    issuer: String,
    audience: String,
    skew: u64,
    list_age: u64,
    keys: BTreeMap<String, DecodingKey>,
    list: Option<List>,
    /// Keys that a list has named: one that a later list leaves out is withdrawn, and signs no list either.
    named: BTreeSet<String>,
}

/// A credential that is believed.
#[derive(Clone, PartialEq, Eq)]
pub struct Verified {
    /// Who held when it was signed.
    pub subject: String,
    /// The lease's token: the target's fence has the last word.
    pub token: Token,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
}

impl Verifier {
    /// A verifier with the issuer's key set. It refuses everything until it has a list.
    pub fn new(issuer: &str, audience: &str, jwks: &str) -> Result<Self, Error> {
        if audience.is_empty() {
            return Err(Error::invalid("audience", "who checks; at least 1 byte"));
        }
        let (issuer, audience) = (issuer.to_owned(), audience.to_owned());
        let (skew, list_age) = (SKEW.as_secs(), LIST_AGE.as_secs());
        let mut verifier =
            Self { issuer, audience, skew, list_age, keys: BTreeMap::new(), list: None, named: BTreeSet::new() };
        verifier.set_keys(jwks)?;
        Ok(verifier)
    }

    /// How far apart the clocks of issuer and verifier may be: the issuer's own figure.
    #[must_use]
    pub fn skew(mut self, skew: Duration) -> Self {
        self.skew = skew.min(SKEW_MOST).as_secs();
        self
    }

    /// How old a list may be before nothing is believed any more.
    #[must_use]
    pub fn list_age(mut self, age: Duration) -> Self {
        self.list_age = age.min(LIFE_MOST).as_secs();
        self
    }

    /// Takes another key set in the place of the one before. Keys of other kinds are left out; a set without one of ours is
    /// refused, and the one before stays.
    pub fn set_keys(&mut self, jwks: &str) -> Result<(), Error> {
        let wrong = |reason: &str| Error::invalid("jwks", reason);
        let set: JwkSet = serde_json::from_str(jwks).map_err(|_| wrong("a JSON web key set"))?;
        let mut keys = BTreeMap::new();
        for jwk in &set.keys {
            let ours = matches!(&jwk.algorithm, AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519);
            let (true, Some(name)) = (ours, &jwk.common.key_id) else { continue };
            let key = DecodingKey::from_jwk(jwk).map_err(|_| wrong("a key that is none"))?;
            if key.try_get_as_bytes().is_ok_and(|bytes| bytes.len() != 32) {
                return Err(wrong("a key of another length than 32 bytes"));
            }
            if keys.insert(name.clone(), key).is_some() {
                return Err(wrong("two keys of one name"));
            }
        }
        if keys.is_empty() {
            return Err(wrong("no Ed25519 key with a name is in it"));
        }
        self.named.retain(|name| keys.contains_key(name));
        self.keys = keys;
        Ok(())
    }

    /// Takes a list. One from before the list that is known is refused.
    pub fn set_list(&mut self, text: &str) -> Result<(), Denied> {
        self.set_list_at(text, SystemTime::now())
    }

    /// The same, by this clock.
    pub fn set_list_at(&mut self, text: &str, now: SystemTime) -> Result<(), Denied> {
        self.load_list(text, now).map(drop)
    }

    pub(super) fn load_list(&mut self, text: &str, now: SystemTime) -> Result<&List, Denied> {
        let list: List = self.open(text, LIST)?;
        if list.iss != self.issuer {
            return Err(Denied::Issuer);
        }
        if list.iat > seconds(now).saturating_add(self.skew) {
            return Err(Denied::NotYet);
        }
        let place = list.place().ok_or_else(|| Denied::Claim("number".to_owned()))?;
        if self.list.as_ref().and_then(List::place).is_some_and(|known| place < known) {
            return Err(Denied::ListBehind);
        }
        self.named.extend(list.keys.iter().filter(|name| self.keys.contains_key(*name)).cloned());
        Ok(self.list.insert(list))
    }

    /// Checks a credential for a resource.
    pub fn verify(&self, text: &str, resource: &str) -> Result<Verified, Denied> {
        self.verify_at(text, resource, SystemTime::now())
    }

    /// The same, by this clock.
    pub fn verify_at(&self, text: &str, resource: &str, now: SystemTime) -> Result<Verified, Denied> {
        let now = seconds(now);
        let age = if faults::on(Fault::OldListBelieved) { u64::MAX } else { self.list_age + self.skew };
        let list = self.list.as_ref().filter(|list| now < list.iat.saturating_add(age));
        let list = list.ok_or(Denied::ListTooOld)?;
        let claims: Claims = self.open(text, CREDENTIAL)?;
        if claims.iss != self.issuer && !faults::on(Fault::IssuerNotCompared) {
            return Err(Denied::Issuer);
        }
        if claims.aud != self.audience && !faults::on(Fault::AudienceNotCompared) {
            return Err(Denied::Audience);
        }
        let token = Token::parse(&claims.token).map_err(|_| Denied::Claim("token".to_owned()))?;
        if claims.number != token.number.get().to_string() {
            return Err(Denied::Claim("number".to_owned()));
        }
        if claims.rung != Rung::Issuer.word() {
            return Err(Denied::Claim("rung".to_owned()));
        }
        let elsewhere = claims.resource != resource || token.resource != resource_hash(resource);
        if elsewhere && !faults::on(Fault::PlaceNotCompared) {
            return Err(Denied::Resource);
        }
        let early = claims.nbf > now.saturating_add(self.skew) || claims.nbf > claims.exp;
        if early && !faults::on(Fault::StartIgnored) {
            return Err(Denied::NotYet);
        }
        // On whole seconds: one that has begun counts as over.
        if now >= claims.exp.saturating_add(self.skew) && !faults::on(Fault::ExpiryForgiven) {
            return Err(Denied::Expired);
        }
        if list.revoked.contains_key(&claims.number) && !faults::on(Fault::RevokedBelieved) {
            return Err(Denied::Revoked);
        }
        Ok(Verified { subject: claims.sub, token, expires: claims.exp })
    }

    /// Opens what a key that is known and not withdrawn has signed as this kind. Times are looked at by the caller, whose
    /// clock it is.
    fn open<T: DeserializeOwned>(&self, text: &str, kind: &str) -> Result<T, Denied> {
        if text.len() > TEXT_BYTES {
            return Err(Denied::Malformed);
        }
        let header = jsonwebtoken::decode_header(text).map_err(|error| match error.kind() {
            ErrorKind::Json(why) if why.to_string().contains("variant") => Denied::Algorithm,
            _ => Denied::Malformed,
        })?;
        if header.alg != Algorithm::EdDSA {
            return Err(Denied::Algorithm);
        }
        if header.typ.as_deref() != Some(kind) || header.crit.is_some() {
            return Err(Denied::Malformed);
        }
        let name = header.kid.ok_or(Denied::Key)?;
        let unnamed = self.list.as_ref().is_some_and(|list| !list.keys.contains(&name));
        // A list may come with a key so new that the last one does not name it; a credential may not.
        let withdrawn = unnamed && (kind == CREDENTIAL || self.named.contains(&name));
        let believed = !withdrawn || faults::on(Fault::WithdrawnBelieved);
        let key = self.keys.get(&name).filter(|_| believed).ok_or(Denied::Key)?;
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        match jsonwebtoken::decode(text, key, &validation) {
            Ok(opened) => Ok(opened.claims),
            Err(error) => Err(match error.into_kind() {
                ErrorKind::InvalidSignature => Denied::Signature,
                ErrorKind::Json(why) => Denied::Claim(claim(&why.to_string())),
                _ => Denied::Malformed,
            }),
        }
    }
}

/// The name of the claim that a message of the reader is about, as far as it says one.
fn claim(why: &str) -> String {
    why.split('`').nth(1).unwrap_or("of some name").to_owned()
}

/// Without the token's text: it must not reach a log.
impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, number) = (&self.subject, self.token.number.get());
        f.debug_struct("Verified").field("subject", subject).field("number", &number).finish_non_exhaustive()
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.keys().collect();
        f.debug_struct("Verifier").field("issuer", &self.issuer).field("keys", &keys).finish_non_exhaustive()
    }
}
