//! Permits for expensive work that few do at the same time, shared fairly between identities (A12).
//!
//! An identity first takes a place of its own and then waits for a permit. So it has no more requests in the queue for permits than it
//! has places, and another identity waits behind no more than those. Further requests of an identity wait for one of its own, up to a
//! limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_wire::{Code, v1};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How permits are shared.
#[derive(Clone, Copy, Debug)]
pub struct PermitLimits {
    /// Name of the limit on the requests of one identity.
    pub limit: &'static str,
    /// What the work is, in the plural, for messages.
    pub work: &'static str,
    /// Permits of all identities.
    pub permits: usize,
    /// Permits of one identity.
    pub per_identity: usize,
    /// Requests of one identity that have a permit or wait for one.
    pub requests: usize,
}

/// The permits of one kind of work.
#[derive(Debug)]
pub struct IdentityPermits {
    limits: PermitLimits,
    permits: Arc<Semaphore>,
    identities: Arc<Mutex<HashMap<Box<str>, IdentityPlaces>>>,
}

/// The requests of one identity.
#[derive(Debug)]
struct IdentityPlaces {
    places: Arc<Semaphore>,
    requests: usize,
}

/// A permit, returned when it is dropped.
#[derive(Debug)]
pub struct IdentityPermit {
    _permit: OwnedSemaphorePermit,
    _own: Option<OwnPlace>,
}

/// The place of a request among those of its identity.
#[derive(Debug)]
struct OwnPlace {
    _place: OwnedSemaphorePermit,
    _counted: RequestCount,
}

/// Counts a request of an identity until it is dropped.
#[derive(Debug)]
struct RequestCount {
    principal: Box<str>,
    identities: Arc<Mutex<HashMap<Box<str>, IdentityPlaces>>>,
}

impl Drop for RequestCount {
    fn drop(&mut self) {
        let mut identities = lock(&self.identities);
        let Some(own) = identities.get_mut(&self.principal) else { return };
        own.requests -= 1;
        if own.requests == 0 {
            identities.remove(&self.principal);
        }
    }
}

fn lock(identities: &Mutex<HashMap<Box<str>, IdentityPlaces>>) -> MutexGuard<'_, HashMap<Box<str>, IdentityPlaces>> {
    // A thread that panicked while it held the lock left whole counts.
    identities.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IdentityPermits {
    /// All permits are free.
    pub fn new(limits: PermitLimits) -> Self {
        Self { limits, permits: Arc::new(Semaphore::new(limits.permits)), identities: Arc::default() }
    }

    /// Waits for a permit of an identity; fails at once if it has too many requests already. Without a principal nothing is counted:
    /// the server has no access rules.
    pub async fn acquire(&self, principal: Option<&str>) -> Result<IdentityPermit, Box<v1::Problem>> {
        let own = match principal {
            None => None,
            Some(principal) => {
                let (counted, places) = self.count(principal)?;
                Some(OwnPlace { _place: granted(places).await, _counted: counted })
            }
        };
        Ok(IdentityPermit { _permit: granted(self.permits.clone()).await, _own: own })
    }

    /// Requests of an identity that have a permit or wait for one.
    pub fn requests_of(&self, principal: &str) -> usize {
        lock(&self.identities).get(principal).map_or(0, |own| own.requests)
    }

    fn count(&self, principal: &str) -> Result<(RequestCount, Arc<Semaphore>), Box<v1::Problem>> {
        let PermitLimits { per_identity, requests: max, .. } = self.limits;
        let mut identities = lock(&self.identities);
        let new = || IdentityPlaces { places: Arc::new(Semaphore::new(per_identity)), requests: 0 };
        let own = identities.entry(principal.into()).or_insert_with(new);
        if own.requests >= max {
            return Err(Box::new(self.too_many()));
        }
        own.requests += 1;
        let counted = RequestCount { principal: principal.into(), identities: self.identities.clone() };
        Ok((counted, own.places.clone()))
    }

    fn too_many(&self) -> v1::Problem {
        let PermitLimits { limit, work, per_identity, requests: max, .. } = self.limits;
        let message = format!(
            "this identity has {max} {work} in progress or waiting, and may have no more; {per_identity} of them run at a time, so \
             retry when one has ended"
        );
        let (max, problem) = (max as u64, v1::Problem::of(Code::ResourceExhausted, message));
        v1::Problem { limit: limit.into(), max: Some(max), got: Some(max + 1), retry_after_ms: Some(1_000), ..problem }
    }
}

async fn granted(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.acquire_owned().await.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LIMITS: PermitLimits =
        PermitLimits { limit: "identity_reads", work: "reads", permits: 2, per_identity: 1, requests: 4 };

    type Acquiring<'a> = Pin<Box<dyn Future<Output = Result<IdentityPermit, Box<v1::Problem>>> + 'a>>;

    fn poll(acquiring: &mut Acquiring<'_>) -> Poll<Result<IdentityPermit, Box<v1::Problem>>> {
        acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn granted_now(acquiring: &mut Acquiring<'_>) -> Option<IdentityPermit> {
        match poll(acquiring) {
            Poll::Ready(permit) => Some(permit.expect("it is within the limit")),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_flood_of_one_identity_delays_another_by_one_permit() {
        let permits = IdentityPermits::new(LIMITS);
        let mut flood: Vec<Acquiring<'_>> = (0..4).map(|_| Box::pin(permits.acquire(Some("ann"))) as _).collect();
        let running: Vec<_> = flood.iter_mut().map(granted_now).collect();
        assert_eq!(running.iter().flatten().count(), 1, "one of an identity, although two permits are free");
        let mut carl: Acquiring<'_> = Box::pin(permits.acquire(Some("carl")));
        let carls = granted_now(&mut carl).expect("a permit is free");
        let mut bob: Acquiring<'_> = Box::pin(permits.acquire(Some("bob")));
        assert!(granted_now(&mut bob).is_none());
        drop(carls);
        assert!(granted_now(&mut bob).is_some(), "no request of the flood was before it");
    }

    #[test]
    fn further_requests_of_an_identity_are_refused_until_one_ends() {
        let permits = IdentityPermits::new(LIMITS);
        let mut flood: Vec<Acquiring<'_>> = (0..4).map(|_| Box::pin(permits.acquire(Some("ann"))) as _).collect();
        let mut running: Vec<_> = flood.iter_mut().filter_map(granted_now).collect();
        let refused = |principal| match poll(&mut (Box::pin(permits.acquire(principal)) as Acquiring<'_>)) {
            Poll::Ready(Err(problem)) => Some((problem.code, problem.limit, problem.max, problem.got)),
            _ => None,
        };
        let exhausted = ("RESOURCE_EXHAUSTED".to_owned(), "identity_reads".to_owned(), Some(4), Some(5));
        assert_eq!(refused(Some("ann")), Some(exhausted));
        assert_eq!((refused(Some("bob")), refused(None)), (None, None));
        // One that waits is cancelled, and gives its place back.
        drop(flood.pop());
        assert_eq!(refused(Some("ann")), None);
        running.clear();
        drop(flood);
        assert!(lock(&permits.identities).is_empty(), "an identity that left costs nothing");
    }

    #[test]
    fn without_access_rules_only_the_permits_limit() {
        let permits = IdentityPermits::new(LIMITS);
        let mut all: Vec<Acquiring<'_>> = (0..9).map(|_| Box::pin(permits.acquire(None)) as _).collect();
        let running: Vec<_> = all.iter_mut().filter_map(granted_now).collect();
        assert_eq!(running.len(), 2);
    }
}
