//! Sorted listings that are kept for their later pages: the ids of their leases in order, for a short time.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use leasehold_core::grantor::{LeaseFilter, LeaseSort};
use leasehold_core::ids::LeaseId;
use leasehold_wire::{Code, v1};

use crate::identity_permits::{IdentityPermit, IdentityPermits, PermitLimits};
use crate::metrics::IDENTITY_SORTED_LISTINGS;
use crate::random;
use crate::transport::error_layer::invalid;

/// Most leases of one sorted listing, and of all that are kept for one identity.
pub const MAX_SORTED_LEASES: usize = 1 << 20;
/// Most leases of all sorted listings that are kept: 32 MiB of ids.
const MAX_KEPT_LEASES: usize = 4 * MAX_SORTED_LEASES;
/// Most listings that are kept for one identity, and for all.
const MAX_KEPT_PER_IDENTITY: usize = 16;
const MAX_KEPT: usize = 1_024;
/// Time since its last page after which a listing is dropped.
const KEEP: Duration = Duration::from_secs(60);
/// Listings that are collected at the same time, one of an identity. Their keys are several times larger than what is kept.
const COLLECTING: PermitLimits =
    PermitLimits { limit: IDENTITY_SORTED_LISTINGS, work: "sorted listings", permits: 2, per_identity: 1, requests: 8 };

/// What a sorted listing contains, and in which order. Every page of a listing repeats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingOrder {
    pub filter: LeaseFilter,
    pub sort: LeaseSort,
    pub descending: bool,
}

/// A place in a sorted listing: `listing.offset`, the listing in 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortedCursor {
    listing: u64,
    offset: usize,
}

impl fmt::Display for SortedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{}", self.listing, self.offset)
    }
}

impl FromStr for SortedCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (listing, offset) = text.split_once('.').ok_or(())?;
        let listing = u64::from_str_radix(listing, 16).map_err(|_| ())?;
        let cursor = Self { listing, offset: offset.parse().map_err(|_| ())? };
        // The parsers accept more spellings.
        if cursor.to_string() == text { Ok(cursor) } else { Err(()) }
    }
}

/// A listing that is kept.
struct KeptListing {
    principal: Box<str>,
    order: ListingOrder,
    leases: Arc<[LeaseId]>,
    used: Instant,
}

/// All sorted listings of a server. A caller that reads no further page for a while, or of which others keep more, starts again.
pub struct SortedListings {
    kept: Mutex<HashMap<u64, KeptListing>>,
    collecting: IdentityPermits,
}

impl Default for SortedListings {
    fn default() -> Self {
        Self { kept: Mutex::default(), collecting: IdentityPermits::new(COLLECTING) }
    }
}

impl SortedListings {
    /// Waits until a further listing may be collected; fails at once if too many of the identity are. Without a principal nothing is
    /// counted.
    pub async fn collecting(&self, principal: Option<&str>) -> Result<IdentityPermit, Box<v1::Problem>> {
        self.collecting.acquire(principal).await
    }

    /// Keeps a listing and returns the cursor of its first page.
    pub fn keep(&self, principal: Box<str>, order: ListingOrder, leases: Arc<[LeaseId]>) -> SortedCursor {
        let listing = u64::from_ne_bytes(random::bytes());
        let mut kept = self.current();
        let own = |one: &KeptListing| one.principal == principal;
        drop_oldest(&mut kept, leases.len(), MAX_KEPT_PER_IDENTITY, MAX_SORTED_LEASES, own);
        drop_oldest(&mut kept, leases.len(), MAX_KEPT, MAX_KEPT_LEASES, |_| true);
        kept.insert(listing, KeptListing { principal, order, leases, used: Instant::now() });
        SortedCursor { listing, offset: 0 }
    }

    /// The ids of a page, and the cursor of the next page. A listing of one page is not kept any longer.
    pub fn page(
        &self,
        principal: &str,
        order: &ListingOrder,
        cursor: SortedCursor,
        limit: usize,
    ) -> Result<(Vec<LeaseId>, Option<SortedCursor>), Box<v1::Problem>> {
        let mut kept = self.current();
        let listing = kept.get_mut(&cursor.listing).filter(|listing| *listing.principal == *principal);
        let listing = listing.ok_or_else(listing_ended)?;
        if listing.order != *order {
            let reason = "of a listing with another filter or sort; repeat those of its first page";
            return Err(Box::new(invalid("cursor", reason)));
        }
        listing.used = Instant::now();
        let rest = listing.leases.get(cursor.offset..).unwrap_or_default();
        let ids: Vec<LeaseId> = rest.iter().take(limit).copied().collect();
        let next = (ids.len() < rest.len()).then(|| SortedCursor { offset: cursor.offset + ids.len(), ..cursor });
        if next.is_none() && cursor.offset == 0 {
            kept.remove(&cursor.listing);
        }
        Ok((ids, next))
    }

    /// The listings that are not too old.
    fn current(&self) -> MutexGuard<'_, HashMap<u64, KeptListing>> {
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.retain(|_, listing| listing.used.elapsed() < KEEP);
        kept
    }
}

/// Drops the listings that were used the longest ago, until a further one of this many leases is within the limits.
fn drop_oldest(
    kept: &mut HashMap<u64, KeptListing>,
    leases: usize,
    max_count: usize,
    max_leases: usize,
    counts: impl Fn(&KeptListing) -> bool,
) {
    loop {
        let counted = || kept.iter().filter(|(_, listing)| counts(listing));
        let (count, held) = counted().fold((0, 0), |(count, held), (_, one)| (count + 1, held + one.leases.len()));
        if count < max_count && held + leases <= max_leases {
            return;
        }
        let Some(oldest) = counted().min_by_key(|(_, listing)| listing.used).map(|(id, _)| *id) else { return };
        kept.remove(&oldest);
    }
}

/// The listing of a cursor is not kept here.
fn listing_ended() -> Box<v1::Problem> {
    let message = "the listing has ended, or another server made it; list again from the first page, without a cursor";
    let problem = v1::Problem::of(Code::NotFound, message);
    Box::new(v1::Problem { subject: "listing".into(), field: "cursor".into(), ..problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(sort: LeaseSort) -> ListingOrder {
        ListingOrder { filter: LeaseFilter::default(), sort, descending: false }
    }

    fn ids(count: u32) -> Arc<[LeaseId]> {
        (0..count).map(|slot| LeaseId { slot, reuse: 0 }).collect()
    }

    fn keep(listings: &SortedListings, principal: &str, count: u32) -> SortedCursor {
        listings.keep(principal.into(), order(LeaseSort::Age), ids(count))
    }

    #[test]
    fn the_pages_contain_every_lease_once_and_can_be_read_again() {
        let listings = SortedListings::default();
        let first = keep(&listings, "a", 7);
        for _ in 0..2 {
            let (mut read, mut cursor) = (Vec::new(), Some(first));
            while let Some(at) = cursor {
                let (page, next) = listings.page("a", &order(LeaseSort::Age), at, 3).expect("it is kept");
                read.extend(page);
                cursor = next;
            }
            assert_eq!(read, *ids(7));
        }
        let beyond = SortedCursor { offset: 8, ..first };
        assert_eq!(listings.page("a", &order(LeaseSort::Age), beyond, 3), Ok((Vec::new(), None)));
    }

    #[test]
    fn a_cursor_serves_only_its_own_identity_and_order() {
        let listings = SortedListings::default();
        let first = keep(&listings, "a", 7);
        let refused = |principal, sort| listings.page(principal, &order(sort), first, 3).expect_err("refused").code;
        assert_eq!(refused("b", LeaseSort::Age), "NOT_FOUND");
        assert_eq!(refused("a", LeaseSort::Name), "INVALID_ARGUMENT");
        let unknown = SortedCursor { listing: first.listing ^ 1, offset: 0 };
        assert!(listings.page("a", &order(LeaseSort::Age), unknown, 3).is_err());
    }

    #[test]
    fn the_least_recently_used_listing_makes_room_for_a_new_one() {
        let listings = SortedListings::default();
        let is_kept = |principal, cursor| listings.page(principal, &order(LeaseSort::Age), cursor, 1).is_ok();
        let of_others = keep(&listings, "b", 5);
        let own: Vec<_> = (0..MAX_KEPT_PER_IDENTITY).map(|_| keep(&listings, "a", 5)).collect();
        assert!(is_kept("a", own[0]), "all are kept");
        keep(&listings, "a", 5);
        assert!(is_kept("a", own[0]) && !is_kept("a", own[1]), "the first was read a moment ago");
        let large = keep(&listings, "a", MAX_SORTED_LEASES as u32);
        assert!(is_kept("a", large) && !is_kept("a", own[0]), "it needs everything that one identity may use");
        assert!(is_kept("b", of_others));
    }
}
