//! A million leases: what they take, how soon they are there again, and what their common end does to the others.

use std::time::{Duration, Instant};

use leasehold::Client;

use crate::own::Process;
use crate::told::Failure;

use super::line::{Ends, Line, Stretch};
use super::report::Row;
use super::under::Under;
use super::{Bench, PER_SESSION, TTL};

/// Requests in flight while a crowd is made.
const FILLING: u64 = 1_024;
/// Looks at the memory before it counts as settled, a tenth of a second apart.
const SETTLING: usize = 50;
/// Runs of a storm, each beside one of idling.
const RUNS: usize = 5;
/// Leases that are renewed beside a storm, and how many in a batch.
const BESIDE: u64 = 10_000;
const BATCH: usize = 100;

impl Bench<'_> {
    /// Takes so many leases, a session for each portion of them.
    async fn fill(&mut self, prefix: &str, ends: Ends, holders: u64) -> Result<Vec<Line>, Failure> {
        let count = self.args.leases;
        let mut lines = Vec::new();
        self.length(count);
        for portion in 0..count.div_ceil(PER_SESSION) {
            // A connection of its own: what it is told of its leases' ends is never read, and must stand in nobody's way.
            let client = Client::connect(self.endpoints.clone());
            let mut line = Line::open(&client, &format!("holder-{}", portion % holders), TTL).await?;
            let size = PER_SESSION.min(count - portion * PER_SESSION);
            line.acquire(&format!("{prefix}/{portion:02}"), size, FILLING, ends, &mut Vec::new()).await?;
            self.shown.inc(size);
            lines.push(line);
        }
        Ok(lines)
    }

    pub(super) async fn held(&mut self) -> Result<(), Failure> {
        let count = self.args.leases;
        self.shown.set_message(format!("taking {count} leases"));
        let before = self.under.process().map(Process::resident);
        let began = Instant::now();
        let lines = self.fill("bench/held/customer", Ends::After(TTL), 8).await?;
        let mut row = Row::named(format!("{count} leases held"));
        row.per_second = Some(count as f64 / began.elapsed().as_secs_f64());
        if let (Some(process), Some(before)) = (self.under.process(), before) {
            let most = process.resident();
            let after = settled(process).await;
            row = row
                .with("right after", most as f64 / 1e6, "MB")
                .with("resident", after.saturating_sub(before) as f64 / count as f64, "B_per_lease")
                .with("process", after as f64 / 1e6, "MB");
        }
        self.rows.push(row);
        drop(lines);
        self.taken_over(count).await?;
        if let Under::Alone(own) = &mut self.under {
            self.shown.set_message("starting again");
            own.restart()?;
            let (endpoints, ready) = own.answers().await?;
            (self.client, self.endpoints) = (Client::connect(endpoints.clone()), endpoints);
            let held = self.client.status().await?.held;
            if held != count {
                return Err(super::failed(&format!("{held} of {count} leases are there after a kill")));
            }
            self.rows.push(Row::named(format!("killed, serving {count} again")).with(
                "after",
                ready.as_secs_f64(),
                "s",
            ));
        }
        Ok(())
    }

    /// Renewals beside a million leases that end at once, and beside nothing, in turns.
    pub(super) async fn storm(&mut self) -> Result<(), Failure> {
        let count = self.args.leases;
        let mut pairs = Vec::new();
        let mut longest = Duration::ZERO;
        for run in 0..RUNS {
            self.shown.set_message(format!("storm {} of {RUNS}", run + 1));
            let mut line = Line::open(&self.client, "bench", TTL).await?;
            let mut leases = Vec::new();
            line.acquire(&format!("bench/beside/{run}"), BESIDE, 256, Ends::After(TTL), &mut leases).await?;
            let others = self.client.status().await?.held;
            let idle = line.renew(&leases, BATCH, 1, Duration::from_secs(2)).await?;
            let (lines, end) = self.gather(run, others).await?;
            let (stretch, ended) = self.weather(&mut line, &leases, others, end).await?;
            longest = longest.max(ended);
            pairs.push((p99(&idle), p99(&stretch)));
            drop(lines);
            line.close().await?;
        }
        pairs.sort_by_key(|(idle, storm)| storm.saturating_sub(*idle));
        let (idle, storm) = pairs[pairs.len() / 2];
        self.rows.push(
            Row::named(format!("renewals beside {count} ends, median of {RUNS}"))
                .with("p99 idle", idle.as_secs_f64() * 1e3, "ms")
                .with("p99 storm", storm.as_secs_f64() * 1e3, "ms")
                .with("all ended within", longest.as_secs_f64(), "s"),
        );
        Ok(())
    }

    /// Takes leases that end at the same moment, when all of them are taken. If this machine was too busy for that, again
    /// with more time.
    async fn gather(&mut self, run: usize, others: u64) -> Result<(Vec<Line>, Instant), Failure> {
        let count = self.args.leases;
        let mut time = Duration::from_millis(2_000 + count / 50);
        while time < Duration::from_millis(TTL) {
            let end = Instant::now() + time;
            let lines = self.fill(&format!("bench/storm/{run}-{}", time.as_secs()), Ends::At(end), 8).await?;
            if self.client.status().await?.held >= others + count {
                return Ok((lines, end));
            }
            for line in lines {
                line.close().await?;
            }
            time *= 2;
        }
        Err(super::failed("the first leases end before the last are taken; take fewer --leases"))
    }

    /// Renews until all the others have ended. Tells how long after their common deadline that was.
    async fn weather(
        &mut self,
        line: &mut Line,
        leases: &[super::line::Lease],
        others: u64,
        end: Instant,
    ) -> Result<(Stretch, Duration), Failure> {
        tokio::time::sleep(end.saturating_duration_since(Instant::now())).await;
        let mut stretch = Stretch::new();
        loop {
            stretch.add(&line.renew(leases, BATCH, 1, Duration::from_millis(100)).await?);
            if self.client.status().await?.held <= others {
                return Ok((stretch, end.elapsed()));
            }
            if end.elapsed() > Duration::from_secs(60) {
                return Err(super::failed("leases of the storm are still there after a minute"));
            }
        }
    }
}

/// What the server keeps when the snapshot that the fill called for is taken.
async fn settled(process: &Process) -> u64 {
    let mut least = process.resident();
    for _ in 0..SETTLING {
        tokio::time::sleep(Duration::from_millis(100)).await;
        least = least.min(process.resident());
    }
    least
}

fn p99(stretch: &Stretch) -> Duration {
    Duration::from_nanos(stretch.waited.value_at_quantile(0.99))
}
