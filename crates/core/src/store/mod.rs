//! Where leases live in memory: places that never move, names packed close, and what ends next.
//!
//! No call here does work that grows with the number of leases: tables grow by a page, the index by one of its
//! shards, and the wheel looks at no more timers than it was allowed to. Order is defined throughout: by slot, by
//! deadline, or first in, first out. Only [`index`] hashes, and it cannot be iterated.

pub(crate) mod index;
pub(crate) mod pages;
pub(crate) mod queue;
pub(crate) mod slots;
pub(crate) mod texts;
pub(crate) mod wheel;
