//! The sealer of a server: signs the tokens of replies, and proves the tokens of requests.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use leasehold_core::token::Token;
use leasehold_seal::{Domain, Seal, SealError, SealKeys, verify, wall_ms};
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{TokenIssuer, v1};

use super::key_ring::{KeyRingError, SealKeyRing};
use crate::audit::HeadSigner;
use crate::request::{DurableReply, RequestPayload, StampTargets};

/// Signs and proves tokens with the keys of a directory. Without a key it prints plain tokens and proves none.
#[derive(Debug, Default)]
pub struct TokenSealer {
    directory: Option<PathBuf>,
    ring: RwLock<Arc<SealKeyRing>>,
}

impl TokenSealer {
    /// A sealer with the keys of a directory. Keys of which none is active are refused, because sealed fences would refuse every token.
    pub fn open(directory: PathBuf) -> Result<Self, KeyRingError> {
        let ring = SealKeyRing::load(&directory)?;
        ring.require_active(&directory, wall_ms())?;
        Ok(Self { directory: Some(directory), ring: RwLock::new(Arc::new(ring)) })
    }

    /// Reads the keys again. Returns whether they changed; a directory that cannot be read changes nothing.
    pub fn reload(&self) -> Result<bool, KeyRingError> {
        let Some(directory) = &self.directory else { return Ok(false) };
        let new = SealKeyRing::load(directory)?;
        new.require_active(directory, wall_ms())?;
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        let changed = !ring.has_same_keys(&new);
        *ring = Arc::new(new);
        Ok(changed)
    }

    /// The keys in effect.
    pub fn ring(&self) -> Arc<SealKeyRing> {
        // A thread that panicked while it held the lock left one set of keys or the other.
        self.ring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The text of a token that was granted for a resource: sealed, if a key is active.
    pub fn text(&self, token: &Token, resource: &str) -> String {
        match self.ring().signing_key(wall_ms()) {
            Some(key) => key.seal(token, resource).to_string(),
            None => token.to_string(),
        }
    }

    /// Whether a key of this cluster sealed this text for this resource.
    pub fn proves(&self, text: &str, resource: &str) -> bool {
        !resource.is_empty() && verify(self.ring().public(), text, resource).is_ok()
    }

    /// Why no key of this cluster sealed this text for this resource. A plain text has no seal that could be wrong: a lease that was
    /// granted before the first key has no other. Without a key nothing is verified.
    pub fn broken_seal(&self, text: &str, resource: &str) -> Option<SealError> {
        let ring = self.ring();
        let refused = verify(ring.public(), text, resource).err().filter(|_| !ring.keys().is_empty());
        refused.filter(|error| *error != SealError::Unsealed)
    }

    /// Replaces the plain texts of an encoded answer, and adds the text of a token that the request raised.
    pub fn seal_answer(&self, answer: &mut Answer, reply: &DurableReply, issuer: &TokenIssuer) {
        if let (Answer::Current(current), Some(raised)) =
            (&mut *answer, reply.tokens.as_ref().and_then(|tokens| tokens.raised.as_ref()))
        {
            current.token = self.text(&raised.token, &raised.resource);
        }
        if self.ring().keys().is_empty() {
            return;
        }
        match answer {
            Answer::Granted(grant) => self.seal_grant(grant),
            Answer::GrantedAll(all) => all.grants.iter_mut().for_each(|grant| self.seal_grant(grant)),
            Answer::Delivery(delivery) => self.seal_deliveries(delivery, &reply.body, issuer),
            _ => {}
        }
        if let Some(tokens) = &reply.tokens {
            self.stamp_answer(answer, &tokens.stamp_targets);
        }
    }

    /// Adds the stamped texts of tokens for the targets that the charters of their resources declare (A8).
    fn stamp_answer(&self, answer: &mut Answer, targets: &[StampTargets]) {
        for of in targets {
            let to = match answer {
                Answer::Granted(grant) => &mut grant.stamped_tokens,
                Answer::GrantedAll(all) => {
                    let number = of.token.number.get();
                    match all.grants.iter_mut().find(|grant| grant.token_number == number) {
                        Some(grant) => &mut grant.stamped_tokens,
                        None => continue,
                    }
                }
                Answer::Current(current) => &mut current.stamped_tokens,
                _ => return,
            };
            *to = self.stamped(of);
        }
    }

    fn stamped(&self, of: &StampTargets) -> Vec<v1::StampedToken> {
        let (ring, now) = (self.ring(), wall_ms());
        let Some(sealed) = ring.signing_key(now).map(|key| key.seal(&of.token, &of.resource).to_string()) else {
            return Vec::new();
        };
        let stamped = of.targets.iter().filter_map(|target| {
            let key = ring.stamp_key(target, &of.resource, now)?;
            Some(v1::StampedToken { target: target.to_string(), token: key.key.stamp(&sealed) })
        });
        stamped.collect()
    }

    /// Whether there is a stamp key, so that the targets of a lease matter.
    pub fn stamps(&self) -> bool {
        !self.ring().stamp_keys().is_empty()
    }

    fn seal_grant(&self, grant: &mut v1::Grant) {
        if let Ok(token) = Token::parse(&grant.token) {
            grant.token = self.text(&token, &grant.resource);
        }
    }

    fn seal_deliveries(&self, delivery: &mut v1::DeliveryAnswer, body: &RequestPayload, issuer: &TokenIssuer) {
        use v1::delivery_answer::Answer::Received;
        let Some(queue) = body.queue() else { return };
        let Some(Received(received)) = &mut delivery.answer else { return };
        for one in &mut received.deliveries {
            let resource = leasehold_wire::delivery_resource(queue, one.item);
            if let Some(token) = leasehold_wire::delivery_token(issuer, &resource, one.receipt) {
                one.token = self.text(&token, &resource);
            }
        }
    }

    /// The public keys as a message.
    pub fn key_set(&self) -> v1::SealKeySet {
        key_set(self.ring().public())
    }
}

fn key_set(keys: &SealKeys) -> v1::SealKeySet {
    let key = |key: &leasehold_seal::PublicSealKey| v1::PublicSealKey {
        kid: key.kid().to_string(),
        public: key.public_text(),
        active_ms: key.active_ms(),
        end_ms: key.end_ms(),
    };
    v1::SealKeySet { keys: keys.iter().map(key).collect() }
}

impl HeadSigner for TokenSealer {
    fn sign(&self, domain: Domain, bytes: &[u8]) -> Option<Seal> {
        self.ring().signing_key(wall_ms()).map(|key| key.sign_bytes(domain, bytes))
    }

    fn keys(&self) -> SealKeys {
        self.ring().public().clone()
    }
}
