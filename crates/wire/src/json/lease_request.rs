//! Request bodies about one lease or resource. Each one converts into the operation that a session stream would carry.

use leasehold_core::charter::HandoffMode;
use leasehold_core::lease::EndReason;
use leasehold_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::request_fields::{decimal, invalid_id, lease_ref, session};
use crate::duration::HumanDuration;
use crate::enums::encode_optional;
use crate::v1::request::Operation;
use crate::{lease_bits, v1};

/// `POST /v1/leases/{name}:acquire`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields, default)]
pub struct AcquireBody {
    /// Name of the holder. Within a session: name of an actor; empty for the session's own holder.
    pub holder: String,
    /// Time until the lease expires unless renewed. Absent: the lease lives as long as its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<HumanDuration>,
    /// Longest wait if the resource is held; fail immediately if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<HumanDuration>,
    /// Acquire a shared (read) lease.
    pub shared: bool,
    /// Acquire one of this many numbered slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Reserve this many units, without a slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
    /// Waiters with a higher priority are served first: 0 to 255, 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Id of the session that carries the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether to enter a lease again that the same actor already holds.
    pub reentrant: bool,
    /// Maximum time the lease may be held, including renewals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<HumanDuration>,
    /// Longest time between two progress reports; the lease ends as stalled otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<HumanDuration>,
    /// Text for people and service discovery.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub metadata: String,
}

impl AcquireBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Result<Operation, Refusal> {
        let (access, units) = match (self.shared, self.slots, self.units) {
            (false, None, None) => (v1::Access::Exclusive, 0),
            (true, None, None) => (v1::Access::Shared, 0),
            (false, Some(_), None) => (v1::Access::Slot, 0),
            (false, None, Some(units)) => (v1::Access::Units, units),
            _ => return Err(Refusal::Invalid { field: "shared", reason: "only one of shared, slots and units" }),
        };
        Ok(Operation::Acquire(v1::Acquire {
            resource: resource.into(),
            holder: self.holder,
            session: session(self.session.as_deref())?,
            access: access.into(),
            units,
            slots: self.slots,
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

/// `POST /v1/leases/{name}:renew`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct RenewBody {
    /// Text of the lease's token.
    #[serde(default)]
    pub token: String,
    /// New ttl; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<HumanDuration>,
    /// Progress of the work, as decimal text; must rise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
}

impl RenewBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Result<Operation, Refusal> {
        let progress = self.progress.as_deref().map(|text| decimal("progress", text)).transpose()?;
        let lease = Some(lease_ref(resource, self.token));
        Ok(Operation::Renew(v1::Renew { lease, ttl_ms: self.ttl.map(HumanDuration::millis), progress }))
    }
}

/// `POST /v1/leases/{name}:release`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct ReleaseBody {
    /// Text of the lease's token.
    #[serde(default)]
    pub token: String,
}

impl ReleaseBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Operation {
        Operation::Release(lease_ref(resource, self.token))
    }
}

/// `POST /v1/leases/{name}:check`: checks whether a lease is current.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct CheckBody {
    /// Text of the lease's token.
    #[serde(default)]
    pub token: String,
}

impl CheckBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Operation {
        Operation::Check(lease_ref(resource, self.token))
    }
}

/// `POST /v1/leases/{name}:handoff`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct HandoffBody {
    /// Text of the lease's token, if the holder requests the handoff.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// Name of the successor; the first waiter if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// `gap` or `overlap`; as the charter declares if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// How long the predecessor may drain; as the charter declares if absent. At least the drain period that its grant stated, or the
    /// remaining time of its lease if that is shorter: a holder without contact continues for that long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<HumanDuration>,
}

impl HandoffBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Result<Operation, Refusal> {
        let mode = |word: &str| {
            HandoffMode::from_word(word).ok_or(Refusal::Invalid { field: "mode", reason: "gap or overlap" })
        };
        Ok(Operation::Handoff(v1::Handoff {
            selector: Some(v1::handoff::Selector::Resource(resource.into())),
            token_number: None,
            token: self.token,
            to: self.to,
            mode: encode_optional::<_, v1::HandoffMode>(self.mode.as_deref().map(mode).transpose()?),
            drain_ms: self.drain.map(HumanDuration::millis),
        }))
    }
}

/// `POST /v1/leases/{name}:revoke`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct RevokeBody {
    /// Comment for the audit log.
    pub comment: String,
    /// Revoke only the lease with this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Grace period: the holder may drain this long before the lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<HumanDuration>,
}

impl RevokeBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Result<Operation, Refusal> {
        use v1::revoke::Selector;
        let which = match self.lease.as_deref() {
            None => Selector::Resource(resource.into()),
            Some(text) => Selector::Lease(lease_bits(text.parse().map_err(|_| invalid_id("lease"))?)),
        };
        Ok(Operation::Revoke(v1::Revoke {
            selector: Some(which),
            reason: v1::EndReason::from(EndReason::Operator).into(),
            comment: self.comment,
            grace_ms: self.grace.map_or(0, HumanDuration::millis),
        }))
    }
}

/// `POST /v1/leases/{name}:free`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct FreeBody {
    /// Comment for the audit log.
    pub comment: String,
}

impl FreeBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Operation {
        Operation::Free(v1::Free { resource: resource.into(), comment: self.comment })
    }
}

/// `POST /v1/leases/{name}:capacity`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct CapacityBody {
    /// Capacity in units.
    pub units: u32,
}

impl CapacityBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Operation {
        Operation::SetCapacity(v1::SetCapacity { resource: resource.into(), units: self.units })
    }
}
