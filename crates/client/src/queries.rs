//! Queries of the current state. The leader answers them after it has confirmed its authority.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use leasehold_core::name::{HolderName, Name, Prefix};
#[cfg(any(test, feature = "testing"))]
use leasehold_core::refusal::{Refusal, RefusalSubject};
use leasehold_core::token::Cluster;
use leasehold_wire::json::{
    ClusterBody, DeadlockBody, EndedLeaseBody, LeaseBody, ResourceBody, ResourcesBody, SealKeySetBody, StatusBody,
    UsageBody, WaiterBody,
};
use leasehold_wire::v1;

use crate::failover::RetrySafety;
use crate::page_fetch::PageFetch;
use crate::server_pool::GrpcClient;
use crate::{Address, Client, Error};

/// Largest page.
const MAX_PAGE: u32 = 500;

/// One page of a listing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResourcePage {
    /// Resources in a stable order. May be empty although further pages follow.
    pub resources: Vec<ResourceBody>,
    /// Where the next page starts; none after the last page.
    pub next_cursor: Option<u32>,
    /// The journal position that this page shows.
    pub position: u64,
}

/// The resources under a prefix, as a stream of pages. It ends after the last page. After an error, polling again fetches the
/// same page again.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct ResourcePages {
    client: Client,
    prefix: String,
    cursor: Option<u32>,
    page_size: u32,
    fetch: PageFetch<ResourcePage>,
}

impl ResourcePages {
    /// Starts at the [`next_cursor`](ResourcePage::next_cursor) of an earlier page.
    pub const fn start_at(mut self, cursor: u32) -> Self {
        self.cursor = Some(cursor);
        self
    }

    /// Limits the resources of one page. Default: 500, which is also the maximum.
    pub fn page_size(mut self, limit: u32) -> Self {
        self.page_size = limit.clamp(1, MAX_PAGE);
        self
    }
}

impl Stream for ResourcePages {
    type Item = Result<ResourcePage, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(cursor) = this.cursor else {
            return Poll::Ready(None);
        };
        let (client, prefix, limit) = (&this.client, &this.prefix, this.page_size);
        let page = ready!(this.fetch.poll(context, || fetch(client.clone(), prefix.clone(), cursor, limit)));
        if let Ok(page) = &page {
            this.cursor = page.next_cursor;
        }
        Poll::Ready(Some(page))
    }
}

async fn fetch(client: Client, prefix: String, cursor: u32, limit: u32) -> Result<ResourcePage, Error> {
    Prefix::parse(&prefix)?;
    #[cfg(any(test, feature = "testing"))]
    if let Some(found) = client.servers.memory_query(|grantor| {
        let budget = &mut leasehold_core::grantor::QueryBudget::unlimited();
        grantor.list(&prefix, cursor, MAX_PAGE as usize, usize::MAX, budget)
    }) {
        let (views, next_cursor) = found?;
        let resources = views.iter().map(|view| leasehold_wire::resource_view(view).into()).collect();
        return Ok(ResourcePage { resources, next_cursor, position: 0 });
    }
    let request = v1::ListRequest { prefix, cursor, limit, min_position: 0 };
    let send = |mut client: GrpcClient, request| async move { client.list(request).await };
    let page = client.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await?;
    let (next_cursor, position) = (page.next_cursor, page.position);
    Ok(ResourcePage { resources: ResourcesBody::from(page).resources, next_cursor, position })
}

impl Client {
    /// A resource with its leases and its state.
    pub async fn show(&self, resource: &str) -> Result<ResourceBody, Error> {
        Name::parse(resource)?;
        #[cfg(any(test, feature = "testing"))]
        if let Some(view) = self.servers.memory_query(|grantor| grantor.show(resource)) {
            let missing = || Error::from(&Refusal::NotFound(RefusalSubject::Resource));
            return view?.map(|view| leasehold_wire::resource_view(&view).into()).ok_or_else(missing);
        }
        let request = v1::ShowRequest { resource: resource.into(), min_position: 0 };
        let send = |mut client: GrpcClient, request| async move { client.show(request).await };
        self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await.map(Into::into)
    }

    /// The resources under a prefix of whole segments; the empty prefix covers everything.
    pub fn list(&self, prefix: &str) -> ResourcePages {
        let (prefix, fetch) = (prefix.into(), PageFetch::new());
        ResourcePages { client: self.clone(), prefix, cursor: Some(0), page_size: MAX_PAGE, fetch }
    }

    /// All leases of holders with this name, in the order of their token numbers.
    pub async fn held_by(&self, holder: &str) -> Result<Vec<LeaseBody>, Error> {
        HolderName::parse(holder)?;
        let mut all: Vec<v1::LeaseView> = Vec::new();
        loop {
            let after = all.last().map_or(0, |lease| lease.token_number);
            let request = v1::HeldByRequest { holder: holder.into(), after, limit: MAX_PAGE };
            let send = |mut client: GrpcClient, request| async move { client.held_by(request).await };
            let page = self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await?.leases;
            let before = all.len();
            all.extend(page.into_iter().filter(|lease| lease.token_number > after));
            all.sort_by_key(|lease| lease.token_number);
            if all.len() == before {
                return Ok(all.into_iter().map(Into::into).collect());
            }
        }
    }

    /// The waiters of a resource in the order in which they are served.
    pub async fn waiters(&self, resource: &str) -> Result<Vec<WaiterBody>, Error> {
        Name::parse(resource)?;
        let mut all: Vec<WaiterBody> = Vec::new();
        loop {
            let offset = all.len() as u32;
            let request = v1::WaitersRequest { resource: resource.into(), offset, limit: MAX_PAGE };
            let send = |mut client: GrpcClient, request| async move { client.waiters(request).await };
            let page = self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await?.waiters;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page.into_iter().map(WaiterBody::from));
        }
    }

    /// The first waiters of a resource, at most `limit`, and at most 500.
    pub async fn first_waiters(&self, resource: &str, limit: u32) -> Result<Vec<WaiterBody>, Error> {
        Name::parse(resource)?;
        let request = v1::WaitersRequest { resource: resource.into(), offset: 0, limit: limit.clamp(1, MAX_PAGE) };
        let send = |mut client: GrpcClient, request| async move { client.waiters(request).await };
        let list = self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await?;
        Ok(list.waiters.into_iter().map(Into::into).collect())
    }

    /// The last deadlocks, latest last.
    pub async fn deadlocks(&self) -> Result<Vec<DeadlockBody>, Error> {
        let request = v1::DeadlocksRequest { limit: MAX_PAGE };
        let send = |mut client: GrpcClient, request| async move { client.deadlocks(request).await };
        let list = self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await?;
        Ok(list.deadlocks.into_iter().map(Into::into).collect())
    }

    /// The recently ended leases of a resource that the grantor has in memory, latest first. [`Client::audit`] has all of them.
    pub async fn recent_ends(&self, resource: &str, limit: u32) -> Result<Vec<EndedLeaseBody>, Error> {
        Name::parse(resource)?;
        let request = v1::HistoryRequest { resource: resource.into(), limit };
        let send = |mut client: GrpcClient, request| async move { client.history(request).await };
        let list = self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await?;
        Ok(list.leases.into_iter().map(Into::into).collect())
    }

    /// Usage of one holder, or of all. Holders beyond the tracked ones come last, as one entry without a name.
    pub async fn usage(&self, holder: Option<&str>) -> Result<Vec<UsageBody>, Error> {
        holder.map(HolderName::parse).transpose()?;
        let mut all: Vec<UsageBody> = Vec::new();
        let mut rest: Option<UsageBody> = None;
        loop {
            let after = all.last().map(|usage| usage.holder.clone()).unwrap_or_default();
            let holder_name = holder.unwrap_or_default().into();
            let request = v1::UsageRequest { holder: holder_name, after: after.clone(), limit: MAX_PAGE };
            let send = |mut client: GrpcClient, request| async move { client.usage(request).await };
            let page = self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await?.holders;
            let before = all.len();
            for usage in page.into_iter().map(UsageBody::from) {
                if usage.holder.is_empty() {
                    rest = Some(usage);
                } else if usage.holder > after {
                    all.push(usage);
                }
            }
            all.sort_by(|one, other| one.holder.cmp(&other.holder));
            if all.len() == before || holder.is_some() {
                all.extend(rest);
                return Ok(all);
            }
        }
    }

    /// The servers of the cluster, as the first server that answers sees them.
    pub async fn cluster(&self) -> Result<ClusterBody, Error> {
        let send = |mut client: GrpcClient, request| async move { client.cluster(request).await };
        self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, v1::ClusterRequest {}, send).await.map(Into::into)
    }

    /// The status of one server, which [`Client::cluster`] listed. Fails if it may not be contacted ([`Client::may_contact`]).
    pub async fn cluster_at(&self, address: &str, timeout: Duration) -> Result<ClusterBody, Error> {
        let at = Address::parse(address)?;
        if !self.servers.may_follow(&at) {
            let message = format!(
                "addr: {at} is not one of the addresses of this client, and nothing proves that it belongs to the cluster; add it \
                 to the addresses"
            );
            return Err(Error::config("addr", message));
        }
        let mut only = self.clone();
        only.servers = self.servers.only(at, timeout);
        only.cluster().await
    }

    /// Whether a server that another one named may be contacted (A17): it is an endpoint of this client, or, with TLS, the servers of
    /// the endpoints have shown the name of the cluster, which its certificate must then show too.
    pub fn may_contact(&self, address: &str) -> bool {
        Address::parse(address).is_ok_and(|at| self.servers.may_follow(&at))
    }

    /// The public keys that verify sealed tokens, as the first server that answers knows them. Their JSON is the key file of a fence.
    pub async fn seal_keys(&self) -> Result<SealKeySetBody, Error> {
        let send = |mut client: GrpcClient, request| async move { client.keys(request).await };
        self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, v1::KeysRequest {}, send).await.map(Into::into)
    }

    /// The cluster id, as tokens contain it. Fences need it.
    pub async fn cluster_id(&self) -> Result<Cluster, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(cluster) = self.servers.memory_query(|grantor| grantor.status().cluster) {
            return cluster;
        }
        self.status().await?.cluster.parse().map_err(Error::invalid_reply)
    }

    /// Status and counters of the grantor.
    pub async fn status(&self) -> Result<StatusBody, Error> {
        let send = |mut client: GrpcClient, request| async move { client.status(request).await };
        self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, v1::StatusRequest {}, send).await.map(Into::into)
    }
}
