//! The clock that leases are measured with. It continues while the machine is suspended, so that a lease that expired meanwhile
//! is known to be over at the first read after the wake-up (L2).
//!
//! | target | clock | includes suspend |
//! |---|---|---|
//! | Linux, Android | `CLOCK_BOOTTIME` | yes |
//! | macOS, iOS | `CLOCK_MONOTONIC`, which Apple's kernels advance during sleep | yes |
//! | OpenBSD, Fuchsia | `CLOCK_BOOTTIME` | yes |
//! | Windows | [`std::time::Instant`]: the performance counter, which counts sleep and hibernation | yes |
//! | other | [`std::time::Instant`] | depends on the system |
//!
//! Where the clock stops during suspend, a holder may believe for up to one ttl after the wake-up that it still holds the lease.
//! A fence at the target rejects its writes all the same.

use std::convert::Infallible;
use std::time::Duration;

use leasehold_core::time::Instant;

#[cfg(any(test, feature = "testing"))]
use crate::in_memory::ManualClock;

/// Timers stop while the machine is suspended and the clock does not: a sleeping task reads the clock this often.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Source of time for a holder.
#[derive(Clone, Debug)]
pub(crate) enum HolderClock {
    /// The clock of the machine.
    Boot,
    /// A clock that a test moves.
    #[cfg(any(test, feature = "testing"))]
    Manual(std::sync::Arc<ManualClock>),
}

impl HolderClock {
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::Boot => {
                let now = boot_nanos();
                #[cfg(any(test, feature = "testing"))]
                let now = now.saturating_add(crate::in_memory::fake_suspend_nanos());
                Instant(now)
            }
            #[cfg(any(test, feature = "testing"))]
            Self::Manual(clock) => clock.now(),
        }
    }

    /// Returns immediately, unless a test has paused this holder.
    pub(crate) async fn wait_while_paused(&self) {
        match self {
            #[cfg(any(test, feature = "testing"))]
            Self::Boot => crate::in_memory::wait_for_tick().await,
            #[cfg(not(any(test, feature = "testing")))]
            Self::Boot => {}
            #[cfg(any(test, feature = "testing"))]
            Self::Manual(clock) => clock.wait_while_paused().await,
        }
    }

    /// The worker has stopped and reads no clock any more.
    pub(crate) fn worker_stopped(&self) {
        match self {
            Self::Boot => {}
            #[cfg(any(test, feature = "testing"))]
            Self::Manual(clock) => clock.worker_stopped(),
        }
    }

    /// Never completes. A manual clock notes that its worker is about to poll its inputs; so this must be polled first.
    pub(crate) async fn note_idle(&self) -> Infallible {
        match self {
            Self::Boot => std::future::pending().await,
            #[cfg(any(test, feature = "testing"))]
            Self::Manual(clock) => {
                std::future::poll_fn(|_| {
                    clock.note_poll();
                    std::task::Poll::Pending
                })
                .await
            }
        }
    }

    /// Sleeps until `due`, or until the clock must be read again.
    pub(crate) async fn sleep_until(&self, due: Instant) {
        match self {
            Self::Boot => {
                let remaining = Duration::from_nanos(due.0.saturating_sub(self.now().0));
                tokio::time::sleep(remaining.min(CHECK_EVERY)).await;
            }
            #[cfg(any(test, feature = "testing"))]
            Self::Manual(clock) => clock.sleep_until(due).await,
        }
    }
}

/// Nanoseconds of the machine's clock.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "openbsd", target_os = "fuchsia"))]
fn boot_nanos() -> u64 {
    rustix_nanos(rustix::time::ClockId::Boottime)
}

/// Nanoseconds of the machine's clock. Apple's clock follows the time service and was seen to step back by microseconds; the
/// value returned here never decreases.
#[cfg(target_vendor = "apple")]
fn boot_nanos() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};

    static HIGHEST: AtomicU64 = AtomicU64::new(0);
    let now = rustix_nanos(rustix::time::ClockId::Monotonic);
    HIGHEST.fetch_max(now, Ordering::AcqRel).max(now)
}

#[cfg(any(
    target_os = "linux",
    target_os = "android",
    target_os = "openbsd",
    target_os = "fuchsia",
    target_vendor = "apple"
))]
fn rustix_nanos(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Nanoseconds of the machine's clock, from an arbitrary start.
#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_os = "openbsd",
    target_os = "fuchsia",
    target_vendor = "apple"
)))]
fn boot_nanos() -> u64 {
    use std::sync::LazyLock;

    /// The clock starts at one hour, so that no lease is measured from zero.
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    let elapsed = START.elapsed() + Duration::from_secs(3_600);
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}
