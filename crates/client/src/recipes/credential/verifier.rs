//! The verifier of credentials: offline, with the issuer's public keys and revocation list, by its own clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, SystemTime};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use leasehold_core::lease::Validity;
use leasehold_core::name::resource_hash;
use leasehold_core::token::Token;
use serde::de::DeserializeOwned;

use super::claims::{
    CREDENTIAL, CredentialClaims, MAX_LIFETIME, MAX_SKEW, REVOCATION_LIST, RevocationList, SKEW, TEXT_BYTES, seconds,
};
use super::error::CredentialError;
use super::mutants::{self, CredentialMutant};
use crate::Error;

/// Default maximum age of a revocation list: how long a revoked credential is accepted at most (K3).
const MAX_LIST_AGE: Duration = Duration::from_secs(60);

/// Verifies credentials of one issuer for one audience.
#[derive(Clone)]
pub struct CredentialVerifier {
    issuer: String,
    audience: String,
    skew: u64,
    max_list_age: u64,
    keys: BTreeMap<String, DecodingKey>,
    list: Option<RevocationList>,
    /// Keys that a list has named: one that a later list omits is withdrawn, and signs no list either.
    listed_keys: BTreeSet<String>,
}

/// A valid credential.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedCredential {
    /// Name of the holder when it was signed.
    pub subject: String,
    /// Token of the lease. The target's fence decides.
    pub token: Token,
    /// Expiry in seconds since 1970.
    pub expires: u64,
}

impl CredentialVerifier {
    /// A verifier with the issuer's key set. It rejects everything until it has a revocation list.
    pub fn new(issuer: &str, audience: &str, jwks: &str) -> Result<Self, Error> {
        if audience.is_empty() {
            return Err(Error::invalid("audience", "must not be empty"));
        }
        let (issuer, audience) = (issuer.to_owned(), audience.to_owned());
        let (skew, max_list_age) = (SKEW.as_secs(), MAX_LIST_AGE.as_secs());
        let mut verifier = Self {
            issuer,
            audience,
            skew,
            max_list_age,
            keys: BTreeMap::new(),
            list: None,
            listed_keys: BTreeSet::new(),
        };
        verifier.set_keys(jwks)?;
        Ok(verifier)
    }

    /// Largest difference between the clocks of issuer and verifier: the same value as at the issuer.
    #[must_use]
    pub fn skew(mut self, skew: Duration) -> Self {
        self.skew = skew.min(MAX_SKEW).as_secs();
        self
    }

    /// Maximum age of the revocation list; with an older one every credential is rejected. Default: 60 s.
    #[must_use]
    pub fn max_list_age(mut self, age: Duration) -> Self {
        self.max_list_age = age.min(MAX_LIFETIME).as_secs();
        self
    }

    /// Replaces the key set. Ignores keys of other types. A set without a usable key is rejected, and the previous one stays.
    pub fn set_keys(&mut self, jwks: &str) -> Result<(), Error> {
        let invalid = |reason: &str| Error::invalid("jwks", reason);
        let set: JwkSet = serde_json::from_str(jwks).map_err(|_| invalid("not a JSON web key set"))?;
        let mut keys = BTreeMap::new();
        for jwk in &set.keys {
            let usable = matches!(&jwk.algorithm, AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519);
            let (true, Some(name)) = (usable, &jwk.common.key_id) else { continue };
            let key = DecodingKey::from_jwk(jwk).map_err(|_| invalid("contains an invalid key"))?;
            if key.try_get_as_bytes().is_ok_and(|bytes| bytes.len() != 32) {
                return Err(invalid("contains a key whose length is not 32 bytes"));
            }
            if keys.insert(name.clone(), key).is_some() {
                return Err(invalid("contains two keys with the same name"));
            }
        }
        if keys.is_empty() {
            return Err(invalid("contains no named Ed25519 key"));
        }
        self.listed_keys.retain(|name| keys.contains_key(name));
        self.keys = keys;
        Ok(())
    }

    /// Loads a revocation list. A list that is older than the known one is rejected.
    pub fn set_revocation_list(&mut self, text: &str) -> Result<(), CredentialError> {
        self.set_revocation_list_at(text, SystemTime::now())
    }

    /// Loads a revocation list at the given time.
    pub fn set_revocation_list_at(&mut self, text: &str, now: SystemTime) -> Result<(), CredentialError> {
        self.load_revocation_list(text, now).map(drop)
    }

    pub(super) fn load_revocation_list(
        &mut self,
        text: &str,
        now: SystemTime,
    ) -> Result<&RevocationList, CredentialError> {
        let list: RevocationList = self.open(text, REVOCATION_LIST)?;
        if list.iss != self.issuer {
            return Err(CredentialError::Issuer);
        }
        if list.iat > seconds(now).saturating_add(self.skew) {
            return Err(CredentialError::NotYet);
        }
        let position = list.position().ok_or_else(|| CredentialError::Claim("number".to_owned()))?;
        if self.list.as_ref().and_then(RevocationList::position).is_some_and(|known| position < known) {
            return Err(CredentialError::ListBehind);
        }
        self.listed_keys.extend(list.keys.iter().filter(|name| self.keys.contains_key(*name)).cloned());
        Ok(self.list.insert(list))
    }

    /// Verifies a credential for a resource.
    pub fn verify(&self, text: &str, resource: &str) -> Result<VerifiedCredential, CredentialError> {
        self.verify_at(text, resource, SystemTime::now())
    }

    /// Verifies a credential at the given time.
    pub fn verify_at(
        &self,
        text: &str,
        resource: &str,
        now: SystemTime,
    ) -> Result<VerifiedCredential, CredentialError> {
        let now = seconds(now);
        let age = if mutants::on(CredentialMutant::OldListAccepted) { u64::MAX } else { self.max_list_age + self.skew };
        let list = self.list.as_ref().filter(|list| now < list.iat.saturating_add(age));
        let list = list.ok_or(CredentialError::ListTooOld)?;
        let claims: CredentialClaims = self.open(text, CREDENTIAL)?;
        if claims.iss != self.issuer && !mutants::on(CredentialMutant::IssuerNotCompared) {
            return Err(CredentialError::Issuer);
        }
        if claims.aud != self.audience && !mutants::on(CredentialMutant::AudienceNotCompared) {
            return Err(CredentialError::Audience);
        }
        let token = Token::parse(&claims.token).map_err(|_| CredentialError::Claim("token".to_owned()))?;
        if claims.number != token.number.get().to_string() {
            return Err(CredentialError::Claim("number".to_owned()));
        }
        if claims.validity != Validity::Issuer.word() {
            return Err(CredentialError::Claim("validity".to_owned()));
        }
        let other_resource = claims.resource != resource || token.resource != resource_hash(resource);
        if other_resource && !mutants::on(CredentialMutant::ResourceNotCompared) {
            return Err(CredentialError::Resource);
        }
        let early = claims.nbf > now.saturating_add(self.skew) || claims.nbf > claims.exp;
        if early && !mutants::on(CredentialMutant::StartIgnored) {
            return Err(CredentialError::NotYet);
        }
        // In whole seconds: a second that has started counts as passed.
        if now >= claims.exp.saturating_add(self.skew) && !mutants::on(CredentialMutant::ExpiryIgnored) {
            return Err(CredentialError::Expired);
        }
        if list.revoked.contains_key(&claims.number) && !mutants::on(CredentialMutant::RevokedAccepted) {
            return Err(CredentialError::Revoked);
        }
        Ok(VerifiedCredential { subject: claims.sub, token, expires: claims.exp })
    }

    /// Decodes a text of this type, signed with a known key that is not withdrawn. The caller checks the times.
    fn open<T: DeserializeOwned>(&self, text: &str, kind: &str) -> Result<T, CredentialError> {
        if text.len() > TEXT_BYTES {
            return Err(CredentialError::Malformed);
        }
        let header = jsonwebtoken::decode_header(text).map_err(|error| match error.kind() {
            ErrorKind::Json(error) if error.to_string().contains("variant") => CredentialError::Algorithm,
            _ => CredentialError::Malformed,
        })?;
        if header.alg != Algorithm::EdDSA {
            return Err(CredentialError::Algorithm);
        }
        if header.typ.as_deref() != Some(kind) || header.crit.is_some() {
            return Err(CredentialError::Malformed);
        }
        let name = header.kid.ok_or(CredentialError::Key)?;
        let unlisted = self.list.as_ref().is_some_and(|list| !list.keys.contains(&name));
        // A list may be signed with a key that is too new for the previous list; a credential may not.
        let withdrawn = unlisted && (kind == CREDENTIAL || self.listed_keys.contains(&name));
        let accepted = !withdrawn || mutants::on(CredentialMutant::WithdrawnAccepted);
        let key = self.keys.get(&name).filter(|_| accepted).ok_or(CredentialError::Key)?;
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        match jsonwebtoken::decode(text, key, &validation) {
            Ok(opened) => Ok(opened.claims),
            Err(error) => Err(match error.into_kind() {
                ErrorKind::InvalidSignature => CredentialError::Signature,
                ErrorKind::Json(error) => CredentialError::Claim(claim_name(&error.to_string())),
                _ => CredentialError::Malformed,
            }),
        }
    }
}

/// Name of the claim in a message of the JSON decoder.
fn claim_name(message: &str) -> String {
    message.split('`').nth(1).unwrap_or("(unknown)").to_owned()
}

/// Omits the token's text, which must not reach a log.
impl fmt::Debug for VerifiedCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, number) = (&self.subject, self.token.number.get());
        f.debug_struct("VerifiedCredential").field("subject", subject).field("number", &number).finish_non_exhaustive()
    }
}

impl fmt::Debug for CredentialVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.keys().collect();
        f.debug_struct("CredentialVerifier").field("issuer", &self.issuer).field("keys", &keys).finish_non_exhaustive()
    }
}
