//! Bodies of commands and queries about one session.

use leasehold_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::request::{decimal, invalid_id};
use crate::v1::request::Operation;
use crate::{lease_bits, lease_id, v1};

/// `POST /v1/sessions/{session}:renew`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct RenewSessionBody {
    /// The leases that the client believes it holds in this session. The reply says whether the server agrees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldDigestBody>,
}

/// Digest of a set of leases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct HeldDigestBody {
    /// Number of leases.
    pub count: u32,
    /// Exclusive or of their token numbers, as decimal text.
    pub digest: String,
}

impl RenewSessionBody {
    /// Converts the body into the request for this session.
    pub fn into_operation(self, session: Option<u64>) -> Result<Operation, Refusal> {
        let held = |held: HeldDigestBody| -> Result<_, Refusal> {
            Ok(v1::HeldDigest { count: held.count, digest: decimal("digest", &held.digest)? })
        };
        Ok(Operation::RenewSession(v1::RenewSession { session, held: self.held.map(held).transpose()? }))
    }
}

/// `POST /v1/sessions/{session}:reconcile`: ends granted leases of the session that the list omits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct ReconcileBody {
    /// Ids of the client's leases, in any order.
    pub leases: Vec<String>,
    /// First id of the range that the list covers; absent for no lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// First id after the range; absent for no upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl ReconcileBody {
    /// Converts the body into the request for this session.
    pub fn into_operation(self, session: Option<u64>) -> Result<Operation, Refusal> {
        let id = |field: &'static str, text: &str| text.parse().map_err(|_| invalid_id(field));
        let mut leases = self.leases.iter().map(|text| id("leases", text)).collect::<Result<Vec<_>, Refusal>>()?;
        leases.sort_unstable();
        let bound =
            |field: &'static str, text: Option<&String>| text.map(|text| id(field, text).map(lease_bits)).transpose();
        Ok(Operation::Reconcile(v1::Reconcile {
            leases: leases.into_iter().map(lease_bits).collect(),
            session,
            from: bound("from", self.from.as_ref())?,
            until: bound("until", self.until.as_ref())?,
        }))
    }
}

/// `POST /v1/sessions/{session}:cancel`: withdraws a wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct CancelWaitBody {
    /// Sequence number in the idempotency key of the waiting request, as decimal text.
    pub sequence: String,
}

impl CancelWaitBody {
    /// Converts the body into the request for this session.
    pub fn into_operation(self, session: Option<u64>) -> Result<Operation, Refusal> {
        Ok(Operation::Cancel(v1::Cancel { sequence: decimal("sequence", &self.sequence)?, session }))
    }
}

/// One page of the leases that the server holds for a session, by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionLeasesBody {
    /// The leases.
    pub leases: Vec<SessionLeaseBody>,
    /// The `cursor` of the next page; null on the last page.
    pub next: Option<String>,
}

/// A lease of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionLeaseBody {
    /// Id of the lease.
    pub lease: String,
    /// Name of the resource.
    pub resource: String,
    /// Name of the holder.
    pub holder: String,
    /// Number of the fencing token.
    pub token_number: String,
    /// Remaining lifetime unless renewed.
    pub remaining_ms: u64,
    /// The lease is being drained: stop and release it within this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
}

impl From<v1::SessionLeaseList> for SessionLeasesBody {
    fn from(from: v1::SessionLeaseList) -> Self {
        let lease = |lease: v1::LeaseView| SessionLeaseBody {
            lease: lease_id(lease.lease).to_string(),
            token_number: lease.token_number.to_string(),
            remaining_ms: lease.remaining_ms,
            drain_ms: (lease.draining != 0).then_some(lease.drain_ms),
            resource: lease.resource,
            holder: lease.holder,
        };
        Self {
            leases: from.leases.into_iter().map(lease).collect(),
            next: from.next.map(|bits| lease_id(bits).to_string()),
        }
    }
}
