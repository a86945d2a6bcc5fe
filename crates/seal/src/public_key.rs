//! Public keys: what a verifier knows of a seal key.

use crate::base64url;
use crate::error::{SealError, SealKeyError};
use crate::kid::Kid;
use crate::signature::Seal;
use aws_lc_rs::signature::{ED25519, ParsedPublicKey};
use std::fmt;

/// The public half of a seal key, with its times.
#[derive(Clone)]
pub struct PublicSealKey {
    bytes: [u8; 32],
    parsed: ParsedPublicKey,
    kid: Kid,
    active_ms: u64,
    end_ms: Option<u64>,
}

impl PublicSealKey {
    /// The key with these bytes, which servers sign with from `active_ms` on and verifiers accept until `end_ms`.
    pub fn new(bytes: [u8; 32], active_ms: u64, end_ms: Option<u64>) -> Result<Self, SealKeyError> {
        let field = |field, expected| SealKeyError::Field { field, expected };
        if has_small_order(&bytes) {
            return Err(field("public", "an Ed25519 public key"));
        }
        let parsed = ParsedPublicKey::new(&ED25519, bytes);
        let parsed = parsed.map_err(|_| field("public", "an Ed25519 public key"))?;
        if end_ms.is_some_and(|end| end <= active_ms) {
            return Err(field("end_ms", "later than active_ms"));
        }
        Ok(Self { bytes, parsed, kid: Kid::of(&bytes), active_ms, end_ms })
    }

    /// Its id.
    pub const fn kid(&self) -> Kid {
        self.kid
    }

    /// The 32 public bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The public bytes as base64url, as in a key set.
    pub fn public_text(&self) -> String {
        base64url::encode(&self.bytes)
    }

    /// From when on servers sign with it, in milliseconds since 1970. Verifiers ignore it: clocks differ.
    pub const fn active_ms(&self) -> u64 {
        self.active_ms
    }

    /// Until when its signatures are accepted, in milliseconds since 1970; without an end if `None`.
    pub const fn end_ms(&self) -> Option<u64> {
        self.end_ms
    }

    /// The same key with another end.
    pub fn with_end(mut self, end_ms: Option<u64>) -> Result<Self, SealKeyError> {
        self.end_ms = end_ms;
        Self::new(self.bytes, self.active_ms, self.end_ms)
    }

    /// Whether its signatures are no longer accepted.
    pub fn has_ended(&self, now_ms: u64) -> bool {
        self.end_ms.is_some_and(|end| now_ms >= end)
    }

    /// Whether `seal` is this key's signature of `message`. The provider refuses a signature whose scalar is not reduced,
    /// and compares the other half byte by byte, so a valid signature has one form.
    pub(crate) fn verify(&self, message: &[u8], seal: &Seal) -> Result<(), SealError> {
        self.parsed.verify_sig(message, &seal.signature).map_err(|_| SealError::Signature { kid: self.kid })
    }
}

impl fmt::Debug for PublicSealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kid, active_ms, end_ms, .. } = self;
        write!(f, "PublicSealKey({kid}, active_ms: {active_ms}, end_ms: {end_ms:?})")
    }
}

impl PartialEq for PublicSealKey {
    fn eq(&self, other: &Self) -> bool {
        (self.bytes, self.active_ms, self.end_ms) == (other.bytes, other.active_ms, other.end_ms)
    }
}

impl Eq for PublicSealKey {}

/// Whether these bytes encode one of the eight points of small order, for which one signature fits many messages.
/// Compared without the sign bit; three of the encodings are not canonical.
fn has_small_order(bytes: &[u8; 32]) -> bool {
    let mut masked = *bytes;
    masked[31] &= 0x7F;
    SMALL_ORDER.contains(&masked)
}

const fn low(first: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = first;
    bytes
}

const fn near_p(first: u8) -> [u8; 32] {
    let mut bytes = [0xFF; 32];
    bytes[0] = first;
    bytes[31] = 0x7F;
    bytes
}

const SMALL_ORDER: [[u8; 32]; 7] = [
    low(0),
    low(1),
    [
        0x26, 0xE8, 0x95, 0x8F, 0xC2, 0xB2, 0x27, 0xB0, 0x45, 0xC3, 0xF4, 0x89, 0xF2, 0xEF, 0x98, 0xF0, 0xD5, 0xDF,
        0xAC, 0x05, 0xD3, 0xC6, 0x33, 0x39, 0xB1, 0x38, 0x02, 0x88, 0x6D, 0x53, 0xFC, 0x05,
    ],
    [
        0xC7, 0x17, 0x6A, 0x70, 0x3D, 0x4D, 0xD8, 0x4F, 0xBA, 0x3C, 0x0B, 0x76, 0x0D, 0x10, 0x67, 0x0F, 0x2A, 0x20,
        0x53, 0xFA, 0x2C, 0x39, 0xCC, 0xC6, 0x4E, 0xC7, 0xFD, 0x77, 0x92, 0xAC, 0x03, 0x7A,
    ],
    near_p(0xEC),
    near_p(0xED),
    near_p(0xEE),
];
