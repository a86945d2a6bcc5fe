//! What a holder is told in JSON: grants, renewals and sessions.

use leasehold_core::lease::{Reason, Rung, State};
use serde::{Deserialize, Serialize};

use super::{hex, maybe_word, word};
use crate::{lease_id, session_id, v1};

/// A lease as granted. The token is the text that fences take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantBody {
    /// The resource.
    pub resource: String,
    /// The lease's id.
    pub lease: String,
    /// Who holds it.
    pub holder: String,
    /// The text that fences take.
    pub token: String,
    /// Its number.
    pub token_number: String,
    /// The slot; none for readers and for units without a slot.
    pub slot: Option<u32>,
    /// How long a renewal lasts.
    pub ttl_ms: u64,
    /// How long it lives unless renewed.
    pub remaining_ms: u64,
    /// What it stands on.
    pub rung: String,
    /// `held`.
    pub state: String,
    /// Why it is over, if it is.
    pub reason: Option<String>,
    /// The predecessor still drains for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlaps_ms: Option<u64>,
}

impl From<v1::Grant> for GrantBody {
    fn from(from: v1::Grant) -> Self {
        Self {
            lease: lease_id(from.lease).to_string(),
            token_number: from.token_number.to_string(),
            slot: (from.reach == v1::Reach::Slot as i32).then_some(from.slot),
            ttl_ms: from.ttl_ms,
            remaining_ms: from.remaining_ms,
            rung: word::<v1::Rung, _>(from.rung, Rung::word),
            state: word::<v1::State, _>(from.state, State::word),
            reason: maybe_word::<v1::Reason, _>(from.reason, Reason::word),
            overlaps_ms: from.overlaps_ms,
            resource: from.resource,
            holder: from.holder,
            token: from.token,
        }
    }
}

/// A lease that is current.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CurrentBody {
    /// The resource.
    pub resource: String,
    /// Its token's number.
    pub token_number: String,
    /// Its token's text, where the token was raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How long it lives unless renewed again.
    pub remaining_ms: u64,
    /// It must be given up within this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// The predecessor of an overlap still drains for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlaps_ms: Option<u64>,
    /// `held`.
    pub state: String,
}

impl CurrentBody {
    /// The body for this resource.
    pub fn new(resource: &str, from: v1::Current) -> Self {
        Self {
            resource: resource.into(),
            token_number: from.token_number.to_string(),
            token: (!from.token.is_empty()).then_some(from.token),
            remaining_ms: from.remaining_ms,
            drain_ms: from.drain_ms,
            overlaps_ms: from.overlaps_ms,
            state: State::Held.word().into(),
        }
    }
}

/// A session as opened.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionBody {
    /// Its id.
    pub session: String,
    /// What to come back with, in hexadecimal; only when it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The cluster, as tokens print it.
    pub cluster: String,
    /// Its incarnation, as tokens print it.
    pub incarnation: String,
    /// What leases stand on here.
    pub rung: String,
    /// The longest ttl of the cluster.
    pub max_ttl_ms: u64,
    /// How long a renewal of the session lasts.
    pub ttl_ms: u64,
    /// How long the session lives unless renewed.
    pub remaining_ms: u64,
}

/// Without the secret: it must not reach a log.
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
            rung: word::<v1::Rung, _>(from.rung, Rung::word),
            max_ttl_ms: from.max_ttl_ms,
            ttl_ms: from.ttl_ms,
            remaining_ms: from.remaining_ms,
            cluster: from.cluster,
            incarnation: from.incarnation,
        }
    }
}

/// A session as renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionStateBody {
    /// Its id.
    pub session: String,
    /// How long a renewal of the session lasts.
    pub ttl_ms: u64,
    /// How long the session lives unless renewed.
    pub remaining_ms: u64,
}

/// It is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DoneBody {
    /// Always true.
    pub done: bool,
}
