//! What is signed, and the two kinds of it that must never be taken for one another.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The kind of a credential.
pub(super) const CREDENTIAL: &str = "leasehold-credential+jwt";
/// The kind of a list of what is over.
pub(super) const LIST: &str = "leasehold-list+jwt";
/// No signed text is longer.
pub(super) const TEXT_BYTES: usize = 256 << 10;
/// How far apart the clocks of issuer and verifier may be, unless said otherwise.
pub(super) const SKEW: Duration = Duration::from_secs(2);
/// And at most.
pub(super) const SKEW_MOST: Duration = Duration::from_secs(3_600);
/// The longest that anything signed may be believed.
pub(super) const LIFE_MOST: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A credential. All of it is required; a claim that is absent is a refusal (K2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    pub(super) iss: String,
    pub(super) aud: String,
    /// Who holds.
    pub(super) sub: String,
    pub(super) jti: String,
    pub(super) iat: u64,
    pub(super) nbf: u64,
    pub(super) exp: u64,
    pub(super) resource: String,
    /// The token's text: what fences take.
    pub(super) token: String,
    /// The token's number, as text: JSON numbers are not exact that far.
    pub(super) number: String,
    /// What it stands on.
    pub(super) rung: String,
}

/// What is over although it has not expired, and which keys count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct List {
    pub(super) iss: String,
    pub(super) iat: u64,
    /// The token number of the issuer's own lease: a zombie's list is older than its successor's.
    pub(super) number: String,
    /// Counts the lists of one hold.
    pub(super) sequence: u64,
    /// The names of the keys that are not withdrawn.
    pub(super) keys: Vec<String>,
    /// Token numbers that are over, each until no credential of it can be valid.
    pub(super) revoked: BTreeMap<String, u64>,
}

impl List {
    /// Its place among all lists of its issuer.
    pub(super) fn place(&self) -> Option<(u64, u64)> {
        Some((self.number.parse().ok()?, self.sequence))
    }
}

/// Whole seconds since 1970; what comes before is none.
pub(super) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
