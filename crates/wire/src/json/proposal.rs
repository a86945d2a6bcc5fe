//! Bodies of two-person approval: the list of proposals, and an approval.

use serde::{Deserialize, Serialize};

use super::CharterBody;
use crate::{decode_charter, lease_id, v1};

/// `POST /v1/proposals/{proposal}:approve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct ApproveBody {
    /// Digest of the command that is approved, as the list of proposals shows it: 64 hexadecimal digits.
    pub digest: String,
}

impl ApproveBody {
    /// The bytes of the digest; `None` if it is malformed.
    pub fn digest_bytes(&self) -> Option<Vec<u8>> {
        let digits = self.digest.as_bytes();
        let is_hex = digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit);
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        if is_hex { digits.chunks(2).map(pair).collect() } else { None }
    }
}

/// A dangerous command that waits for the approval of a second identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProposalBody {
    /// Its number.
    pub proposal: u64,
    /// What it does: `free`, `revoke`, `handoff`, `waive_quarantine`, `set_charter`, `remove_charter`, `set_max_ttl` or `step_down`.
    pub action: String,
    /// The resource or prefix that it concerns; empty for the whole cluster.
    pub resource: String,
    /// Id of the lease that would end, if it is named by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The comment of the identity that proposed it.
    pub comment: String,
    /// The new maximum ttl, if it sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ttl_ms: Option<u64>,
    /// The grace of a revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// Number of leases that it named when it was proposed. It is executed only while they are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leases: Option<u64>,
    /// The successor that a handoff names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// `gap` or `overlap`, if a handoff says it; otherwise the charter of the resource does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff_mode: Option<String>,
    /// The drain period, if a handoff says it; otherwise the charter of the resource does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// The charter that it sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charter: Option<Box<CharterBody>>,
    /// The identity that proposed it.
    pub proposer: String,
    /// Digest of the exact command and of what it named when it was proposed. An approval repeats it.
    pub digest: String,
    /// Time until it expires.
    pub remaining_ms: u64,
}

impl From<v1::Proposal> for ProposalBody {
    fn from(from: v1::Proposal) -> Self {
        Self {
            proposal: from.proposal,
            action: from.action,
            resource: from.resource,
            lease: from.lease.map(|bits| lease_id(bits).to_string()),
            comment: from.comment,
            max_ttl_ms: from.max_ttl_ms,
            grace_ms: from.grace_ms,
            leases: from.leases,
            to: Some(from.to).filter(|to| !to.is_empty()),
            handoff_mode: Some(from.handoff_mode).filter(|mode| !mode.is_empty()),
            drain_ms: from.drain_ms,
            // A charter of a newer server that this version does not know is left out; the digest covers it.
            charter: from.charter.and_then(|terms| decode_charter(&terms).ok()).map(|terms| Box::new((&terms).into())),
            proposer: from.proposer,
            digest: from.digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            remaining_ms: from.remaining_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_64_hexadecimal_digits() {
        let of = |digest: &str| ApproveBody { digest: digest.to_owned() }.digest_bytes();
        assert_eq!(of(&"0a".repeat(32)), Some(vec![10; 32]));
        for wrong in ["", "0a", &"0g".repeat(32), &"0a".repeat(33), &"+a".repeat(32)] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
