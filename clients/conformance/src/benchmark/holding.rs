//! Many held leases in one process of each client, all at the same time: CPU time, memory, and how many are still held.

use std::time::{Duration, Instant};

use serde_json::json;

use super::process_usage::{cpu_time, resident_bytes};
use super::{BenchedClient, TIMEOUT, progress};
use crate::environment::ServerGroup;
use crate::failure::{ScenarioFailure, broken};

/// Time between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What one client used.
#[derive(Clone, Copy, Debug)]
pub struct HoldingCost {
    /// Time to acquire all leases, several at a time.
    pub acquired_in: Duration,
    /// CPU time of all threads of the process while the leases were held.
    pub cpu: Duration,
    /// The time for which they were held.
    pub held_for: Duration,
    /// Resident memory before the leases were acquired.
    pub memory_before: u64,
    /// Resident memory at the end.
    pub memory: u64,
    /// Leases that the client held at the end.
    pub held: u64,
    /// Leases of the client at the server at the end.
    pub held_at_server: u64,
}

/// CPU time and the moment at which it was read.
struct CpuReading {
    at: Instant,
    used: Duration,
}

fn read_cpu(client: &BenchedClient) -> Result<CpuReading, ScenarioFailure> {
    Ok(CpuReading { at: Instant::now(), used: cpu_time(client.driver.process_id())? })
}

/// Acquires the leases of one client after the other, and then observes all clients for the same time.
pub fn measure(
    clients: &[BenchedClient],
    servers: &ServerGroup,
    leases: u64,
    time: Duration,
) -> Result<Vec<HoldingCost>, ScenarioFailure> {
    let mut acquired = Vec::new();
    for client in clients {
        let before = resident_bytes(client.driver.process_id())?;
        let began = Instant::now();
        let fields = json!({ "client": client.name, "prefix": prefix(client), "count": leases });
        client.driver.request("hold_many", fields, TIMEOUT)?;
        acquired.push((before, began.elapsed()));
        progress(&format!("{} holds {leases} leases after {:.1} s", client.name, began.elapsed().as_secs_f64()));
    }
    let all = leases * clients.len() as u64;
    wait_until_held(servers, all)?;
    let first = clients.iter().map(read_cpu).collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    while began.elapsed() < time {
        std::thread::sleep(PROGRESS_INTERVAL.min(time.saturating_sub(began.elapsed())));
        let (elapsed, time) = (began.elapsed().as_secs(), time.as_secs());
        progress(&format!("{all} leases held for {elapsed} of {time} s"));
    }
    let last = clients.iter().map(read_cpu).collect::<Result<Vec<_>, _>>()?;
    let mut costs = Vec::new();
    for (client, ((memory_before, acquired_in), (first, last))) in
        clients.iter().zip(acquired.into_iter().zip(first.iter().zip(&last)))
    {
        let memory = resident_bytes(client.driver.process_id())?;
        let reply = client.driver.request("held_count", json!({ "client": client.name }), TIMEOUT)?;
        costs.push(HoldingCost {
            acquired_in,
            cpu: last.used.saturating_sub(first.used),
            held_for: last.at - first.at,
            memory_before,
            memory,
            held: reply["held"].as_u64().unwrap_or(0),
            held_at_server: held_at_server(servers, &prefix(client))?,
        });
    }
    Ok(costs)
}

fn prefix(client: &BenchedClient) -> String {
    format!("bench/{}/held", client.name)
}

fn wait_until_held(servers: &ServerGroup, count: u64) -> Result<(), ScenarioFailure> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = servers.request("GET", "/v1/status", None)?.json();
        if status["held"] == count {
            return Ok(());
        }
        if Instant::now() > deadline {
            return broken(format!("the server holds {} leases, not {count}", status["held"]));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Counts the held leases with this prefix, page by page.
fn held_at_server(servers: &ServerGroup, prefix: &str) -> Result<u64, ScenarioFailure> {
    let (mut count, mut cursor) = (0, String::new());
    loop {
        let path = format!("/v1/leases?prefix={prefix}&limit=1000{cursor}");
        let page = servers.request("GET", &path, None)?.json();
        let Some(resources) = page["resources"].as_array() else { return broken(format!("{path}: {page}")) };
        count += resources.iter().filter_map(|resource| resource["held"].as_u64()).sum::<u64>();
        match page["next_cursor"].as_u64() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(count),
        }
    }
}
