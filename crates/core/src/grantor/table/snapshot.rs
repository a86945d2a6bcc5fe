//! Snapshot of the whole state. Each state has exactly one encoding, so the state hash is the hash of the snapshot.

mod sessions_leases_waiters;
mod snapshot_owners;

use super::deadline::StallClock;
use super::ended::{EndedLeases, Usage};
use super::number_gaps::NumberGaps;
use super::proposals::Proposals;
use super::traces::Traces;
use super::{ClusterIdentity, Deadlock, GrantorTable, Quarantine};
use crate::access::LOCAL_OWNER;
use crate::charter::Charter;
use crate::codec::{DecodeError, Reader, Write};
use crate::coverage::{CoverageTable, HoleCounts};
use crate::limits;
use crate::payload::{cache::CacheTable, delivery::QueueTable, state::StateTable};
use crate::refusal::Cycle;
use crate::store::timer_wheel::TimerWheel;
use crate::time::{GrantorTime, WallClock};
use crate::token::{Cluster, Incarnation};
use snapshot_owners::{OwnerLists, SnapshotOwners};

/// Format version of a snapshot. The first one had neither the time of the last charter change nor the coverage; the second one
/// had neither gaps nor the end of a waived quarantine; the third one had no owners, the fourth one no proposals, the fifth one no
/// owners of charters and targets, the sixth one no owners of messages and stored state, and the seventh one no traces. A state is
/// written in the lowest version from the third one on that has what it needs, so that earlier versions of the server can read it.
const VERSION: u8 = 8;
const FIRST_VERSION: u8 = 1;
const SECOND_VERSION: u8 = 2;
const THIRD_VERSION: u8 = 3;
const FOURTH_VERSION: u8 = 4;
const FIFTH_VERSION: u8 = 5;
const SIXTH_VERSION: u8 = 6;
const SEVENTH_VERSION: u8 = 7;

impl GrantorTable {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let owners = SnapshotOwners::of(self);
        let version = match owners.needed() {
            _ if !self.traces.is_empty() => VERSION,
            OwnerLists::Payloads => SEVENTH_VERSION,
            OwnerLists::Charters => SIXTH_VERSION,
            OwnerLists::None | OwnerLists::Grants if self.proposals.last > 0 => FIFTH_VERSION,
            OwnerLists::Grants => FOURTH_VERSION,
            OwnerLists::None => THIRD_VERSION,
        };
        out.u8(version);
        match version {
            FIFTH_VERSION => out.flag(!owners.is_empty()),
            VERSION => out.u8(owners.needed() as u8),
            _ => {}
        }
        if !owners.is_empty() {
            owners.encode(out);
        }
        out.flag(self.identity.is_some());
        if let Some(identity) = self.identity {
            out.raw(&identity.cluster.0);
            out.num(u64::from(identity.incarnation.0));
            out.num(identity.max_ttl);
        }
        for value in [self.generation, self.recorded.0.0, self.recorded.1.0, self.counter, self.next_order] {
            out.num(value);
        }
        out.raw(&self.chain);
        self.clock.encode(out);
        out.maybe(self.quarantine.map(|quarantine| quarantine.until.0));
        out.flag(self.quarantine.is_some_and(|quarantine| quarantine.rolled_back));
        self.encode_charters(out);
        self.encode_settings(out);
        self.encode_sessions(out);
        self.encode_leases(out);
        self.encode_waiters(out);
        self.encode_past(out);
        self.state_table.encode(out);
        self.queues.encode(out);
        self.cache.encode(out);
        self.coverage.encode(out);
        self.gaps.encode(out);
        out.num(self.waived_until.0);
        if version > FOURTH_VERSION {
            self.proposals.encode(out);
        }
        if version > SEVENTH_VERSION {
            self.traces.encode(out);
        }
    }

    pub fn decode(bytes: &[u8], hash_seed: u64) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        let version = from.u8()?;
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            return Err(from.wrong("a snapshot of another format version"));
        }
        let lists = match version {
            FIRST_VERSION..=THIRD_VERSION => OwnerLists::None,
            FOURTH_VERSION => OwnerLists::Grants,
            FIFTH_VERSION => {
                if from.flag()? {
                    OwnerLists::Grants
                } else {
                    OwnerLists::None
                }
            }
            SIXTH_VERSION => OwnerLists::Charters,
            SEVENTH_VERSION => OwnerLists::Payloads,
            _ => OwnerLists::from_code(from.u8()?).ok_or_else(|| from.wrong("unknown lists of owners"))?,
        };
        let owners = match lists {
            OwnerLists::None => SnapshotOwners::default(),
            lists => SnapshotOwners::decode(&mut from, lists)?,
        };
        let mut table = Self::new(hash_seed);
        if from.flag()? {
            let (cluster, incarnation) = (Cluster(from.array()?), Incarnation(from.num32()?));
            table.identity = Some(ClusterIdentity { cluster, incarnation, max_ttl: from.num()? });
        }
        table.generation = from.num()?;
        table.time = GrantorTime(from.num()?);
        table.wall = WallClock(from.num()?);
        table.recorded = (table.time, table.wall);
        table.counter = from.num()?;
        table.next_order = from.num()?;
        table.chain = from.array()?;
        table.clock = StallClock::decode(&mut from)?;
        for wheel in [&mut table.due.leases, &mut table.due.sessions, &mut table.due.waiters] {
            *wheel = TimerWheel::new(table.time);
        }
        let until = from.maybe()?;
        let rolled_back = from.flag()?;
        table.quarantine = until.map(|until| Quarantine { until: GrantorTime(until), rolled_back });
        table.decode_charters(&mut from)?;
        table.charters_changed_at = match version {
            FIRST_VERSION => (table.time, table.counter),
            _ => (GrantorTime(from.num()?), from.num()?),
        };
        table.decode_settings(&mut from)?;
        table.decode_sessions(&owners, &mut from)?;
        table.decode_leases(&owners, &mut from)?;
        table.decode_waiters(&mut from)?;
        table.decode_past(&mut from)?;
        table.state_table = StateTable::decode(&mut from)?;
        table.queues = QueueTable::decode(&mut from)?;
        table.cache = CacheTable::decode(&mut from)?;
        if version > FIRST_VERSION {
            table.coverage = CoverageTable::decode(&mut from)?;
        }
        table.holes = HoleCounts::of(&table.charters, &table.coverage);
        if version > SECOND_VERSION {
            table.gaps = NumberGaps::decode(&mut from, table.counter)?;
            table.waived_until = GrantorTime(from.num()?);
        }
        if version > FOURTH_VERSION {
            table.proposals = Proposals::decode(&mut from)?;
        }
        if version > SEVENTH_VERSION {
            table.traces = Traces::decode(&table.leases, &table.waiters, &mut from)?;
        }
        owners.set_payload_owners(&mut table).map_err(|problem| from.wrong(problem))?;
        owners.set_charter_and_target_owners(&mut table).map_err(|problem| from.wrong(problem))?;
        from.finish()?;
        Ok(table)
    }

    fn encode_charters(&self, out: &mut Vec<u8>) {
        out.num(self.charters.len() as u64);
        for (prefix, charter) in self.charters.iter() {
            out.text(prefix);
            out.bytes(&charter.encode());
        }
        out.num(self.charters_changed_at.0.0);
        out.num(self.charters_changed_at.1);
    }

    fn decode_charters(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for _ in 0..from.num()? {
            let prefix = from.text()?;
            let charter = Charter::decode(from.bytes()?)?;
            self.charters.set(prefix, charter, LOCAL_OWNER).map_err(|_| from.wrong("too many charters"))?;
        }
        self.count_rotating();
        Ok(())
    }

    /// Settings of resources besides leases and waits, by name.
    fn encode_settings(&self, out: &mut Vec<u8>) {
        let mut set: Vec<_> = self
            .resources
            .states()
            .filter(|(_, state)| state.has_settings() || state.capacity.is_some())
            .map(|(slot, state)| (self.resources.name(slot), state))
            .collect();
        set.sort_unstable_by_key(|(name, _)| *name);
        out.num(set.len() as u64);
        for (name, state) in set {
            out.text(name);
            out.maybe(state.capacity.map(u64::from));
            out.flag(state.lasting);
            out.num(state.confirmed);
            out.flag(state.for_operator);
            out.num(state.floor);
        }
    }

    fn decode_settings(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for _ in 0..from.num()? {
            let name = from.text()?;
            if name.is_empty() || name.len() > limits::NAME_BYTES {
                return Err(from.wrong("a resource name of a wrong length"));
            }
            let capacity = from.maybe()?;
            let lasting = from.flag()?;
            let (confirmed, for_operator, floor) = (from.num()?, from.flag()?, from.num()?);
            let slot = self.resources.enter(name);
            let state = self.resources.ensure_state(slot);
            state.capacity = match capacity {
                Some(units) => Some(u32::try_from(units).map_err(|_| from.wrong("capacity too large"))?),
                None => None,
            };
            state.lasting = lasting;
            state.confirmed = confirmed;
            state.for_operator = for_operator;
            state.floor = floor;
        }
        Ok(())
    }

    fn encode_past(&self, out: &mut Vec<u8>) {
        self.ended_leases.encode(out);
        self.totals.encode(out);
        self.others.encode(out);
        let mut used: Vec<_> = self
            .actors
            .holders()
            .filter_map(|holder| Some((self.resources.names.get(holder.name), holder.usage.as_deref()?)))
            .collect();
        used.sort_unstable_by_key(|(name, _)| *name);
        out.num(used.len() as u64);
        for (name, usage) in used {
            out.text(name);
            usage.encode(out);
        }
        out.num(self.deadlocks_found);
        out.num(self.deadlocks.len() as u64);
        for deadlock in &self.deadlocks {
            out.num(deadlock.at.0);
            out.text(&deadlock.victim);
            deadlock.cycle.encode(out);
        }
    }

    fn decode_past(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.ended_leases = EndedLeases::decode(from)?;
        self.totals = Usage::decode(from)?;
        self.others = Usage::decode(from)?;
        for _ in 0..from.num()? {
            let holder = holder_text(from)?;
            let at = self.actors.intern_holder(holder, &mut self.resources.names);
            let usage = Usage::decode(from)?;
            if self.actors.holder_mut(at).usage.replace(Box::new(usage)).is_some() {
                return Err(from.wrong("duplicate usage of a holder"));
            }
            self.counted_holders += 1;
        }
        self.deadlocks_found = from.num()?;
        for _ in 0..from.num()? {
            let (at, victim) = (GrantorTime(from.num()?), from.text()?.to_owned());
            self.deadlocks.push_back(Deadlock { at, victim, cycle: Cycle::decode(from)? });
        }
        Ok(())
    }
}

fn holder_text<'a>(from: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let text = from.text()?;
    if text.is_empty() || text.len() > limits::HOLDER_BYTES {
        return Err(from.wrong("a holder name of a wrong length"));
    }
    Ok(text)
}
