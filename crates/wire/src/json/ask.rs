//! What can be asked in JSON: each body becomes the message that a stream would carry.

use leasehold_core::charter::Style;
use leasehold_core::lease::Reason;
use leasehold_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::duration::Lasting;
use crate::v1::request::Ask;
use crate::words::maybe;
use crate::{lease_bits, session_bits, v1};

/// `POST /v1/leases/{name}:acquire`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct AcquireBody {
    /// Who; in a session the name of an actor, empty for the session's own.
    pub holder: String,
    /// How long a renewal lasts; absent in a session: as long as the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Lasting>,
    /// How long to wait; absent tries once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Lasting>,
    /// A reader among readers.
    pub shared: bool,
    /// One of so many slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// So many units, without a slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
    /// Higher goes first; 0 to 255.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The session that carries it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether a hold that the same actor already has is entered again.
    pub reentrant: bool,
    /// The longest it may be held, renewed or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<Lasting>,
    /// Renewal asks for progress at least this often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Lasting>,
    /// Words for people and discovery.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub metadata: String,
}

impl AcquireBody {
    /// The message for this resource.
    pub fn ask(self, resource: &str) -> Result<Ask, Refusal> {
        let (access, units) = match (self.shared, self.slots, self.units) {
            (false, None, None) => (v1::Access::Exclusive, 0),
            (true, None, None) => (v1::Access::Shared, 0),
            (false, Some(_), None) => (v1::Access::Slot, 0),
            (false, None, Some(units)) => (v1::Access::Units, units),
            _ => return Err(Refusal::Invalid { field: "shared", reason: "only one of shared, slots and units" }),
        };
        Ok(Ask::Acquire(v1::Acquire {
            resource: resource.into(),
            holder: self.holder,
            session: session(self.session.as_deref())?,
            access: access.into(),
            units,
            slots: self.slots,
            ttl_ms: self.ttl.map(Lasting::millis),
            terms: Some(v1::Terms {
                wait_ms: self.wait.map_or(0, Lasting::millis),
                priority: self.priority,
                reentrant: self.reentrant,
                max_hold_ms: self.max_hold.map(Lasting::millis),
                progress_ms: self.progress.map(Lasting::millis),
                metadata: self.metadata.into_bytes(),
            }),
        }))
    }
}

/// `POST /v1/leases/{name}:renew`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewBody {
    /// The text of the lease's token.
    #[serde(default)]
    pub token: String,
    /// A new ttl, if it should change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Lasting>,
    /// How far the work is, as a decimal text; must rise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
}

impl RenewBody {
    /// The message for this resource.
    pub fn ask(self, resource: &str) -> Result<Ask, Refusal> {
        let progress = self.progress.as_deref().map(|text| decimal("progress", text)).transpose()?;
        let held = Some(held(resource, self.token));
        Ok(Ask::Renew(v1::Renew { held, ttl_ms: self.ttl.map(Lasting::millis), progress }))
    }
}

/// `POST /v1/leases/{name}:release`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody {
    /// The text of the lease's token.
    #[serde(default)]
    pub token: String,
}

impl ReleaseBody {
    /// The message for this resource.
    pub fn ask(self, resource: &str) -> Ask {
        Ask::Release(held(resource, self.token))
    }
}

/// `POST /v1/leases/{name}:check`: whether a lease is current.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckBody {
    /// The text of the lease's token.
    #[serde(default)]
    pub token: String,
}

impl CheckBody {
    /// The message for this resource.
    pub fn ask(self, resource: &str) -> Ask {
        Ask::Confirm(held(resource, self.token))
    }
}

/// `POST /v1/leases/{name}:handoff`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HandoffBody {
    /// The text of the lease's token, if its holder asks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// To whom, if not to the first waiter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// `gap` or `overlap`, if not as the charter says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<String>,
    /// How long the predecessor may drain, if not as the charter says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Lasting>,
}

impl HandoffBody {
    /// The message for this resource.
    pub fn ask(self, resource: &str) -> Result<Ask, Refusal> {
        let style =
            |word: &str| Style::from_word(word).ok_or(Refusal::Invalid { field: "style", reason: "gap or overlap" });
        Ok(Ask::HandOff(v1::HandOff {
            which: Some(v1::hand_off::Which::Resource(resource.into())),
            number: None,
            token: self.token,
            to: self.to,
            style: maybe::<_, v1::Style>(self.style.as_deref().map(style).transpose()?),
            drain_ms: self.drain.map(Lasting::millis),
        }))
    }
}

/// `POST /v1/leases/{name}:revoke`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeBody {
    /// Why, in words.
    pub reason: String,
    /// One lease only, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Notice first, this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Lasting>,
}

impl RevokeBody {
    /// The message for this resource.
    pub fn ask(self, resource: &str) -> Result<Ask, Refusal> {
        use v1::revoke::Which;
        let which = match self.lease.as_deref() {
            None => Which::Resource(resource.into()),
            Some(text) => Which::Lease(lease_bits(text.parse().map_err(|_| not_an_id("lease"))?)),
        };
        Ok(Ask::Revoke(v1::Revoke {
            which: Some(which),
            reason: v1::Reason::from(Reason::Operator).into(),
            why: self.reason,
            grace_ms: self.grace.map_or(0, Lasting::millis),
        }))
    }
}

/// `POST /v1/leases/{name}:free`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FreeBody {
    /// Why, in words.
    pub reason: String,
}

impl FreeBody {
    /// The message for this resource.
    pub fn ask(self, resource: &str) -> Ask {
        Ask::Free(v1::Free { resource: resource.into(), why: self.reason })
    }
}

/// `POST /v1/leases/{name}:capacity`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CapacityBody {
    /// Units.
    pub units: u32,
}

impl CapacityBody {
    /// The message for this resource.
    pub fn ask(self, resource: &str) -> Ask {
        Ask::SetCapacity(v1::SetCapacity { resource: resource.into(), units: self.units })
    }
}

/// `POST /v1/quarantine:waive`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WaiveBody {
    /// Why, in words.
    pub reason: String,
}

impl WaiveBody {
    /// The message.
    pub fn ask(self) -> Ask {
        Ask::WaiveQuarantine(v1::WaiveQuarantine { why: self.reason })
    }
}

/// `POST /v1/sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenBody {
    /// Who it is for people to read.
    pub holder: String,
    /// How long a renewal lasts.
    pub ttl: Lasting,
}

impl OpenBody {
    /// The message.
    pub fn open(self) -> v1::OpenSession {
        v1::OpenSession { holder: self.holder, ttl_ms: self.ttl.millis(), waits_only: false }
    }
}

fn held(resource: &str, token: String) -> v1::Held {
    v1::Held { which: Some(v1::held::Which::Resource(resource.into())), number: 0, token, holder: None }
}

fn session(text: Option<&str>) -> Result<Option<u64>, Refusal> {
    text.map(|text| text.parse().map(session_bits).map_err(|_| not_an_id("session"))).transpose()
}

const fn not_an_id(field: &'static str) -> Refusal {
    Refusal::Invalid { field, reason: "not an id; it looks like 17.0" }
}

/// A number that JSON does not carry exactly is a text of digits.
pub(super) fn decimal(field: &'static str, text: &str) -> Result<u64, Refusal> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = if plain { text.parse().ok() } else { None };
    number.ok_or(Refusal::Invalid { field, reason: "a text of decimal digits below 2^64, like \"42\"" })
}
