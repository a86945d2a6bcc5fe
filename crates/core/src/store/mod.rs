//! In-memory data structures of the grantor: slab, string arena, name index, timer wheel.
//!
//! No call does work that grows with the number of leases: tables grow by a page, the index by one of its shards, and the
//! timer wheel processes no more timers than its budget. Order is always defined: by slot, by deadline, or first in, first
//! out. Only [`index`] hashes, and it cannot be iterated.

pub(crate) mod index;
pub(crate) mod paged_vec;
pub(crate) mod queue;
pub(crate) mod slab;
pub(crate) mod string_arena;
pub(crate) mod timer_wheel;
