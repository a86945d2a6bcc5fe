//! Why a verifier rejects a credential, with a stable name.

use std::fmt;

use leasehold_wire::{Code, v1};

use crate::Error;

/// Why a credential or a revocation list is rejected. Nothing in a rejected text may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialError {
    /// Not a signed text of the expected type.
    Malformed,
    /// Not signed with Ed25519.
    Algorithm,
    /// Signed with an unknown or withdrawn key.
    Key,
    /// The signature does not match.
    Signature,
    /// A claim is missing or invalid.
    Claim(String),
    /// Signed by another issuer.
    Issuer,
    /// For another audience.
    Audience,
    /// For another resource.
    Resource,
    /// Not valid yet.
    NotYet,
    /// Expired.
    Expired,
    /// Revoked.
    Revoked,
    /// There is no revocation list, or it is too old.
    ListTooOld,
    /// The revocation list is older than the known one: it is a replay, or signed by a zombie.
    ListBehind,
}

impl CredentialError {
    /// Stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Algorithm => "algorithm",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Claim(_) => "claim",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::Resource => "resource",
            Self::NotYet => "not_yet",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::ListTooOld => "list_too_old",
            Self::ListBehind => "list_behind",
        }
    }
}

impl fmt::Display for CredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a credential; present the signed text unchanged",
            Self::Algorithm => "not signed with Ed25519; request another credential",
            Self::Key => {
                "signed with an unknown or withdrawn key; load the issuer's keys, or request another credential"
            }
            Self::Signature => "the signature does not match; present the signed text unchanged",
            Self::Claim(name) => {
                return write!(f, "the claim {name} is missing or invalid; request another credential");
            }
            Self::Issuer => "signed by another issuer; present a credential of the trusted issuer",
            Self::Audience => "issued for another audience; request one for this audience",
            Self::Resource => "issued for another resource; request one for the lease on this resource",
            Self::NotYet => "not valid yet; compare the clocks",
            Self::Expired => "expired; renew the lease and request another credential",
            Self::Revoked => "revoked; stop",
            Self::ListTooOld => "the revocation list is too old; load the issuer's newest",
            Self::ListBehind => "a newer revocation list is known; load the issuer's newest",
        })
    }
}

impl std::error::Error for CredentialError {}

impl From<CredentialError> for Error {
    fn from(error: CredentialError) -> Self {
        let problem = v1::Problem::of(Code::Unauthenticated, error.to_string());
        Self::from(v1::Problem { reason: error.name().into(), ..problem })
    }
}
