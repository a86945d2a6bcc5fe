//! The queries of each page. No page reads more than it shows, apart from the last audit entries for handovers.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use futures::future::{join_all, try_join_all};
use leasehold::admin::{Charter, HandoffMode};
use leasehold::json::{AuditEntryBody, ListedLeaseBody};
use leasehold::types::LeaseSort;
use leasehold::{AuditFilter, Code, Error};
use leasehold_server::dashboard::handovers::{HandoverPage, HandoverRow, HandoverTerms, rows};
use leasehold_server::dashboard::timeline::{ResourceTimeline, TimelineContext};

use super::ServerWorker;
use crate::commands::cluster::fetch_status;
use crate::resource_sentence::renewal_ages;
use crate::top::job::{LeaseQuery, PageData, ResourceData, ResourceWaiters, ScreenQuery, ServerOverview};

/// Queries of one page of leases: a filter that selects few leases finds them over several.
const MAX_QUERIES: usize = 16;
/// Leases that are searched for resources with waiters.
const CONTENDED_LEASES: u32 = 60;
/// Waiters that are shown of each resource.
const WAITERS: u32 = 20;
/// Audit entries from which changes of holder are found.
const HANDOVER_ENTRIES: usize = 1_000;
/// Audit entries of one resource.
const RESOURCE_ENTRIES: usize = 40;

impl ServerWorker {
    /// Reads a page.
    pub async fn page(&mut self, query: &ScreenQuery, overview: &ServerOverview) -> Result<PageData, Error> {
        match query {
            ScreenQuery::Leases(query) => self.leases(query).await,
            ScreenQuery::Waits if overview.status.waiters == 0 => Ok(PageData::Waits(Vec::new())),
            ScreenQuery::Waits => self.waits().await,
            ScreenQuery::Deadlocks => self.client.deadlocks().await.map(PageData::Deadlocks),
            ScreenQuery::Coverage { prefix, cursor, rows } => self.coverage(prefix, *cursor, *rows).await,
            ScreenQuery::Handovers => self.handovers().await,
            ScreenQuery::Cluster => self.cluster().await,
            ScreenQuery::Audit { resource, before, rows } => self.audit(resource, *before, *rows).await,
            ScreenQuery::Resource(resource) => Ok(PageData::Resource(Box::new(self.resource(resource).await?))),
        }
    }

    async fn leases(&self, query: &LeaseQuery) -> Result<PageData, Error> {
        let wanted = query.rows.max(1) as usize;
        let (mut leases, mut next): (Vec<ListedLeaseBody>, _) = (Vec::new(), Some(query.cursor.clone()));
        let mut queries = 0;
        while let Some(cursor) = next.clone().filter(|_| leases.len() < wanted && queries < MAX_QUERIES) {
            queries += 1;
            let missing = u32::try_from(wanted - leases.len()).unwrap_or(u32::MAX);
            let mut pages = self.client.list_leases(&query.filter.prefix).start_at(&cursor).page_size(missing);
            if let Some(holder) = &query.filter.holder {
                pages = pages.of_holder(holder);
            }
            if query.stuck {
                pages = pages.stuck(true);
            }
            if let Some(sort) = query.sort {
                pages = pages.sort_by(sort, query.descending);
            }
            let Some(page) = pages.try_next().await? else { break };
            leases.extend(page.leases);
            next = page.next_cursor;
        }
        Ok(PageData::Leases { leases, next })
    }

    /// The resources with the most waiters. One without a holder is not found: it is granted as soon as it can be.
    async fn waits(&self) -> Result<PageData, Error> {
        let mut pages = self.client.list_leases("").sort_by(LeaseSort::Waiters, true).page_size(CONTENDED_LEASES);
        let listed = pages.try_next().await?.map(|page| page.leases).unwrap_or_default();
        let mut resources: Vec<ResourceWaiters> = Vec::new();
        for one in listed.into_iter().filter(|one| one.waiters > 0) {
            match resources.iter_mut().find(|known| known.resource == one.lease.resource) {
                Some(known) if known.holders.contains(&one.lease.holder) => {}
                Some(known) => known.holders.push(one.lease.holder),
                None => resources.push(ResourceWaiters {
                    resource: one.lease.resource,
                    holders: vec![one.lease.holder],
                    waiters: one.waiters,
                    first: Vec::new(),
                }),
            }
        }
        let waiters = join_all(resources.iter().map(|one| self.client.first_waiters(&one.resource, WAITERS))).await;
        for (resource, waiters) in resources.iter_mut().zip(waiters) {
            // The resource may have become free since.
            let waiters = waiters.unwrap_or_default();
            resource.first = waiters.into_iter().map(|waiter| (waiter.holder, waiter.remaining_ms)).collect();
        }
        Ok(PageData::Waits(resources))
    }

    async fn coverage(&self, prefix: &str, cursor: u32, rows: u32) -> Result<PageData, Error> {
        let page = self.client.list(prefix).start_at(cursor).page_size(rows.clamp(1, 100)).try_next().await?;
        let (resources, next) = page.map(|page| (page.resources, page.next_cursor)).unwrap_or_default();
        let resources = try_join_all(resources.iter().map(|one| self.client.coverage(&one.resource))).await?;
        Ok(PageData::Coverage { resources, next })
    }

    async fn handovers(&mut self) -> Result<PageData, Error> {
        let entries = self.history.latest(&self.client, None, HANDOVER_ENTRIES).await?;
        // A caller that may not see charters sees the changes without them.
        let charters = match self.client.charters(None).await {
            Err(error) if error.code() == Some(Code::PermissionDenied) => Vec::new(),
            other => other?,
        };
        let count = entries.len();
        Ok(PageData::Handovers { rows: handover_rows(entries, &charters), entries: count })
    }

    async fn cluster(&self) -> Result<PageData, Error> {
        let first = self.client.cluster().await?;
        let servers = first.servers.iter().map(|address| async {
            let status = match *address == first.address {
                true => Ok(first.clone()),
                false => fetch_status(&self.client, address).await,
            };
            (address.clone(), status)
        });
        let servers = join_all(servers).await;
        Ok(PageData::Cluster { first, servers })
    }

    async fn audit(&self, resource: &str, before: u64, rows: u32) -> Result<PageData, Error> {
        let mut filter = AuditFilter::new().before(before);
        if !resource.is_empty() {
            filter = filter.resource(resource);
        }
        // One entry more than is shown says whether there are older ones.
        let rows = rows.clamp(1, 200);
        let page = self.client.audit(filter).page_size(rows + 1).try_next().await?;
        let mut entries = page.map(|page| page.entries).unwrap_or_default();
        let has_older = entries.len() > rows as usize;
        entries.truncate(rows as usize);
        let next = entries.last().filter(|_| has_older).map(|entry| entry.entry);
        Ok(PageData::Audit { entries, next })
    }

    async fn resource(&mut self, resource: &str) -> Result<ResourceData, Error> {
        let view = match self.client.show(resource).await {
            Ok(view) => Ok(Some(view)),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(None),
            Err(error) if error.code() == Some(Code::PermissionDenied) => Err(error.to_string()),
            Err(error) => return Err(error),
        };
        let waiters = self.client.first_waiters(resource, WAITERS).await;
        let coverage = self.client.coverage(resource).await;
        let history = self.history.latest(&self.client, Some(resource), RESOURCE_ENTRIES).await;
        let ages = renewal_ages(&self.client, resource).await.unwrap_or_default();
        Ok(ResourceData {
            view,
            ages,
            waiters: waiters.map_err(|error| error.to_string()),
            coverage: coverage.map_err(|error| error.to_string()),
            history: history.map_err(|error| error.to_string()),
        })
    }
}

/// The changes of holder in these entries.
fn handover_rows(entries: Vec<AuditEntryBody>, charters: &[(String, Charter)]) -> Vec<HandoverRow> {
    let page = HandoverPage {
        first: entries.last().map_or(0, |entry| entry.entry),
        last: entries.first().map_or(0, |entry| entry.entry),
        entries: entries.len(),
        older: None,
    };
    let mut resources: BTreeMap<String, Vec<AuditEntryBody>> = BTreeMap::new();
    for entry in entries {
        if let Some(resource) = entry.resource.clone() {
            resources.entry(resource).or_default().push(entry);
        }
    }
    let timelines: Vec<ResourceTimeline> = resources
        .iter()
        .map(|(resource, entries)| ResourceTimeline::new(resource, entries, TimelineContext::default()))
        .collect();
    let terms = |resource: &str| {
        // The longest prefix decides.
        let covering = charters.iter().filter(|(prefix, _)| covers(prefix, resource));
        let (_, charter) = covering.max_by_key(|(prefix, _)| prefix.len())?;
        let terms = charter.handoff.as_ref()?;
        Some(HandoverTerms { overlaps: terms.mode == HandoffMode::Overlap, drain_ms: terms.drain_ms })
    };
    rows(&timelines, page, terms)
}

/// Whether a prefix of whole segments covers a resource.
fn covers(prefix: &str, resource: &str) -> bool {
    let rest = resource.strip_prefix(prefix);
    prefix.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
