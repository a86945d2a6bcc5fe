//! Listings of held leases, filtered and sorted.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use leasehold_core::grantor::LeaseSort;
use leasehold_wire::json::{ListedLeaseBody, ListedLeasesBody};
use leasehold_wire::v1;

use crate::failover::RetrySafety;
use crate::page_fetch::PageFetch;
use crate::server_pool::GrpcClient;
use crate::{Client, Error};

/// Largest page.
const MAX_PAGE: u32 = 500;

/// One page of held leases.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeasePage {
    /// The leases. May be fewer than the size of a page, or none, although further pages follow.
    pub leases: Vec<ListedLeaseBody>,
    /// Where the next page starts; none after the last page.
    pub next_cursor: Option<String>,
    /// The journal position that this page shows.
    pub position: u64,
}

/// The held leases that match all conditions, as a stream of pages. A listing that is read to its end contains every such lease that
/// is held all the time exactly once. After an error, polling again fetches the same page again; a sorted listing whose server was
/// replaced meanwhile fails with `NOT_FOUND` and has to start again.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct LeasePages {
    client: Client,
    request: v1::ListLeasesRequest,
    ended: bool,
    fetch: PageFetch<LeasePage>,
}

impl LeasePages {
    /// Only leases of holders with this name.
    pub fn of_holder(mut self, holder: &str) -> Self {
        self.request.holder = Some(holder.into());
        self
    }

    /// Only leases that were granted at least this long ago.
    pub fn older_than(mut self, age: Duration) -> Self {
        self.request.older_than_ms = Some(millis(age));
        self
    }

    /// Only leases that were granted less than this long ago.
    pub fn younger_than(mut self, age: Duration) -> Self {
        self.request.younger_than_ms = Some(millis(age));
        self
    }

    /// Only leases that are [stuck](ListedLeaseBody::stuck), or only others.
    pub const fn stuck(mut self, stuck: bool) -> Self {
        self.request.stuck = Some(stuck);
        self
    }

    /// Only leases that are being drained, or only others.
    pub const fn draining(mut self, draining: bool) -> Self {
        let state = if draining { v1::ListedState::Draining } else { v1::ListedState::Active };
        self.request.state = state as i32;
        self
    }

    /// Sorts by this key, smallest first, or largest first if `descending`. Default: a stable order that says nothing.
    pub fn sort_by(mut self, sort: LeaseSort, descending: bool) -> Self {
        self.request.sort = v1::LeaseSort::from(sort).into();
        self.request.descending = descending;
        self
    }

    /// Starts at the [`next_cursor`](LeasePage::next_cursor) of an earlier page with the same conditions and the same order.
    pub fn start_at(mut self, cursor: &str) -> Self {
        self.request.cursor = cursor.into();
        self
    }

    /// Limits the leases of one page. Default: 500, which is also the maximum.
    pub fn page_size(mut self, limit: u32) -> Self {
        self.request.limit = limit.clamp(1, MAX_PAGE);
        self
    }
}

fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

impl Stream for LeasePages {
    type Item = Result<LeasePage, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        let (client, request) = (&this.client, &this.request);
        let page = ready!(this.fetch.poll(context, || fetch(client.clone(), request.clone())));
        if let Ok(page) = &page {
            match &page.next_cursor {
                Some(next) => this.request.cursor.clone_from(next),
                None => this.ended = true,
            }
        }
        Poll::Ready(Some(page))
    }
}

async fn fetch(client: Client, request: v1::ListLeasesRequest) -> Result<LeasePage, Error> {
    request.to_filter().map_err(|refusal| Error::from(&refusal))?;
    let send = |mut client: GrpcClient, request| async move { client.list_leases(request).await };
    let page = client.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await?;
    let ListedLeasesBody { leases, next_cursor, position } = page.into();
    Ok(LeasePage { leases, next_cursor, position })
}

impl Client {
    /// The held leases of the resources under a prefix of whole segments; the empty prefix covers everything.
    pub fn list_leases(&self, prefix: &str) -> LeasePages {
        let request = v1::ListLeasesRequest { prefix: prefix.into(), limit: MAX_PAGE, ..Default::default() };
        LeasePages { client: self.clone(), request, ended: false, fetch: PageFetch::new() }
    }
}
