//! What changes nothing, the same for both doors: every look is answered from a turn, after authority was confirmed (E1).

use leasehold_core::charter::Charter;
use leasehold_core::grantor::Usage;
use leasehold_core::name::{HolderName, Name, NameError, Prefix};
use leasehold_core::refusal::{Refusal, What};
use leasehold_wire::{
    charter, deadlock_view, ended, fences, lease_view, problem, queue_view, resource_view, state_list, status_view,
    usage, v1, waiter_view,
};

use super::Api;

/// Most entries of one page, and most places looked at for it.
const PAGE: usize = 1_000;
const LOOKED_AT: u32 = 1 << 16;

/// What was seen, and the journal position it depends on.
pub type Seen<T> = Result<(T, u64), v1::Problem>;

/// How many entries a page has; zero is for those who do not say.
fn page(most: u32) -> usize {
    if most == 0 { PAGE } else { PAGE.min(most as usize) }
}

/// A name that cannot be is refused: a look would only find nothing there, and nobody would know why.
pub fn not_a_name(error: NameError) -> v1::Problem {
    problem(&Refusal::Name(error))
}

impl Api {
    /// A resource with all that stands at it.
    pub async fn show(&self, from: v1::ShowRequest) -> Seen<v1::ResourceView> {
        Name::parse(&from.resource).map_err(not_a_name)?;
        let name = from.resource;
        let look =
            self.look_from(from.min_position, move |grantor| grantor.show(&name).map(|view| resource_view(&view)));
        let (seen, position) = look.await?;
        let missing = || problem(&Refusal::NotFound(What::Resource));
        Ok((seen.ok_or_else(missing)?, position))
    }

    /// Resources under a prefix.
    pub async fn list(&self, from: v1::ListRequest) -> Seen<v1::ResourceList> {
        Prefix::parse(&from.prefix).map_err(not_a_name)?;
        let look = move |grantor: &leasehold_core::grantor::Grantor| {
            let (found, next) = grantor.list(&from.prefix, from.from, page(from.most), LOOKED_AT);
            v1::ResourceList { resources: found.iter().map(resource_view).collect(), next, position: 0 }
        };
        let (seen, position) = self.look_from(from.min_position, look).await?;
        Ok((v1::ResourceList { position, ..seen }, position))
    }

    /// Everything that holders of a name hold.
    pub async fn held_by(&self, from: v1::HeldByRequest) -> Seen<v1::LeaseList> {
        HolderName::parse(&from.holder).map_err(not_a_name)?;
        self.look_from(0, move |grantor| {
            let leases = grantor.held_page(&from.holder, from.after, page(from.most));
            v1::LeaseList { leases: leases.iter().map(lease_view).collect() }
        })
        .await
    }

    /// Who waits for a resource.
    pub async fn waiters(&self, from: v1::WaitersRequest) -> Seen<v1::WaiterList> {
        Name::parse(&from.resource).map_err(not_a_name)?;
        self.look_from(0, move |grantor| {
            let waiters = grantor.waiters_page(&from.resource, from.from as usize, page(from.most));
            v1::WaiterList { waiters: waiters.iter().map(waiter_view).collect() }
        })
        .await
    }

    /// The latest deadlocks, latest last.
    pub async fn deadlocks(&self, from: v1::DeadlocksRequest) -> Seen<v1::DeadlockList> {
        self.look_from(0, move |grantor| {
            let mut deadlocks: Vec<_> = grantor.deadlocks().map(deadlock_view).collect();
            deadlocks.drain(..deadlocks.len().saturating_sub(page(from.most)));
            v1::DeadlockList { deadlocks }
        })
        .await
    }

    /// The remembered ends of a resource, latest first.
    pub async fn ends(&self, from: v1::HistoryRequest) -> Seen<v1::EndedList> {
        Name::parse(&from.resource).map_err(not_a_name)?;
        self.look_from(0, move |grantor| v1::EndedList {
            ended: grantor.history(&from.resource, page(from.most)).iter().map(ended).collect(),
        })
        .await
    }

    /// The small state of a resource.
    pub async fn state(&self, from: v1::StateRequest) -> Seen<v1::StateList> {
        self.look_from(from.min_position, move |grantor| {
            state_list(grantor.small_state(), &from.resource, &from.after, page(from.most))
        })
        .await
    }

    /// A queue, and its dead messages if they are asked for.
    pub async fn queue(&self, from: v1::QueueRequest) -> Seen<v1::QueueView> {
        self.look_from(from.min_position, move |grantor| {
            let (now, most) = (grantor.status().time, from.most.map_or(0, page));
            queue_view(grantor.queues(), now, &from.queue, from.after, most)
        })
        .await
    }

    /// What holders used, by name; the uncounted together come first, under no name.
    pub async fn usage(&self, from: v1::UsageRequest) -> Seen<v1::UsageList> {
        if !from.holder.is_empty() {
            HolderName::parse(&from.holder).map_err(not_a_name)?;
        }
        self.look_from(0, move |grantor| {
            if !from.holder.is_empty() {
                let used = grantor.usage(&from.holder);
                return v1::UsageList { holders: used.iter().map(|used| usage(&from.holder, used)).collect() };
            }
            let (all, others) = grantor.usage_of_all();
            let rest = (from.after.is_empty() && others != Usage::default()).then(|| usage("", &others));
            let later = all.iter().filter(|(holder, _)| *holder > from.after);
            let holders = rest.into_iter().chain(later.map(|(holder, used)| usage(holder, used)));
            v1::UsageList { holders: holders.take(page(from.most)).collect() }
        })
        .await
    }

    /// Every target that a resource covers, and the holes.
    pub async fn fences(&self, from: v1::FencesRequest) -> Seen<v1::Fences> {
        Name::parse(&from.resource).map_err(not_a_name)?;
        self.look_from(from.min_position, move |grantor| fences(&from.resource, &grantor.targets(&from.resource))).await
    }

    /// The grantor in figures.
    pub async fn status(&self, least: u64) -> Seen<v1::Status> {
        let (status, position) = self.look_from(least, |grantor| grantor.status()).await?;
        Ok((status_view(&status, position), position))
    }

    /// Charters by prefix, or the one that covers a resource.
    pub async fn charters(&self, from: v1::ChartersRequest) -> Seen<v1::Charters> {
        if !from.resource.is_empty() {
            Name::parse(&from.resource).map_err(not_a_name)?;
        }
        self.look_from(0, move |grantor| {
            let entry = |(prefix, found): (&str, &Charter)| v1::CharterEntry {
                prefix: prefix.into(),
                charter: Some(charter(found)),
            };
            if !from.resource.is_empty() {
                return v1::Charters { charters: grantor.charter_of(&from.resource).into_iter().map(entry).collect() };
            }
            let later =
                grantor.charters().filter(|(prefix, _)| from.after.as_deref().is_none_or(|after| *prefix > after));
            v1::Charters { charters: later.take(page(from.most)).map(entry).collect() }
        })
        .await
    }
}
