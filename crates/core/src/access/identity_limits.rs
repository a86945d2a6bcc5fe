//! Limits of one identity: how much it may have at the same time, so that it cannot starve another one (A12).
//!
//! The limits come from outside with the rights; what an identity has is part of the state. A limit that is lowered ends nothing: it
//! applies to what is requested from then on. Renewals and ends are never limited.

use crate::mutants::{self, Mutant};
use crate::refusal::{Limit, Refusal};

/// The holder name of sessions that the core opens for idempotency keys.
pub(crate) const KEY_HOLDER: &str = "idempotency key";

/// How much one identity may have at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityLimits {
    /// Open sessions.
    pub sessions: u64,
    /// Idempotency keys with a stored reply.
    pub keys: u64,
    /// Leases that it holds or waits for.
    pub leases: u64,
    /// Requests that wait for a lease.
    pub waiters: u64,
    /// Bytes of metadata of those leases.
    pub metadata_bytes: u64,
    /// Charters that it set first.
    pub charters: u64,
    /// Targets that it reported first, each slot separately.
    pub targets: u64,
    /// Messages that it sent and that exist.
    pub messages: u64,
    /// Bytes of those messages, each with the name of its queue.
    pub message_bytes: u64,
    /// Read leases, write intents and fills of cached keys.
    pub cache_grants: u64,
    /// Bytes of the state that it wrote last, with names and keys.
    pub state_bytes: u64,
}

impl IdentityLimits {
    /// No limits besides those of the cluster.
    pub const UNLIMITED: Self = Self {
        sessions: u64::MAX,
        keys: u64::MAX,
        leases: u64::MAX,
        waiters: u64::MAX,
        metadata_bytes: u64::MAX,
        charters: u64::MAX,
        targets: u64::MAX,
        messages: u64::MAX,
        message_bytes: u64::MAX,
        cache_grants: u64::MAX,
        state_bytes: u64::MAX,
    };

    /// Refuses what would take an identity above a limit.
    pub(crate) fn check(&self, has: &IdentityUsage, more: &IdentityUsage) -> Result<(), Refusal> {
        let limits = [
            (Limit::IdentitySessions, self.sessions, has.sessions, more.sessions),
            (Limit::IdentityKeys, self.keys, has.keys, more.keys),
            (Limit::IdentityLeases, self.leases, has.leases, more.leases),
            (Limit::IdentityWaiters, self.waiters, has.waiters, more.waiters),
            (Limit::IdentityMetadata, self.metadata_bytes, has.metadata_bytes, more.metadata_bytes),
            (Limit::IdentityCharters, self.charters, has.charters, more.charters),
            (Limit::IdentityTargets, self.targets, has.targets, more.targets),
            (Limit::IdentityMessages, self.messages, has.messages, more.messages),
            (Limit::IdentityMessageBytes, self.message_bytes, has.message_bytes, more.message_bytes),
            (Limit::IdentityCacheGrants, self.cache_grants, has.cache_grants, more.cache_grants),
            (Limit::IdentityStateBytes, self.state_bytes, has.state_bytes, more.state_bytes),
        ];
        for (limit, max, has, more) in limits {
            let got = has.saturating_add(more);
            if more > 0 && got > max {
                return Err(Refusal::Exhausted { limit, max, got });
            }
        }
        Ok(())
    }
}

/// How much one identity has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentityUsage {
    /// Open sessions.
    pub sessions: u64,
    /// Idempotency keys with a stored reply. Each is a session for the core, and not counted as one.
    pub keys: u64,
    /// Leases that it holds or waits for. A wait counts as the leases that it will be granted, so that no grant exceeds the limit.
    pub leases: u64,
    /// Requests that wait for a lease.
    pub waiters: u64,
    /// Bytes of metadata of those leases.
    pub metadata_bytes: u64,
    /// Charters that it set first. Who changes a charter later does not matter.
    pub charters: u64,
    /// Targets that it reported first, each slot separately.
    pub targets: u64,
    /// Messages that it sent and that exist: until they are acknowledged, or dropped as dead letters.
    pub messages: u64,
    /// Bytes of those messages, each with the name of its queue.
    pub message_bytes: u64,
    /// Read leases, write intents and fills of cached keys. Keys without any are evicted when others need their place.
    pub cache_grants: u64,
    /// Bytes of the state that it wrote last, with names and keys.
    pub state_bytes: u64,
}

impl IdentityUsage {
    const NONE: Self = Self {
        sessions: 0,
        keys: 0,
        leases: 0,
        waiters: 0,
        metadata_bytes: 0,
        charters: 0,
        targets: 0,
        messages: 0,
        message_bytes: 0,
        cache_grants: 0,
        state_bytes: 0,
    };

    /// A session.
    const SESSION: Self = Self { sessions: 1, ..Self::NONE };

    /// A session by what its record contains: one that was opened for an idempotency key counts as a key.
    pub(crate) fn of_session(waits_only: bool, holder: &str) -> Self {
        if waits_only && holder == KEY_HOLDER { Self { keys: 1, ..Self::NONE } } else { Self::SESSION }
    }

    /// A charter.
    pub(crate) const CHARTER: Self = Self { charters: 1, ..Self::NONE };

    /// Targets that reported.
    pub(crate) const fn of_targets(targets: usize) -> Self {
        Self { targets: targets as u64, ..Self::NONE }
    }

    /// A read lease, a write intent or a fill of a cached key.
    pub(crate) const CACHE_GRANT: Self = Self { cache_grants: 1, ..Self::NONE };

    /// A message in a queue.
    pub(crate) const fn of_message(queue: &str, body: &[u8]) -> Self {
        Self { messages: 1, message_bytes: queue.len() as u64 + body.len() as u64, ..Self::NONE }
    }

    /// Stored state of this accounted size.
    pub(crate) const fn of_state(bytes: usize) -> Self {
        Self { state_bytes: bytes as u64, ..Self::NONE }
    }

    /// Leases with the same metadata.
    pub(crate) const fn of_leases(leases: usize, metadata: usize) -> Self {
        Self { leases: leases as u64, metadata_bytes: leases as u64 * metadata as u64, ..Self::NONE }
    }

    /// A wait for leases with the same metadata.
    pub(crate) fn of_wait(leases: usize, metadata: usize) -> Self {
        let leases = if mutants::on(Mutant::WaitsNotCounted) { 0 } else { leases };
        Self { waiters: 1, ..Self::of_leases(leases, metadata) }
    }

    /// The other adds to this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.keys += other.keys;
        self.leases += other.leases;
        self.waiters += other.waiters;
        self.metadata_bytes += other.metadata_bytes;
        self.charters += other.charters;
        self.targets += other.targets;
        self.messages += other.messages;
        self.message_bytes += other.message_bytes;
        self.cache_grants += other.cache_grants;
        self.state_bytes += other.state_bytes;
    }

    /// The other was added to this one, and is removed.
    pub(crate) fn remove(&mut self, other: Self) {
        if mutants::on(Mutant::EndsStillCounted) {
            return;
        }
        self.sessions -= other.sessions;
        self.keys -= other.keys;
        self.leases -= other.leases;
        self.waiters -= other.waiters;
        self.metadata_bytes -= other.metadata_bytes;
        self.charters -= other.charters;
        self.targets -= other.targets;
        self.messages -= other.messages;
        self.message_bytes -= other.message_bytes;
        self.cache_grants -= other.cache_grants;
        self.state_bytes -= other.state_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_counts_what_is_there_and_what_is_requested() {
        let limits = IdentityLimits { leases: 3, waiters: 0, ..IdentityLimits::UNLIMITED };
        let has = IdentityUsage::of_leases(2, 0);
        assert_eq!(limits.check(&has, &IdentityUsage::of_leases(1, 100)), Ok(()));
        let refused = Refusal::Exhausted { limit: Limit::IdentityLeases, max: 3, got: 4 };
        assert_eq!(limits.check(&has, &IdentityUsage::of_leases(2, 0)), Err(refused));
        let refused = Refusal::Exhausted { limit: Limit::IdentityWaiters, max: 0, got: 1 };
        assert_eq!(limits.check(&has, &IdentityUsage::of_wait(1, 0)), Err(refused));
        let limits = IdentityLimits { charters: 0, targets: 2, ..limits };
        let refused = Refusal::Exhausted { limit: Limit::IdentityCharters, max: 0, got: 1 };
        assert_eq!(limits.check(&has, &IdentityUsage::CHARTER), Err(refused));
        let refused = Refusal::Exhausted { limit: Limit::IdentityTargets, max: 2, got: 3 };
        assert_eq!(limits.check(&has, &IdentityUsage::of_targets(3)), Err(refused));
        assert_eq!(limits.check(&has, &IdentityUsage::of_targets(2)), Ok(()));
        let limits = IdentityLimits { messages: 1, message_bytes: 9, cache_grants: 0, state_bytes: 64, ..limits };
        let message = IdentityUsage::of_message("jobs", b"12345");
        let refused = Refusal::Exhausted { limit: Limit::IdentityMessages, max: 1, got: 2 };
        assert_eq!((limits.check(&has, &message), limits.check(&message, &message)), (Ok(()), Err(refused)));
        let refused = Refusal::Exhausted { limit: Limit::IdentityMessageBytes, max: 9, got: 10 };
        assert_eq!(limits.check(&has, &IdentityUsage::of_message("jobs2", b"12345")), Err(refused));
        let refused = Refusal::Exhausted { limit: Limit::IdentityCacheGrants, max: 0, got: 1 };
        assert_eq!(limits.check(&has, &IdentityUsage::CACHE_GRANT), Err(refused));
        let refused = Refusal::Exhausted { limit: Limit::IdentityStateBytes, max: 64, got: 65 };
        assert_eq!(limits.check(&has, &IdentityUsage::of_state(65)), Err(refused));
        assert_eq!(limits.check(&has, &IdentityUsage::SESSION), Ok(()), "a limit concerns only what is requested");
        let above = IdentityUsage::of_leases(9, 0);
        assert_eq!(limits.check(&above, &IdentityUsage::SESSION), Ok(()), "a limit that was lowered too");
        assert_eq!(IdentityLimits::UNLIMITED.check(&above, &IdentityUsage::of_wait(9, 9)), Ok(()));
    }
}
