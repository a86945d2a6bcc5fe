//! Measurements with a million leases: memory, restart time, and the effect of their simultaneous expiry on renewals.

use std::time::{Duration, Instant};

use leasehold::Client;

use crate::local_cluster::ChildProcess;
use crate::output::CommandError;

use super::report::BenchRow;
use super::session_load::{LeaseExpiry, LoadSession, Sample};
use super::system_under_test::SystemUnderTest;
use super::{Bench, PER_SESSION, TTL};

/// Requests in flight while the leases are acquired.
const FILL_IN_FLIGHT: u64 = 1_024;
/// Number of memory readings, 0.1 s apart, of which the minimum counts.
const SETTLE_POLLS: usize = 50;
/// Runs of the storm, each with a run without load.
const RUNS: usize = 5;
/// Leases that are renewed during a storm.
const RENEWED_LEASES: u64 = 10_000;
const BATCH: usize = 100;

impl Bench<'_> {
    /// Acquires all leases, at most `PER_SESSION` in one session.
    async fn fill(&mut self, prefix: &str, ends: LeaseExpiry, holders: u64) -> Result<Vec<LoadSession>, CommandError> {
        let count = self.args.leases;
        let mut sessions = Vec::new();
        self.length(count);
        for portion in 0..count.div_ceil(PER_SESSION) {
            // On its own connection: the notifications of its expiries are never read, and must not block other sessions.
            let client = Client::from(self.endpoints.clone());
            let mut session = LoadSession::open(&client, &format!("holder-{}", portion % holders), TTL).await?;
            let size = PER_SESSION.min(count - portion * PER_SESSION);
            session.acquire(&format!("{prefix}/{portion:02}"), size, FILL_IN_FLIGHT, ends, &mut Vec::new()).await?;
            self.progress.inc(size);
            sessions.push(session);
        }
        Ok(sessions)
    }

    pub(super) async fn held(&mut self) -> Result<(), CommandError> {
        let count = self.args.leases;
        self.progress.set_message(format!("acquiring {count} leases"));
        let before = self.system.process().map(ChildProcess::resident_bytes);
        let began = Instant::now();
        let sessions = self.fill("bench/held/customer", LeaseExpiry::After(TTL), 8).await?;
        let mut row = BenchRow::named(format!("{count} leases held"));
        row.per_second = Some(count as f64 / began.elapsed().as_secs_f64());
        if let (Some(process), Some(before)) = (self.system.process(), before) {
            let peak = process.resident_bytes();
            let after = settled(process).await;
            row = row
                .with("peak", peak as f64 / 1e6, "MB")
                .with("resident", after.saturating_sub(before) as f64 / count as f64, "B_per_lease")
                .with("process", after as f64 / 1e6, "MB");
        }
        self.rows.push(row);
        drop(sessions);
        self.takeover(count).await?;
        if let SystemUnderTest::Single(server) = &mut self.system {
            self.progress.set_message("restarting");
            server.restart()?;
            let (endpoints, ready) = server.wait_ready().await?;
            (self.client, self.endpoints) = (Client::from(endpoints.clone()), endpoints);
            let held = self.client.status().await?.held;
            if held != count {
                return Err(super::failed(&format!("{held} of {count} leases are held after a kill and restart")));
            }
            self.rows.push(BenchRow::named(format!("restart after a kill with {count} leases")).with(
                "after",
                ready.as_secs_f64(),
                "s",
            ));
        }
        Ok(())
    }

    /// Renewals while many leases expire at once, and without load, in turns.
    pub(super) async fn storm(&mut self) -> Result<(), CommandError> {
        let count = self.args.leases;
        let mut pairs = Vec::new();
        let mut longest = Duration::ZERO;
        for run in 0..RUNS {
            self.progress.set_message(format!("storm {} of {RUNS}", run + 1));
            let mut session = LoadSession::open(&self.client, "bench", TTL).await?;
            let mut leases = Vec::new();
            session
                .acquire(&format!("bench/renewed/{run}"), RENEWED_LEASES, 256, LeaseExpiry::After(TTL), &mut leases)
                .await?;
            let others = self.client.status().await?.held;
            let idle = session.renew(&leases, BATCH, 1, Duration::from_secs(2)).await?;
            let (sessions, end) = self.fill_expiring(run, others).await?;
            let (sample, ended) = self.renew_during_expiry(&mut session, &leases, others, end).await?;
            longest = longest.max(ended);
            pairs.push((p99(&idle), p99(&sample)));
            drop(sessions);
            session.close().await?;
        }
        pairs.sort_by_key(|(idle, storm)| storm.saturating_sub(*idle));
        let (idle, storm) = pairs[pairs.len() / 2];
        self.rows.push(
            BenchRow::named(format!("renewals during {count} expiries, median of {RUNS}"))
                .with("p99 idle", idle.as_secs_f64() * 1e3, "ms")
                .with("p99 storm", storm.as_secs_f64() * 1e3, "ms")
                .with("all expired within", longest.as_secs_f64(), "s"),
        );
        Ok(())
    }

    /// Acquires leases that expire at the same moment, after the last one is acquired. Retries with more time on a slow machine.
    async fn fill_expiring(&mut self, run: usize, others: u64) -> Result<(Vec<LoadSession>, Instant), CommandError> {
        let count = self.args.leases;
        let mut time = Duration::from_millis(2_000 + count / 50);
        while time < Duration::from_millis(TTL) {
            let end = Instant::now() + time;
            let sessions = self.fill(&format!("bench/storm/{run}-{}", time.as_secs()), LeaseExpiry::At(end), 8).await?;
            if self.client.status().await?.held >= others + count {
                return Ok((sessions, end));
            }
            for session in sessions {
                session.close().await?;
            }
            time *= 2;
        }
        Err(super::failed("the first leases expire before the last ones are acquired; use fewer --leases"))
    }

    /// Renews until all other leases have expired. Returns how long that took after their common deadline.
    async fn renew_during_expiry(
        &mut self,
        session: &mut LoadSession,
        leases: &[super::session_load::LeaseKey],
        others: u64,
        end: Instant,
    ) -> Result<(Sample, Duration), CommandError> {
        tokio::time::sleep(end.saturating_duration_since(Instant::now())).await;
        let mut sample = Sample::new();
        loop {
            sample.add(&session.renew(leases, BATCH, 1, Duration::from_millis(100)).await?);
            if self.client.status().await?.held <= others {
                return Ok((sample, end.elapsed()));
            }
            if end.elapsed() > Duration::from_secs(60) {
                return Err(super::failed("leases of the storm are still held one minute after their expiry"));
            }
        }
    }
}

/// Resident memory when the snapshot that the fill triggered is finished.
async fn settled(process: &ChildProcess) -> u64 {
    let mut min = process.resident_bytes();
    for _ in 0..SETTLE_POLLS {
        tokio::time::sleep(Duration::from_millis(100)).await;
        min = min.min(process.resident_bytes());
    }
    min
}

fn p99(sample: &Sample) -> Duration {
    Duration::from_nanos(sample.latency.value_at_quantile(0.99))
}
