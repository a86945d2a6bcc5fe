//! JSON body of the public keys that verify sealed tokens: the same text as a key file of a fence.

use serde::{Deserialize, Serialize};

use crate::v1;

/// The version of the format of key sets.
const VERSION: u32 = 1;

/// The public keys that verify sealed tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SealKeySetBody {
    /// The version of the format: 1.
    pub version: u32,
    /// The keys; empty if the server does not seal tokens.
    pub keys: Vec<PublicSealKeyBody>,
}

/// A public key that verifies sealed tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PublicSealKeyBody {
    /// Its id, as printed in sealed tokens.
    pub kid: String,
    /// The Ed25519 public key, as base64url without padding.
    pub public: String,
    /// From when on servers sign with it, in milliseconds since 1970.
    pub active_ms: u64,
    /// Until when its signatures are accepted, in milliseconds since 1970; without an end if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ms: Option<u64>,
}

impl From<v1::SealKeySet> for SealKeySetBody {
    fn from(from: v1::SealKeySet) -> Self {
        let key = |key: v1::PublicSealKey| PublicSealKeyBody {
            kid: key.kid,
            public: key.public,
            active_ms: key.active_ms,
            end_ms: key.end_ms,
        };
        Self { version: VERSION, keys: from.keys.into_iter().map(key).collect() }
    }
}
