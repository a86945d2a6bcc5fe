//! The holder's clock goes on while the machine sleeps, so that what ended meanwhile is known at the first look (L2).

use std::convert::Infallible;
use std::time::Duration;

use leasehold_core::time::Instant;
use rustix::time::{ClockId, clock_gettime};

#[cfg(any(test, feature = "testing"))]
use crate::testing::Hand;

/// Timers stop while the machine sleeps and the clock does not: it is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Where a holder's time comes from.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The machine's boot clock.
    Boot,
    /// A clock that a test moves.
    #[cfg(any(test, feature = "testing"))]
    Hand(std::sync::Arc<Hand>),
}

impl Clock {
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::Boot => {
                let read = clock_gettime(ClockId::Boottime);
                let seconds = u64::try_from(read.tv_sec).unwrap_or(0);
                let now = seconds * 1_000_000_000 + u64::try_from(read.tv_nsec).unwrap_or(0);
                #[cfg(any(test, feature = "testing"))]
                let now = now.saturating_add(crate::testing::slept());
                Instant(now)
            }
            #[cfg(any(test, feature = "testing"))]
            Self::Hand(hand) => hand.now(),
        }
    }

    /// Goes on at once, unless a test has paused this holder.
    pub(crate) async fn gate(&self) {
        match self {
            Self::Boot => {}
            #[cfg(any(test, feature = "testing"))]
            Self::Hand(hand) => hand.gate().await,
        }
    }

    /// The holder has ended and reads no clock any more.
    pub(crate) fn left(&self) {
        match self {
            Self::Boot => {}
            #[cfg(any(test, feature = "testing"))]
            Self::Hand(hand) => hand.ended(),
        }
    }

    /// Never done. A clock of a test notes that its holder looks around; it must be asked first.
    pub(crate) async fn look(&self) -> Infallible {
        match self {
            Self::Boot => std::future::pending().await,
            #[cfg(any(test, feature = "testing"))]
            Self::Hand(hand) => {
                std::future::poll_fn(|_| {
                    hand.looks();
                    std::task::Poll::Pending
                })
                .await
            }
        }
    }

    /// Sleeps until then, or until it is time to look at the clock again.
    pub(crate) async fn sleep_until(&self, due: Instant) {
        match self {
            Self::Boot => {
                let left = Duration::from_nanos(due.0.saturating_sub(self.now().0));
                tokio::time::sleep(left.min(LOOK_EVERY)).await;
            }
            #[cfg(any(test, feature = "testing"))]
            Self::Hand(hand) => hand.sleep_until(due).await,
        }
    }
}
