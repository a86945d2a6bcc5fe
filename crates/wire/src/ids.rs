//! Lease and session ids as one number: the place above, how often it was used below.

use leasehold_core::ids::{LeaseId, SessionId};

/// A lease id as one number.
pub const fn lease_bits(id: LeaseId) -> u64 {
    (id.slot as u64) << 32 | id.reuse as u64
}

/// The lease id in a number.
pub const fn lease_id(bits: u64) -> LeaseId {
    LeaseId { slot: (bits >> 32) as u32, reuse: bits as u32 }
}

/// A session id as one number.
pub const fn session_bits(id: SessionId) -> u64 {
    (id.slot as u64) << 32 | id.reuse as u64
}

/// The session id in a number.
pub const fn session_id(bits: u64) -> SessionId {
    SessionId { slot: (bits >> 32) as u32, reuse: bits as u32 }
}
