//! Body of an event in a watch feed.

use leasehold_core::lease::EndReason;
use serde::{Deserialize, Serialize};

use super::view::CycleMemberBody;
use super::{ended_state, optional_enum_word};
use crate::{lease_id, v1};

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventBody {
    /// `granted`, `ended`, `draining`, `drained`, `invalidate`, `clear`, `ready`, `deadlock`, `rolled_back` or `zombie`.
    pub event: String,
    /// Journal position that the event depends on.
    pub position: u64,
    /// Wall clock of the server when the event became durable, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// The resource, or the cached key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Name of the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Id of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Number of a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_number: Option<String>,
    /// `released`, `expired` or `revoked`; for an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Reason of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Grantor time at which the lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The target that refused a zombie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Slot of that target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// The mark of the fence; the zombie presented `token_number`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// Refused writes since the previous report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// The first members of the deadlock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<CycleMemberBody>,
}

impl From<v1::Event> for EventBody {
    fn from(from: v1::Event) -> Self {
        use v1::event::Event;
        let some = |text: String| (!text.is_empty()).then_some(text);
        let lease = |bits: u64| Some(lease_id(bits).to_string());
        let number = |number: u64| Some(number.to_string());
        let base = Self {
            position: from.position,
            wall_ms: (from.wall_ms != 0).then_some(from.wall_ms),
            resource: some(from.resource),
            holder: some(from.holder),
            ..Self::default()
        };
        let named = |event: &str| event.to_owned();
        match from.event {
            None => base,
            Some(Event::Granted(event)) => Self {
                event: named("granted"),
                lease: lease(event.lease),
                token_number: number(event.token_number),
                ..base
            },
            Some(Event::Ended(event)) => Self {
                event: named("ended"),
                lease: lease(event.lease),
                token_number: number(event.token_number),
                state: optional_enum_word::<v1::EndReason, _>(event.reason, ended_state),
                reason: optional_enum_word::<v1::EndReason, _>(event.reason, EndReason::word),
                ..base
            },
            Some(Event::Draining(event)) => {
                Self { event: named("draining"), lease: lease(event.lease), until_ms: Some(event.until_ms), ..base }
            }
            Some(Event::Drained(bits)) => Self { event: named("drained"), lease: lease(bits), ..base },
            Some(Event::Invalidate(event)) => Self {
                event: named("invalidate"),
                resource: Some(event.key),
                token_number: number(event.number),
                ..base
            },
            Some(Event::Clear(event)) => {
                Self { event: named("clear"), resource: Some(event.key), token_number: number(event.number), ..base }
            }
            Some(Event::Ready(queue)) => Self { event: named("ready"), resource: Some(queue), ..base },
            Some(Event::Deadlock(cycle)) => {
                Self { event: named("deadlock"), cycle: cycle.members.into_iter().map(Into::into).collect(), ..base }
            }
            Some(Event::Zombie(event)) => Self {
                event: named("zombie"),
                token_number: number(event.presented),
                target: some(event.target),
                slot: Some(event.slot),
                mark: number(event.mark),
                times: Some(event.times),
                ..base
            },
            Some(Event::RolledBack(presented)) => {
                Self { event: named("rolled_back"), token_number: number(presented), ..base }
            }
        }
    }
}
