//! A grantor in this process with a clock that a test moves. The test kit and the client's transport are built on it.

mod broken_property;
mod fake_suspend;
mod link;
mod manual_clock;
mod outbox;
mod server;

pub(crate) use broken_property::wait_for_tick;
pub use broken_property::{BrokenProperty, tick_renewals};
pub use fake_suspend::FAKE_SUSPEND_FILE;
pub(crate) use fake_suspend::fake_suspend_nanos;
pub(crate) use link::{MemoryConnection, MemoryLink};
pub(crate) use manual_clock::ManualClock;
pub(crate) use server::MemoryServer;
