//! The whole state as bytes, one spelling for one state: what recovery starts from, and what the state hash is taken of.

mod holds;

use super::ends::{Ends, Usage};
use super::term::Clock;
use super::{Deadlock, Identity, Quarantine, Table};
use crate::charter::Charter;
use crate::codec::{Malformed, Reader, Write};
use crate::coverage::Coverage;
use crate::limits;
use crate::payload::{cache::Cache, delivery::Queues, state::Small};
use crate::refusal::Cycle;
use crate::store::wheel::Wheel;
use crate::time::{Millis, Wall};
use crate::token::{Cluster, Incarnation};

/// The format of a snapshot. The first one told neither when a charter last changed nor what targets reported.
const VERSION: u8 = 2;
const FIRST_VERSION: u8 = 1;

impl Table {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u8(VERSION);
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
        self.small.encode(out);
        self.queues.encode(out);
        self.cache.encode(out);
        self.coverage.encode(out);
    }

    pub fn decode(bytes: &[u8], hash_seed: u64) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let version = from.u8()?;
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            return Err(from.wrong("a snapshot of another format version"));
        }
        let mut table = Self::new(hash_seed);
        if from.flag()? {
            let (cluster, incarnation) = (Cluster(from.array()?), Incarnation(from.num32()?));
            table.identity = Some(Identity { cluster, incarnation, max_ttl: from.num()? });
        }
        table.generation = from.num()?;
        table.time = Millis(from.num()?);
        table.wall = Wall(from.num()?);
        table.recorded = (table.time, table.wall);
        table.counter = from.num()?;
        table.next_order = from.num()?;
        table.chain = from.array()?;
        table.clock = Clock::decode(&mut from)?;
        for wheel in [&mut table.due.leases, &mut table.due.sessions, &mut table.due.waiters] {
            *wheel = Wheel::new(table.time);
        }
        let until = from.maybe()?;
        let rolled_back = from.flag()?;
        table.quarantine = until.map(|until| Quarantine { until: Millis(until), rolled_back });
        table.decode_charters(&mut from)?;
        table.agreed = match version {
            FIRST_VERSION => (table.time, table.counter),
            _ => (Millis(from.num()?), from.num()?),
        };
        table.decode_settings(&mut from)?;
        table.decode_sessions(&mut from)?;
        table.decode_leases(&mut from)?;
        table.decode_waiters(&mut from)?;
        table.decode_past(&mut from)?;
        table.small = Small::decode(&mut from)?;
        table.queues = Queues::decode(&mut from)?;
        table.cache = Cache::decode(&mut from)?;
        if version > FIRST_VERSION {
            table.coverage = Coverage::decode(&mut from)?;
        }
        from.finish()?;
        Ok(table)
    }

    fn encode_charters(&self, out: &mut Vec<u8>) {
        out.num(self.charters.len() as u64);
        for (prefix, charter) in self.charters.iter() {
            out.text(prefix);
            out.bytes(&charter.encode());
        }
        out.num(self.agreed.0.0);
        out.num(self.agreed.1);
    }

    fn decode_charters(&mut self, from: &mut Reader<'_>) -> Result<(), Malformed> {
        for _ in 0..from.num()? {
            let prefix = from.text()?;
            let charter = Charter::decode(from.bytes()?)?;
            self.charters.set(prefix, charter).map_err(|_| from.wrong("too many charters"))?;
        }
        self.count_rotating();
        Ok(())
    }

    /// What stands at resources besides leases and waits, by name.
    fn encode_settings(&self, out: &mut Vec<u8>) {
        let mut set: Vec<_> = self
            .resources
            .crowds()
            .filter(|(_, crowd)| crowd.has_settings() || crowd.capacity.is_some())
            .map(|(place, crowd)| (self.resources.name(place), crowd))
            .collect();
        set.sort_unstable_by_key(|(name, _)| *name);
        out.num(set.len() as u64);
        for (name, crowd) in set {
            out.text(name);
            out.maybe(crowd.capacity.map(u64::from));
            out.flag(crowd.lasting);
            out.num(crowd.confirmed);
            out.flag(crowd.for_operator);
            out.num(crowd.floor);
        }
    }

    fn decode_settings(&mut self, from: &mut Reader<'_>) -> Result<(), Malformed> {
        for _ in 0..from.num()? {
            let name = from.text()?;
            if name.is_empty() || name.len() > limits::NAME_BYTES {
                return Err(from.wrong("a resource name of a wrong length"));
            }
            let capacity = from.maybe()?;
            let lasting = from.flag()?;
            let (confirmed, for_operator, floor) = (from.num()?, from.flag()?, from.num()?);
            let place = self.resources.enter(name);
            let crowd = self.resources.gather(place);
            crowd.capacity = match capacity {
                Some(units) => Some(u32::try_from(units).map_err(|_| from.wrong("capacity too large"))?),
                None => None,
            };
            crowd.lasting = lasting;
            crowd.confirmed = confirmed;
            crowd.for_operator = for_operator;
            crowd.floor = floor;
        }
        Ok(())
    }

    fn encode_past(&self, out: &mut Vec<u8>) {
        self.ends.encode(out);
        self.totals.encode(out);
        self.others.encode(out);
        let mut used: Vec<_> = self
            .parties
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

    fn decode_past(&mut self, from: &mut Reader<'_>) -> Result<(), Malformed> {
        self.ends = Ends::decode(from)?;
        self.totals = Usage::decode(from)?;
        self.others = Usage::decode(from)?;
        for _ in 0..from.num()? {
            let holder = holder_text(from)?;
            let at = self.parties.enter_holder(holder, &mut self.resources.names);
            let usage = Usage::decode(from)?;
            if self.parties.holder_mut(at).usage.replace(Box::new(usage)).is_some() {
                return Err(from.wrong("usage of a holder told twice"));
            }
            self.counted_holders += 1;
        }
        self.deadlocks_found = from.num()?;
        for _ in 0..from.num()? {
            let (at, victim) = (Millis(from.num()?), from.text()?.to_owned());
            self.deadlocks.push_back(Deadlock { at, victim, cycle: Cycle::decode(from)? });
        }
        Ok(())
    }
}

fn holder_text<'a>(from: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let text = from.text()?;
    if text.is_empty() || text.len() > limits::HOLDER_BYTES {
        return Err(from.wrong("a holder name of a wrong length"));
    }
    Ok(text)
}
