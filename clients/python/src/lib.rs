//! Native module of the Python package `leasehold`: the Rust client behind Python calls.
//!
//! Three rules keep the interpreter lock away from renewals. Every call that can wait runs as an [`operation`] on the runtime of this
//! process. Python waits for it detached from the interpreter. No Rust thread ever attaches to the interpreter.

mod cache;
mod client;
mod completion_queue;
mod credential;
mod discovery;
mod failure;
mod leader;
mod lease;
mod operation;
mod pin;
mod queue;
mod reservation;
mod runtime;
mod shard;
mod testing;

/// The module `leasehold._native`. Its names are stable only for the package itself.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::cache::NativeCache;
    #[pymodule_export]
    use crate::client::{NativeClient, parse_duration, parse_token, resource_hash};
    #[pymodule_export]
    use crate::completion_queue::CompletionQueue;
    #[pymodule_export]
    use crate::credential::{NativeIssuer, NativeVerifier};
    #[pymodule_export]
    use crate::discovery::NativeDiscovery;
    #[pymodule_export]
    use crate::leader::{NativeElection, NativeLeaderUpdates};
    #[pymodule_export]
    use crate::lease::NativeLease;
    #[pymodule_export]
    use crate::operation::{Operation, PendingRequest};
    #[pymodule_export]
    use crate::queue::{NativeMessage, NativeQueue};
    #[pymodule_export]
    use crate::reservation::NativeReservation;
    #[pymodule_export]
    use crate::shard::{NativeShard, NativeShardWorker};
    #[pymodule_export]
    use crate::testing::{NativeTestServer, break_property, tick_renewals};
}
