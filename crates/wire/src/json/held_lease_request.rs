//! Request bodies of commands about a lease that its holder sends between acquire and release.

use leasehold_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::bytes::bytes_of;
use super::request_fields::{decimal, lease_ref};
use crate::duration::HumanDuration;
use crate::v1;
use crate::v1::request::Operation;

/// `POST /v1/leases/{name}:progress`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct ProgressBody {
    /// Text of the lease's token.
    #[serde(default)]
    pub token: String,
    /// Progress of the work, as decimal text; must rise.
    pub progress: String,
}

impl ProgressBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Result<Operation, Refusal> {
        let progress = decimal("progress", &self.progress)?;
        Ok(Operation::Progress(v1::Progress { lease: Some(lease_ref(resource, self.token)), progress }))
    }
}

/// A command that carries nothing but the lease's token: `:rotate`, `:drained` and `:confirm`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct TokenBody {
    /// Text of the lease's token.
    #[serde(default)]
    pub token: String,
}

impl TokenBody {
    /// Refers to the lease of this resource.
    pub fn into_lease(self, resource: &str) -> v1::LeaseRef {
        lease_ref(resource, self.token)
    }
}

/// `POST /v1/leases/{name}:resize`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct ResizeBody {
    /// Text of the lease's token.
    #[serde(default)]
    pub token: String,
    /// New number of reserved units.
    pub units: u32,
}

impl ResizeBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Operation {
        Operation::ResizeHold(v1::ResizeHold { lease: Some(lease_ref(resource, self.token)), units: self.units })
    }
}

/// `POST /v1/leases/{name}:veto`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct VetoBody {
    /// Text of the lease's token.
    #[serde(default)]
    pub token: String,
    /// How long from now the expiry is deferred. The charter limits the total.
    pub duration: HumanDuration,
}

impl VetoBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Operation {
        let lease = Some(lease_ref(resource, self.token));
        Operation::Veto(v1::Veto { lease, duration_ms: self.duration.millis() })
    }
}

/// `POST /v1/leases/{name}:put`: writes small state under the lease. Without a value the key is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct PutBody {
    /// Text of the lease's token.
    #[serde(default)]
    pub token: String,
    /// The key.
    pub key: String,
    /// The value as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The value as bytes in base64, instead of `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
    /// Write only if the key has this revision; decimal text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_revision: Option<String>,
}

impl PutBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Result<Operation, Refusal> {
        let expected = self.expected_revision.as_deref();
        Ok(Operation::Put(v1::Put {
            lease: Some(lease_ref(resource, self.token)),
            key: self.key,
            value: bytes_of("value", "value_base64", self.value, self.value_base64)?,
            expected_revision: expected.map(|text| decimal("expected_revision", text)).transpose()?,
        }))
    }
}

/// `POST /v1/leases/{name}:pin`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct PinBody {
    /// Text of the token of the reader's shared lease.
    #[serde(default)]
    pub token: String,
    /// Everything from this position on is retained; decimal text.
    pub position: String,
}

impl PinBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Result<Operation, Refusal> {
        let position = decimal("position", &self.position)?;
        Ok(Operation::Pin(v1::Pin { lease: Some(lease_ref(resource, self.token)), position }))
    }
}

/// `POST /v1/leases/{name}:collect`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct CollectBody {
    /// Delete below this position, or below the lowest live pin if that is lower; decimal text.
    pub below: String,
}

impl CollectBody {
    /// Converts the body into the request for this resource.
    pub fn into_operation(self, resource: &str) -> Result<Operation, Refusal> {
        Ok(Operation::Collect(v1::Collect { resource: resource.into(), below: decimal("below", &self.below)? }))
    }
}

/// The result of a put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RevisionBody {
    /// New revision of the key; null if the key was deleted.
    pub revision: Option<String>,
}

/// How far a collector may delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CollectBelowBody {
    /// Data below this position may be deleted.
    pub collect_below: String,
}
