//! How much of a lane one identity may use, so that it leaves capacity to the others (A12).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::identity::{Identity, Via};

/// Shares above which those of identities without queued requests are removed.
const MIN_SWEEP: usize = 1_024;

/// The shares of all identities in one lane.
pub(super) struct IdentityShares {
    max: usize,
    shares: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
}

impl IdentityShares {
    /// At most `max` for each identity.
    pub(super) fn new(max: usize) -> Self {
        Self { max, shares: Mutex::default() }
    }

    /// The share of an identity. None without access rules: then all callers are one identity.
    pub(super) fn of(&self, identity: &Identity) -> Option<Arc<Semaphore>> {
        if identity.via == Via::Local {
            return None;
        }
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&identity.principal) {
            return Some(share.clone());
        }
        if shares.len() >= MIN_SWEEP && shares.len() == shares.capacity() {
            // What is queued, or waits for that, keeps the share alive.
            shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        Some(shares.entry(identity.principal.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.max))).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_identities_without_requests_are_removed() {
        let shares = IdentityShares::new(1);
        let of = |uid: usize| {
            let identity = Identity { principal: format!("uid:{uid}").into(), via: Via::Uid, ..Identity::local(None) };
            shares.of(&identity).expect("it has a share")
        };
        let _used = of(0).try_acquire_owned().expect("it is free");
        for uid in 1..10 * MIN_SWEEP {
            drop(of(uid));
        }
        assert!(shares.shares.lock().expect("no thread panicked").len() <= 4 * MIN_SWEEP);
        assert!(of(0).try_acquire_owned().is_err(), "a share in use stays");
        assert!(shares.of(&Identity::local(None)).is_none());
    }
}
