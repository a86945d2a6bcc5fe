//! Errors: why a text is not proven, and why a key or a key file cannot be used.

use crate::kid::Kid;
use leasehold_core::token::TokenError;
use std::fmt;

/// Why a token text is refused where sealed tokens are required, or why a signature does not prove its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// Not a token text, or a token of another resource.
    Token(TokenError),
    /// A plain token.
    Unsealed,
    /// No key of the set has this id.
    UnknownKey {
        /// The id in the text.
        kid: Kid,
    },
    /// The key has ended.
    EndedKey {
        /// The id in the text.
        kid: Kid,
        /// When it ended, in milliseconds since 1970.
        end_ms: u64,
    },
    /// The key did not sign these fields for this name.
    Signature {
        /// The id in the text.
        kid: Kid,
    },
}

impl SealError {
    /// The stable error code, as of a token that a fence refuses.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Token(error) => error.code(),
            Self::Unsealed | Self::UnknownKey { .. } | Self::EndedKey { .. } | Self::Signature { .. } => {
                "TOKEN_INVALID"
            }
        }
    }

    /// The stable word that refines the code.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Token(error) => error.reason(),
            Self::Unsealed => "unsealed",
            Self::UnknownKey { .. } => "unknown_key",
            Self::EndedKey { .. } => "ended_key",
            Self::Signature { .. } => "signature",
        }
    }
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(error) => error.fmt(f),
            Self::Unsealed => f.write_str(
                "token is not sealed; give the servers a seal key (`leasehold keys create`) and acquire again",
            ),
            Self::UnknownKey { kid } => {
                write!(f, "token is sealed by the unknown key {kid}; export the keys again (`leasehold keys export`)")
            }
            Self::EndedKey { kid, end_ms } => write!(
                f,
                "token is sealed by the key {kid}, which ended at {end_ms} ms since 1970; acquire the lease again"
            ),
            Self::Signature { kid } => write!(
                f,
                "token was not signed by the key {kid} for this resource; pass the token text of the grant unchanged"
            ),
        }
    }
}

impl std::error::Error for SealError {}

impl From<TokenError> for SealError {
    fn from(error: TokenError) -> Self {
        Self::Token(error)
    }
}

/// Why a key or a set of keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealKeyError {
    /// The text is not JSON of the expected form.
    Json {
        /// What the parser reports. Never a value of the file, which may be secret.
        problem: String,
    },
    /// A newer format.
    Version {
        /// The version in the file.
        found: u32,
        /// The newest version that this program reads.
        supported: u32,
    },
    /// A field has a wrong value.
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// The id does not belong to the key.
    WrongKid {
        /// The id in the file.
        stated: Kid,
        /// The id of the key.
        actual: Kid,
    },
    /// Two keys have one id.
    Duplicate {
        /// The id.
        kid: Kid,
    },
    /// More keys than the limit.
    TooMany {
        /// The number of keys.
        have: usize,
        /// The limit.
        max: usize,
    },
    /// The crypto provider failed.
    Provider,
}

impl fmt::Display for SealKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json { problem } => write!(f, "not a key file: {problem}; export or create it again"),
            Self::Version { found, supported } => {
                write!(f, "version {found} is not supported (expected {supported}); update this program")
            }
            Self::Field { field, expected } => write!(f, "{field} must be {expected}; export or create the file again"),
            Self::WrongKid { stated, actual } => {
                write!(f, "kid is {stated}, but the key's id is {actual}; restore the file from its backup")
            }
            Self::Duplicate { kid } => write!(f, "two keys have the id {kid}; remove one"),
            Self::TooMany { have, max } => write!(f, "{have} keys, and the limit is {max}; remove those that ended"),
            Self::Provider => f.write_str("the crypto provider cannot create a key; try again"),
        }
    }
}

impl std::error::Error for SealKeyError {}
