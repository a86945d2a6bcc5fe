//! The two kinds of signed texts, credentials and revocation lists, which must never be mistaken for each other.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Type header of a credential.
pub(super) const CREDENTIAL: &str = "leasehold-credential+jwt";
/// Type header of a revocation list.
pub(super) const REVOCATION_LIST: &str = "leasehold-list+jwt";
/// Limit on the length of a signed text.
pub(super) const TEXT_BYTES: usize = 256 << 10;
/// Default difference between the clocks of issuer and verifier.
pub(super) const SKEW: Duration = Duration::from_secs(2);
/// Largest difference that can be set.
pub(super) const MAX_SKEW: Duration = Duration::from_secs(3_600);
/// Limit on the validity of any signed text.
pub(super) const MAX_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Claims of a credential. All of them are required (K2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CredentialClaims {
    pub(super) iss: String,
    pub(super) aud: String,
    /// Name of the holder.
    pub(super) sub: String,
    pub(super) jti: String,
    pub(super) iat: u64,
    pub(super) nbf: u64,
    pub(super) exp: u64,
    pub(super) resource: String,
    /// Text of the lease's token.
    pub(super) token: String,
    /// Token number as text: JSON numbers are not exact in this range.
    pub(super) number: String,
    /// What the validity of the lease rests on.
    pub(super) validity: String,
}

/// Revoked leases and the keys that are valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RevocationList {
    pub(super) iss: String,
    pub(super) iat: u64,
    /// Token number of the issuer's own lease: the list of a zombie is older than its successor's.
    pub(super) number: String,
    /// Number of the list under the issuer's lease.
    pub(super) sequence: u64,
    /// Names of the keys that are not withdrawn.
    pub(super) keys: Vec<String>,
    /// Revoked token numbers, and until when each stays on the list.
    pub(super) revoked: BTreeMap<String, u64>,
}

impl RevocationList {
    /// Position in the order of all lists of the issuer.
    pub(super) fn position(&self) -> Option<(u64, u64)> {
        Some((self.number.parse().ok()?, self.sequence))
    }
}

/// Whole seconds since 1970; 0 for earlier times.
pub(super) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
