//! The audit log: queries, export and verification.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use leasehold_core::name::Name;
use leasehold_wire::json::{AuditEntryBody, AuditHeadBody, AuditPageBody, AuditVerificationBody, DenialsBody};
use leasehold_wire::{Code, v1};
use tonic::{Status, Streaming};

use crate::backup::download_failed;
use crate::failover::RetrySafety;
use crate::page_fetch::PageFetch;
use crate::server_pool::GrpcClient;
use crate::{Client, Error};

/// Largest page: entries with the longest names and texts fit one message.
const MAX_PAGE: u32 = 250;
/// Additional time for a query: old entries take long to find.
const QUERY_TIME: Duration = Duration::from_secs(60);
/// Additional time for a verification of the whole log.
const VERIFY_TIME: Duration = Duration::from_secs(600);

/// Selects entries of the audit log. Default: all, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditFilter {
    resource: Option<String>,
    oldest_first: bool,
    after: u64,
    before: u64,
}

impl AuditFilter {
    /// All entries, newest first.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only entries about this resource.
    #[must_use]
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Oldest entries first.
    #[must_use]
    pub const fn oldest_first(mut self) -> Self {
        self.oldest_first = true;
        self
    }

    /// Only entries with a higher number.
    #[must_use]
    pub const fn after(mut self, entry: u64) -> Self {
        self.after = entry;
        self
    }

    /// Only entries with a lower number; 0 means no bound.
    #[must_use]
    pub const fn before(mut self, entry: u64) -> Self {
        self.before = entry;
        self
    }
}

impl AuditFilter {
    /// The filter of the page after this one; `None` after the last. A page without entries may be followed by others.
    fn next_page(&self, page: &v1::AuditPage, limit: usize) -> Option<Self> {
        let last = page.entries.last().map(|entry| entry.entry);
        // A server before `next` continued after the last entry of a full page.
        let next = page.next.or(last.filter(|_| page.entries.len() == limit))?;
        let mut filter = self.clone();
        // Zero would mean no bound, and each page comes closer to the end.
        let moves = if self.oldest_first {
            filter.after = next;
            next > self.after
        } else {
            filter.before = next;
            next > self.after.saturating_add(1) && (self.before == 0 || next < self.before)
        };
        moves.then_some(filter)
    }
}

/// One page of the audit log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditPage {
    /// Entries in the order of the query.
    pub entries: Vec<AuditEntryBody>,
    /// End of the log when the page was read, without entries.
    pub end: AuditPageBody,
}

/// Pages of the audit log, as a stream. It ends after the last entry that was durable at the time of the read. A page may be empty
/// before the end: a search reads a limited part of the log for each page.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct AuditPages {
    client: Client,
    query: AuditFilter,
    page_size: u32,
    done: bool,
    fetch: PageFetch<v1::AuditPage>,
}

impl AuditPages {
    /// Limits the entries of one page. Default: 250, which is also the maximum.
    pub fn page_size(mut self, limit: u32) -> Self {
        self.page_size = limit.clamp(1, MAX_PAGE);
        self
    }
}

impl Stream for AuditPages {
    type Item = Result<AuditPage, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.done {
            return Poll::Ready(None);
        }
        let (client, query, limit) = (&this.client, &this.query, this.page_size);
        let page = match ready!(this.fetch.poll(context, || fetch(client.clone(), query.clone(), limit))) {
            Ok(page) => page,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        match this.query.next_page(&page, limit as usize) {
            Some(next) => this.query = next,
            None => this.done = true,
        }
        let mut end = AuditPageBody::from(page);
        let entries = std::mem::take(&mut end.entries);
        Poll::Ready(Some(Ok(AuditPage { entries, end })))
    }
}

async fn fetch(client: Client, query: AuditFilter, limit: u32) -> Result<v1::AuditPage, Error> {
    query.resource.as_deref().map(Name::parse).transpose()?;
    let request = v1::AuditRequest {
        resource: query.resource.unwrap_or_default(),
        after: query.after,
        before: query.before,
        oldest_first: query.oldest_first,
        limit,
    };
    let send = |mut client: GrpcClient, request| async move { client.audit(request).await };
    client.servers.call(RetrySafety::ReadOnly, QUERY_TIME, request, send).await
}

/// An export of the audit log in progress: a stream of byte chunks, which concatenated are the file. Its last line proves that
/// it is complete. A broken export cannot be continued; start a new one.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct AuditExportStream(Streaming<v1::AuditExportChunk>);

impl Stream for AuditExportStream {
    type Item = Result<Vec<u8>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let chunk = |chunk: Result<v1::AuditExportChunk, Status>| match chunk {
            Ok(chunk) => Ok(chunk.bytes),
            Err(status) => Err(download_failed("export", &status)),
        };
        Pin::new(&mut self.0).poll_next(context).map(|next| next.map(chunk))
    }
}

impl Client {
    /// Queries the audit log.
    pub fn audit(&self, query: AuditFilter) -> AuditPages {
        AuditPages { client: self.clone(), query, page_size: MAX_PAGE, done: false, fetch: PageFetch::new() }
    }

    /// Exports the whole audit log as lines of JSON.
    pub async fn export_audit(&self) -> Result<AuditExportStream, Error> {
        let send = |mut client: GrpcClient, request| async move { client.export_audit(request).await };
        self.servers
            .call(RetrySafety::ReadOnly, QUERY_TIME, v1::ExportAuditRequest {}, send)
            .await
            .map(AuditExportStream)
    }

    /// Lets the server verify its whole audit log. A damaged log is an error that names file and offset.
    pub async fn verify_audit(&self) -> Result<AuditVerificationBody, Error> {
        let send = |mut client: GrpcClient, request| async move { client.verify_audit(request).await };
        let found = self.servers.call(RetrySafety::ReadOnly, VERIFY_TIME, v1::VerifyAuditRequest {}, send).await?;
        if found.intact {
            return Ok(found.into());
        }
        let at =
            if found.file.is_empty() { String::new() } else { format!("{} at byte {}: ", found.file, found.offset) };
        let problem = v1::Problem::of(Code::Corrupt, format!("{at}{}; compare it with an export", found.problem));
        let offset = (!found.file.is_empty()).then_some(found.offset);
        Err(v1::Problem { file: found.file, offset, reason: found.problem, ..problem }.into())
    }

    /// Lists the stored signed heads of the audit log, oldest first. Store them elsewhere to detect a log that was cut or rewritten.
    pub async fn audit_heads(&self) -> Result<Vec<AuditHeadBody>, Error> {
        let send = |mut client: GrpcClient, request| async move { client.list_audit_heads(request).await };
        let request = v1::ListAuditHeadsRequest {};
        let found = self.servers.call(RetrySafety::ReadOnly, QUERY_TIME, request, send).await?;
        Ok(found.heads.into_iter().map(Into::into).collect())
    }

    /// Lists the last requests that the access rules refused, newest first, of the server that answers.
    pub async fn denials(&self) -> Result<DenialsBody, Error> {
        let send = |mut client: GrpcClient, request| async move { client.list_denials(request).await };
        self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, v1::ListDenialsRequest {}, send).await.map(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(entries: &[u64], next: Option<u64>) -> v1::AuditPage {
        let entries = entries.iter().map(|entry| v1::AuditEntry { entry: *entry, ..Default::default() }).collect();
        v1::AuditPage { entries, next, ..Default::default() }
    }

    #[test]
    fn a_search_is_followed_over_pages_without_entries_to_its_end() {
        let all = AuditFilter::new();
        let next = |filter: &AuditFilter, page| filter.next_page(&page, 2);
        assert_eq!(next(&all, page(&[], Some(70))), Some(all.clone().before(70)));
        let older = all.clone().before(70);
        assert_eq!(next(&older, page(&[60], Some(40))), Some(all.clone().before(40)), "not after its last entry");
        assert_eq!(next(&older, page(&[60], None)), None);
        let oldest = all.clone().oldest_first();
        assert_eq!(next(&oldest, page(&[], Some(9))), Some(oldest.clone().after(9)));
        assert_eq!(next(&oldest, page(&[], None)), None);
        assert_eq!(next(&all, page(&[9, 8], None)), Some(all.clone().before(8)), "a server that sends no continuation");
        assert_eq!(next(&older, page(&[], Some(70))), None, "a server that does not continue ends the search");
        assert_eq!(next(&oldest.after(9), page(&[], Some(9))), None);
        assert_eq!(next(&all, page(&[2, 1], Some(1))), None, "there is no entry before the first");
    }
}
