//! Audit entries that were read, so that a refresh reads only what is newer.

use futures::TryStreamExt;
use leasehold::json::AuditEntryBody;
use leasehold::{AuditFilter, Client, Error};

/// The latest entries of one resource, or of all.
#[derive(Debug, Default)]
pub struct HistoryCache {
    resource: Option<String>,
    limit: usize,
    /// Newest first.
    entries: Vec<AuditEntryBody>,
    /// The last entry of the log that was searched.
    last: u64,
}

impl HistoryCache {
    /// The latest `limit` entries, newest first.
    pub async fn latest(
        &mut self,
        client: &Client,
        resource: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AuditEntryBody>, Error> {
        if self.resource.as_deref() != resource || self.limit != limit {
            *self = Self { resource: resource.map(str::to_owned), limit, ..Self::default() };
        }
        match self.read_newer(client).await {
            Ok(()) => Ok(self.entries.clone()),
            Err(error) => {
                // Another server may have another log.
                *self = Self::default();
                Err(error)
            }
        }
    }

    async fn read_newer(&mut self, client: &Client) -> Result<(), Error> {
        let mut filter = AuditFilter::new().after(self.last);
        if let Some(resource) = &self.resource {
            filter = filter.resource(resource);
        }
        let mut pages = client.audit(filter).page_size(u32::try_from(self.limit).unwrap_or(u32::MAX));
        let (mut found, mut last) = (Vec::new(), None);
        while found.len() < self.limit
            && let Some(page) = pages.try_next().await?
        {
            // Later pages are of a log that may have grown.
            last.get_or_insert(page.end.last);
            found.extend(page.entries);
        }
        let last = last.unwrap_or(self.last);
        if last < self.last {
            // A restored server has a shorter log.
            self.entries.clear();
            self.last = 0;
            return Ok(());
        }
        self.last = last;
        found.append(&mut self.entries);
        found.truncate(self.limit);
        self.entries = found;
        Ok(())
    }
}
