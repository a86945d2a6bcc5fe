//! The two clocks that a turn reads once: the monotonic clock and the wall clock.

use leasehold_core::time::{Instant, Now, WallClock};
use rustix::time::{ClockId, clock_gettime};

/// Reads both clocks. `CLOCK_MONOTONIC` stops during suspend; the grantor then expires leases later, which is safe.
pub fn now() -> Now {
    let nanos = |id| {
        let read = clock_gettime(id);
        u64::try_from(read.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(read.tv_nsec).unwrap_or(0)
    };
    Now { instant: Instant(nanos(ClockId::Monotonic)), wall: WallClock(nanos(ClockId::Realtime) / 1_000_000) }
}
