//! How a client reaches its grantor: over the network, or in this process.

#[cfg(any(test, feature = "testing"))]
use std::sync::Arc;

#[cfg(any(test, feature = "testing"))]
use crate::in_memory::MemoryLink;

/// How a client reaches its grantor.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Network,
    /// A grantor in this process, for tests.
    #[cfg(any(test, feature = "testing"))]
    Memory(Arc<MemoryLink>),
}
