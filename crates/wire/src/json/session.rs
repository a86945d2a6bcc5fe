//! Bodies about one session: to open, renew, reconcile and list it.

use leasehold_core::lease::Validity;
use leasehold_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::request_fields::{decimal, invalid_id};
use super::{enum_word, hex};
use crate::duration::HumanDuration;
use crate::v1::request::Operation;
use crate::{lease_bits, lease_id, session_id, v1};

/// `POST /v1/sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct OpenSessionBody {
    /// Name of the holder, for people.
    pub holder: String,
    /// Lifetime after each renewal.
    pub ttl: HumanDuration,
    /// Whether the session carries only the waits of requests with its idempotency keys. Their leases live by their own ttl.
    #[serde(default)]
    pub waits_only: bool,
}

impl OpenSessionBody {
    /// Converts the body into the request.
    pub fn into_request(self) -> v1::OpenSession {
        v1::OpenSession { holder: self.holder, ttl_ms: self.ttl.millis(), waits_only: self.waits_only }
    }
}

/// An open session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionBody {
    /// Id of the session.
    pub session: String,
    /// Secret that proves ownership, in hexadecimal: send it as `Session-Secret`. Only when the session was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The cluster, as printed in tokens.
    pub cluster: String,
    /// The incarnation of the cluster, as printed in tokens.
    pub incarnation: String,
    /// What the validity of leases rests on: `session`, `quorum` or `issuer`.
    pub validity: String,
    /// Maximum ttl of the cluster.
    pub max_ttl_ms: u64,
    /// Lifetime of the session after each renewal.
    pub ttl_ms: u64,
    /// Remaining lifetime of the session unless renewed.
    pub remaining_ms: u64,
}

/// Omits the secret, which must not reach a log.
impl std::fmt::Debug for SessionBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionBody").field("session", &self.session).finish_non_exhaustive()
    }
}

impl From<v1::Welcome> for SessionBody {
    fn from(from: v1::Welcome) -> Self {
        Self {
            session: session_id(from.session).to_string(),
            secret: (!from.secret.is_empty()).then(|| hex(&from.secret)),
            validity: enum_word::<v1::Validity, _>(from.validity, Validity::word),
            max_ttl_ms: from.max_ttl_ms,
            ttl_ms: from.ttl_ms,
            remaining_ms: from.remaining_ms,
            cluster: from.cluster,
            incarnation: from.incarnation,
        }
    }
}

/// A renewed session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionStateBody {
    /// Id of the session.
    pub session: String,
    /// Lifetime of the session after each renewal.
    pub ttl_ms: u64,
    /// Remaining lifetime of the session unless renewed.
    pub remaining_ms: u64,
    /// Whether the leases of the session differ from `held` of the request: list them, and release what you do not know.
    #[serde(default)]
    pub mismatch: bool,
}

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
