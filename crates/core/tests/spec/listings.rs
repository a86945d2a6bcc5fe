//! Listings of held leases: filters and sort keys, by a scan of all leases.

use leasehold_core::access::Caller;
use leasehold_core::grantor::{
    Grantor, LeaseFilter, LeaseSort, LeaseSortKey, ListedLease, Query, QueryAnswer, QueryOutcome,
};
use leasehold_core::ids::LeaseId;

use super::model::{Spec, lease_id};

/// What the spec knows of a listed lease: its id, its age, how long it is silent and idle, whether it is stuck, and its waiters.
type ListedRow = (LeaseId, u64, u64, Option<u64>, bool, usize);

/// Leases of one page.
const PAGE: usize = 3;

/// The filters that runs compare, one in each turn.
fn filters() -> [LeaseFilter; 9] {
    let all = LeaseFilter::default;
    [
        all(),
        LeaseFilter { prefix: "plain".into(), ..all() },
        LeaseFilter { prefix: "pool/x".into(), stuck: Some(false), ..all() },
        LeaseFilter { holder: Some("ann".into()), ..all() },
        LeaseFilter { holder: Some("no one".into()), ..all() },
        LeaseFilter { min_age_ms: Some(400), max_age_ms: Some(1_500), ..all() },
        LeaseFilter { stuck: Some(true), ..all() },
        LeaseFilter { draining: Some(true), ..all() },
        LeaseFilter { draining: Some(false), holder: Some("bob".into()), min_age_ms: Some(1), ..all() },
    ]
}

/// The core lists the resources that someone waits for, each once.
pub fn compare_contended(core: &Grantor, spec: &Spec, resources: &[&str]) -> Result<(), String> {
    let (mut found, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let query = Query::ContendedResources { from, limit: PAGE, leases: usize::MAX, waiters: usize::MAX };
        let QueryAnswer::ContendedResources(page, more) = answer(core, &query)? else {
            return Err("another answer".into());
        };
        for one in page {
            let name = one.view.resource.clone();
            if Some(one.view) != core.show(&name) || one.waiters != core.waiters(&name) {
                return Err(format!("{name} is listed with waiters in another way than it is shown"));
            }
            found.push(name);
        }
        next = more;
    }
    found.sort();
    let mut waited: Vec<&str> = resources.iter().copied().filter(|name| !spec.queue(name).is_empty()).collect();
    waited.sort_unstable();
    if found != waited {
        return Err(format!("resources with waiters: the core has {found:?}, the spec has {waited:?}"));
    }
    Ok(())
}

/// The listings of core and spec are equal, in pages and sorted. Each turn compares one filter and one order.
pub fn compare(core: &Grantor, spec: &Spec) -> Result<(), String> {
    let filters = filters();
    let filter = &filters[(spec.now as usize / 7 + spec.counter as usize) % filters.len()];
    let rows: Vec<ListedRow> =
        spec.live().into_iter().filter(|i| matches(spec, filter, *i)).map(|i| row(spec, i)).collect();
    let listed = pages(core, filter)?;
    if listed != rows {
        return Err(format!("listed with {filter:?}: the core has {listed:?}, the spec has {rows:?}"));
    }
    let sort = LeaseSort::ALL[(spec.now as usize / 3 + spec.counter as usize) % LeaseSort::ALL.len()];
    let mut sorted: Vec<LeaseSortKey> = rows.iter().map(|row| key(spec, sort, row)).collect();
    sorted.sort();
    let mut found = keys(core, filter, sort)?;
    found.sort();
    if found != sorted {
        return Err(format!("sorted by {sort} with {filter:?}: the core has {found:?}, the spec has {sorted:?}"));
    }
    let ids: Vec<LeaseId> = sorted.iter().map(|key| key.lease).collect();
    let read = answer(core, &Query::LeasesWithIds { filter: filter.clone(), leases: ids.clone() })?;
    let QueryAnswer::ListedLeases(read, None) = read else { return Err("another answer".into()) };
    let read: Vec<LeaseId> = read.iter().map(|listed| listed.lease.lease).collect();
    if read != ids {
        return Err(format!("the page of {ids:?} has {read:?}"));
    }
    Ok(())
}

fn answer<'a>(core: &'a Grantor, query: &Query) -> Result<QueryAnswer<'a>, String> {
    match core.query(&Caller::LOCAL, query) {
        QueryOutcome::Answered(answer) => Ok(answer),
        QueryOutcome::Hidden(_) | QueryOutcome::Denied(_) => Err(format!("{query:?} was denied")),
    }
}

fn pages(core: &Grantor, filter: &LeaseFilter) -> Result<Vec<ListedRow>, String> {
    let (mut rows, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let page = answer(core, &Query::Leases { filter: filter.clone(), from, limit: PAGE })?;
        let QueryAnswer::ListedLeases(page, more) = page else { return Err("another answer".into()) };
        if page.len() > PAGE || more.is_some_and(|more| more <= from) {
            return Err(format!("a page of {} leases from {from} continues at {more:?}", page.len()));
        }
        rows.extend(page.iter().map(|ListedLease { lease, age_ms, silent_ms, idle_ms, stuck, waiters }| {
            (lease.lease, *age_ms, *silent_ms, *idle_ms, *stuck, *waiters)
        }));
        next = more;
    }
    Ok(rows)
}

fn keys(core: &Grantor, filter: &LeaseFilter, sort: LeaseSort) -> Result<Vec<LeaseSortKey>, String> {
    match answer(core, &Query::LeaseKeys { filter: filter.clone(), sort, from: 0 })? {
        QueryAnswer::LeaseKeys(keys, None) => Ok(keys),
        _ => Err("a few leases are within the budget".into()),
    }
}

fn matches(spec: &Spec, filter: &LeaseFilter, i: usize) -> bool {
    let lease = &spec.leases[i];
    let prefix = &filter.prefix;
    let is_under = prefix.is_empty() || lease.resource == prefix || lease.resource.starts_with(&format!("{prefix}/"));
    let (_, age, _, _, stuck, _) = row(spec, i);
    is_under
        && filter.holder.as_ref().is_none_or(|holder| lease.actor.holder == holder)
        && filter.min_age_ms.is_none_or(|min| age >= min)
        && filter.max_age_ms.is_none_or(|max| age < max)
        && filter.stuck.is_none_or(|wanted| stuck == wanted)
        && filter.draining.is_none_or(|wanted| lease.drain.is_some() == wanted)
}

fn row(spec: &Spec, i: usize) -> ListedRow {
    let lease = &spec.leases[i];
    let lifetime = match lease.actor.session {
        Some(session) if lease.follows_session => &spec.sessions[session as usize].lifetime,
        _ => &lease.lifetime,
    };
    let silent = spec.now - lifetime.renewed;
    let idle = lease.progress.map(|progress| spec.now - progress.lifetime.renewed);
    let window = lease.progress.map(|progress| progress.lifetime.ttl);
    let is_idle = idle.zip(window).is_some_and(|(idle, window)| 2 * idle >= window);
    let stuck = 2 * silent >= lifetime.ttl || is_idle;
    (lease_id(i), spec.now - lease.granted, silent, idle, stuck, spec.queue(lease.resource).len())
}

fn key(spec: &Spec, sort: LeaseSort, row: &ListedRow) -> LeaseSortKey {
    let (lease, age, silent, idle, _, waiters) = *row;
    let known = &spec.leases[lease.slot as usize];
    let number = match sort {
        LeaseSort::Name => 0,
        LeaseSort::Age => age,
        LeaseSort::Remaining => spec.remaining(known),
        LeaseSort::LastProgress => idle.unwrap_or(silent),
        LeaseSort::Waiters => waiters as u64,
    };
    LeaseSortKey { number, name: if sort == LeaseSort::Name { known.resource } else { "" }.into(), lease }
}
