//! Failover measurements: the time from the end of a leader to the next grant. Fails if any lease is lost.

use std::time::{Duration, Instant};

use leasehold::{Client, ClientBuilder, Code, Error};
use leasehold_core::command::Acquire;

use super::report::BenchRow;
use super::session_load::Sample;
use super::system_under_test::{SystemUnderTest, leader_endpoint};
use super::{Bench, TTL, failed};
use crate::local_cluster::servers::LocalServers;
use crate::output::CommandError;

/// Time without a leader after which the benchmark fails.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two attempts to acquire.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// How a leader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    Kill,
    StepDown,
}

impl Bench<'_> {
    /// Ends one leader after another. A lease is acquired before each failover, and all must be held at the end.
    pub(super) async fn failover(&mut self) -> Result<(), CommandError> {
        let rounds = self.args.crashes;
        let mode = if self.args.planned { StopMode::StepDown } else { StopMode::Kill };
        self.length(rounds);
        let Some((servers, leader)) = self.system.cluster_mut() else {
            return Err(failed("`failover` needs local servers; omit --addr"));
        };
        let held = Client::from(servers.endpoints()?).status().await?.held;
        let mut sample = Sample::new();
        let (mut last, mut unknown) = (0, 0);
        for round in 0..rounds {
            self.progress.set_message(format!("failover {} of {rounds}", round + 1));
            *leader = servers.wait_caught_up().await?;
            let taken = acquire(&Client::from(servers.endpoints()?), &format!("bench/failover/{round}")).await?;
            let next = next_grant(servers, *leader, mode, &format!("bench/failover/after-{round}")).await?;
            let NextGrant { waited, number, unknown: more } = next;
            unknown += more;
            if taken <= last || number <= taken {
                return Err(failed(&format!("token numbers do not increase: {last}, {taken}, {number}")));
            }
            last = number;
            sample.count += 1;
            sample.elapsed += waited;
            sample.latency.record(nanos(waited)).expect("within bounds");
            if mode == StopMode::Kill {
                servers.restart(*leader).await?;
            }
            self.progress.inc(1);
        }
        *leader = servers.wait_caught_up().await?;
        let (now, expected) = (Client::from(servers.endpoints()?).status().await?.held, held + 2 * rounds);
        if now < expected || now > expected + unknown {
            return Err(failed(&format!("{now} of {expected} leases are held after {rounds} failovers")));
        }
        self.endpoints = leader_endpoint(servers, *leader)?;
        self.client = Client::from(self.endpoints.clone());
        let name = match mode {
            StopMode::Kill => format!("leader killed, to the next grant, {rounds} times"),
            StopMode::StepDown => format!("leader steps down, to the next grant, {rounds} times"),
        };
        let max = Duration::from_nanos(sample.latency.max());
        let row = BenchRow { per_second: None, ..BenchRow::from_sample(name, &sample, None) };
        self.rows.push(row.with("max", max.as_secs_f64() * 1e3, "ms").with("leases lost", 0.0, "leases"));
        Ok(())
    }

    /// Measures the takeover of all held leases, after a step-down and after a kill.
    pub(super) async fn takeover(&mut self, count: u64) -> Result<(), CommandError> {
        for mode in [StopMode::StepDown, StopMode::Kill] {
            let SystemUnderTest::Cluster(servers, leader) = &mut self.system else { return Ok(()) };
            self.progress.set_message("taking over");
            *leader = servers.wait_caught_up().await?;
            let held = Client::from(servers.endpoints()?).status().await?.held;
            let next = next_grant(servers, *leader, mode, &format!("bench/over/{mode:?}")).await?;
            if mode == StopMode::Kill {
                servers.restart(*leader).await?;
            }
            *leader = servers.wait_caught_up().await?;
            let now = Client::from(servers.endpoints()?).status().await?.held;
            if now < held + 1 || now > held + 1 + next.unknown {
                return Err(failed(&format!("{now} leases are held after the takeover, and {held} before")));
            }
            let name = if mode == StopMode::Kill { "leader killed" } else { "leader steps down" };
            let row = BenchRow::named(format!("{name}, {count} leases taken over"));
            self.rows.push(row.with("after", next.waited.as_secs_f64(), "s"));
            self.endpoints = leader_endpoint(servers, *leader)?;
            self.client = Client::from(self.endpoints.clone());
        }
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).clamp(1, 60_000_000_000)
}

/// Acquires a lease. Returns its token number.
async fn acquire(client: &Client, name: &str) -> Result<u64, Error> {
    let grant = client.acquire(&Acquire::exclusive(name, "bench", TTL)).await?;
    Ok(grant.token().number().get())
}

/// The first grant after a failover.
struct NextGrant {
    waited: Duration,
    number: u64,
    /// Earlier attempts with an unknown outcome.
    unknown: u64,
}

/// Ends the leader, and retries at the other servers until one grants a lease.
async fn next_grant(
    servers: &mut LocalServers,
    leader: usize,
    mode: StopMode,
    name: &str,
) -> Result<NextGrant, CommandError> {
    let addresses = servers.addresses();
    let others: Vec<_> = addresses.iter().enumerate().filter(|(at, _)| *at != leader).map(|(_, a)| *a).collect();
    let others = leasehold::Endpoints::parse(&others.join(","))?;
    let old = Client::from(leader_endpoint(servers, leader)?);
    // A server that has just become leader may delay requests.
    let client = ClientBuilder::from(others)
        .connect_timeout(Duration::from_secs(1))
        .request_timeout(Duration::from_secs(5))
        .build();
    let began = Instant::now();
    match mode {
        StopMode::Kill => servers.kill(leader),
        StopMode::StepDown => old.step_down().await?,
    }
    let (mut tries, mut unknown) = (0_u64, 0);
    loop {
        // A new name for each attempt: an attempt without a reply may have been granted.
        match acquire(&client, &format!("{name}/{tries}")).await {
            Ok(number) => return Ok(NextGrant { waited: began.elapsed(), number, unknown }),
            Err(error) if began.elapsed() > TIMEOUT => return Err(error.into()),
            Err(error) => unknown += u64::from(error.code() == Some(Code::Indeterminate)),
        }
        tries += 1;
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}
