//! What must hold after every turn of every story, whatever the story is about.

use std::collections::BTreeMap;

use leasehold_core::codec::Reader;
use leasehold_core::command::Answer;
use leasehold_core::grantor::{Grantor, Recovered, ResourceView};
use leasehold_core::lease::{Access, Reason};
use leasehold_core::payload::{cache, delivery};
use leasehold_core::record::{Header, Record};
use leasehold_core::token::Number;

/// A standby that follows the journal, and what holders were told.
pub struct Checks {
    standby: Recovered,
    /// The highest number ever given out, over all lives of the cluster.
    highest: u64,
    /// Until when in grantor time a holder was told that its lease lives.
    told: BTreeMap<u64, u64>,
    used: BTreeMap<String, u64>,
}

impl Checks {
    pub fn new(standby: Recovered) -> Self {
        Self { standby, highest: 0, told: BTreeMap::new(), used: BTreeMap::new() }
    }

    /// Another journal is served from here on: a copy, or a backup.
    pub fn follow(&mut self, standby: Recovered, numbers_may_repeat: bool) {
        if numbers_may_repeat {
            self.highest = standby.counter();
        }
        self.standby = standby;
        self.told.clear();
        self.used.clear();
    }

    /// A batch became durable: the standby agrees (V1), numbers rose (T1), nothing ended early (L2), nothing is oversold (L1).
    pub fn recorded(&mut self, batch: &[u8], grantor: &Grantor) -> Result<(), String> {
        self.standby.apply(batch).map_err(|corrupt| format!("a standby cannot follow: {corrupt}"))?;
        if self.standby.state_hash() != grantor.state_hash() {
            return Err("V1: a standby that applied the same records has another state".to_owned());
        }
        self.records(batch)?;
        let (resources, _) = grantor.list("", 0, usize::MAX, u32::MAX);
        let used: BTreeMap<String, u64> = resources.iter().map(|view| (view.resource.clone(), taken(view))).collect();
        for view in &resources {
            let before = self.used.get(&view.resource).copied().unwrap_or(0);
            fits(view, before).map_err(|why| format!("L1: {}: {why}", view.resource))?;
        }
        self.used = used;
        Ok(())
    }

    fn records(&mut self, batch: &[u8]) -> Result<(), String> {
        let mut from = Reader::new(batch);
        let header = Header::decode(&mut from).map_err(|wrong| wrong.why)?;
        while !from.is_empty() {
            match Record::decode(&mut from).map_err(|wrong| wrong.why)? {
                Record::Granted(granted) => self.given_out(granted.number, 1)?,
                Record::Rotated { number, .. } => self.given_out(number, 1)?,
                Record::Delivery(delivery::Fact::Delivered { first, items, .. }) => {
                    self.given_out(first, items.len() as u64)?;
                }
                Record::Cache(cache::Fact::Read { lease: number, .. } | cache::Fact::Began { number, .. }) => {
                    self.given_out(number, 1)?;
                }
                Record::Ended { number, reason: Reason::Ttl, .. } => {
                    let told = self.told.remove(&number.get()).unwrap_or(0);
                    if header.time.0 < told {
                        return Err(format!("L2: {number} ended at {}, its holder was told {told}", header.time.0));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn given_out(&mut self, number: Number, count: u64) -> Result<(), String> {
        if number.get() <= self.highest {
            return Err(format!("T1: {number} was given out after {}", self.highest));
        }
        self.highest = number.get() + count - 1;
        Ok(())
    }

    /// A holder heard how long its lease lives.
    pub fn answered(&mut self, answer: &Answer, grantor: &Grantor) {
        let now = grantor.time().0;
        match answer {
            Answer::Granted(grant) => {
                self.told.insert(grant.number.get(), now + grant.remaining_ms);
            }
            Answer::GrantedAll(grants) => {
                self.told.extend(grants.iter().map(|grant| (grant.number.get(), now + grant.remaining_ms)));
            }
            Answer::Current(current) => {
                self.told.insert(current.number.get(), now + current.remaining_ms);
            }
            _ => {}
        }
    }

    pub fn standby(&self) -> &Recovered {
        &self.standby
    }
}

fn taken(view: &ResourceView) -> u64 {
    view.leases.iter().filter(|lease| !lease.apart).map(|lease| units(lease.access)).sum::<u64>() + view.confirmed
}

const fn units(access: Access) -> u64 {
    match access {
        Access::Exclusive | Access::Shared => 0,
        Access::Slot => 1,
        Access::Units(units) => units as u64,
    }
}

/// Shrinking takes nothing away (C3), so what is above capacity may stay, but not grow.
fn fits(view: &ResourceView, before: u64) -> Result<(), String> {
    let counted = || view.leases.iter().filter(|lease| !lease.apart);
    let exclusive = counted().filter(|lease| lease.access == Access::Exclusive).count();
    let shared = counted().filter(|lease| lease.access == Access::Shared).count();
    let others = counted().count() - exclusive - shared;
    if exclusive > 1 || (exclusive == 1 && shared + others > 0) || (shared > 0 && others > 0) {
        return Err(format!("{exclusive} exclusive, {shared} shared and {others} others at once"));
    }
    let now = taken(view);
    if now > before && now > u64::from(view.capacity) {
        return Err(format!("{now} units of {}", view.capacity));
    }
    let mut reaches: Vec<_> = counted().filter(|lease| lease.access == Access::Slot).map(|lease| lease.reach).collect();
    reaches.sort_unstable();
    let count = reaches.len();
    reaches.dedup();
    if reaches.len() < count { Err("two leases on one slot".to_owned()) } else { Ok(()) }
}
