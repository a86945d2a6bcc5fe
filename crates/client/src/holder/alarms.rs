//! Who is to be woken when: a clock for tasks on any runtime, and the same one that leases are counted by.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::time::Instant;

use super::inbox::Given;
use super::reply::Reply;

/// Those who sleep, by the time at which they are woken. Whoever leaves before is forgotten at that time.
#[derive(Default)]
pub(super) struct Alarms {
    due: BTreeMap<(Instant, u64), Reply<Given>>,
    set: u64,
}

impl Alarms {
    pub(super) fn set(&mut self, at: Instant, tell: Reply<Given>) {
        self.set += 1;
        self.due.insert((at, self.set), tell);
    }

    /// Wakes everybody whose time has come.
    pub(super) fn ring(&mut self, now: Instant) {
        while let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= now) {
            first.remove().done(Ok(Given::Answer(Answer::Done)));
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }
}
