//! Actions of a holder that reads: pins under shared leases, and cached copies.

use leasehold_core::lease::Access;
use leasehold_core::payload::cache;

use super::{SimHolder, SimLease};
use crate::request::SimRequest;
use crate::run_constants::READ;
use crate::scheduler::Scheduler;

impl SimHolder {
    /// Pins what it reads, or asks as a collector how far it may delete.
    pub(super) fn pin_or_collect(&mut self, scheduler: &mut Scheduler) {
        let shared = |entry: &&SimLease| entry.resource == READ && entry.access == Access::Shared;
        let at = scheduler.rng.below(40);
        match self.leases.iter().find(shared).map(|entry| entry.known) {
            Some(held) if !scheduler.rng.one_in(3) => self.request(scheduler, SimRequest::Pin { held, at }),
            _ => self.request(scheduler, SimRequest::Collect { below: at }),
        }
    }

    /// Reads through a cached copy, or writes the cached key.
    pub(super) fn cache(&mut self, scheduler: &mut Scheduler) {
        let (session, ttl) = (self.session, scheduler.rng.between(300, 2_000));
        match (self.intent, scheduler.rng.below(8)) {
            (Some(intent), 0) => self.request(scheduler, SimRequest::Abort { intent }),
            (Some(intent), _) => self.request(scheduler, SimRequest::Commit { intent }),
            (None, 0..=1) => self.request(scheduler, SimRequest::Intend { session, ttl }),
            (None, 2) if !self.copies.is_empty() => {
                let lease = self.copies.remove(0);
                self.request(scheduler, SimRequest::Dropped { lease });
            }
            _ => self.request(scheduler, SimRequest::Read { session, ttl }),
        }
    }

    /// Handles an answer about the cached key.
    pub(super) fn on_cache_answer(&mut self, answer: &cache::CacheAnswer) {
        match answer {
            cache::CacheAnswer::Reading { lease, .. } => {
                self.copies.push(*lease);
                let over = self.copies.len().saturating_sub(4);
                self.copies.drain(..over);
            }
            cache::CacheAnswer::Intended { intent, .. } => self.intent = Some(*intent),
            cache::CacheAnswer::Committed { .. } | cache::CacheAnswer::Aborted => self.intent = None,
            _ => {}
        }
    }
}
