//! Every way in which a credential is refused, with a stable word.

use std::fmt;

use leasehold_wire::{Code, v1};

use crate::Error;

/// Why a credential is not believed. Nothing of what it says may be used then.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denied {
    /// Not a signed text of this kind.
    Malformed,
    /// Another way of signing than Ed25519.
    Algorithm,
    /// A key that is not known, or was withdrawn.
    Key,
    /// The signature is not the key's.
    Signature,
    /// A claim is absent, or is not what it should be.
    Claim(String),
    /// Another issuer's.
    Issuer,
    /// For somebody else.
    Audience,
    /// For another resource.
    Resource,
    /// Its time has not begun.
    NotYet,
    /// Its time is over.
    Expired,
    /// Its lease is over.
    Revoked,
    /// There is no list of what is over, or it is too old to believe anything.
    ListTooOld,
    /// A list from before the one that is known: somebody brings an old one, or a zombie signs.
    ListBehind,
}

impl Denied {
    /// The stable word.
    pub const fn word(&self) -> &'static str {
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

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a credential; pass the signed text on, unchanged and whole",
            Self::Algorithm => "not signed with Ed25519; ask the issuer for another",
            Self::Key => "signed with a key that is unknown or withdrawn; load the issuer's keys, or ask for another",
            Self::Signature => "the signature does not fit; pass the signed text on, unchanged and whole",
            Self::Claim(name) => {
                return write!(f, "the claim {name} is absent or wrong; ask the issuer for another");
            }
            Self::Issuer => "another issuer signed it; show one of the issuer that is trusted here",
            Self::Audience => "it is for somebody else; ask the issuer for one that names this audience",
            Self::Resource => "it is for another resource; ask for one under the lease of this resource",
            Self::NotYet => "its time has not begun; compare the clocks",
            Self::Expired => "its time is over; renew the lease and ask the issuer for another",
            Self::Revoked => "its lease is over; stop",
            Self::ListTooOld => "the list of what is over is too old; load the issuer's newest",
            Self::ListBehind => "a newer list is known; load the issuer's newest",
        })
    }
}

impl std::error::Error for Denied {}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Self {
        let told = v1::Problem::of(Code::Unauthenticated, denied.to_string());
        Self::from(v1::Problem { reason: denied.word().into(), ..told })
    }
}
