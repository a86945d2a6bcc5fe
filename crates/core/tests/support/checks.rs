//! Invariants that hold after every turn of every story.

use std::collections::BTreeMap;

use leasehold_core::access::IdentityUsage;
use leasehold_core::codec::Reader;
use leasehold_core::command::Answer;
use leasehold_core::grantor::{Grantor, QueryBudget, RecoveredGrantor, ResourceView};
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::payload::{cache, delivery};
use leasehold_core::record::{BatchHeader, Record};
use leasehold_core::token::Number;

/// A standby that follows the journal, and the deadlines that holders know.
pub struct Checks {
    standby: RecoveredGrantor,
    /// The highest token number ever issued, over all incarnations.
    highest: u64,
    /// Deadline of each lease as its holder knows it, in grantor time.
    deadlines: BTreeMap<u64, u64>,
    used: BTreeMap<String, u64>,
}

impl Checks {
    pub fn new(standby: RecoveredGrantor) -> Self {
        Self { standby, highest: 0, deadlines: BTreeMap::new(), used: BTreeMap::new() }
    }

    /// Switches to another journal: a copy or a backup.
    pub fn follow(&mut self, standby: RecoveredGrantor, numbers_may_repeat: bool) {
        if numbers_may_repeat {
            self.highest = standby.counter();
        }
        self.standby = standby;
        self.deadlines.clear();
        self.used.clear();
    }

    /// Checks a durable batch: the standby agrees (V1), numbers increase (T1), no lease ends early (L2), and the capacity
    /// is not exceeded (L1).
    pub fn check_batch(&mut self, batch: &[u8], grantor: &Grantor) -> Result<(), String> {
        self.standby.apply(batch).map_err(|corrupt| format!("a standby cannot follow: {corrupt}"))?;
        if self.standby.state_hash() != grantor.state_hash() {
            return Err("V1: a standby that applied the same records has another state".to_owned());
        }
        self.records(batch)?;
        check_usages(grantor)?;
        let (resources, _) = grantor.list("", 0, usize::MAX, usize::MAX, &mut QueryBudget::unlimited());
        let used: BTreeMap<String, u64> =
            resources.iter().map(|view| (view.resource.clone(), units_used(view))).collect();
        for view in &resources {
            let before = self.used.get(&view.resource).copied().unwrap_or(0);
            fits(view, before).map_err(|error| format!("L1: {}: {error}", view.resource))?;
        }
        self.used = used;
        Ok(())
    }

    fn records(&mut self, batch: &[u8]) -> Result<(), String> {
        let mut from = Reader::new(batch);
        let header = BatchHeader::decode(&mut from).map_err(|wrong| wrong.problem)?;
        while !from.is_empty() {
            match Record::decode(&mut from).map_err(|wrong| wrong.problem)? {
                Record::Granted(granted) => self.check_number(granted.number, 1)?,
                Record::Rotated { number, .. } => self.check_number(number, 1)?,
                Record::Delivery(delivery::DeliveryRecord::Delivered { first, items, .. }) => {
                    self.check_number(first, items.len() as u64)?;
                }
                Record::Cache(
                    cache::CacheRecord::Read { lease: number, .. } | cache::CacheRecord::Began { number, .. },
                ) => {
                    self.check_number(number, 1)?;
                }
                Record::Ended { number, reason: EndReason::Ttl, .. } => {
                    let deadline = self.deadlines.remove(&number.get()).unwrap_or(0);
                    if header.time.0 < deadline {
                        return Err(format!("L2: {number} ended at {}, its holder expects {deadline}", header.time.0));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_number(&mut self, number: Number, count: u64) -> Result<(), String> {
        if number.get() <= self.highest {
            return Err(format!("T1: {number} was issued after {}", self.highest));
        }
        self.highest = number.get() + count - 1;
        Ok(())
    }

    /// A holder received the remaining lifetime of its lease.
    pub fn record_answer(&mut self, answer: &Answer, grantor: &Grantor) {
        let now = grantor.time().0;
        match answer {
            Answer::Granted(grant) => {
                self.deadlines.insert(grant.number.get(), now + grant.remaining_ms);
            }
            Answer::GrantedAll(grants) => {
                self.deadlines.extend(grants.iter().map(|grant| (grant.number.get(), now + grant.remaining_ms)));
            }
            Answer::Current(current) => {
                self.deadlines.insert(current.number.get(), now + current.remaining_ms);
            }
            _ => {}
        }
    }

    pub fn standby(&self) -> &RecoveredGrantor {
        &self.standby
    }
}

/// Compares what each identity is counted to have with what a snapshot contains (A12).
fn check_usages(grantor: &Grantor) -> Result<(), String> {
    let recounted = RecoveredGrantor::from_snapshot(&grantor.snapshot(), 3).map_err(|corrupt| corrupt.to_string())?;
    let in_use = |usages: &mut dyn Iterator<Item = (&str, IdentityUsage)>| -> BTreeMap<String, IdentityUsage> {
        usages
            .filter(|(_, usage)| *usage != IdentityUsage::default())
            .map(|(name, usage)| (name.to_owned(), usage))
            .collect()
    };
    let (counted, recounted) = (in_use(&mut grantor.identity_usages()), in_use(&mut recounted.identity_usages()));
    if counted == recounted { Ok(()) } else { Err(format!("A12: counted {counted:?}, there is {recounted:?}")) }
}

fn units_used(view: &ResourceView) -> u64 {
    view.leases.iter().filter(|lease| !lease.predecessor).map(|lease| units(lease.access)).sum::<u64>() + view.confirmed
}

const fn units(access: Access) -> u64 {
    match access {
        Access::Exclusive | Access::Shared => 0,
        Access::Slot => 1,
        Access::Units(units) => units as u64,
    }
}

/// Reducing the capacity ends no lease (C3), so use above the capacity may stay but not grow.
fn fits(view: &ResourceView, before: u64) -> Result<(), String> {
    let counted = || view.leases.iter().filter(|lease| !lease.predecessor);
    let exclusive = counted().filter(|lease| lease.access == Access::Exclusive).count();
    let shared = counted().filter(|lease| lease.access == Access::Shared).count();
    let others = counted().count() - exclusive - shared;
    if exclusive > 1 || (exclusive == 1 && shared + others > 0) || (shared > 0 && others > 0) {
        return Err(format!("{exclusive} exclusive, {shared} shared and {others} others at once"));
    }
    let now = units_used(view);
    if now > before && now > u64::from(view.capacity) {
        return Err(format!("{now} units of {}", view.capacity));
    }
    let mut scopes: Vec<_> = counted().filter(|lease| lease.access == Access::Slot).map(|lease| lease.scope).collect();
    scopes.sort_unstable();
    let count = scopes.len();
    scopes.dedup();
    if scopes.len() < count { Err("two leases on one slot".to_owned()) } else { Ok(()) }
}
