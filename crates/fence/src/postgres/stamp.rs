//! Stamps: how a database without Ed25519 verifies sealed tokens (A8).
//!
//! A stamp is `HMAC-SHA256(key, sealed text)`, and a stamped token is the sealed text, a dot and the stamp in hexadecimal. The
//! database and whatever makes the stamps share the key; holders have stamped tokens only. PostgreSQL computes the HMAC with its
//! built-in `sha256`, so no extension is needed.

use std::fmt;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::seal_verifier::SealCheck;
use crate::{Error, FenceId, SealVerifier};

/// Length of a key in bytes.
const KEY_BYTES: usize = 32;
/// Length of a block of SHA-256 in bytes.
const BLOCK_BYTES: usize = 64;

/// The key of a database's stamps. Anyone who has it makes tokens that the database accepts: keep it in a file of mode 0600, away
/// from holders. It is not `Copy`, its `Debug` shows the id only, and its memory is wiped.
pub struct StampKey(Zeroizing<[u8; KEY_BYTES]>);

impl StampKey {
    /// Parses the text of a key file: 64 lower-case hexadecimal digits, with or without a newline. Create one with
    /// `openssl rand -hex 32`.
    pub fn from_hex(text: &str) -> Result<Self, Error> {
        const INVALID: Error =
            Error::InvalidArgument("a stamp key has 64 hexadecimal digits; create one with openssl rand -hex 32");
        let digits = text.trim_end_matches('\n').as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return Err(INVALID);
        }
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (hex_digit(pair[0]).ok_or(INVALID)? << 4) | hex_digit(pair[1]).ok_or(INVALID)?;
        }
        Ok(Self(key))
    }

    /// The id of the key, as `leasehold.list_stamp_keys` prints it.
    pub fn id(&self) -> String {
        hex(&Sha256::digest(self.0.as_slice())[..4])
    }

    /// Stamps a sealed token of this fence. A token that no key of `verifier` signed for the resource gets no stamp.
    pub fn stamp(&self, verifier: &SealVerifier, id: &FenceId, token: impl AsRef<str>) -> Result<String, Error> {
        let token = token.as_ref();
        SealCheck::new(verifier).present(id, token)?;
        Ok(format!("{token}.{}", hex(&self.hmac(token.as_bytes()))))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// HMAC-SHA256 (RFC 2104). The key is shorter than a block.
    fn hmac(&self, message: &[u8]) -> [u8; 32] {
        let pad = |constant: u8| {
            let mut block = Zeroizing::new([constant; BLOCK_BYTES]);
            block.iter_mut().zip(self.0.iter()).for_each(|(byte, key)| *byte ^= key);
            block
        };
        let inner = Sha256::new().chain_update(pad(0x36).as_slice()).chain_update(message).finalize();
        Sha256::new().chain_update(pad(0x5C).as_slice()).chain_update(inner).finalize().into()
    }
}

impl fmt::Debug for StampKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StampKey({})", self.id())
    }
}

/// The sealed or plain text of a token that may carry a stamp.
pub(super) fn without_stamp(token: &str) -> &str {
    token.split_once('.').map_or(token, |(text, _)| text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hmac_is_that_of_rfc_4231() {
        // Test case 1. Its key has 20 bytes; HMAC pads a key with zeros, so these 32 bytes are the same key.
        let key = StampKey::from_hex(&format!("{}{}\n", "0b".repeat(20), "00".repeat(12))).expect("a key");
        let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(hex(&key.hmac(b"Hi There")), expected);
    }

    #[test]
    fn a_text_that_is_no_key_is_refused_and_its_debug_form_shows_no_key() {
        for text in ["", "00", &"0".repeat(63), &"0".repeat(65), &"0g".repeat(32), &"AB".repeat(32), &"\n".repeat(64)] {
            assert_eq!(StampKey::from_hex(text).expect_err(text).code(), "INVALID_ARGUMENT");
        }
        let key = StampKey::from_hex(&"ab".repeat(32)).expect("a key");
        assert_eq!(format!("{key:?}"), format!("StampKey({})", key.id()));
        assert!(!format!("{key:?}").contains("abab"));
    }
}
