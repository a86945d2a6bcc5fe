//! Key ids: which key signed a text.

use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// The id of a seal key: the first four bytes of a digest of its public key, as eight hexadecimal digits. A key file that
/// is renamed or edited therefore cannot give a key the id of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kid(pub u32);

impl Kid {
    /// The id of the key with these public bytes.
    pub fn of(public: &[u8; 32]) -> Self {
        let digest = Sha256::new().chain_update(b"leasehold seal key\0").chain_update(public).finalize();
        Self(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }
}

impl fmt::Display for Kid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Text that is not a key id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseKidError;

impl fmt::Display for ParseKidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key id has 8 lower-case hexadecimal digits; copy it from `leasehold keys list`")
    }
}

impl std::error::Error for ParseKidError {}

impl FromStr for Kid {
    type Err = ParseKidError;

    fn from_str(text: &str) -> Result<Self, ParseKidError> {
        let plain = text.len() == 8 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if plain { u32::from_str_radix(text, 16).map(Self).map_err(|_| ParseKidError) } else { Err(ParseKidError) }
    }
}
