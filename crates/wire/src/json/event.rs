//! What happened, as a line of a feed.

use leasehold_core::lease::Reason;
use serde::{Deserialize, Serialize};

use super::maybe_word;
use super::view::CycleMemberBody;
use crate::{lease_id, v1};

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventBody {
    /// `granted`, `ended`, `draining`, `drained`, `invalidate`, `clear`, `ready`, `deadlock`, `rolled_back` or `zombie`.
    pub event: String,
    /// The journal position it depends on.
    pub position: u64,
    /// The resource, or the cached key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// A token's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_number: Option<String>,
    /// `expired` or `revoked`, with an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it ends, in grantor time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The target that refused a zombie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The slot of that target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// The number that stood at that target; the zombie's own is `token_number`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// How often it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// The first members of a deadlock.
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
            resource: some(from.resource),
            holder: some(from.holder),
            ..Self::default()
        };
        let named = |event: &str| event.to_owned();
        match from.event {
            None => base,
            Some(Event::Granted(told)) => Self {
                event: named("granted"),
                lease: lease(told.lease),
                token_number: number(told.token_number),
                ..base
            },
            Some(Event::Ended(told)) => Self {
                event: named("ended"),
                lease: lease(told.lease),
                token_number: number(told.token_number),
                state: maybe_word::<v1::Reason, _>(told.reason, |reason: Reason| reason.state().word()),
                reason: maybe_word::<v1::Reason, _>(told.reason, Reason::word),
                ..base
            },
            Some(Event::Draining(told)) => {
                Self { event: named("draining"), lease: lease(told.lease), until_ms: Some(told.until_ms), ..base }
            }
            Some(Event::Drained(bits)) => Self { event: named("drained"), lease: lease(bits), ..base },
            Some(Event::Invalidate(told)) => {
                Self { event: named("invalidate"), resource: Some(told.key), token_number: number(told.number), ..base }
            }
            Some(Event::Clear(told)) => {
                Self { event: named("clear"), resource: Some(told.key), token_number: number(told.number), ..base }
            }
            Some(Event::Ready(queue)) => Self { event: named("ready"), resource: Some(queue), ..base },
            Some(Event::Deadlock(found)) => {
                Self { event: named("deadlock"), cycle: found.members.into_iter().map(Into::into).collect(), ..base }
            }
            Some(Event::Zombie(told)) => Self {
                event: named("zombie"),
                token_number: number(told.presented),
                target: some(told.target),
                slot: Some(told.slot),
                mark: number(told.mark),
                times: Some(told.times),
                ..base
            },
            Some(Event::RolledBack(shown)) => Self { event: named("rolled_back"), token_number: number(shown), ..base },
        }
    }
}
