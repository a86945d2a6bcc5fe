//! Bodies of commands about several leases: acquire all or none, and renew many.

use leasehold_core::ids::LeaseId;
use leasehold_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::request_fields::{decimal, invalid_id, session};
use super::{GrantBody, ProblemBody};
use crate::duration::HumanDuration;
use crate::v1::request::Operation;
use crate::{lease_id, v1};

/// Maximum number of leases that one request renews.
pub const MAX_RENEWED_LEASES: usize = 1_000;

/// `POST /v1/leases:acquire_all`: all of the leases or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields, default)]
pub struct AcquireAllBody {
    /// The resources, and how much of each.
    pub resources: Vec<ResourceAccessBody>,
    /// Name of the holder. Within a session: name of an actor; empty for the session's own holder.
    pub holder: String,
    /// Time until the leases expire unless renewed. Absent: they live as long as their session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<HumanDuration>,
    /// Longest wait if a resource is held; fail immediately if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<HumanDuration>,
    /// Waiters with a higher priority are served first: 0 to 255, 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Id of the session that carries the leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether to enter leases again that the same actor already holds.
    pub reentrant: bool,
    /// Maximum time the leases may be held, including renewals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<HumanDuration>,
    /// Longest time between two progress reports; a lease ends as stalled otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<HumanDuration>,
    /// Text for people and service discovery.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub metadata: String,
}

/// One resource of an atomic acquire: exclusive, unless one of the other fields is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct ResourceAccessBody {
    /// Name of the resource.
    pub resource: String,
    /// Acquire a shared (read) lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Acquire one of the numbered slots of the resource's capacity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slot: bool,
    /// Reserve this many units, without a slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
}

impl AcquireAllBody {
    /// Converts the body into the request.
    pub fn into_operation(self) -> Result<Operation, Refusal> {
        let wanted = |one: ResourceAccessBody| {
            let (access, units) = match (one.shared, one.slot, one.units) {
                (false, false, None) => (v1::Access::Exclusive, 0),
                (true, false, None) => (v1::Access::Shared, 0),
                (false, true, None) => (v1::Access::Slot, 0),
                (false, false, Some(units)) => (v1::Access::Units, units),
                _ => return Err(Refusal::Invalid { field: "shared", reason: "only one of shared, slot and units" }),
            };
            Ok(v1::ResourceAccess { resource: one.resource, access: access.into(), units })
        };
        Ok(Operation::AcquireAll(v1::AcquireAll {
            resources: self.resources.into_iter().map(wanted).collect::<Result<_, _>>()?,
            holder: self.holder,
            session: session(self.session.as_deref())?,
            ttl_ms: self.ttl.map(HumanDuration::millis),
            options: Some(v1::AcquireOptions {
                wait_ms: self.wait.map_or(0, HumanDuration::millis),
                priority: self.priority,
                reentrant: self.reentrant,
                max_hold_ms: self.max_hold.map(HumanDuration::millis),
                progress_ms: self.progress.map(HumanDuration::millis),
                metadata: self.metadata.into_bytes(),
            }),
        }))
    }
}

/// Granted leases, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantsBody {
    /// The leases.
    pub grants: Vec<GrantBody>,
}

impl From<v1::Grants> for GrantsBody {
    fn from(from: v1::Grants) -> Self {
        Self { grants: from.grants.into_iter().map(Into::into).collect() }
    }
}

/// `POST /v1/leases:renew`: renews leases of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct RenewLeasesBody {
    /// Id of the session that carries the leases.
    pub session: String,
    /// The leases, at most 1,000.
    pub leases: Vec<LeaseNumberBody>,
}

/// A lease by its id and the number of its token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct LeaseNumberBody {
    /// Id of the lease.
    pub lease: String,
    /// Number of its token.
    pub token_number: String,
}

impl RenewLeasesBody {
    /// The session as bits, and the leases with their token numbers.
    pub fn into_leases(self) -> Result<(u64, Vec<(LeaseId, u64)>), Refusal> {
        let of_session = session(Some(&self.session))?.ok_or(invalid_id("session"))?;
        check_count(self.leases.len())?;
        let lease = |one: LeaseNumberBody| {
            let id: LeaseId = one.lease.parse().map_err(|_| invalid_id("lease"))?;
            Ok((id, decimal("token_number", &one.token_number)?))
        };
        Ok((of_session, self.leases.into_iter().map(lease).collect::<Result<_, Refusal>>()?))
    }
}

/// Fails unless one request may renew this many leases.
fn check_count(count: usize) -> Result<(), Refusal> {
    match (1..=MAX_RENEWED_LEASES).contains(&count) {
        true => Ok(()),
        false => Err(Refusal::Invalid { field: "leases", reason: "must be 1 to 1000 leases; send several requests" }),
    }
}

impl v1::RenewLeasesRequest {
    /// The leases with their token numbers.
    pub fn to_leases(&self) -> Result<Vec<(LeaseId, u64)>, Refusal> {
        check_count(self.leases.len())?;
        if self.leases.len() != self.token_numbers.len() {
            return Err(Refusal::Invalid { field: "token_numbers", reason: "must be one number for each lease" });
        }
        Ok(self.leases.iter().map(|bits| lease_id(*bits)).zip(self.token_numbers.iter().copied()).collect())
    }
}

/// Results of a batch of renewals, in its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewedLeasesBody {
    /// One result for each lease.
    pub results: Vec<RenewedLeaseBody>,
}

/// The result for one lease of a batch: `remaining_ms` if it is current, `code` otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewedLeaseBody {
    /// Remaining lifetime unless renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// Number of the new token, if the renewal raised it. Renew the lease by itself to learn the text of that token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_number: Option<String>,
    /// The lease is being drained: stop and release it within this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// The predecessor of an overlap handoff drains for at most this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlaps_ms: Option<u64>,
    /// Why the lease was not renewed: a stable error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why a lost lease ended, or what is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `released`, `expired` or `revoked`, for a lost lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl RenewedLeasesBody {
    /// The results of the renewals of leases with these token numbers.
    pub fn new(numbers: &[u64], from: v1::RenewBatchResult) -> Self {
        use v1::renew_detail::Outcome;
        let renewed = |ms: u64| RenewedLeaseBody { remaining_ms: Some(ms), ..RenewedLeaseBody::default() };
        let mut results: Vec<_> = from.remaining_ms.into_iter().map(renewed).collect();
        for detail in from.details {
            let at = detail.index as usize;
            let Some(result) = results.get_mut(at) else { continue };
            *result = match detail.outcome {
                Some(Outcome::Current(current)) => RenewedLeaseBody {
                    remaining_ms: Some(current.remaining_ms),
                    token_number: (numbers.get(at) != Some(&current.token_number))
                        .then(|| current.token_number.to_string()),
                    drain_ms: current.drain_ms,
                    overlaps_ms: current.overlaps_ms,
                    ..RenewedLeaseBody::default()
                },
                Some(Outcome::Refused(refused)) => {
                    let ProblemBody { code, reason, state, .. } = refused.problem().into();
                    RenewedLeaseBody { code: Some(code), reason, state, ..RenewedLeaseBody::default() }
                }
                None => RenewedLeaseBody::default(),
            };
        }
        Self { results }
    }
}
