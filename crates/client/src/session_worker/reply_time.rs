//! The time from which deadlines count: from before the request was sent, never from its reply (L2).

use leasehold_core::time::Instant;

/// Start of what a reply grants.
pub(super) fn counted_from(sent: Instant, received: Instant) -> Instant {
    #[cfg(any(test, feature = "testing"))]
    if crate::in_memory::BrokenProperty::DeadlineFromReply.is_active() {
        return received;
    }
    let _ = received;
    sent
}

/// Remaining time in a reply, for a caller that adds it to the time before the request.
pub(super) fn remaining_since(sent: Instant, received: Instant, remaining_ms: u64) -> u64 {
    remaining_ms.saturating_add(counted_from(sent, received).millis_since(sent))
}
