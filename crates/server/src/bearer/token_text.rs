//! The text of an own bearer token: `lhb1_ID_SECRET_CHECK`.
//!
//! The prefix and the fixed length let secret scanners find a token that leaked; the check lets them, and this server, skip a text
//! that was cut or mistyped. The secret has 256 random bits, so a digest of the text reveals nothing, and a plain SHA-256 is enough.

use sha2::{Digest, Sha256};

use super::error::BearerError;
use crate::random;

const PREFIX: &str = "lhb1_";
/// Hexadecimal digits of the id.
pub(super) const ID_DIGITS: usize = 12;
/// Characters of 32 bytes in base64url without padding.
const SECRET_CHARS: usize = 43;
/// Hexadecimal digits of the CRC-32 of everything before.
const CHECK_DIGITS: usize = 8;
const LENGTH: usize = PREFIX.len() + ID_DIGITS + 1 + SECRET_CHARS + 1 + CHECK_DIGITS;

/// A new token. Its text exists only here: the file keeps the digest.
pub struct NewToken {
    /// Names the token in the file, in logs and in audit entries; not secret.
    pub id: String,
    /// The token itself.
    pub text: String,
    /// SHA-256 of the text.
    pub digest: [u8; 32],
}

impl NewToken {
    /// A token of random bytes.
    pub fn generate() -> Self {
        Self::from_bytes(random::bytes(), random::bytes())
    }

    fn from_bytes(id: [u8; ID_DIGITS / 2], secret: [u8; 32]) -> Self {
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let body = format!("{PREFIX}{id}_{}_", base64url(&secret));
        let text = format!("{body}{:08x}", crc32fast::hash(&body.as_bytes()[..body.len() - 1]));
        let digest = Sha256::digest(&text).into();
        Self { id, text, digest }
    }
}

/// A presented text whose form is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParsedToken<'a> {
    pub id: &'a str,
    pub digest: [u8; 32],
}

/// Whether a text is meant as an own token.
pub fn is_own(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Takes a text apart, by position: the secret may contain `_` itself.
pub(super) fn parse(text: &str) -> Result<ParsedToken<'_>, BearerError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !is_own(text) || text.len() != LENGTH || !text.bytes().all(plain) {
        return Err(BearerError::Malformed);
    }
    let (body, check) = text.split_at(LENGTH - CHECK_DIGITS);
    let id = &text[PREFIX.len()..][..ID_DIGITS];
    if !is_id(id) || !body.ends_with('_') || text.as_bytes()[PREFIX.len() + ID_DIGITS] != b'_' {
        return Err(BearerError::Malformed);
    }
    if format!("{:08x}", crc32fast::hash(&body.as_bytes()[..body.len() - 1])) != check {
        return Err(BearerError::Checksum);
    }
    Ok(ParsedToken { id, digest: Sha256::digest(text).into() })
}

/// Whether a text can be the id of a token.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Bytes in base64url without padding.
fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(group >> (18 - 6 * at)) as usize & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_is_parsed_back_to_its_id_and_digest() {
        for secret in [[0; 32], [0xff; 32], random::bytes()] {
            let token = NewToken::from_bytes([1, 2, 0xab, 0xcd, 0xef, 0], secret);
            assert_eq!((token.text.len(), token.id.as_str()), (LENGTH, "0102abcdef00"));
            assert_eq!(parse(&token.text), Ok(ParsedToken { id: "0102abcdef00", digest: token.digest }));
        }
        let (one, other) = (NewToken::generate(), NewToken::generate());
        assert!(one.id != other.id && one.digest != other.digest);
        assert!(one.text[PREFIX.len() + ID_DIGITS + 1..][..SECRET_CHARS].bytes().all(|byte| byte != b'='));
    }

    #[test]
    fn base64url_follows_the_examples_of_its_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")] {
            assert_eq!(base64url(bytes.as_bytes()), text);
        }
        assert_eq!(base64url(&[0xfb, 0xff, 0xfe]), "-__-");
        assert_eq!(base64url(&[0; 32]).len(), SECRET_CHARS);
    }

    #[test]
    fn a_changed_cut_or_extended_text_is_refused() {
        let token = NewToken::from_bytes([7; 6], [0x5a; 32]);
        for at in 0..LENGTH {
            let mut bytes = token.text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
            let changed = String::from_utf8(bytes).expect("ASCII");
            assert!(matches!(parse(&changed), Err(BearerError::Malformed | BearerError::Checksum)), "{at}");
            assert_eq!(parse(&token.text[..at]), Err(BearerError::Malformed), "cut at {at}");
        }
        for text in
            [&format!("{}0", token.text), &token.text.to_uppercase(), &format!(" {}", &token.text[1..]), "lhb1_"]
        {
            assert_eq!(parse(text), Err(BearerError::Malformed), "{text}");
        }
        assert_eq!(parse(&format!("lhb1_{}", "é".repeat((LENGTH - 5) / 2))), Err(BearerError::Malformed));
    }
}
