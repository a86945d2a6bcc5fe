//! Secrets that are never printed, wiped when dropped, and compared in constant time (A11).
//!
//! A [`Secret`] has no `Copy`, no `PartialEq`, no `Display` and no serialization; its `Debug` is a placeholder. The core stores only
//! a [`SecretDigest`], so neither the journal nor a backup contains a secret.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// Bytes of a session's secret.
pub const SESSION_SECRET_BYTES: usize = 32;
/// Bytes of a lease's secret.
pub const LEASE_SECRET_BYTES: usize = 16;

/// Proves that a caller opened a session (S2, A6).
pub type SessionSecret = Secret<SESSION_SECRET_BYTES>;
/// Proves that a caller was granted a lease (A6).
pub type LeaseSecret = Secret<LEASE_SECRET_BYTES>;

/// Secret bytes. They are on the heap, so that moving a secret leaves no copy behind.
#[derive(Clone)]
pub struct Secret<const N: usize>(Box<[u8; N]>);

impl<const N: usize> Secret<N> {
    /// A secret from its bytes, which are wiped here. The caller wipes its own copy, if it keeps one.
    pub fn new(mut bytes: [u8; N]) -> Self {
        let mut secret = Self(Box::new([0; N]));
        secret.0.copy_from_slice(&bytes);
        bytes.zeroize();
        secret
    }

    /// A secret from a slice; `None` if the length is wrong.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let mut secret = Self(Box::new([0; N]));
        if bytes.len() != N {
            return None;
        }
        secret.0.copy_from_slice(bytes);
        Some(secret)
    }

    /// Parses lower-case hexadecimal digits; `None` if the text is anything else.
    pub fn parse_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * N {
            return None;
        }
        let mut secret = Self(Box::new([0; N]));
        for (byte, pair) in secret.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(secret)
    }

    /// The bytes, to compute with or to send to the one who owns them.
    pub const fn expose(&self) -> &[u8; N] {
        &self.0
    }

    /// The bytes as lower-case hexadecimal digits, for a header, a body or a file of the one who owns them.
    pub fn expose_hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.0.iter().fold(String::with_capacity(2 * N), |mut text, byte| {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
            text
        })
    }

    /// Whether two secrets are equal. The time depends on their length only.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.as_slice().ct_eq(other.0.as_slice()).into()
    }

    /// The digest that may be stored.
    pub fn digest(&self) -> SecretDigest {
        SecretDigest::of(self.expose())
    }
}

const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A placeholder: a secret must not reach a log.
impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// SHA-256 of a secret. It may be stored; it proves nothing.
#[derive(Clone, Copy, Eq)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// The digest of the bytes of a secret.
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// A digest that was stored.
    pub const fn stored(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, to store them.
    pub const fn bytes(&self) -> [u8; 32] {
        self.0
    }
}

/// The digest of a secret in an array.
impl From<[u8; SESSION_SECRET_BYTES]> for SecretDigest {
    fn from(secret: [u8; SESSION_SECRET_BYTES]) -> Self {
        Self::of(&secret)
    }
}

/// In constant time: a guess must not learn how many bytes of a stored digest it has found.
impl PartialEq for SecretDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// A placeholder.
impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles only if the type does not implement the trait: with the trait, both blanket impls apply and the call is ambiguous.
    macro_rules! assert_not_implemented {
        ($type:ty: $($bound:path),+) => {
            $({
                trait Ambiguous<A> {
                    fn check() {}
                }
                impl<T: ?Sized> Ambiguous<()> for T {}
                struct Implemented;
                impl<T: ?Sized + $bound> Ambiguous<Implemented> for T {}
                <$type as Ambiguous<_>>::check();
            })+
        };
    }

    #[test]
    fn a_secret_is_not_copied_not_displayed_and_not_compared_by_an_operator() {
        assert_not_implemented!(Secret<16>: Copy, PartialEq, std::hash::Hash, fmt::Display, fmt::LowerHex, AsRef<[u8]>);
    }

    #[test]
    fn debug_output_contains_no_secret() {
        let secret = SessionSecret::new([0xab; 32]);
        assert_eq!(format!("{secret:?} {:?}", secret.digest()), "Secret(..) SecretDigest(..)");
    }

    #[test]
    fn secrets_are_equal_if_every_byte_is() {
        let bytes: [u8; 16] = std::array::from_fn(|at| at as u8);
        let secret = LeaseSecret::new(bytes);
        assert!(secret.matches(&LeaseSecret::new(bytes)));
        for at in 0..bytes.len() {
            let mut other = bytes;
            other[at] ^= 0x80;
            assert!(!secret.matches(&LeaseSecret::new(other)), "byte {at} is compared");
        }
        let digest = SecretDigest::of(&bytes);
        for at in 0..32 {
            let mut other = digest.bytes();
            other[at] ^= 1;
            assert_ne!(digest, SecretDigest::stored(other), "byte {at} of the digest is compared");
        }
        assert_eq!(digest, SecretDigest::stored(digest.bytes()));
    }

    #[test]
    fn text_is_parsed_only_in_the_form_in_which_it_is_written() {
        let secret = LeaseSecret::new(std::array::from_fn(|at| 0x11 * at as u8));
        let text = secret.expose_hex();
        assert_eq!(text, "00112233445566778899aabbccddeeff");
        assert!(LeaseSecret::parse_hex(&text).expect("its own text").matches(&secret));
        let odd = &text[1..];
        for bad in ["", "00", odd, &text.to_uppercase(), &format!("{text}00"), &format!("{odd} "), &format!("{odd}é")]
        {
            assert!(LeaseSecret::parse_hex(bad).is_none(), "{bad:?}");
        }
        assert!(LeaseSecret::from_slice(&[1; 15]).is_none() && LeaseSecret::from_slice(&[1; 17]).is_none());
    }
}
