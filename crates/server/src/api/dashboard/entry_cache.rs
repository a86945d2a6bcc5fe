//! The latest audit entries that open pages show: of a resource, or all that a reader may see. An update of a page searches only what was
//! written since the last one, and at most one page of older entries; without that, each would search the audit log again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::access::{Action, ReadScope};
use leasehold_wire::json::AuditEntryBody;
use leasehold_wire::v1;

use super::super::Api;
use crate::access::AccessRules;
use crate::audit::{AuditHead, AuditMatches, AuditQuery};
use crate::identity::Identity;

/// Lists that are kept; the one that was looked at longest ago makes room.
const MAX_LISTS: usize = 128;

/// Lists of entries.
#[derive(Debug, Default)]
pub struct EntryCache {
    lists: Mutex<BTreeMap<ListKey, CachedList>>,
}

/// What a list contains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ListKey {
    /// The entries of a resource. Who may not see them gets none.
    Resource(Box<str>),
    /// What a reader may see under one version of the access rules. All who see everything share a list, with an empty principal.
    Reader(Box<str>, u32),
}

#[derive(Clone, Debug, Default)]
struct CachedList {
    /// The last entry of the log when it was searched.
    last: u64,
    /// Newest first.
    entries: Vec<AuditEntryBody>,
    /// Older entries are before this one and are not searched yet.
    older: Option<u64>,
    /// The order of uses.
    used: u64,
}

impl CachedList {
    /// Adds what was found after its last entry.
    fn add_newer(&mut self, found: AuditMatches, last: u64) {
        let newest = self.entries.first().map_or(0, |entry| entry.entry);
        let mut entries = bodies(found.entries);
        entries.retain(|entry| entry.entry > newest);
        self.last = last;
        match found.next {
            // Not everything in between was searched, so what was known does not follow.
            Some(next) => (self.entries, self.older) = (entries, Some(next)),
            None => self.entries = entries.into_iter().chain(self.entries.drain(..)).collect(),
        }
    }

    /// Keeps the newest entries.
    fn truncate(&mut self, limit: usize) {
        if self.entries.len() > limit {
            self.entries.truncate(limit);
            self.older = self.entries.last().map(|entry| entry.entry);
        }
    }
}

/// The latest entries of a list.
#[derive(Debug)]
pub struct LatestEntries {
    /// Newest first.
    pub entries: Vec<AuditEntryBody>,
    /// The entry before which there may be older ones.
    pub older: Option<u64>,
    /// The end of the log.
    pub head: AuditHead,
}

impl LatestEntries {
    /// The entries of one page of a search.
    pub fn of(found: AuditMatches, head: AuditHead) -> Self {
        Self { entries: bodies(found.entries), older: found.next, head }
    }
}

fn bodies(entries: Vec<(String, [u8; 32])>) -> Vec<AuditEntryBody> {
    entries.into_iter().map(|(text, hash)| AuditEntryBody::of(text, &hash)).collect()
}

/// A reader, and the rules that decide both what it finds and what it sees of a list: with those of two moments, a list could be kept
/// that lacks what only the later ones hide.
struct ListReader<'a> {
    api: &'a Api,
    identity: Arc<Identity>,
    rules: Arc<AccessRules>,
    head: AuditHead,
}

impl EntryCache {
    fn lists(&self) -> MutexGuard<'_, BTreeMap<ListKey, CachedList>> {
        // A thread that panicked while it held the lock left whole entries.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &ListKey) -> CachedList {
        self.lists().get(key).cloned().unwrap_or_default()
    }

    fn put(&self, key: ListKey, found: CachedList) {
        let mut lists = self.lists();
        if !lists.contains_key(&key) && lists.len() == MAX_LISTS {
            let oldest = lists.iter().min_by_key(|(_, one)| one.used).map(|(key, _)| key.clone());
            oldest.and_then(|key| lists.remove(&key));
        }
        let used = 1 + lists.values().map(|one| one.used).max().unwrap_or(0);
        let known = lists.entry(key).or_default();
        // Another reader may have searched further.
        if known.last <= found.last {
            *known = CachedList { used, ..found };
        }
    }

    /// The latest entries of a resource, at most `limit`.
    pub async fn latest(&self, api: &Api, resource: &str, limit: usize) -> Result<LatestEntries, v1::Problem> {
        let reader = ListReader::current(api).await?;
        if !reader.scope(|scope| scope.covers(resource)) {
            // The query left out what the reader may not see, and so must this.
            return Ok(LatestEntries { entries: Vec::new(), older: None, head: reader.head });
        }
        let query = AuditQuery { resource: Some(resource.to_owned()), ..AuditQuery::default() };
        self.list(&reader, ListKey::Resource(resource.into()), query, limit, true).await
    }

    /// The latest entries that the current identity may see, at most `limit`. Only new ones are searched for, and the newest files the first time: for
    /// a reader with few names, others may have written everything in them.
    pub async fn latest_visible(&self, api: &Api, limit: usize) -> Result<LatestEntries, v1::Problem> {
        let reader = ListReader::current(api).await?;
        let sees_all = reader.scope(|scope| scope.covers_all());
        let principal = if sees_all { "" } else { &*reader.identity.principal };
        let key = ListKey::Reader(principal.into(), reader.rules.epoch());
        self.list(&reader, key, AuditQuery::default(), limit, false).await
    }

    async fn list(
        &self,
        reader: &ListReader<'_>,
        key: ListKey,
        query: AuditQuery,
        limit: usize,
        search_older: bool,
    ) -> Result<LatestEntries, v1::Problem> {
        let mut list = self.get(&key);
        let query = AuditQuery { limit, ..query };
        if list.last < reader.head.entries {
            let newer = reader.search(AuditQuery { after: list.last, ..query.clone() }).await?;
            list.add_newer(newer, reader.head.entries);
        } else if let Some(before) = list.older.filter(|_| search_older && list.entries.len() < limit) {
            let limit = limit - list.entries.len();
            let older = reader.search(AuditQuery { before, limit, ..query }).await?;
            list.entries.extend(bodies(older.entries));
            list.older = older.next;
        }
        list.truncate(limit);
        self.put(key, list.clone());
        let CachedList { entries, older, .. } = list;
        Ok(LatestEntries { entries, older, head: reader.head })
    }
}

impl<'a> ListReader<'a> {
    /// The current identity under the rules in effect.
    async fn current(api: &'a Api) -> Result<Self, v1::Problem> {
        let identity = api.authorize_current(Action::Audit)?;
        let head = api.audit_head().await?;
        Ok(Self { api, identity, rules: api.access.rules(), head })
    }

    fn scope(&self, sees: impl FnOnce(&ReadScope<'_>) -> bool) -> bool {
        ReadScope::of(&self.rules.caller(&self.identity), Action::Audit).is_ok_and(|scope| sees(&scope))
    }

    async fn search(&self, query: AuditQuery) -> Result<AuditMatches, v1::Problem> {
        self.api.search_audit(&self.identity, self.rules.clone(), self.head, query).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(resource: &str) -> ListKey {
        ListKey::Resource(resource.into())
    }

    fn found(numbers: &[u64], next: Option<u64>) -> AuditMatches {
        let text = |number: &u64| {
            (format!(r#"{{"entry":{number},"position":1,"step":0,"time_ms":0,"wall_ms":0,"kind":"granted"}}"#), [0; 32])
        };
        AuditMatches { entries: numbers.iter().map(text).collect(), next }
    }

    fn numbers(list: &CachedList) -> Vec<u64> {
        list.entries.iter().map(|entry| entry.entry).collect()
    }

    #[test]
    fn the_cache_is_bounded_and_an_older_search_replaces_nothing() {
        let cache = EntryCache::default();
        for at in 0..MAX_LISTS + 5 {
            cache.put(key(&at.to_string()), CachedList { last: 1, ..CachedList::default() });
        }
        assert_eq!(cache.lists().len(), MAX_LISTS);
        assert_eq!((cache.get(&key("0")).last, cache.get(&key("132")).last), (0, 1), "the oldest made room");
        cache.put(key("132"), CachedList { last: 9, ..CachedList::default() });
        cache.put(key("132"), CachedList { last: 5, ..CachedList::default() });
        assert_eq!(cache.get(&key("132")).last, 9);
    }

    #[test]
    fn a_list_has_no_hole_although_a_search_reads_only_a_part() {
        let mut list = CachedList::default();
        list.add_newer(found(&[90, 80], Some(70)), 100);
        assert_eq!((numbers(&list), list.older, list.last), (vec![90, 80], Some(70), 100));
        list.add_newer(found(&[120], None), 130);
        assert_eq!((numbers(&list), list.older), (vec![120, 90, 80], Some(70)), "new ones follow");
        list.add_newer(found(&[400, 390], Some(300)), 500);
        assert_eq!((numbers(&list), list.older), (vec![400, 390], Some(300)), "entries 131 to 300 are not searched");
        list.truncate(1);
        assert_eq!((numbers(&list), list.older), (vec![400], Some(400)));
    }
}
