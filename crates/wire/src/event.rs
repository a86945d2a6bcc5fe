//! What happened, told to a session or to those who watch.

use leasehold_core::command::Event;
use leasehold_core::coverage::Zombie;
use leasehold_core::lease::Reason;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::Millis;

use crate::problem::{cycle, read_cycle};
use crate::v1::event::Event as Told;
use crate::words::{absent, must_say, number};
use crate::{lease_bits, lease_id, v1};

/// An event as it is told, with the names of what it is about, where they are known.
pub fn event(from: &Event, position: u64, resource: &str, holder: &str) -> v1::Event {
    let told = match from {
        Event::Granted { lease, number } => {
            Told::Granted(v1::GrantedEvent { lease: lease_bits(*lease), token_number: number.get() })
        }
        Event::Ended { lease, number, reason } => Told::Ended(v1::EndedEvent {
            lease: lease_bits(*lease),
            token_number: number.get(),
            reason: v1::Reason::from(*reason).into(),
        }),
        Event::Draining { lease, until } => {
            Told::Draining(v1::DrainingEvent { lease: lease_bits(*lease), until_ms: until.0 })
        }
        Event::Drained { lease } => Told::Drained(lease_bits(*lease)),
        Event::Invalidate { key, lease } => Told::Invalidate(v1::CacheEvent { key: key.clone(), number: lease.get() }),
        Event::Clear { key, intent } => Told::Clear(v1::CacheEvent { key: key.clone(), number: intent.get() }),
        Event::Ready { queue } => Told::Ready(queue.clone()),
        Event::Deadlock(found) => Told::Deadlock(cycle(found)),
        Event::RolledBack { shown } => Told::RolledBack(shown.get()),
        Event::Zombie(zombie) => {
            let told = Told::Zombie(v1::ZombieEvent {
                target: zombie.target.clone(),
                slot: zombie.slot,
                presented: zombie.presented.get(),
                mark: zombie.mark.get(),
                times: zombie.times,
            });
            let (resource, holder) = (zombie.resource.clone(), zombie.holder.clone());
            return v1::Event { position, resource, holder, event: Some(told) };
        }
        _ => return v1::Event { position, resource: resource.into(), holder: holder.into(), event: None },
    };
    v1::Event { position, resource: resource.into(), holder: holder.into(), event: Some(told) }
}

/// An event as it is heard.
pub fn read_event(from: &v1::Event) -> Result<Event, Refusal> {
    Ok(match from.event.as_ref().ok_or(absent("event"))? {
        Told::Granted(told) => Event::Granted { lease: lease_id(told.lease), number: number(told.token_number)? },
        Told::Ended(told) => Event::Ended {
            lease: lease_id(told.lease),
            number: number(told.token_number)?,
            reason: must_say::<v1::Reason, Reason>(told.reason, "reason")?,
        },
        Told::Draining(told) => Event::Draining { lease: lease_id(told.lease), until: Millis(told.until_ms) },
        Told::Drained(lease) => Event::Drained { lease: lease_id(*lease) },
        Told::Invalidate(told) => Event::Invalidate { key: told.key.clone(), lease: number(told.number)? },
        Told::Clear(told) => Event::Clear { key: told.key.clone(), intent: number(told.number)? },
        Told::Ready(queue) => Event::Ready { queue: queue.clone() },
        Told::Deadlock(found) => Event::Deadlock(Box::new(read_cycle(found))),
        Told::RolledBack(shown) => Event::RolledBack { shown: number(*shown)? },
        Told::Zombie(told) => Event::Zombie(Box::new(Zombie {
            resource: from.resource.clone(),
            slot: told.slot,
            target: told.target.clone(),
            holder: from.holder.clone(),
            presented: number(told.presented)?,
            mark: number(told.mark)?,
            times: told.times,
        })),
    })
}
