//! Conversion of lease and session ids to 64-bit numbers: the table slot in the upper half, its reuse count in the lower.

use leasehold_core::ids::{LeaseId, SessionId};

/// Encodes a lease id.
pub const fn lease_bits(id: LeaseId) -> u64 {
    (id.slot as u64) << 32 | id.reuse as u64
}

/// Decodes a lease id.
pub const fn lease_id(bits: u64) -> LeaseId {
    LeaseId { slot: (bits >> 32) as u32, reuse: bits as u32 }
}

/// Encodes a session id.
pub const fn session_bits(id: SessionId) -> u64 {
    (id.slot as u64) << 32 | id.reuse as u64
}

/// Decodes a session id.
pub const fn session_id(bits: u64) -> SessionId {
    SessionId { slot: (bits >> 32) as u32, reuse: bits as u32 }
}
