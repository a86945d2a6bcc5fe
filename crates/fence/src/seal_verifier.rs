//! Verification of sealed tokens at a fence (T8, A8), with a cache: the second check of a text compares bytes only.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::time::WallClock;
use leasehold_core::token::Token;
use leasehold_seal::{SealError, SealKeys, SealedToken};

use crate::admission::{PresentedToken, SealState};
use crate::fence_id::wall_clock;
use crate::{FenceId, FenceRefusal};

/// Number of verified texts that a verifier remembers.
const CACHED_TEXTS: usize = 16;

/// The public keys of a cluster, with which fences verify sealed tokens. Clones share the keys and the cache: one verifier
/// can serve all fences of a process.
///
/// A fence with a verifier refuses every token that none of these keys signed for its resource: a plain token, an unknown or
/// ended key, a changed text. Get the keys with `leasehold keys export` or `GET /v1/keys`.
#[derive(Clone, Debug)]
pub struct SealVerifier(Arc<SharedVerifier>);

#[derive(Debug)]
struct SharedVerifier {
    /// Differs for each set of keys in this process, so that nothing verified with an earlier set counts. Changed under the
    /// lock of the state.
    generation: AtomicU64,
    state: Mutex<VerifierState>,
}

#[derive(Debug)]
struct VerifierState {
    keys: Arc<SealKeys>,
    verified: VecDeque<VerifiedText>,
}

/// A text that was verified with the current keys.
#[derive(Debug)]
struct VerifiedText {
    text: Box<[u8]>,
    name: Box<str>,
    end_ms: Option<u64>,
}

/// What a successful verification proves, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealProof {
    pub(crate) generation: u64,
    /// When the key ends, in milliseconds since 1970.
    pub(crate) end_ms: Option<u64>,
}

impl SealVerifier {
    /// A verifier with these keys. Without any key it refuses every token.
    pub fn new(keys: SealKeys) -> Self {
        let state = Mutex::new(VerifierState { keys: Arc::new(keys), verified: VecDeque::with_capacity(CACHED_TEXTS) });
        Self(Arc::new(SharedVerifier { generation: AtomicU64::new(next_generation()), state }))
    }

    /// Replaces the keys, for all fences that share this verifier: after a rotation, or to withdraw a key at once.
    pub fn replace_keys(&self, keys: SealKeys) {
        let mut state = self.state();
        state.keys = Arc::new(keys);
        state.verified.clear();
        self.0.generation.store(next_generation(), Ordering::Release);
    }

    /// The current keys.
    pub fn keys(&self) -> SealKeys {
        SealKeys::clone(&self.state().keys)
    }

    /// The token in a text, if one of the keys signed it for the resource of this fence and the token is for the fence. For a
    /// fence of your own: verify first, then apply [`admit`](crate::admit) in one step with the write.
    pub fn verify_token(&self, id: &FenceId, text: &str) -> Result<Token, FenceRefusal> {
        SealCheck::new(self).present(id, text)?;
        Ok(Token::parse(text)?)
    }

    /// The number of the current set of keys.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Verifies that a key which has not ended at `now_ms` signed this text for the resource `name`.
    pub(crate) fn verify(&self, text: &str, name: &str, now_ms: u64) -> Result<SealProof, SealError> {
        let (keys, generation) = {
            let state = self.state();
            let known = state.verified.iter().find(|known| known.is(text, name));
            if let Some(end_ms) = known.map(|known| known.end_ms)
                && end_ms.is_none_or(|end| now_ms < end)
            {
                return Ok(SealProof { generation: self.generation(), end_ms });
            }
            (state.keys.clone(), self.generation())
        };
        let sealed = SealedToken::parse(text)?;
        sealed.verify_at(&keys, name, now_ms)?;
        let end_ms = keys.get(sealed.seal.kid).and_then(|key| key.end_ms());
        let mut state = self.state();
        if self.generation() == generation && !state.verified.iter().any(|known| known.is(text, name)) {
            if state.verified.len() == CACHED_TEXTS {
                state.verified.pop_front();
            }
            state.verified.push_back(VerifiedText { text: text.as_bytes().into(), name: name.into(), end_ms });
        }
        Ok(SealProof { generation, end_ms })
    }

    fn state(&self) -> MutexGuard<'_, VerifierState> {
        // No method panics while it changes the state, so a poisoned lock still protects a consistent one.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VerifiedText {
    /// Compares in constant time: how long it takes must not show how much of a guessed signature is right.
    fn is(&self, text: &str, name: &str) -> bool {
        let differing = self.text.iter().zip(text.as_bytes()).fold(0, |differing, (a, b)| differing | (a ^ b));
        self.text.len() == text.len() && differing == 0 && &*self.name == name
    }
}

fn next_generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The verifier of one fence, if it has one. Without it a sealed text means what its first 76 bytes mean.
#[derive(Clone, Debug, Default)]
pub(crate) struct SealCheck(pub(crate) Option<SealVerifier>);

impl SealCheck {
    pub(crate) fn new(verifier: &SealVerifier) -> Self {
        Self(Some(verifier.clone()))
    }

    /// Parses a token and makes all checks that need no mark, with its seal if there are keys.
    pub(crate) fn present(&self, id: &FenceId, text: &str) -> Result<PresentedToken, FenceRefusal> {
        self.present_at(id, text, wall_clock())
    }

    /// Like [`SealCheck::present`], at the given time.
    pub(crate) fn present_at(&self, id: &FenceId, text: &str, now: WallClock) -> Result<PresentedToken, FenceRefusal> {
        let presented = id.parse_token_at(text, now)?;
        self.prove(id, text, now)?;
        let seal = if self.0.is_some() { SealState::Verified } else { presented.seal };
        Ok(PresentedToken { seal, ..presented })
    }

    /// Verifies the seal of a text; `None` without keys.
    pub(crate) fn prove(&self, id: &FenceId, text: &str, now: WallClock) -> Result<Option<SealProof>, FenceRefusal> {
        let Some(verifier) = &self.0 else { return Ok(None) };
        Ok(Some(verifier.verify(text, id.resource(), now.0)?))
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::name::resource_hash;
    use leasehold_core::token::{Cluster, Incarnation, Number, TokenScope};
    use leasehold_seal::SealKey;

    use super::*;

    const NAME: &str = "jobs/settle";

    fn token() -> Token {
        Token {
            cluster: Cluster(*b"testing!"),
            incarnation: Incarnation(7),
            resource: resource_hash(NAME),
            scope: TokenScope::Slot(0),
            number: Number::FIRST,
        }
    }

    fn key() -> SealKey {
        SealKey::generate(0).expect("a key")
    }

    fn verifier(key: &SealKey) -> SealVerifier {
        SealVerifier::new(SealKeys::new([key.public()]).expect("one key"))
    }

    #[test]
    fn a_cached_text_is_refused_once_its_key_has_ended_or_is_replaced() {
        let key = key().with_end(Some(1_000)).expect("an end");
        let (verifier, text) = (verifier(&key), key.seal(&token(), NAME).to_string());
        for _ in 0..2 {
            verifier.verify(&text, NAME, 999).expect("verified");
        }
        assert_eq!(verifier.state().verified.len(), 1);
        assert_eq!(verifier.verify(&text, NAME, 1_000).expect_err("ended").reason(), "ended_key");
        let before = verifier.generation();
        verifier.replace_keys(SealKeys::default());
        assert_ne!(verifier.generation(), before);
        assert_eq!(verifier.verify(&text, NAME, 999).expect_err("withdrawn").reason(), "unknown_key");
    }

    #[test]
    fn a_cached_text_counts_for_its_own_name_only_and_for_no_other_text() {
        let key = key();
        let (verifier, text) = (verifier(&key), key.seal(&token(), NAME).to_string());
        verifier.verify(&text, NAME, 0).expect("verified");
        assert!(verifier.verify(&text, "jobs/other", 0).is_err());
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).expect("still text");
            assert!(verifier.verify(&changed, NAME, 0).is_err(), "changed at {at}");
            assert!(verifier.verify(&text[..at], NAME, 0).is_err(), "truncated at {at}");
        }
    }

    #[test]
    fn the_cache_forgets_the_oldest_text_and_never_grows() {
        let key = key();
        let verifier = verifier(&key);
        for number in 1..=3 * CACHED_TEXTS as u64 {
            let token = Token { number: Number::new(number).expect("a number"), ..token() };
            verifier.verify(&key.seal(&token, NAME).to_string(), NAME, 0).expect("verified");
        }
        assert_eq!(verifier.state().verified.len(), CACHED_TEXTS);
    }
}
