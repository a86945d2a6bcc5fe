//! Timers for tasks on any runtime, driven by the clock that leases are measured with.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::time::Instant;

use super::job_result::Response;
use super::reply_channel::ReplySender;

/// Sleeping tasks by wake-up time. A task that stops waiting is removed when its time comes.
#[derive(Default)]
pub(super) struct Sleepers {
    due: BTreeMap<(Instant, u64), ReplySender<Response>>,
    next_id: u64,
}

impl Sleepers {
    pub(super) fn insert(&mut self, until: Instant, reply: ReplySender<Response>) {
        self.next_id += 1;
        self.due.insert((until, self.next_id), reply);
    }

    /// Wakes every task whose time has come.
    pub(super) fn wake_due(&mut self, now: Instant) {
        while let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= now) {
            first.remove().send(Ok(Response::Answer(Answer::Done)));
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((until, _), _)| *until)
    }
}
