//! What is there: every look is answered by the server that decides, after its authority was confirmed.

use std::time::Duration;

use leasehold_core::name::{HolderName, Name, NameError, Prefix};
use leasehold_core::refusal::Refusal;
#[cfg(any(test, feature = "testing"))]
use leasehold_core::refusal::What;
use leasehold_wire::json::{
    ClusterBody, DeadlockBody, EndedBody, LeaseBody, ResourceBody, ResourcesBody, StatusBody, UsageBody, WaiterBody,
};
use leasehold_wire::v1;

use crate::lease::To;
use crate::route::Nature;
use crate::{Client, Error};

/// Entries of one page.
const PAGE: u32 = 500;

/// The resources under a prefix, page by page.
#[derive(Clone, Debug)]
pub struct Listing {
    client: Client,
    prefix: String,
    from: Option<u32>,
    position: u64,
}

impl Listing {
    /// The next page of at most so many; none after the last. A page may be empty and not the last.
    pub async fn page(&mut self, most: u32) -> Result<Option<Vec<ResourceBody>>, Error> {
        let Some(from) = self.from else {
            return Ok(None);
        };
        checked(Prefix::parse(&self.prefix))?;
        let ask = v1::ListRequest { prefix: self.prefix.clone(), from, most: most.clamp(1, PAGE), min_position: 0 };
        #[cfg(any(test, feature = "testing"))]
        if let Some(seen) = self.client.in_memory(|grantor| grantor.list(&self.prefix, from, PAGE as usize, u32::MAX)) {
            let (found, next) = seen?;
            self.from = next;
            return Ok(Some(found.iter().map(|view| leasehold_wire::resource_view(view).into()).collect()));
        }
        let send = |mut to: To, ask| async move { to.list(ask).await };
        let told = self.client.call(Nature::Look, Duration::ZERO, ask, send).await?;
        self.from = told.next;
        self.position = told.position;
        Ok(Some(ResourcesBody::from(told).resources))
    }

    /// Where the next page begins, if there is one.
    pub const fn next(&self) -> Option<u32> {
        self.from
    }

    /// The journal position that the last page shows.
    pub const fn position(&self) -> u64 {
        self.position
    }
}

/// A name that cannot be is refused before anybody is asked: a look would only find nothing there.
pub(crate) fn checked<T>(name: Result<T, NameError>) -> Result<T, Error> {
    name.map_err(|error| Error::from(&Refusal::Name(error)))
}

impl Client {
    /// A resource with all that stands at it.
    pub async fn show(&self, resource: &str) -> Result<ResourceBody, Error> {
        checked(Name::parse(resource))?;
        #[cfg(any(test, feature = "testing"))]
        if let Some(seen) = self.in_memory(|grantor| grantor.show(resource)) {
            let missing = || Error::from(&Refusal::NotFound(What::Resource));
            return seen?.map(|view| leasehold_wire::resource_view(&view).into()).ok_or_else(missing);
        }
        let ask = v1::ShowRequest { resource: resource.into(), min_position: 0 };
        let send = |mut to: To, ask| async move { to.show(ask).await };
        self.call(Nature::Look, Duration::ZERO, ask, send).await.map(Into::into)
    }

    /// The resources under a prefix of whole segments; from 0, or from where an earlier listing stopped.
    pub fn list(&self, prefix: &str, from: u32) -> Listing {
        Listing { client: self.clone(), prefix: prefix.into(), from: Some(from), position: 0 }
    }

    /// Everything that holders of this name hold, in order of the token numbers.
    pub async fn held_by(&self, holder: &str) -> Result<Vec<LeaseBody>, Error> {
        checked(HolderName::parse(holder))?;
        let mut all: Vec<v1::LeaseView> = Vec::new();
        loop {
            let after = all.last().map_or(0, |lease| lease.token_number);
            let ask = v1::HeldByRequest { holder: holder.into(), after, most: PAGE };
            let send = |mut to: To, ask| async move { to.held_by(ask).await };
            let page = self.call(Nature::Look, Duration::ZERO, ask, send).await?.leases;
            let before = all.len();
            all.extend(page.into_iter().filter(|lease| lease.token_number > after));
            all.sort_by_key(|lease| lease.token_number);
            if all.len() == before {
                return Ok(all.into_iter().map(Into::into).collect());
            }
        }
    }

    /// Who waits for a resource, in the order in which they are served.
    pub async fn waiters(&self, resource: &str) -> Result<Vec<WaiterBody>, Error> {
        checked(Name::parse(resource))?;
        let mut all: Vec<WaiterBody> = Vec::new();
        loop {
            let ask = v1::WaitersRequest { resource: resource.into(), from: all.len() as u32, most: PAGE };
            let send = |mut to: To, ask| async move { to.waiters(ask).await };
            let page = self.call(Nature::Look, Duration::ZERO, ask, send).await?.waiters;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page.into_iter().map(WaiterBody::from));
        }
    }

    /// The last deadlocks, latest last.
    pub async fn deadlocks(&self) -> Result<Vec<DeadlockBody>, Error> {
        let send = |mut to: To, ask| async move { to.deadlocks(ask).await };
        let told = self.call(Nature::Look, Duration::ZERO, v1::DeadlocksRequest { most: PAGE }, send).await?;
        Ok(told.deadlocks.into_iter().map(Into::into).collect())
    }

    /// The ends of a resource that the grantor still has in memory, latest first. What is kept for good is in the trail.
    pub async fn ends(&self, resource: &str, most: u32) -> Result<Vec<EndedBody>, Error> {
        checked(Name::parse(resource))?;
        let ask = v1::HistoryRequest { resource: resource.into(), most };
        let send = |mut to: To, ask| async move { to.history(ask).await };
        let told = self.call(Nature::Look, Duration::ZERO, ask, send).await?;
        Ok(told.ended.into_iter().map(Into::into).collect())
    }

    /// What one holder used, or all of them; those without a name of their own come last, together.
    pub async fn usage(&self, holder: Option<&str>) -> Result<Vec<UsageBody>, Error> {
        holder.map(HolderName::parse).map(checked).transpose()?;
        let mut all: Vec<UsageBody> = Vec::new();
        let mut rest: Option<UsageBody> = None;
        loop {
            let after = all.last().map(|used| used.holder.clone()).unwrap_or_default();
            let ask = v1::UsageRequest { holder: holder.unwrap_or_default().into(), after: after.clone(), most: PAGE };
            let send = |mut to: To, ask| async move { to.usage(ask).await };
            let page = self.call(Nature::Look, Duration::ZERO, ask, send).await?.holders;
            let before = all.len();
            for used in page.into_iter().map(UsageBody::from) {
                if used.holder.is_empty() {
                    rest = Some(used);
                } else if used.holder > after {
                    all.push(used);
                }
            }
            all.sort_by(|one, other| one.holder.cmp(&other.holder));
            if all.len() == before || holder.is_some() {
                all.extend(rest);
                return Ok(all);
            }
        }
    }

    /// The servers over one journal, as the first one that answers sees them.
    pub async fn cluster(&self) -> Result<ClusterBody, Error> {
        let send = |mut to: To, ask| async move { to.cluster(ask).await };
        self.call(Nature::Look, Duration::ZERO, v1::ClusterRequest {}, send).await.map(Into::into)
    }

    /// The grantor in figures.
    pub async fn status(&self) -> Result<StatusBody, Error> {
        let send = |mut to: To, ask| async move { to.status(ask).await };
        self.call(Nature::Look, Duration::ZERO, v1::StatusRequest {}, send).await.map(Into::into)
    }
}
