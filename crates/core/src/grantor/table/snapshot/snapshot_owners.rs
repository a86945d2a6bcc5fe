//! Snapshot section of owners: which sessions, leases, receipts and cache grants are of another identity than `local`.

use super::super::GrantorTable;
use super::super::lease::NONE;
use super::super::owners::LOCAL;
use crate::access::decode_owner;
use crate::codec::{DecodeError, Reader, Write};

/// The owners other than `local` in ascending order, and what each of them owns. A live lease in a session is of the session's
/// owner and is not listed.
#[derive(Debug, Default)]
pub(super) struct SnapshotOwners<'a> {
    names: Vec<&'a str>,
    /// Slots of live and ended sessions and leases, message ids, and numbers of cache grants, each with the index of its owner.
    lists: [Vec<(u64, u32)>; 4],
}

const SESSIONS: usize = 0;
const LEASES: usize = 1;
const MESSAGES: usize = 2;
const CACHE_GRANTS: usize = 3;

impl<'a> SnapshotOwners<'a> {
    /// The owners in a table.
    pub fn of(table: &'a GrantorTable) -> Self {
        let name = |owner: u32| table.owners.name(owner);
        // Without other owners no lease is read.
        let all = if table.owners.is_local_only() { 0 } else { usize::MAX };
        let sessions = (0..).zip(table.sessions.entries().take(all));
        let sessions = sessions.filter(|(_, slot)| slot.entry.owner != LOCAL);
        let leases = (0..).zip(table.leases.entries().take(all)).filter(|(_, slot)| {
            let in_session = slot.live && table.actors[slot.entry.actor].session != NONE;
            slot.entry.owner != LOCAL && !in_session
        });
        let owned: [Vec<(u64, &str)>; 4] = [
            sessions.map(|(at, slot)| (at, name(slot.entry.owner))).collect(),
            leases.map(|(at, slot)| (at, name(slot.entry.owner))).collect(),
            table.queues.owners().collect(),
            table.cache.owners().collect(),
        ];
        let mut names: Vec<&str> = owned.iter().flatten().map(|(_, name)| *name).collect();
        names.sort_unstable();
        names.dedup();
        let index = |name: &str| names.binary_search(&name).expect("just collected") as u32;
        let lists = owned.map(|list| list.into_iter().map(|(at, name)| (at, index(name))).collect());
        Self { names, lists }
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
        for list in &self.lists {
            out.num(list.len() as u64);
            for (at, owner) in list {
                out.num(*at);
                out.num(u64::from(*owner));
            }
        }
    }

    pub fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut owners = Self::default();
        for _ in 0..from.num()? {
            let name = decode_owner(from)?;
            if owners.names.last().is_some_and(|before| *before >= name) {
                return Err(from.wrong("owners out of order"));
            }
            owners.names.push(name);
        }
        let mut used = vec![false; owners.names.len()];
        for list in &mut owners.lists {
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

    /// Sets the owners of receipts and cache grants, which were decoded without them.
    pub fn set_payload_owners(&self, table: &mut GrantorTable) -> Result<(), &'static str> {
        let name = |owner: &u32| self.names[*owner as usize];
        if !self.lists[MESSAGES].iter().all(|(item, owner)| table.queues.set_owner(*item, name(owner))) {
            return Err("an owner of a receipt that does not exist");
        }
        if !self.lists[CACHE_GRANTS].iter().all(|(number, owner)| table.cache.set_owner(*number, name(owner))) {
            return Err("an owner of a cache grant that does not exist");
        }
        Ok(())
    }

    fn find(&self, list: usize, slot: u32) -> Option<&'a str> {
        let at = self.lists[list].binary_search_by_key(&u64::from(slot), |(slot, _)| *slot).ok()?;
        Some(self.names[self.lists[list][at].1 as usize])
    }

    fn last(&self, list: usize) -> Option<u32> {
        self.lists[list].last().map(|(slot, _)| u32::try_from(*slot).unwrap_or(u32::MAX))
    }
}
