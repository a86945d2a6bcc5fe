//! The two clocks a turn reads, once: one that never goes back, and the wall.

use leasehold_core::time::{Instant, Now, Wall};
use rustix::time::{ClockId, clock_gettime};

/// Reads both clocks. `CLOCK_MONOTONIC` stops while the machine sleeps, so a grantor is late by that, which is safe.
pub fn now() -> Now {
    let nanos = |id| {
        let read = clock_gettime(id);
        u64::try_from(read.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(read.tv_nsec).unwrap_or(0)
    };
    Now { instant: Instant(nanos(ClockId::Monotonic)), wall: Wall(nanos(ClockId::Realtime) / 1_000_000) }
}
