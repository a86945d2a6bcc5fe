//! Start of a deadline: before the request was sent, never when its reply arrived (L2).

use leasehold_core::time::Instant;

/// Start of what a reply grants.
pub(super) fn counted_from(sent: Instant, received: Instant) -> Instant {
    if is_broken() { received } else { sent }
}

/// Whether the conformance suite has broken the rule in this process.
#[cfg(any(test, feature = "testing"))]
pub(super) fn is_broken() -> bool {
    crate::in_memory::BrokenProperty::DeadlineFromReply.is_active()
}

/// Always false outside of tests.
#[cfg(not(any(test, feature = "testing")))]
pub(super) const fn is_broken() -> bool {
    false
}
