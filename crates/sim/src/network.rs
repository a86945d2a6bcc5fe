//! The simulated network: messages are delayed, lost, duplicated or blocked.

use crate::clock::{MS, SimTime};
use crate::fault::Fault;
use crate::message::{MAX_ACTORS, Message, SimActor};
use crate::scheduler::{ScheduledEvent, Scheduler};

impl Scheduler {
    /// Sends a message through the simulated network.
    pub fn send(&mut self, from: SimActor, to: SimActor, message: Message) {
        if self.blocked[from.index()][to.index()] {
            return;
        }
        if self.should_inject(Fault::Loss, 12) {
            self.record_fault(Fault::Loss, format!("{from:?} to {to:?}"));
            return;
        }
        // A connection does not duplicate messages; a duplicate models a retry, so only retryable messages are duplicated.
        let may_repeat = match &message {
            Message::Request(envelope) => envelope.id.is_some() || !envelope.request.creates(),
            _ => true,
        };
        if may_repeat && self.should_inject(Fault::Duplicate, 12) {
            self.record_fault(Fault::Duplicate, format!("{from:?} to {to:?}"));
            let at = self.now + self.latency();
            self.schedule(at, ScheduledEvent::Deliver(to, message.clone()));
        }
        let at = self.now + self.latency();
        self.schedule(at, ScheduledEvent::Deliver(to, message));
    }

    /// Transit time of a message.
    pub fn latency(&mut self) -> SimTime {
        if self.should_inject(Fault::Delay, 15) {
            let delay = self.rng.between(50 * MS, 3_000 * MS);
            self.record_fault(Fault::Delay, format!("{} ms", delay / MS));
            return delay;
        }
        self.rng.between(100, 3 * MS)
    }

    /// Blocks or unblocks one direction between two actors.
    pub const fn set_blocked(&mut self, from: usize, to: usize, blocked: bool) {
        self.blocked[from][to] = blocked;
    }

    /// Unblocks the whole network.
    pub const fn unblock_all(&mut self) {
        self.blocked = [[false; MAX_ACTORS]; MAX_ACTORS];
    }
}
