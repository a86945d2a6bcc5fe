//! How much one principal may have and send at the same time (A12).

use leasehold_core::access::IdentityLimits;

use crate::transport::TrafficLimits;

/// All limits of one principal: on the state, which the core counts, and on its traffic, which the server counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrincipalLimits {
    /// What it may have.
    pub state: IdentityLimits,
    /// What it may send.
    pub traffic: TrafficLimits,
}

impl Default for PrincipalLimits {
    fn default() -> Self {
        Self {
            state: IdentityLimits {
                sessions: 1_000,
                keys: 10_000,
                leases: 200_000,
                waiters: 10_000,
                metadata_bytes: 1 << 30,
                charters: 1_000,
                targets: 4_000,
                messages: 1 << 20,
                message_bytes: 256 << 20,
                cache_grants: 1 << 18,
                state_bytes: 256 << 20,
            },
            traffic: TrafficLimits { connections: 256, watches: 64, requests_per_second: 10_000, body_bytes: 4 << 20 },
        }
    }
}
