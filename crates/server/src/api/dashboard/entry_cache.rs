//! The latest audit entries of resources that someone looks at. Without it, each update of an open page would search the whole audit log.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::access::{Action, ReadScope};
use leasehold_wire::json::AuditEntryBody;
use leasehold_wire::v1;

use super::super::Api;
use super::response::PageReader;
use crate::audit::{AuditHead, AuditQuery};

/// Resources whose entries are kept; the one that was looked at longest ago makes room.
const RESOURCES: usize = 64;

/// Entries by resource.
#[derive(Debug, Default)]
pub struct EntryCache {
    resources: Mutex<BTreeMap<Box<str>, CachedEntries>>,
}

#[derive(Clone, Debug, Default)]
struct CachedEntries {
    /// The last entry of the log that was searched.
    last: u64,
    /// Newest first.
    entries: Vec<AuditEntryBody>,
    /// The order of uses.
    used: u64,
}

impl EntryCache {
    fn resources(&self) -> MutexGuard<'_, BTreeMap<Box<str>, CachedEntries>> {
        // A thread that panicked while it held the lock left whole entries.
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, resource: &str) -> CachedEntries {
        self.resources().get(resource).cloned().unwrap_or_default()
    }

    fn put(&self, resource: &str, found: CachedEntries) {
        let mut resources = self.resources();
        if !resources.contains_key(resource) && resources.len() == RESOURCES {
            let oldest = resources.iter().min_by_key(|(_, one)| one.used).map(|(name, _)| name.clone());
            oldest.and_then(|name| resources.remove(&name));
        }
        let used = 1 + resources.values().map(|one| one.used).max().unwrap_or(0);
        let known = resources.entry(resource.into()).or_default();
        // Another reader may have searched further.
        if known.last <= found.last {
            *known = CachedEntries { used, ..found };
        }
    }

    /// The latest entries of a resource, newest first, at most `limit`, and the end of the log. Only entries that are newer than the
    /// known ones are searched for.
    pub async fn latest(
        &self,
        api: &Api,
        reader: &PageReader,
        resource: &str,
        limit: usize,
    ) -> Result<(Vec<AuditEntryBody>, AuditHead), v1::Problem> {
        let CachedEntries { last, entries: known, .. } = self.get(resource);
        let query = AuditQuery { resource: Some(resource.to_owned()), after: last, limit, ..AuditQuery::default() };
        let (found, head) = api.audit(query).await?;
        let is_visible = {
            let rules = api.access.rules();
            ReadScope::of(&rules.caller(&reader.identity), Action::Audit).is_ok_and(|scope| scope.covers(resource))
        };
        if !is_visible {
            // The query left out what the reader may not see, and so must this.
            return Ok((Vec::new(), head));
        }
        let mut entries: Vec<_> = found.into_iter().map(|(text, hash)| AuditEntryBody::of(text, &hash)).collect();
        let newest = known.first().map_or(0, |entry| entry.entry);
        entries.retain(|entry| entry.entry > newest);
        entries.extend(known);
        entries.truncate(limit);
        self.put(resource, CachedEntries { last: head.entries, entries: entries.clone(), used: 0 });
        Ok((entries, head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_an_older_search_replaces_nothing() {
        let cache = EntryCache::default();
        for at in 0..RESOURCES + 5 {
            cache.put(&at.to_string(), CachedEntries { last: 1, ..CachedEntries::default() });
        }
        assert_eq!(cache.resources().len(), RESOURCES);
        assert_eq!((cache.get("0").last, cache.get("68").last), (0, 1), "the oldest made room");
        cache.put("68", CachedEntries { last: 9, ..CachedEntries::default() });
        cache.put("68", CachedEntries { last: 5, ..CachedEntries::default() });
        assert_eq!(cache.get("68").last, 9);
    }
}
