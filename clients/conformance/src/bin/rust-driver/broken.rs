//! Properties that the runner breaks on purpose, to see its scenarios fail.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use leasehold::MetricsHook;
use tokio::runtime::Handle;

/// A property of the client that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverFault {
    /// Renewals need the user's thread.
    RenewalOnMainLoop,
    /// Writes carry no token.
    NoToken,
    /// Local deadlines count from the arrival of replies.
    DeadlineFromReply,
}

impl DriverFault {
    /// The property with this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "renewal_on_main_loop" => Some(Self::RenewalOnMainLoop),
            "no_token" => Some(Self::NoToken),
            "deadline_from_reply" => Some(Self::DeadlineFromReply),
            _ => None,
        }
    }
}

/// Makes the renewing thread wait for the user's thread after each renewal.
pub struct MainLoopHook(pub Handle);

impl MetricsHook for MainLoopHook {
    fn renewed(&self, _count: usize, _after: Duration) {
        let (sender, turn) = sync_channel(1);
        self.0.spawn(async move { sender.send(()) });
        // The runtime may be gone at the end of the process.
        let _ = turn.recv();
    }
}

/// Deadlines as a careless client computes them: the arrival of the newest reply plus the ttl.
#[derive(Debug)]
pub struct ReplyDeadlines {
    ttl: Duration,
    deadline: Mutex<Instant>,
}

impl ReplyDeadlines {
    /// Deadlines of leases with this ttl.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, deadline: Mutex::new(Instant::now()) }
    }

    /// A reply has arrived.
    fn extend(&self) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + self.ttl;
    }

    /// Time until the deadline.
    pub fn remaining(&self) -> Duration {
        self.deadline.lock().unwrap_or_else(PoisonError::into_inner).saturating_duration_since(Instant::now())
    }
}

impl MetricsHook for ReplyDeadlines {
    fn granted(&self, _resource: &str, _after: Duration) {
        self.extend();
    }

    fn renewed(&self, _count: usize, _after: Duration) {
        self.extend();
    }
}
