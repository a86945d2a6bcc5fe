//! Encoding and decoding of events for sessions and watches.

use leasehold_core::command::SessionEvent;
use leasehold_core::coverage::Zombie;
use leasehold_core::lease::EndReason;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::GrantorTime;

use crate::enums::{decode_number, missing_field, required_enum};
use crate::problem::{decode_cycle, encode_cycle};
use crate::v1::event::Event as WireEvent;
use crate::{lease_bits, lease_id, v1};

/// Encodes an event. `resource` and `holder` are empty if the event has none.
pub fn encode_event(from: &SessionEvent, position: u64, resource: &str, holder: &str) -> v1::Event {
    let event = match from {
        SessionEvent::Granted { lease, number } => {
            WireEvent::Granted(v1::GrantedEvent { lease: lease_bits(*lease), token_number: number.get() })
        }
        SessionEvent::Ended { lease, number, reason } => WireEvent::Ended(v1::EndedEvent {
            lease: lease_bits(*lease),
            token_number: number.get(),
            reason: v1::EndReason::from(*reason).into(),
        }),
        SessionEvent::Draining { lease, until } => {
            WireEvent::Draining(v1::DrainingEvent { lease: lease_bits(*lease), until_ms: until.0 })
        }
        SessionEvent::Drained { lease } => WireEvent::Drained(lease_bits(*lease)),
        SessionEvent::Invalidate { key, lease } => {
            WireEvent::Invalidate(v1::CacheEvent { key: key.clone(), number: lease.get() })
        }
        SessionEvent::Clear { key, intent } => {
            WireEvent::Clear(v1::CacheEvent { key: key.clone(), number: intent.get() })
        }
        SessionEvent::Ready { queue } => WireEvent::Ready(queue.clone()),
        SessionEvent::Deadlock(found) => WireEvent::Deadlock(encode_cycle(found)),
        SessionEvent::RolledBack { presented: shown } => WireEvent::RolledBack(shown.get()),
        SessionEvent::Zombie(zombie) => {
            let event = WireEvent::Zombie(v1::ZombieEvent {
                target: zombie.target.clone(),
                slot: zombie.slot,
                presented: zombie.presented.get(),
                mark: zombie.mark.get(),
                times: zombie.times,
            });
            let (resource, holder) = (zombie.resource.clone(), zombie.holder.clone());
            return v1::Event { position, resource, holder, wall_ms: 0, event: Some(event) };
        }
        _ => return v1::Event { position, resource: resource.into(), holder: holder.into(), wall_ms: 0, event: None },
    };
    v1::Event { position, resource: resource.into(), holder: holder.into(), wall_ms: 0, event: Some(event) }
}

/// Decodes an event.
pub fn decode_event(from: &v1::Event) -> Result<SessionEvent, Refusal> {
    Ok(match from.event.as_ref().ok_or(missing_field("event"))? {
        WireEvent::Granted(event) => {
            SessionEvent::Granted { lease: lease_id(event.lease), number: decode_number(event.token_number)? }
        }
        WireEvent::Ended(event) => SessionEvent::Ended {
            lease: lease_id(event.lease),
            number: decode_number(event.token_number)?,
            reason: required_enum::<v1::EndReason, EndReason>(event.reason, "reason")?,
        },
        WireEvent::Draining(event) => {
            SessionEvent::Draining { lease: lease_id(event.lease), until: GrantorTime(event.until_ms) }
        }
        WireEvent::Drained(lease) => SessionEvent::Drained { lease: lease_id(*lease) },
        WireEvent::Invalidate(event) => {
            SessionEvent::Invalidate { key: event.key.clone(), lease: decode_number(event.number)? }
        }
        WireEvent::Clear(event) => SessionEvent::Clear { key: event.key.clone(), intent: decode_number(event.number)? },
        WireEvent::Ready(queue) => SessionEvent::Ready { queue: queue.clone() },
        WireEvent::Deadlock(found) => SessionEvent::Deadlock(Box::new(decode_cycle(found))),
        WireEvent::RolledBack(shown) => SessionEvent::RolledBack { presented: decode_number(*shown)? },
        WireEvent::Zombie(event) => SessionEvent::Zombie(Box::new(Zombie {
            resource: from.resource.clone(),
            slot: event.slot,
            target: event.target.clone(),
            holder: from.holder.clone(),
            presented: decode_number(event.presented)?,
            mark: decode_number(event.mark)?,
            times: event.times,
        })),
    })
}
