//! Listings of held leases, filtered and sorted, in pages.
//!
//! Without a sort key a page is one bounded query in slot order, and its cursor is the next slot. A sorted listing is collected by
//! several bounded queries in turns of their own, sorted off the turns, and kept for its later pages: values such as the remaining time
//! move while a caller reads, and only a kept order neither loses nor repeats a lease.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use leasehold_core::grantor::{LeaseFilter, LeaseSort, LeaseSortKey, ListedLease, Query, QueryAnswer};
use leasehold_core::ids::LeaseId;
use leasehold_core::limits::{HOLDER_BYTES, METADATA_BYTES, NAME_BYTES};
use leasehold_core::refusal::Refusal;
use leasehold_wire::{Code, MAX_RESPONSE_BYTES, listed_lease, problem, v1};

use super::queries::QueryResult;
use super::sorted_listings::{ListingOrder, MAX_SORTED_LEASES, SortedCursor};
use super::{Api, problem_code};
use crate::identity::current_or_local;
use crate::metrics::OK;

/// Most leases of one page.
const MAX_PAGE: usize = 500;
/// Bytes of the names that one sorted listing collects.
const MAX_NAME_BYTES: usize = 64 << 20;

const _: () = assert!(
    MAX_PAGE * (METADATA_BYTES + NAME_BYTES + HOLDER_BYTES + 256) <= MAX_RESPONSE_BYTES,
    "a page of the largest leases fits into a response"
);

/// Where a page starts.
enum PageStart {
    Slot(u32),
    Sorted(SortedCursor),
}

/// Parses a cursor. Only a server makes them, so that any other text is refused.
fn parse_cursor(cursor: &str, sort: Option<LeaseSort>) -> Result<Option<PageStart>, Refusal> {
    if cursor.is_empty() {
        return Ok(None);
    }
    let start = match sort {
        Some(_) => cursor.parse().ok().map(PageStart::Sorted),
        None => cursor.parse().ok().map(PageStart::Slot),
    };
    let reason = "not a cursor of a listing with this sort; repeat the request of the first page with its next_cursor";
    start.map(Some).ok_or(Refusal::Invalid { field: "cursor", reason })
}

impl Api {
    /// One page of the held leases that match a filter.
    pub async fn list_leases(&self, request: v1::ListLeasesRequest) -> QueryResult<v1::ListedLeases> {
        let arrived = Instant::now();
        let result = self.lease_page(request).await;
        let code = result.as_ref().map_or_else(problem_code, |_| OK);
        self.metrics.requests().answered("list_leases", code, arrived.elapsed());
        result
    }

    async fn lease_page(&self, request: v1::ListLeasesRequest) -> QueryResult<v1::ListedLeases> {
        let parsed = request.to_filter().and_then(|(filter, sort)| {
            let start = parse_cursor(&request.cursor, sort)?;
            Ok((filter, sort, start))
        });
        let (filter, sort, start) = parsed.map_err(|refusal| problem(&refusal))?;
        let limit = if request.limit == 0 { MAX_PAGE } else { MAX_PAGE.min(request.limit as usize) };
        let min_position = request.min_position;
        match (sort, start) {
            (None, start) => {
                let from = if let Some(PageStart::Slot(slot)) = start { slot } else { 0 };
                self.unsorted_page(filter, from, limit, min_position).await
            }
            (Some(sort), start) => {
                let order = ListingOrder { filter, sort, descending: request.descending };
                let cursor = match start {
                    Some(PageStart::Sorted(cursor)) => cursor,
                    Some(PageStart::Slot(_)) | None => self.collect(&order, min_position).await?,
                };
                self.sorted_page(order, cursor, limit, min_position).await
            }
        }
    }

    async fn unsorted_page(
        &self,
        filter: LeaseFilter,
        from: u32,
        limit: usize,
        min_position: u64,
    ) -> QueryResult<v1::ListedLeases> {
        let query = Query::Leases { filter, from, limit };
        let ((leases, next), position) = self.query(min_position, query, listed).await?;
        let next_cursor = next.map_or_else(String::new, |slot| slot.to_string());
        Ok((page(&leases, next_cursor, position), position))
    }

    /// Collects and sorts a listing. No turn does more than one bounded query of it, and few are collected at the same time.
    async fn collect(&self, order: &ListingOrder, min_position: u64) -> Result<SortedCursor, v1::Problem> {
        let identity = current_or_local();
        let counted = self.access.is_restricted().then_some(&*identity.principal);
        let permit = self.sorted_listings.collecting(counted).await;
        let _permit = permit.map_err(|problem| {
            self.denials.limit_reached(&identity, &problem.limit);
            *problem
        })?;
        let (mut keys, mut name_bytes, mut next) = (Vec::new(), 0, Some(0));
        while let Some(from) = next {
            let query = Query::LeaseKeys { filter: order.filter.clone(), sort: order.sort, from };
            let convert = |answer: QueryAnswer<'_>| match answer {
                QueryAnswer::LeaseKeys(keys, next) => Some((keys, next)),
                _ => None,
            };
            let ((found, more), _) = self.query(min_position, query, convert).await?;
            name_bytes += found.iter().map(|key| key.name.len()).sum::<usize>();
            keys.extend(found);
            if keys.len() > MAX_SORTED_LEASES || name_bytes > MAX_NAME_BYTES {
                return Err(too_many_to_sort(keys.len()));
            }
            next = more;
        }
        let descending = order.descending;
        let sorted = tokio::task::spawn_blocking(move || sort_keys(keys, descending));
        let leases = sorted.await.expect("sorting does not panic");
        Ok(self.sorted_listings.keep(identity.principal.clone(), order.clone(), leases))
    }

    /// Reads the leases of a page that are still held, still match, and may be seen now.
    async fn sorted_page(
        &self,
        order: ListingOrder,
        cursor: SortedCursor,
        limit: usize,
        min_position: u64,
    ) -> QueryResult<v1::ListedLeases> {
        let principal = current_or_local().principal.clone();
        let page_of_ids = self.sorted_listings.page(&principal, &order, cursor, limit);
        let (ids, next) = page_of_ids.map_err(|problem| *problem)?;
        let query = Query::LeasesWithIds { filter: order.filter, leases: ids };
        let ((leases, _), position) = self.query(min_position, query, listed).await?;
        let next_cursor = next.map_or_else(String::new, |next| next.to_string());
        Ok((page(&leases, next_cursor, position), position))
    }
}

/// The leases in order. Those with equal values are in the order of their ids in both directions.
fn sort_keys(mut keys: Vec<LeaseSortKey>, descending: bool) -> Arc<[LeaseId]> {
    if descending {
        let value = |key: &LeaseSortKey| (Reverse(key.number), key.lease);
        keys.sort_unstable_by(|one, other| other.name.cmp(&one.name).then_with(|| value(one).cmp(&value(other))));
    } else {
        keys.sort_unstable();
    }
    keys.into_iter().map(|key| key.lease).collect()
}

fn listed(answer: QueryAnswer<'_>) -> Option<(Vec<ListedLease>, Option<u32>)> {
    match answer {
        QueryAnswer::ListedLeases(leases, next) => Some((leases, next)),
        _ => None,
    }
}

fn page(leases: &[ListedLease], next_cursor: String, position: u64) -> v1::ListedLeases {
    v1::ListedLeases { leases: leases.iter().map(listed_lease).collect(), next_cursor, position }
}

/// More leases match than one listing sorts.
fn too_many_to_sort(found: usize) -> v1::Problem {
    let max = MAX_SORTED_LEASES as u64;
    let message = format!(
        "more than {max} leases match, or their names are too long to sort; narrow the filter, or list without sort"
    );
    let problem = v1::Problem::of(Code::ResourceExhausted, message);
    v1::Problem { limit: "sorted_leases".into(), max: Some(max), got: Some(found as u64), ..problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64, name: &str, slot: u32) -> LeaseSortKey {
        LeaseSortKey { number, name: name.into(), lease: LeaseId { slot, reuse: 0 } }
    }

    fn slots(keys: Vec<LeaseSortKey>, descending: bool) -> Vec<u32> {
        sort_keys(keys, descending).iter().map(|id| id.slot).collect()
    }

    #[test]
    fn equal_values_are_in_the_order_of_ids_in_both_directions() {
        let numbers = || vec![key(7, "", 2), key(5, "", 3), key(7, "", 1), key(9, "", 0)];
        assert_eq!(slots(numbers(), false), [3, 1, 2, 0]);
        assert_eq!(slots(numbers(), true), [0, 1, 2, 3]);
        let names = || vec![key(0, "b", 2), key(0, "a", 3), key(0, "b", 1), key(0, "c", 0)];
        assert_eq!(slots(names(), false), [3, 1, 2, 0]);
        assert_eq!(slots(names(), true), [0, 1, 2, 3]);
    }

    #[test]
    fn a_cursor_of_another_kind_of_listing_is_refused() {
        let refused =
            |cursor, sort| matches!(parse_cursor(cursor, sort), Err(Refusal::Invalid { field: "cursor", .. }));
        assert!(matches!(parse_cursor("17", None), Ok(Some(PageStart::Slot(17)))));
        assert!(matches!(parse_cursor("", Some(LeaseSort::Age)), Ok(None)));
        let sorted = parse_cursor("00000000000000ff.500", Some(LeaseSort::Age));
        assert!(matches!(sorted, Ok(Some(PageStart::Sorted(cursor))) if cursor.to_string() == "00000000000000ff.500"));
        for (cursor, sort) in [
            ("17", Some(LeaseSort::Age)),
            ("00000000000000ff.500", None),
            ("ff.500", Some(LeaseSort::Age)),
            ("00000000000000ff.", Some(LeaseSort::Age)),
            ("+0000000000000ff.5", Some(LeaseSort::Age)),
            ("00000000000000ff.+5", Some(LeaseSort::Age)),
            ("-1", None),
            ("4294967296", None),
        ] {
            assert!(refused(cursor, sort), "{cursor}");
        }
    }
}
