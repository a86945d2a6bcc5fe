//! Stamp keys: how a database without Ed25519 verifies sealed tokens (A8).
//!
//! A stamp is `HMAC-SHA256(key, sealed text)`, and a stamped token is the sealed text, a dot and the stamp in hexadecimal. The
//! database and the servers share the key; holders have stamped tokens only.

use crate::error::SealKeyError;
use crate::key_file::{self, StampFile};
use crate::kid::Kid;
use aws_lc_rs::hmac;
use leasehold_core::limits::TARGET_NAME_BYTES;
use leasehold_core::name::{Name, Prefix};
use sha2::{Digest, Sha256};
use std::fmt;
use zeroize::Zeroizing;

/// Length of a key in bytes.
const KEY_BYTES: usize = 32;

/// A key that stamps sealed tokens for one database. Anyone who has it makes tokens that the database accepts: it stays in files of
/// mode 0600, away from holders. It is not `Copy`, its `Debug` shows the id only, and its memory is wiped.
pub struct StampKey(Zeroizing<[u8; KEY_BYTES]>);

impl StampKey {
    /// A new random key.
    pub fn generate() -> Result<Self, SealKeyError> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        aws_lc_rs::rand::fill(key.as_mut_slice()).map_err(|_| SealKeyError::Provider)?;
        Ok(Self(key))
    }

    /// Parses 64 lower-case hexadecimal digits, with or without a newline: what `openssl rand -hex 32` prints.
    pub fn from_hex(text: &str) -> Result<Self, SealKeyError> {
        let digits = text.strip_suffix('\n').unwrap_or(text).as_bytes();
        let invalid = || SealKeyError::Field { field: "key", expected: "64 hexadecimal digits" };
        if digits.len() != 2 * KEY_BYTES {
            return Err(invalid());
        }
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (hex_digit(pair[0]).ok_or_else(invalid)? << 4) | hex_digit(pair[1]).ok_or_else(invalid)?;
        }
        Ok(Self(key))
    }

    /// Parses either form of a key file: hexadecimal digits, or the JSON of a [`TargetStampKey`].
    pub fn from_file_text(text: &str) -> Result<Self, SealKeyError> {
        if text.starts_with('{') {
            TargetStampKey::from_file_text(text).map(|file| file.key)
        } else {
            Self::from_hex(text)
        }
    }

    /// Its id: the first four bytes of its SHA-256, as `leasehold.list_stamp_keys` prints it in the database.
    pub fn id(&self) -> Kid {
        let digest = Sha256::digest(self.0.as_slice());
        Kid(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }

    /// Stamps a sealed text. The caller knows that a seal key signed it for its resource: the database verifies the stamp only.
    pub fn stamp(&self, sealed: &str) -> String {
        let stamp = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.0.as_slice()), sealed.as_bytes());
        format!("{sealed}.{}", hex(stamp.as_ref()))
    }

    /// The key itself, for the database that verifies with it.
    pub fn expose(&self) -> &[u8] {
        self.0.as_slice()
    }

    fn expose_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(self.0.as_slice()))
    }
}

impl fmt::Debug for StampKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StampKey({})", self.id())
    }
}

/// A stamp key with which servers stamp the tokens of one target.
#[derive(Debug)]
pub struct TargetStampKey {
    /// The key.
    pub key: StampKey,
    /// The name of the target, as charters declare it.
    pub target: String,
    /// The resources whose tokens it stamps. A charter of another prefix that names the same target gets no stamp.
    pub prefix: String,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// From when on servers stamp with it, in milliseconds since 1970. A delay lets the database learn the key first.
    pub active_ms: u64,
}

impl TargetStampKey {
    /// A new random key.
    pub fn generate(target: &str, prefix: &str, created_ms: u64, active_ms: u64) -> Result<Self, SealKeyError> {
        let (target, prefix) = (target.to_owned(), prefix.to_owned());
        Self { key: StampKey::generate()?, target, prefix, created_ms, active_ms }.validated()
    }

    /// Reads a key file. An error never contains what the file holds.
    pub fn from_file_text(text: &str) -> Result<Self, SealKeyError> {
        let StampFile { id, target, prefix, created_ms, active_ms, key } = key_file::read_stamp(text)?;
        let key = StampKey::from_hex(&key)?;
        key_file::check_kid(id, key.id())?;
        Self { key, target, prefix, created_ms, active_ms }.validated()
    }

    /// The text of its key file. Write it with mode 0600.
    pub fn to_file_text(&self) -> Result<Zeroizing<String>, SealKeyError> {
        key_file::write_stamp(&StampFile {
            id: self.key.id(),
            target: self.target.clone(),
            prefix: self.prefix.clone(),
            created_ms: self.created_ms,
            active_ms: self.active_ms,
            key: self.key.expose_hex(),
        })
    }

    /// Whether servers stamp the tokens of a resource for a target with it at `now_ms`.
    pub fn stamps(&self, target: &str, resource: &str, now_ms: u64) -> bool {
        let covers = || {
            let (prefix, name) = (Prefix::parse(&self.prefix), Name::parse(resource));
            prefix.is_ok_and(|prefix| name.is_ok_and(|name| prefix.covers(name)))
        };
        self.active_ms <= now_ms && self.target == target && covers()
    }

    fn validated(self) -> Result<Self, SealKeyError> {
        if self.target.is_empty() || self.target.len() > TARGET_NAME_BYTES {
            return Err(SealKeyError::Field {
                field: "target",
                expected: "the name of a target, as a charter declares it",
            });
        }
        match Prefix::parse(&self.prefix) {
            Ok(_) => Ok(self),
            Err(_) => Err(SealKeyError::Field {
                field: "prefix",
                expected: "a resource name without a trailing slash, or empty",
            }),
        }
    }
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
    fn the_stamp_is_the_hmac_of_rfc_4231() {
        // Test case 1. Its key has 20 bytes; HMAC pads a key with zeros, so these 32 bytes are the same key.
        let key = StampKey::from_hex(&format!("{}{}\n", "0b".repeat(20), "00".repeat(12))).expect("a key");
        let expected = "Hi There.b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(key.stamp("Hi There"), expected);
    }

    #[test]
    fn a_text_that_is_no_key_is_refused_and_its_debug_form_shows_no_key() {
        for text in ["", "00", &"0".repeat(63), &"0".repeat(65), &"0g".repeat(32), &"AB".repeat(32), &"\n".repeat(64)] {
            let refused = StampKey::from_file_text(text).expect_err(text).to_string();
            assert!(refused.contains("64 hexadecimal digits"), "{refused}");
        }
        let key = StampKey::from_hex(&"ab".repeat(32)).expect("a key");
        assert_eq!(format!("{key:?}"), format!("StampKey({})", key.id()));
        assert!(!format!("{key:?}").contains("abab"));
    }

    #[test]
    fn a_key_file_holds_the_key_its_target_and_its_prefix_and_refuses_what_does_not_fit() {
        let key = TargetStampKey::generate("ledger", "jobs", 5, 7).expect("a key");
        let text = key.to_file_text().expect("a text");
        let read = TargetStampKey::from_file_text(&text).expect("the same");
        assert_eq!((read.key.expose(), read.key.id()), (key.key.expose(), key.key.id()));
        assert_eq!((&*read.target, &*read.prefix, read.created_ms, read.active_ms), ("ledger", "jobs", 5, 7));
        assert_eq!(StampKey::from_file_text(&text).expect("also for a database").expose(), key.key.expose());
        let id = key.key.id().to_string();
        for (from, to, expected) in [
            ("\"version\": 1", "\"version\": 2", "version 2"),
            ("\"target\": \"ledger\"", "\"target\": \"\"", "target"),
            ("\"prefix\": \"jobs\"", "\"prefix\": \"jobs/\"", "prefix"),
            (id.as_str(), "00000000", "the key's id"),
            ("created_ms", "created", "not a key file"),
        ] {
            let refused = TargetStampKey::from_file_text(&text.replace(from, to)).expect_err(to).to_string();
            assert!(refused.contains(expected), "{refused}");
            assert!(!refused.contains(&*key.key.expose_hex()), "{refused}");
        }
        assert!(TargetStampKey::generate("", "jobs", 0, 0).is_err());
        assert!(TargetStampKey::generate(&"t".repeat(TARGET_NAME_BYTES + 1), "jobs", 0, 0).is_err());
    }

    #[test]
    fn a_key_stamps_for_its_target_and_whole_segments_of_its_prefix_from_its_time_on() {
        let key = TargetStampKey::generate("ledger", "jobs", 5, 7).expect("a key");
        assert!(key.stamps("ledger", "jobs", 7) && key.stamps("ledger", "jobs/settle", u64::MAX));
        assert!(!key.stamps("ledger", "jobs/settle", 6), "not active yet");
        assert!(!key.stamps("Ledger", "jobs/settle", 7), "another target");
        for resource in ["job", "jobsx", "team/jobs", "", "jobs/"] {
            assert!(!key.stamps("ledger", resource, 7), "{resource}");
        }
        let everything = TargetStampKey::generate("ledger", "", 0, 0).expect("a key");
        assert!(everything.stamps("ledger", "team/a", 0));
    }
}
