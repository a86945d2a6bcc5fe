//! Properties of a client that the conformance suite breaks on purpose, to see its scenarios fail.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a worker that depends on the main loop looks for its next tick.
const TICK_CHECK: Duration = Duration::from_millis(2);

/// A property that can be broken in all clients of this process, for the rest of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenProperty {
    /// The session worker runs only while the program calls [`tick_renewals`], like a renewal on the program's main loop.
    RenewalOnMainLoop,
    /// Deadlines count from the reply, instead of from before the request was sent.
    DeadlineFromReply,
}

static RENEWAL_ON_MAIN_LOOP: AtomicBool = AtomicBool::new(false);
static DEADLINE_FROM_REPLY: AtomicBool = AtomicBool::new(false);
/// End of the current tick, in nanoseconds since [`start`].
static TICK_UNTIL: AtomicU64 = AtomicU64::new(0);

impl BrokenProperty {
    const fn flag(self) -> &'static AtomicBool {
        match self {
            Self::RenewalOnMainLoop => &RENEWAL_ON_MAIN_LOOP,
            Self::DeadlineFromReply => &DEADLINE_FROM_REPLY,
        }
    }

    /// Breaks the property.
    pub fn activate(self) {
        self.flag().store(true, Ordering::Release);
    }

    pub(crate) fn is_active(self) -> bool {
        self.flag().load(Ordering::Acquire)
    }
}

/// Lets session workers that depend on the main loop ([`BrokenProperty::RenewalOnMainLoop`]) run for this time.
pub fn tick_renewals(period: Duration) {
    TICK_UNTIL.store((start().elapsed() + period).as_nanos() as u64, Ordering::Release);
}

/// Waits for a tick of the main loop, if the property is broken.
pub(crate) async fn wait_for_tick() {
    while BrokenProperty::RenewalOnMainLoop.is_active()
        && start().elapsed().as_nanos() as u64 >= TICK_UNTIL.load(Ordering::Acquire)
    {
        tokio::time::sleep(TICK_CHECK).await;
    }
}

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}
