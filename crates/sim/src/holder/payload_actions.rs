//! Further actions of a holder: shared reads with pins, cached copies, progress reports, session resumption.

use leasehold_core::lease::Access;
use leasehold_core::payload::cache;

use super::{SimHolder, SimLease};
use crate::fault::Fault;
use crate::request::SimRequest;
use crate::rng::SimRng;
use crate::run_constants::{READ, WORK};
use crate::scheduler::Scheduler;

impl SimLease {
    /// Progress to report, where it is required. A stuck holder continues to renew.
    pub(super) fn report_progress(&mut self, rng: &mut SimRng) -> Option<u64> {
        if self.resource != WORK {
            return None;
        }
        self.stuck |= rng.one_in(6);
        self.work += u64::from(!self.stuck);
        Some(self.work)
    }
}

impl SimHolder {
    /// Secret of this holder's sessions.
    pub(super) const fn secret(&self) -> u8 {
        self.index as u8 + 1
    }

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

    /// Resumes its session as after a broken connection, or tries another session with its own secret.
    pub(super) fn resume(&mut self, scheduler: &mut Scheduler) {
        let Some(mut session) = self.session else { return };
        if scheduler.should_inject(Fault::Misuse, 2) {
            session = scheduler.another_session(session);
            scheduler.record_fault(Fault::Misuse, format!("holder {} guesses the secret of {session}", self.index));
        }
        self.request(scheduler, SimRequest::Resume { session, secret: self.secret() });
    }
}
