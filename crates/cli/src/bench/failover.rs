//! A leader that dies, or hands over: how long until the next grant, and whether anything that was held is lost.

use std::time::{Duration, Instant};

use leasehold::{Client, Code, Error, Options};
use leasehold_core::command::Acquire;

use super::line::Stretch;
use super::report::Row;
use super::under::{Under, leading};
use super::{Bench, TTL, failed};
use crate::own::servers::Servers;
use crate::told::Failure;

/// How long nobody may lead before a bench gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries to be granted something.
const BETWEEN: Duration = Duration::from_millis(2);

/// How a leader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// It is killed.
    Killed,
    /// It is asked to step down.
    StepsDown,
}

impl Bench<'_> {
    /// So many leaders go, one after the other. A lease is taken before each, and all are there in the end.
    pub(super) async fn failover(&mut self) -> Result<(), Failure> {
        let rounds = self.args.crashes;
        let goes = if self.args.planned { Goes::StepsDown } else { Goes::Killed };
        self.length(rounds);
        let Some((servers, leader)) = self.under.several() else {
            return Err(failed("a failover needs servers of its own; leave --addr out"));
        };
        let held = Client::connect(servers.endpoints()?).status().await?.held;
        let mut stretch = Stretch::new();
        let (mut last, mut unknown) = (0, 0);
        for round in 0..rounds {
            self.shown.set_message(format!("leader {} of {rounds} goes", round + 1));
            *leader = servers.warm().await?;
            let taken = take(&Client::connect(servers.endpoints()?), &format!("bench/failover/{round}")).await?;
            let next = next_grant(servers, *leader, goes, &format!("bench/failover/after-{round}")).await?;
            let Next { waited, number, unknown: more } = next;
            unknown += more;
            if taken <= last || number <= taken {
                return Err(failed(&format!("token {number} was given out after {taken}, and that after {last}")));
            }
            last = number;
            stretch.count += 1;
            stretch.took += waited;
            stretch.waited.record(nanos(waited)).expect("within bounds");
            if goes == Goes::Killed {
                servers.again(*leader).await?;
            }
            self.shown.inc(1);
        }
        *leader = servers.warm().await?;
        let (now, expected) = (Client::connect(servers.endpoints()?).status().await?.held, held + 2 * rounds);
        if now < expected || now > expected + unknown {
            return Err(failed(&format!("{now} of {expected} leases are there after {rounds} failovers")));
        }
        self.endpoints = leading(servers, *leader)?;
        self.client = Client::connect(self.endpoints.clone());
        let what = match goes {
            Goes::Killed => format!("leader killed, to the next grant, {rounds} times"),
            Goes::StepsDown => format!("leader steps down, to the next grant, {rounds} times"),
        };
        let most = Duration::from_nanos(stretch.waited.max());
        let row = Row { per_second: None, ..Row::of(what, &stretch, None) };
        self.rows.push(row.with("max", most.as_secs_f64() * 1e3, "ms").with("leases lost", 0.0, "leases"));
        Ok(())
    }

    /// Everything that is held is taken over: planned, and after a kill.
    pub(super) async fn taken_over(&mut self, count: u64) -> Result<(), Failure> {
        for goes in [Goes::StepsDown, Goes::Killed] {
            let Under::Several(servers, leader) = &mut self.under else { return Ok(()) };
            self.shown.set_message("taking over");
            *leader = servers.warm().await?;
            let held = Client::connect(servers.endpoints()?).status().await?.held;
            let next = next_grant(servers, *leader, goes, &format!("bench/over/{goes:?}")).await?;
            if goes == Goes::Killed {
                servers.again(*leader).await?;
            }
            *leader = servers.warm().await?;
            let now = Client::connect(servers.endpoints()?).status().await?.held;
            if now < held + 1 || now > held + 1 + next.unknown {
                return Err(failed(&format!("{now} leases are there, and {held} were before")));
            }
            let what = if goes == Goes::Killed { "leader killed" } else { "leader steps down" };
            let row = Row::named(format!("{what}, {count} leases taken over"));
            self.rows.push(row.with("after", next.waited.as_secs_f64(), "s"));
            self.endpoints = leading(servers, *leader)?;
            self.client = Client::connect(self.endpoints.clone());
        }
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).clamp(1, 60_000_000_000)
}

/// Takes a lease. Returns its number.
async fn take(client: &Client, name: &str) -> Result<u64, Error> {
    let grant = client.acquire(&Acquire::exclusive(name, "bench", TTL)).await?;
    Ok(grant.token().number.get())
}

/// The first grant after a leader went.
struct Next {
    waited: Duration,
    number: u64,
    /// Tries before it of which nobody knows what became.
    unknown: u64,
}

/// The leader goes, and somebody else is asked until it grants something.
async fn next_grant(servers: &mut Servers, leader: usize, goes: Goes, name: &str) -> Result<Next, Failure> {
    let addresses = servers.addresses();
    let others: Vec<_> = addresses.iter().enumerate().filter(|(at, _)| *at != leader).map(|(_, a)| *a).collect();
    let others = leasehold::Endpoints::parse(&others.join(","))?;
    let old = Client::connect(leading(servers, leader)?);
    // A request to somebody who has just begun to lead waits at its door.
    let options = Options { connect: Duration::from_secs(1), request: Duration::from_secs(5), ..Options::default() };
    let client = Client::with(others, options);
    let began = Instant::now();
    match goes {
        Goes::Killed => servers.kill(leader),
        Goes::StepsDown => old.step_down().await?,
    }
    let (mut tries, mut unknown) = (0_u64, 0);
    loop {
        // A name for each try: whether an unanswered one was granted is not known.
        match take(&client, &format!("{name}/{tries}")).await {
            Ok(number) => return Ok(Next { waited: began.elapsed(), number, unknown }),
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(error) => unknown += u64::from(error.code() == Some(Code::Indeterminate)),
        }
        tries += 1;
        tokio::time::sleep(BETWEEN).await;
    }
}
