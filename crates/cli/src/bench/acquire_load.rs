//! Acquires in a closed loop at one server, in portions, so that several servers are measured in turn.

use std::time::Duration;

use leasehold::Client;

use super::report::BenchRow;
use super::session_load::{LeaseExpiry, LoadSession, Sample};
use super::{ComparedServer, PER_SESSION, TTL};
use crate::output::CommandError;

/// Requests of a portion for each request in flight. A portion ends in time on a slow disk.
const PORTION: u64 = 200;

/// The load on one server.
pub struct AcquireLoad<'a> {
    at: ComparedServer<'a>,
    in_flight: u64,
    sessions: Vec<LoadSession>,
    /// Leases that the sessions may still acquire.
    left: u64,
    /// Number of times that sessions were opened.
    round: u64,
    total: Sample,
    /// CPU time of the server.
    used: Duration,
}

impl<'a> AcquireLoad<'a> {
    /// A load of this many requests in flight.
    pub fn new(at: ComparedServer<'a>, in_flight: u64) -> Self {
        Self { at, in_flight, sessions: Vec::new(), left: 0, round: 0, total: Sample::new(), used: Duration::ZERO }
    }

    /// The time measured so far.
    pub const fn elapsed(&self) -> Duration {
        self.total.elapsed
    }

    /// Measures a portion. Up to `count` sessions share the requests in flight, each on its own connection.
    pub async fn run_portion(&mut self, count: u64) -> Result<(), CommandError> {
        if self.left == 0 {
            self.close_sessions().await?;
            for _ in 0..count.min(self.in_flight) {
                let client = Client::from(self.at.endpoints.clone());
                self.sessions.push(LoadSession::open(&client, "bench", TTL).await?);
            }
            self.left = PER_SESSION;
            self.round += 1;
        }
        let portion = (self.in_flight * PORTION).min(self.left);
        let before = self.at.cpu_time();
        let count = self.sessions.len() as u64;
        let (part, each) = (portion / count, self.in_flight / count);
        let (in_flight, round, left) = (self.in_flight, self.round, self.left);
        let requests = self.sessions.iter_mut().enumerate().map(|(n, session)| {
            let prefix = format!("bench/{in_flight}/{round}-{left}-{n}");
            async move { session.acquire(&prefix, part, each, LeaseExpiry::After(TTL), &mut Vec::new()).await }
        });
        self.total.add_concurrent(&futures::future::try_join_all(requests).await?);
        self.used += self.at.cpu_time().saturating_sub(before);
        self.left -= portion;
        Ok(())
    }

    /// Closes the sessions and returns the result.
    pub async fn finish(mut self) -> Result<BenchRow, CommandError> {
        self.close_sessions().await?;
        let name = format!("acquire, {} in flight{}", self.in_flight, self.at.suffix);
        Ok(BenchRow::from_sample(name, &self.total, self.at.process.map(|_| self.used)))
    }

    async fn close_sessions(&mut self) -> Result<(), CommandError> {
        for session in self.sessions.drain(..) {
            session.close().await?;
        }
        Ok(())
    }
}
