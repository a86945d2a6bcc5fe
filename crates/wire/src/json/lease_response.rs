//! Response bodies about one lease: grants and renewals.

use std::collections::BTreeMap;

use leasehold_core::lease::{EndReason, LeaseState, Validity};
use serde::{Deserialize, Serialize};

use super::{ended_state, enum_word, hex, optional_enum_word};
use crate::{lease_id, v1};

/// A granted lease.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantBody {
    /// Name of the resource.
    pub resource: String,
    /// Id of the lease.
    pub lease: String,
    /// Name of the holder.
    pub holder: String,
    /// Text of the fencing token. Present it to fences.
    pub token: String,
    /// Number of the fencing token.
    pub token_number: String,
    /// Secret that proves in later requests that the caller was granted the lease, in hexadecimal. Send it as `Lease-Secret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The token with a stamp by the name of the target, for each target of the charter whose stamp key the server has. Present it
    /// there instead of `token`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stamped_tokens: BTreeMap<String, String>,
    /// Slot number; null for shared leases and for unnumbered units.
    pub slot: Option<u32>,
    /// Lifetime after each renewal.
    pub ttl_ms: u64,
    /// Remaining lifetime unless renewed.
    pub remaining_ms: u64,
    /// What the validity of the lease rests on: `session`, `quorum` or `issuer`.
    pub validity: String,
    /// `held`.
    pub state: String,
    /// Why the lease ended, if it has.
    pub reason: Option<String>,
    /// The predecessor of an overlap handoff drains for at most this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlaps_ms: Option<u64>,
    /// Drain period of handoffs of this resource. The local deadline of a holder without contact is no later.
    #[serde(default)]
    pub drain_ms: u64,
    /// Whether each renewal raises the token. Retry such a renewal under the same idempotency key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rotates: bool,
}

/// Omits the secret and the text of the token, which must not reach a log.
impl std::fmt::Debug for GrantBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("GrantBody");
        shown.field("resource", &self.resource).field("lease", &self.lease).field("token_number", &self.token_number);
        shown.field("state", &self.state).finish_non_exhaustive()
    }
}

impl From<v1::Grant> for GrantBody {
    fn from(from: v1::Grant) -> Self {
        Self {
            lease: lease_id(from.lease).to_string(),
            token_number: from.token_number.to_string(),
            slot: (from.scope == v1::TokenScope::Slot as i32).then_some(from.slot),
            ttl_ms: from.ttl_ms,
            remaining_ms: from.remaining_ms,
            validity: enum_word::<v1::Validity, _>(from.validity, Validity::word),
            state: optional_enum_word::<v1::EndReason, _>(from.reason, ended_state)
                .unwrap_or_else(|| enum_word::<v1::LeaseState, _>(from.state, LeaseState::word)),
            reason: optional_enum_word::<v1::EndReason, _>(from.reason, EndReason::word),
            overlaps_ms: from.overlaps_ms,
            drain_ms: from.drain_ms,
            rotates: from.rotates,
            secret: (!from.secret.is_empty()).then(|| hex(&from.secret)),
            stamped_tokens: by_target(from.stamped_tokens),
            resource: from.resource,
            holder: from.holder,
            token: from.token,
        }
    }
}

fn by_target(stamped: Vec<v1::StampedToken>) -> BTreeMap<String, String> {
    stamped.into_iter().map(|stamped| (stamped.target, stamped.token)).collect()
}

/// A lease that is current.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CurrentLeaseBody {
    /// Name of the resource.
    pub resource: String,
    /// Number of the fencing token.
    pub token_number: String,
    /// Text of the new token, if the token was raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// New secret of the lease, in hexadecimal, if the token was raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The token with a stamp by the name of the target, as in a grant.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stamped_tokens: BTreeMap<String, String>,
    /// Remaining lifetime unless renewed.
    pub remaining_ms: u64,
    /// The lease is being drained: stop and release it within this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// The predecessor of an overlap handoff drains for at most this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlaps_ms: Option<u64>,
    /// `held`.
    pub state: String,
}

/// Omits the secret and the text of the token, which must not reach a log.
impl std::fmt::Debug for CurrentLeaseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("CurrentLeaseBody");
        shown.field("resource", &self.resource).field("token_number", &self.token_number);
        shown.field("remaining_ms", &self.remaining_ms).finish_non_exhaustive()
    }
}

impl CurrentLeaseBody {
    /// Creates the body for this resource.
    pub fn new(resource: &str, from: v1::CurrentLease) -> Self {
        Self {
            resource: resource.into(),
            token_number: from.token_number.to_string(),
            token: (!from.token.is_empty()).then_some(from.token),
            secret: (!from.secret.is_empty()).then(|| hex(&from.secret)),
            stamped_tokens: by_target(from.stamped_tokens),
            remaining_ms: from.remaining_ms,
            drain_ms: from.drain_ms,
            overlaps_ms: from.overlaps_ms,
            state: LeaseState::Held.word().into(),
        }
    }
}
