//! Types of the lease protocol that appear in the API of the client.
//!
//! Programs need no other crate for them. Enums without `#[non_exhaustive]` are part of the protocol, and a `match` on them can be
//! complete: a new variant comes only with a new major version.

/// How long work may continue, why a lease ended, and in which order a successor starts.
pub use leasehold_core::holder::{Claim, ClockDrift, Deadline, Loss, MayWrite, MustRead, NextStep, TimingError};

/// Order of a listing of held leases.
pub use leasehold_core::grantor::LeaseSort;

/// Ids of leases and sessions.
pub use leasehold_core::ids::{LeaseId, ParseIdError, SessionId};

/// State and access mode of a lease.
pub use leasehold_core::lease::{Access, EndReason, LeaseState, Validity};

/// Names of resources and holders.
pub use leasehold_core::name::{HolderName, Name, NameError, Prefix};

/// Time of the holder's clock.
pub use leasehold_core::time::Instant;

/// Tokens and their parts.
pub use leasehold_core::token::{Cluster, Incarnation, Number, ParseHexError, Token, TokenError, TokenScope};

/// Requests and replies of unary calls and of the session stream.
pub use leasehold_core::command::{
    Acquire, AcquireAll, AcquireOptions, Answer, Command, CurrentLease, Grant, Handoff, HandoffMode, HeldDigest,
    LeaseRef, LeaseSelector, SessionEvent, SessionGrant,
};
