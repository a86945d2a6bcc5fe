//! Snapshot sections with slots: sessions, leases and waiters, with the vacant slots that determine later ids.

use std::collections::VecDeque;

use super::super::GrantorTable;
use super::super::actors::{ResourceRequest, SessionEntry, StoredReply, Waiter};
use super::super::deadline::{RenewableDeadline, StallClock};
use super::super::lease::{Drain, LeaseExtra, NONE, Progress, StoredLease};
use super::holder_text;
use super::snapshot_owners::SnapshotOwners;
use crate::access::IdentityUsage;
use crate::codec::{DecodeError, Reader, Write};
use crate::lease::{Access, EndReason};
use crate::limits;
use crate::record::{DrainCause, StoredOutcome, decode_access, encode_access};
use crate::refusal::number;
use crate::store::slab::{Slab, SlabEntry};
use crate::time::GrantorTime;

impl GrantorTable {
    pub(super) fn encode_sessions(&self, out: &mut Vec<u8>) {
        encode_slab(out, &self.sessions, |session, live, out| {
            if !live {
                return;
            }
            out.text(self.resources.names.get(self.actors.holder(session.holder).name));
            session.renewal.encode(&self.clock, self.time, out);
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

    pub(super) fn decode_sessions(
        &mut self,
        owners: &SnapshotOwners<'_>,
        from: &mut Reader<'_>,
    ) -> Result<(), DecodeError> {
        let (time, clock) = (self.time, self.clock.clone());
        let (actors, names, known_owners) = (&mut self.actors, &mut self.resources.names, &mut self.owners);
        let mut slot = 0u32;
        self.sessions = decode_slab(from, limits::ENDED_SESSIONS, |live, from| {
            let mut session = SessionEntry {
                owner: known_owners.intern(owners.of_session(slot)),
                checked: 0,
                holder: NONE,
                renewal: RenewableDeadline::default(),
                secret: [0; 32],
                waits_only: false,
                actors: Vec::new(),
                leases: 0,
                waits: 0,
                digest: 0,
                requests: VecDeque::new(),
                lowest: 1,
            };
            if live {
                let holder = holder_text(from)?;
                session.holder = actors.intern_holder(holder, names);
                actors.holder_mut(session.holder).sessions += 1;
                session.renewal = RenewableDeadline::decode(&clock, time, from)?;
                session.secret = from.array()?;
                session.waits_only = from.flag()?;
                known_owners.usage_mut(session.owner).add(IdentityUsage::of_session(session.waits_only, holder));
                session.lowest = from.num()?;
                for _ in 0..from.num()? {
                    let (sequence, digest) = (from.num()?, from.fixed()?);
                    session.store_reply(StoredReply { sequence, digest, outcome: StoredOutcome::decode(from)? });
                }
            }
            slot += 1;
            Ok(session)
        })?;
        if owners.last_session().is_some_and(|last| last >= slot) {
            return Err(from.wrong("an owner of a session that does not exist"));
        }
        let live: Vec<u32> = self.sessions.iter_live().map(|(slot, _, _)| slot).collect();
        for slot in live {
            self.arm_session(slot);
            self.index_key_session(slot);
        }
        Ok(())
    }

    pub(super) fn encode_leases(&self, out: &mut Vec<u8>) {
        encode_slab(out, &self.leases, |lease, live, out| {
            out.num(lease.number().get());
            if !live {
                out.u8(lease.end_reason().code());
                return;
            }
            let actor = &self.actors[lease.actor];
            out.text(self.resources.name(lease.resource));
            out.text(self.resources.names.get(self.actors.holder(actor.holder).name));
            out.num(u64::from(actor.session.wrapping_add(1)));
            encode_access(out, lease.access());
            out.num(u64::from(lease.slot()));
            out.u8(lease.priority());
            out.flag(lease.is_predecessor());
            out.num(lease.granted().0);
            lease.renewal.encode(&self.clock, self.time, out);
        });
        out.num(self.extras.len() as u64);
        for (slot, extra) in &self.extras {
            out.num(u64::from(*slot));
            self.encode_extra(extra, out);
        }
    }

    pub(super) fn decode_leases(
        &mut self,
        owners: &SnapshotOwners<'_>,
        from: &mut Reader<'_>,
    ) -> Result<(), DecodeError> {
        // Leases are placed in their slots first, and linked to their resources and actors afterwards.
        let (time, clock) = (self.time, self.clock.clone());
        let known_owners = &mut self.owners;
        let mut unlinked = Vec::new();
        let mut slot = 0u32;
        self.leases = decode_slab(from, limits::ENDED_LEASES, |live, from| {
            let number = number(from)?;
            let lease = if live {
                let (resource, holder) = (from.text()?, holder_text(from)?);
                if resource.is_empty() || resource.len() > limits::NAME_BYTES {
                    return Err(from.wrong("a resource name of a wrong length"));
                }
                let session = from.num32()?.wrapping_sub(1);
                let access = decode_access(from)?;
                let (unit, priority, apart) = (from.num32()?, from.u8()?, from.flag()?);
                let granted = GrantorTime(from.num()?);
                let renewal = RenewableDeadline::decode(&clock, time, from)?;
                let mut lease = StoredLease::new(number, granted, access, unit, priority, renewal);
                if apart {
                    lease.set_predecessor();
                }
                unlinked.push((slot, resource, holder, session));
                lease
            } else {
                let code = from.u8()?;
                let reason = EndReason::from_code(code).ok_or_else(|| from.wrong("no such reason"))?;
                let mut lease =
                    StoredLease::new(number, GrantorTime(0), Access::Shared, 0, 0, RenewableDeadline::default());
                lease.set_tombstone(reason);
                lease.owner = known_owners.intern(owners.of_lease(slot));
                lease
            };
            slot += 1;
            Ok(lease)
        })?;
        if owners.last_lease().is_some_and(|last| last >= slot) {
            return Err(from.wrong("an owner of a lease that does not exist"));
        }
        // Predecessors of overlap handoffs first: their resource slot now belongs to the successor.
        unlinked.sort_by_key(|(slot, ..)| (!self.lease(*slot).is_predecessor(), *slot));
        for (slot, resource, holder, session) in unlinked {
            if session != NONE && !self.sessions.is_live(session) {
                return Err(from.wrong("a lease of a session that does not exist"));
            }
            if session == NONE && self.lease(slot).follows_session() {
                return Err(from.wrong("a lease with neither a ttl nor a session"));
            }
            let at = self.resources.enter(resource);
            let apart = self.lease(slot).is_predecessor();
            let fits = match self.resources.state(at) {
                Some(state) => state.fits(self.lease(slot).access(), u32::MAX),
                None => self.resources.sole(at) == NONE,
            };
            let owner = owners.of_lease(slot);
            if session != NONE && owner.is_some() {
                return Err(from.wrong("an owner of a lease in a session"));
            }
            let actor = if session == NONE {
                let owner = self.owners.intern(owner);
                self.enter_sessionless_actor(owner, holder)
            } else {
                self.enter_actor(session, holder)
            };
            if apart {
                self.resources.ensure_state(at);
            } else if !fits && !self.resources.state(at).is_some_and(|state| state.for_operator) {
                return Err(from.wrong("more units granted than the capacity"));
            }
            self.link_lease(slot, at, actor);
            if apart {
                let lease = *self.lease(slot);
                self.resources.ensure_state(at).release_access(lease.access(), lease.slot());
            }
        }
        for _ in 0..from.num()? {
            let slot = from.num32()?;
            if !self.leases.is_live(slot) {
                return Err(from.wrong("extra fields of a lease that does not exist"));
            }
            let extra = decode_extra(&clock, time, from)?;
            if extra.successor.into_iter().chain(extra.predecessor).any(|other| !self.leases.is_live(other)) {
                return Err(from.wrong("an overlap with a lease that does not exist"));
            }
            if let Some(at) = extra.pinned {
                let resource = self.lease(slot).resource;
                self.resources.ensure_state(resource).pins.insert((at, slot));
            }
            self.change_extra(slot, |known| *known = extra);
            self.count_metadata(slot);
        }
        let live: Vec<u32> = self.leases.iter_live().map(|(slot, _, _)| slot).collect();
        live.into_iter().for_each(|slot| self.arm_lease(slot));
        Ok(())
    }

    pub(super) fn encode_extra(&self, extra: &LeaseExtra, out: &mut Vec<u8>) {
        out.num(u64::from(extra.depth));
        out.maybe(extra.max_hold);
        out.maybe(extra.veto.map(|veto| veto.0));
        out.maybe(extra.pinned);
        out.maybe(extra.successor.map(u64::from));
        out.maybe(extra.predecessor.map(u64::from));
        out.bytes(&extra.metadata);
        out.flag(extra.progress.is_some());
        if let Some(progress) = &extra.progress {
            progress.renewal.encode(&self.clock, self.time, out);
            out.num(progress.at);
        }
        out.flag(extra.drain.is_some());
        if let Some(drain) = &extra.drain {
            out.num(drain.until.0);
            drain.cause.borrowed().encode(out);
        }
    }

    pub(super) fn encode_waiters(&self, out: &mut Vec<u8>) {
        encode_slab(out, &self.waiters, |waiter, live, out| {
            if !live {
                return;
            }
            let actor = &self.actors[waiter.actor];
            out.num(u64::from(actor.session));
            out.text(self.resources.names.get(self.actors.holder(actor.holder).name));
            out.flag(waiter.atomic);
            out.num(u64::from(waiter.ttl));
            out.u8(waiter.priority);
            out.num(waiter.order);
            out.num(waiter.until.0);
            out.maybe(waiter.sequence);
            out.maybe(waiter.max_hold);
            out.maybe(waiter.progress);
            out.bytes(&waiter.metadata);
            out.num(waiter.resources.len() as u64);
            for wanted in &waiter.resources {
                out.text(self.resources.name(wanted.resource));
                encode_access(out, wanted.access);
            }
        });
    }

    pub(super) fn decode_waiters(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut unlinked = Vec::new();
        let mut slot = 0u32;
        self.waiters = decode_slab(from, 0, |live, from| {
            let mut waiter = Waiter {
                actor: NONE,
                resources: Vec::new(),
                atomic: false,
                ttl: 0,
                priority: 0,
                effective: 0,
                order: 0,
                until: GrantorTime(0),
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
                waiter.atomic = from.flag()?;
                waiter.ttl = from.num32()?;
                waiter.priority = from.u8()?;
                waiter.effective = waiter.priority;
                waiter.order = from.num()?;
                waiter.until = GrantorTime(from.num()?);
                waiter.sequence = from.maybe()?;
                waiter.max_hold = from.maybe()?;
                waiter.progress = from.maybe()?;
                waiter.metadata = from.bytes()?.into();
                let count = from.num()?;
                if count == 0 || count > limits::MULTI as u64 {
                    return Err(from.wrong("a wait for too many resources, or none"));
                }
                let mut resources = Vec::new();
                for _ in 0..count {
                    resources.push((from.text()?, decode_access(from)?));
                }
                unlinked.push((slot, session, holder, resources));
            }
            slot += 1;
            Ok(waiter)
        })?;
        for (slot, session, holder, resources) in unlinked {
            if !self.sessions.is_live(session) {
                return Err(from.wrong("a wait of a session that does not exist"));
            }
            let actor = self.enter_actor(session, holder);
            let resources: Vec<ResourceRequest> = resources
                .into_iter()
                .map(|(name, access)| ResourceRequest { resource: self.resources.enter(name), access })
                .collect();
            let mut places: Vec<u32> = resources.iter().map(|wanted| wanted.resource).collect();
            places.sort_unstable();
            if places.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(from.wrong("a wait for the same resource twice"));
            }
            let waiter = self.waiters.at_mut(slot).expect("just decoded as live");
            waiter.actor = actor;
            waiter.resources = resources;
            self.enqueue(slot);
        }
        Ok(())
    }
}

fn decode_extra(clock: &StallClock, time: GrantorTime, from: &mut Reader<'_>) -> Result<LeaseExtra, DecodeError> {
    let depth = from.num32()?;
    let max_hold = from.maybe()?;
    let veto = from.maybe()?.map(GrantorTime);
    let pinned = from.maybe()?;
    let successor = from.maybe()?.map(|slot| slot as u32);
    let predecessor = from.maybe()?.map(|slot| slot as u32);
    let metadata = from.bytes()?.into();
    let progress = if from.flag()? {
        let renewal = RenewableDeadline::decode(clock, time, from)?;
        let at = from.num()?;
        Some(Progress { renewal, at, seen: at })
    } else {
        None
    };
    let drain = if from.flag()? {
        let until = GrantorTime(from.num()?);
        Some(Drain { until, cause: DrainCause::decode(from)?.into() })
    } else {
        None
    };
    Ok(LeaseExtra { depth, max_hold, progress, veto, pinned, drain, successor, predecessor, metadata })
}

fn encode_slab<T>(out: &mut Vec<u8>, slots: &Slab<T>, entry: impl Fn(&T, bool, &mut Vec<u8>)) {
    out.num(slots.entries().count() as u64);
    for slot in slots.entries() {
        out.num(u64::from(slot.reuse) << 1 | u64::from(slot.live));
        entry(slot.entry, slot.live, out);
    }
    out.num(slots.vacant().count() as u64);
    for slot in slots.vacant() {
        out.num(u64::from(slot));
    }
}

fn decode_slab<'a, T>(
    from: &mut Reader<'a>,
    keep: usize,
    mut entry: impl FnMut(bool, &mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Slab<T>, DecodeError> {
    let count = from.num()?;
    let mut places = Vec::new();
    for _ in 0..count {
        let state = from.num()?;
        let reuse = u32::try_from(state >> 1).map_err(|_| from.wrong("reuse too large"))?;
        let live = state & 1 == 1;
        places.push(SlabEntry { reuse, live, entry: entry(live, from)? });
    }
    let mut vacant = Vec::new();
    for _ in 0..from.num()? {
        vacant.push(from.num32()?);
    }
    Slab::restore(keep, places, vacant).map_err(|_| from.wrong("inconsistent slots"))
}
