//! Snapshot section of owners: which sessions, leases, receipts, cache grants, charters, targets, messages and stored values are of
//! another identity than `local`.

use super::super::GrantorTable;
use super::super::lease::{NONE, StoredLease};
use super::super::owners::Owners;
use crate::access::{IdentityUsage, LOCAL_OWNER, decode_owner};
use crate::codec::{DecodeError, Reader, Write};
use crate::store::slab::SlabEntry;

/// The owners other than `local` in ascending order, and what each of them owns. A live lease in a session is of the session's
/// owner and is not listed.
#[derive(Debug, Default)]
pub(super) struct SnapshotOwners<'a> {
    names: Vec<&'a str>,
    /// Slots of live and ended sessions and leases, ids of received messages, numbers of cache grants, places of charters and
    /// targets in their sections, ids of sent messages, and places of stored state, each with the index of its owner.
    lists: [Vec<(u64, u32)>; LISTS],
}

const SESSIONS: usize = 0;
const LEASES: usize = 1;
const RECEIPTS: usize = 2;
const CACHE_GRANTS: usize = 3;
const CHARTERS: usize = 4;
const TARGETS: usize = 5;
const MESSAGES: usize = 6;
const STATE: usize = 7;
const LISTS: usize = 8;

/// How many of the lists a snapshot has, so that earlier servers can read one that needs no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OwnerLists {
    /// None: everything is of `local`.
    None,
    /// Sessions, leases, receipts and cache grants.
    Grants,
    /// Charters and targets too.
    Charters,
    /// Messages and stored state too.
    Payloads,
}

impl OwnerLists {
    /// The lists with this code, which is their place.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::None, Self::Grants, Self::Charters, Self::Payloads].get(usize::from(code)).copied()
    }

    const fn count(self) -> usize {
        match self {
            Self::None => 0,
            Self::Grants => CHARTERS,
            Self::Charters => MESSAGES,
            Self::Payloads => LISTS,
        }
    }
}

impl<'a> SnapshotOwners<'a> {
    /// The owners in a table.
    pub fn of(table: &'a GrantorTable) -> Self {
        // Without other owners no lease is read.
        let all = if table.owners.is_local_only() { 0 } else { usize::MAX };
        let in_session = |slot: &SlabEntry<&StoredLease>| slot.live && table.actors[slot.entry.actor].session != NONE;
        let mut sessions = table.sessions.entries().map(|slot| slot.entry.owner);
        let leases = table.leases.entries();
        let mut leases = leases.map(|slot| if in_session(&slot) { LOCAL_OWNER } else { slot.entry.owner });
        let owned = |owners: &mut dyn Iterator<Item = u32>| -> Vec<(u64, u32)> {
            (0..).zip(owners.take(all)).filter(|(_, owner)| *owner != LOCAL_OWNER).collect()
        };
        let listed = |owners: &mut dyn Iterator<Item = (u64, u32)>| -> Vec<(u64, u32)> {
            owners.take(all).filter(|(_, owner)| *owner != LOCAL_OWNER).collect()
        };
        let mut lists = [
            owned(&mut sessions),
            owned(&mut leases),
            listed(&mut table.queues.receipt_owners()),
            listed(&mut table.cache.owners()),
            owned(&mut table.charters.owners()),
            owned(&mut table.coverage.owners()),
            listed(&mut table.queues.senders()),
            owned(&mut table.state_table.owners()),
        ];
        let mut is_used = vec![false; table.owners.len()];
        lists.iter().flatten().for_each(|(_, owner)| is_used[*owner as usize] = true);
        let used = (0..).zip(&is_used).filter(|(_, used)| **used).map(|(owner, _)| table.owners.name(owner));
        let mut names: Vec<&str> = used.collect();
        names.sort_unstable();
        let index = |name: &str| names.binary_search(&name).expect("just collected") as u32;
        let indexes: Vec<u32> =
            (0..).zip(&is_used).map(|(at, used)| if *used { index(table.owners.name(at)) } else { 0 }).collect();
        lists.iter_mut().flatten().for_each(|(_, owner)| *owner = indexes[*owner as usize]);
        Self { names, lists }
    }

    /// The lists that are needed.
    pub fn needed(&self) -> OwnerLists {
        let has = |lists: std::ops::Range<usize>| self.lists[lists].iter().any(|list| !list.is_empty());
        if has(MESSAGES..LISTS) {
            OwnerLists::Payloads
        } else if has(CHARTERS..MESSAGES) {
            OwnerLists::Charters
        } else if has(0..CHARTERS) {
            OwnerLists::Grants
        } else {
            OwnerLists::None
        }
    }

    /// Whether everything is of `local`.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.names.len() as u64);
        for name in &self.names {
            out.text(name);
        }
        for list in &self.lists[..self.needed().count()] {
            out.num(list.len() as u64);
            for (at, owner) in list {
                out.num(*at);
                out.num(u64::from(*owner));
            }
        }
    }

    /// Decodes the section with these lists.
    pub fn decode(from: &mut Reader<'a>, lists: OwnerLists) -> Result<Self, DecodeError> {
        let mut owners = Self::default();
        for _ in 0..from.num()? {
            let name = decode_owner(from)?;
            if owners.names.last().is_some_and(|before| *before >= name) {
                return Err(from.wrong("owners out of order"));
            }
            owners.names.push(name);
        }
        let mut used = vec![false; owners.names.len()];
        for list in &mut owners.lists[..lists.count()] {
            for _ in 0..from.num()? {
                let (at, owner) = (from.num()?, from.num32()?);
                if list.last().is_some_and(|(before, _)| *before >= at) {
                    return Err(from.wrong("what an owner has out of order"));
                }
                *used.get_mut(owner as usize).ok_or_else(|| from.wrong("no such owner"))? = true;
                list.push((at, owner));
            }
        }
        if used.is_empty() || used.contains(&false) {
            return Err(from.wrong("an owner of nothing"));
        }
        if owners.needed() != lists {
            return Err(from.wrong("lists of owners, but the last ones are empty"));
        }
        Ok(owners)
    }

    /// The owner of a session, live or ended; `None` for `local`.
    pub fn of_session(&self, slot: u32) -> Option<&'a str> {
        self.find(SESSIONS, slot)
    }

    /// The owner of an ended lease or of one without a session; `None` for `local`.
    pub fn of_lease(&self, slot: u32) -> Option<&'a str> {
        self.find(LEASES, slot)
    }

    pub fn last_session(&self) -> Option<u32> {
        self.last(SESSIONS)
    }

    pub fn last_lease(&self) -> Option<u32> {
        self.last(LEASES)
    }

    /// Sets the owners of messages, receipts, cache grants and stored state, which were decoded without them, and counts them at
    /// their owners.
    pub fn set_payload_owners(&self, table: &mut GrantorTable) -> Result<(), &'static str> {
        let GrantorTable { owners, queues, cache, state_table, .. } = table;
        let numbers: Vec<u32> = self.names.iter().map(|name| owners.intern(Some(name))).collect();
        let number = |owner: &u32| numbers[*owner as usize];
        if !self.lists[RECEIPTS].iter().all(|(item, owner)| queues.set_receipt_owner(*item, number(owner))) {
            return Err("an owner of a receipt that does not exist");
        }
        if !self.lists[MESSAGES].iter().all(|(item, owner)| queues.set_sender(*item, number(owner))) {
            return Err("a sender of a message that does not exist");
        }
        if !self.lists[CACHE_GRANTS].iter().all(|(grant, owner)| cache.set_owner(*grant, number(owner))) {
            return Err("an owner of a cache grant that does not exist");
        }
        let (mut named, mut places) = (self.lists[STATE].iter().peekable(), 0..);
        state_table.set_owners(|| {
            let at = places.next();
            named.next_if(|(place, _)| Some(*place) == at).map_or(LOCAL_OWNER, |(_, owner)| number(owner))
        });
        if named.next().is_some() { Err("an owner of state that does not exist") } else { Ok(()) }
    }

    /// Sets the owners of charters and targets, which were decoded without them, and counts both at their owners.
    pub fn set_charter_and_target_owners(&self, table: &mut GrantorTable) -> Result<(), &'static str> {
        let GrantorTable { owners, charters, coverage, .. } = table;
        let mut charters = charters.owners_mut();
        self.set_places(CHARTERS, owners, &mut charters, IdentityUsage::CHARTER)
            .ok_or("an owner of a charter that does not exist")?;
        let mut targets = coverage.owners_mut();
        self.set_places(TARGETS, owners, &mut targets, IdentityUsage::of_targets(1))
            .ok_or("an owner of a target that does not exist")
    }

    fn set_places(
        &self,
        list: usize,
        owners: &mut Owners,
        places: &mut dyn Iterator<Item = &mut u32>,
        counted: IdentityUsage,
    ) -> Option<()> {
        let mut named = self.lists[list].iter().peekable();
        for (at, owner) in (0..).zip(places) {
            if let Some((_, index)) = named.next_if(|(place, _)| *place == at) {
                *owner = owners.intern(Some(self.names[*index as usize]));
            }
            owners.usage_mut(*owner).add(counted);
        }
        named.next().is_none().then_some(())
    }

    fn find(&self, list: usize, slot: u32) -> Option<&'a str> {
        let at = self.lists[list].binary_search_by_key(&u64::from(slot), |(slot, _)| *slot).ok()?;
        Some(self.names[self.lists[list][at].1 as usize])
    }

    fn last(&self, list: usize) -> Option<u32> {
        self.lists[list].last().map(|(slot, _)| u32::try_from(*slot).unwrap_or(u32::MAX))
    }
}
