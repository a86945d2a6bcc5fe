//! The part of a snapshot in which places matter: sessions, leases and waiters, each with the ids that follow.

use std::collections::VecDeque;

use super::super::Table;
use super::super::lease::{Drain, Extra, Lease, NONE, Progress};
use super::super::party::{Ask, Remembered, Session, Waiter};
use super::super::term::{Clock, Term};
use super::holder_text;
use crate::codec::{Malformed, Reader, Write};
use crate::lease::{Access, Reason};
use crate::limits;
use crate::record::{Cause, Outcome, decode_access, encode_access};
use crate::refusal::number;
use crate::store::slots::{Place, Slots};
use crate::time::Millis;

impl Table {
    pub(super) fn encode_sessions(&self, out: &mut Vec<u8>) {
        encode_places(out, &self.sessions, |session, live, out| {
            if !live {
                return;
            }
            out.text(self.resources.names.get(self.parties.holder(session.holder).name));
            session.term.encode(&self.clock, self.time, out);
            out.raw(&session.secret);
            out.flag(session.waits_only);
            out.num(session.lowest);
            out.num(session.requests.len() as u64);
            for request in &session.requests {
                out.num(request.sequence);
                out.fixed(request.digest);
                request.outcome.encode(out);
            }
        });
    }

    pub(super) fn decode_sessions(&mut self, from: &mut Reader<'_>) -> Result<(), Malformed> {
        let (time, clock) = (self.time, self.clock.clone());
        let (parties, names) = (&mut self.parties, &mut self.resources.names);
        self.sessions = decode_places(from, limits::SESSIONS_TOLD, |live, from| {
            let mut session = Session {
                holder: NONE,
                term: Term::default(),
                secret: [0; 32],
                waits_only: false,
                parties: Vec::new(),
                leases: 0,
                waits: 0,
                digest: 0,
                requests: VecDeque::new(),
                lowest: 1,
            };
            if live {
                session.holder = parties.enter_holder(holder_text(from)?, names);
                parties.holder_mut(session.holder).sessions += 1;
                session.term = Term::decode(&clock, time, from)?;
                session.secret = from.array()?;
                session.waits_only = from.flag()?;
                session.lowest = from.num()?;
                for _ in 0..from.num()? {
                    let (sequence, digest) = (from.num()?, from.fixed()?);
                    session.remember(Remembered { sequence, digest, outcome: Outcome::decode(from)? });
                }
            }
            Ok(session)
        })?;
        let live: Vec<u32> = self.sessions.iter_live().map(|(slot, _, _)| slot).collect();
        live.into_iter().for_each(|slot| self.arm_session(slot));
        Ok(())
    }

    pub(super) fn encode_leases(&self, out: &mut Vec<u8>) {
        encode_places(out, &self.leases, |lease, live, out| {
            out.num(lease.number().get());
            if !live {
                out.u8(lease.buried().code());
                return;
            }
            let party = &self.parties[lease.party];
            out.text(self.resources.name(lease.resource));
            out.text(self.resources.names.get(self.parties.holder(party.holder).name));
            out.num(u64::from(party.session.wrapping_add(1)));
            encode_access(out, lease.access());
            out.num(u64::from(lease.slot()));
            out.u8(lease.priority());
            out.flag(lease.is_apart());
            out.num(lease.granted().0);
            lease.term.encode(&self.clock, self.time, out);
        });
        out.num(self.extras.len() as u64);
        for (slot, extra) in &self.extras {
            out.num(u64::from(*slot));
            self.encode_extra(extra, out);
        }
    }

    pub(super) fn decode_leases(&mut self, from: &mut Reader<'_>) -> Result<(), Malformed> {
        // Leases are put in their places first and hung on their resources and parties after.
        let (time, clock) = (self.time, self.clock.clone());
        let mut hang = Vec::new();
        let mut slot = 0u32;
        self.leases = decode_places(from, limits::ENDS_KEPT, |live, from| {
            let number = number(from)?;
            let lease = if live {
                let (resource, holder) = (from.text()?, holder_text(from)?);
                if resource.is_empty() || resource.len() > limits::NAME_BYTES {
                    return Err(from.wrong("a resource name of a wrong length"));
                }
                let session = from.num32()?.wrapping_sub(1);
                let access = decode_access(from)?;
                let (unit, priority, apart) = (from.num32()?, from.u8()?, from.flag()?);
                let granted = Millis(from.num()?);
                let term = Term::decode(&clock, time, from)?;
                let mut lease = Lease::new(number, granted, access, unit, priority, term);
                if apart {
                    lease.set_apart();
                }
                hang.push((slot, resource, holder, session));
                lease
            } else {
                let code = from.u8()?;
                let reason = Reason::from_code(code).ok_or_else(|| from.wrong("no such reason"))?;
                let mut lease = Lease::new(number, Millis(0), Access::Shared, 0, 0, Term::default());
                lease.bury(reason);
                lease
            };
            slot += 1;
            Ok(lease)
        })?;
        // Predecessors of overlaps first: the slot that one gave back is its successor's.
        hang.sort_by_key(|(slot, ..)| (!self.lease(*slot).is_apart(), *slot));
        for (slot, resource, holder, session) in hang {
            if session != NONE && !self.sessions.is_live(session) {
                return Err(from.wrong("a lease of a session that is not there"));
            }
            if session == NONE && self.lease(slot).rides() {
                return Err(from.wrong("a lease that neither has a ttl nor a session"));
            }
            let place = self.resources.enter(resource);
            let apart = self.lease(slot).is_apart();
            let fits = match self.resources.crowd(place) {
                Some(crowd) => crowd.fits(self.lease(slot).access(), u32::MAX),
                None => self.resources.sole(place) == NONE,
            };
            let party = self.enter_party(session, holder);
            if apart {
                self.resources.gather(place);
            } else if !fits && !self.resources.crowd(place).is_some_and(|crowd| crowd.for_operator) {
                return Err(from.wrong("more units held than there are"));
            }
            self.link_lease(slot, place, party);
            if apart {
                let lease = *self.lease(slot);
                self.resources.gather(place).give_back(lease.access(), lease.slot());
            }
        }
        for _ in 0..from.num()? {
            let slot = from.num32()?;
            if !self.leases.is_live(slot) {
                return Err(from.wrong("extras of a lease that is not there"));
            }
            let extra = decode_extra(&clock, time, from)?;
            if extra.successor.into_iter().chain(extra.predecessor).any(|other| !self.leases.is_live(other)) {
                return Err(from.wrong("an overlap with a lease that is not there"));
            }
            if let Some(at) = extra.pinned {
                let resource = self.lease(slot).resource;
                self.resources.gather(resource).pins.insert((at, slot));
            }
            self.change_extra(slot, |known| *known = extra);
        }
        let live: Vec<u32> = self.leases.iter_live().map(|(slot, _, _)| slot).collect();
        live.into_iter().for_each(|slot| self.arm_lease(slot));
        Ok(())
    }

    pub(super) fn encode_extra(&self, extra: &Extra, out: &mut Vec<u8>) {
        out.num(u64::from(extra.depth));
        out.maybe(extra.max_hold);
        out.maybe(extra.veto.map(|veto| veto.0));
        out.maybe(extra.pinned);
        out.maybe(extra.successor.map(u64::from));
        out.maybe(extra.predecessor.map(u64::from));
        out.bytes(&extra.metadata);
        out.flag(extra.progress.is_some());
        if let Some(progress) = &extra.progress {
            progress.term.encode(&self.clock, self.time, out);
            out.num(progress.at);
        }
        out.flag(extra.drain.is_some());
        if let Some(drain) = &extra.drain {
            out.num(drain.until.0);
            drain.cause.borrowed().encode(out);
        }
    }

    pub(super) fn encode_waiters(&self, out: &mut Vec<u8>) {
        encode_places(out, &self.waiters, |waiter, live, out| {
            if !live {
                return;
            }
            let party = &self.parties[waiter.party];
            out.num(u64::from(party.session));
            out.text(self.resources.names.get(self.parties.holder(party.holder).name));
            out.flag(waiter.several);
            out.num(u64::from(waiter.ttl));
            out.u8(waiter.priority);
            out.num(waiter.order);
            out.num(waiter.until.0);
            out.maybe(waiter.sequence);
            out.maybe(waiter.max_hold);
            out.maybe(waiter.progress);
            out.bytes(&waiter.metadata);
            out.num(waiter.asks.len() as u64);
            for ask in &waiter.asks {
                out.text(self.resources.name(ask.resource));
                encode_access(out, ask.access);
            }
        });
    }

    pub(super) fn decode_waiters(&mut self, from: &mut Reader<'_>) -> Result<(), Malformed> {
        let mut hang = Vec::new();
        let mut slot = 0u32;
        self.waiters = decode_places(from, 0, |live, from| {
            let mut waiter = Waiter {
                party: NONE,
                asks: Vec::new(),
                several: false,
                ttl: 0,
                priority: 0,
                effective: 0,
                order: 0,
                until: Millis(0),
                sequence: None,
                max_hold: None,
                progress: None,
                metadata: Box::default(),
                got: 0,
                tag: None,
                may_pass: false,
            };
            if live {
                let (session, holder) = (from.num32()?, holder_text(from)?);
                waiter.several = from.flag()?;
                waiter.ttl = from.num32()?;
                waiter.priority = from.u8()?;
                waiter.effective = waiter.priority;
                waiter.order = from.num()?;
                waiter.until = Millis(from.num()?);
                waiter.sequence = from.maybe()?;
                waiter.max_hold = from.maybe()?;
                waiter.progress = from.maybe()?;
                waiter.metadata = from.bytes()?.into();
                let count = from.num()?;
                if count == 0 || count > limits::MULTI as u64 {
                    return Err(from.wrong("a wait for too many resources, or none"));
                }
                let mut asks = Vec::new();
                for _ in 0..count {
                    asks.push((from.text()?, decode_access(from)?));
                }
                hang.push((slot, session, holder, asks));
            }
            slot += 1;
            Ok(waiter)
        })?;
        for (slot, session, holder, asks) in hang {
            if !self.sessions.is_live(session) {
                return Err(from.wrong("a wait of a session that is not there"));
            }
            let party = self.enter_party(session, holder);
            let asks: Vec<Ask> =
                asks.into_iter().map(|(name, access)| Ask { resource: self.resources.enter(name), access }).collect();
            let mut places: Vec<u32> = asks.iter().map(|ask| ask.resource).collect();
            places.sort_unstable();
            if places.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(from.wrong("a wait for the same resource twice"));
            }
            let waiter = self.waiters.at_mut(slot).expect("just decoded as live");
            waiter.party = party;
            waiter.asks = asks;
            self.enqueue(slot);
        }
        Ok(())
    }
}

fn decode_extra(clock: &Clock, time: Millis, from: &mut Reader<'_>) -> Result<Extra, Malformed> {
    let depth = from.num32()?;
    let max_hold = from.maybe()?;
    let veto = from.maybe()?.map(Millis);
    let pinned = from.maybe()?;
    let successor = from.maybe()?.map(|slot| slot as u32);
    let predecessor = from.maybe()?.map(|slot| slot as u32);
    let metadata = from.bytes()?.into();
    let progress = if from.flag()? {
        let term = Term::decode(clock, time, from)?;
        let at = from.num()?;
        Some(Progress { term, at, seen: at })
    } else {
        None
    };
    let drain = if from.flag()? {
        let until = Millis(from.num()?);
        Some(Drain { until, cause: Cause::decode(from)?.into() })
    } else {
        None
    };
    Ok(Extra { depth, max_hold, progress, veto, pinned, drain, successor, predecessor, metadata })
}

fn encode_places<T>(out: &mut Vec<u8>, slots: &Slots<T>, entry: impl Fn(&T, bool, &mut Vec<u8>)) {
    out.num(slots.places().count() as u64);
    for place in slots.places() {
        out.num(u64::from(place.reuse) << 1 | u64::from(place.live));
        entry(place.entry, place.live, out);
    }
    out.num(slots.vacant().count() as u64);
    for slot in slots.vacant() {
        out.num(u64::from(slot));
    }
}

fn decode_places<'a, T>(
    from: &mut Reader<'a>,
    keep: usize,
    mut entry: impl FnMut(bool, &mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Slots<T>, Malformed> {
    let count = from.num()?;
    let mut places = Vec::new();
    for _ in 0..count {
        let state = from.num()?;
        let reuse = u32::try_from(state >> 1).map_err(|_| from.wrong("reuse too large"))?;
        let live = state & 1 == 1;
        places.push(Place { reuse, live, entry: entry(live, from)? });
    }
    let mut vacant = Vec::new();
    for _ in 0..from.num()? {
        vacant.push(from.num32()?);
    }
    Slots::restore(keep, places, vacant).map_err(|_| from.wrong("places that cannot be"))
}
