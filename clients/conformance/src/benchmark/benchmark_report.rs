//! Results of the benchmark, as tables for people and as one JSON document.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::acquire_cycle::{CycleRound, median};
use super::holding::HoldingCost;
use super::{BenchmarkOptions, REFERENCE, SESSION_TTL, build_name};
use crate::driver_list::IS_RELEASE;

/// What the costs depend on.
#[derive(Clone, Debug)]
pub struct BenchmarkConditions {
    leases: u64,
    rounds: u64,
    pairs: u64,
    cores: usize,
    /// Processes that ran or waited for a processor in the minute before.
    load: f64,
}

impl BenchmarkConditions {
    /// The conditions before the first measurement.
    pub fn now(options: &BenchmarkOptions) -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            leases: options.leases,
            rounds: options.rounds,
            pairs: options.pairs,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load: load.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0),
        }
    }

    /// What makes the costs worse than they could be.
    pub fn hints(&self) -> Vec<String> {
        let mut hints = vec![format!("{} cores, load {:.2}, {} build", self.cores, self.load, build_name())];
        if !IS_RELEASE {
            hints.push("hint: the server and native code are not optimized; build for release (see --help)".to_owned());
        }
        if self.load > 0.3 * self.cores as f64 {
            hints.push("hint: other programs use the processors; end them, and run again".to_owned());
        }
        hints
    }
}

/// All costs of one client.
#[derive(Clone, Debug)]
pub struct ClientCosts {
    /// Name of the client.
    pub client: String,
    /// Its version.
    pub version: String,
    /// Many held leases.
    pub holding: HoldingCost,
    /// Rounds of acquire and release.
    pub rounds: Vec<CycleRound>,
}

/// The costs of a run.
#[derive(Clone, Debug)]
pub struct BenchmarkReport {
    /// What they depend on.
    pub conditions: BenchmarkConditions,
    /// By client.
    pub clients: Vec<ClientCosts>,
}

/// The time of a client relative to the reference, in each round.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RelativeTime {
    median: f64,
    min: f64,
    max: f64,
}

impl BenchmarkReport {
    /// Clients that do not hold all leases at the end, with the numbers.
    pub fn lost_leases(&self) -> Vec<String> {
        let all = self.conditions.leases;
        let lost = |costs: &&ClientCosts| costs.holding.held != all || costs.holding.held_at_server != all;
        let describe = |ClientCosts { client, holding, .. }: &ClientCosts| {
            format!("{client} holds {} of {all} leases, at the server {}", holding.held, holding.held_at_server)
        };
        self.clients.iter().filter(lost).map(describe).collect()
    }

    fn relative(&self, costs: &ClientCosts) -> Option<RelativeTime> {
        let reference = self.clients.iter().find(|client| client.client == REFERENCE)?;
        let pairs = costs.rounds.iter().zip(&reference.rounds);
        let ratios: Vec<_> = pairs.map(|(own, base)| own.net().as_secs_f64() / base.net().as_secs_f64()).collect();
        let min = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let max = ratios.iter().copied().fold(0.0, f64::max);
        Some(RelativeTime { median: median(ratios), min, max })
    }

    /// One document with all costs.
    pub fn json(&self) -> Value {
        let BenchmarkConditions { leases, rounds, pairs, cores, load } = &self.conditions;
        let clients = self.clients.iter().map(|costs| {
            let HoldingCost { acquired_in, cpu, held_for, memory_before, memory, held, held_at_server } = costs.holding;
            let relative = self.relative(costs);
            json!({
                "client": costs.client,
                "version": costs.version,
                "holding": {
                    "acquired_seconds": seconds(acquired_in),
                    "cpu_seconds": seconds(cpu),
                    "held_seconds": seconds(held_for),
                    "memory_before_bytes": memory_before,
                    "memory_bytes": memory,
                    "held": held,
                    "held_at_server": held_at_server,
                },
                "cycle": {
                    "acquire_us": micros(typical(costs, |round| round.acquire)),
                    "release_us": micros(typical(costs, |round| round.release)),
                    "driver_us": micros(typical(costs, |round| round.driver)),
                    "net_us": micros(typical(costs, CycleRound::net)),
                    "relative": relative.map(|relative| json!({
                        "median": rounded(relative.median),
                        "min": rounded(relative.min),
                        "max": rounded(relative.max),
                    })),
                },
            })
        });
        json!({
            "conditions": {
                "leases": leases, "session_ttl_seconds": SESSION_TTL.as_secs(), "rounds": rounds, "pairs": pairs,
                "cores": cores, "load": load, "build": build_name(),
            },
            "clients": clients.collect::<Vec<_>>(),
        })
    }

    /// Two tables.
    pub fn text(&self) -> String {
        let BenchmarkConditions { leases, rounds, pairs, .. } = &self.conditions;
        let held_for = self.clients.first().map_or(0, |costs| costs.holding.held_for.as_secs());
        let ttl = SESSION_TTL.as_secs();
        let mut text = format!("{leases} leases in one process, session ttl {ttl} s, held for {held_for} s\n");
        let head = ["client", "CPU s", "% of a core", "memory MiB", "before MiB", "acquired in s", "held"];
        let rows = self.clients.iter().map(|ClientCosts { client, holding, .. }| {
            let share = 100.0 * holding.cpu.as_secs_f64() / holding.held_for.as_secs_f64().max(f64::MIN_POSITIVE);
            [
                client.clone(),
                format!("{:.2}", holding.cpu.as_secs_f64()),
                format!("{share:.2}"),
                format!("{:.1}", mebibytes(holding.memory)),
                format!("{:.1}", mebibytes(holding.memory_before)),
                format!("{:.1}", holding.acquired_in.as_secs_f64()),
                holding.held.min(holding.held_at_server).to_string(),
            ]
        });
        text += &aligned(head, rows);
        let _ = write!(text, "\nacquire and release of one caller: medians of {rounds} rounds with {pairs} pairs\n");
        let head = ["client", "acquire µs", "release µs", "driver µs", "both − driver µs", "× rust", "range"];
        let rows = self.clients.iter().map(|costs| {
            let relative = self.relative(costs);
            [
                costs.client.clone(),
                format!("{:.0}", micros(typical(costs, |round| round.acquire))),
                format!("{:.0}", micros(typical(costs, |round| round.release))),
                format!("{:.0}", micros(typical(costs, |round| round.driver))),
                format!("{:.0}", micros(typical(costs, CycleRound::net))),
                relative.map_or_else(String::new, |relative| format!("{:.2}", relative.median)),
                relative.map_or_else(String::new, |relative| format!("{:.2}–{:.2}", relative.min, relative.max)),
            ]
        });
        text += &aligned(head, rows);
        for lost in self.lost_leases() {
            let _ = writeln!(text, "FAILED: {lost}");
        }
        text
    }
}

/// The median of a time over all rounds.
fn typical(costs: &ClientCosts, time: impl Fn(&CycleRound) -> Duration) -> Duration {
    median(costs.rounds.iter().map(time).collect())
}

fn micros(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e6)
}

fn seconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64())
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A table whose first column is aligned to the left, and all others to the right.
fn aligned<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let _ = write!(text, "{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(client: &str, net_us: &[u64], held: u64) -> ClientCosts {
        let holding = HoldingCost {
            acquired_in: Duration::from_secs(2),
            cpu: Duration::from_millis(500),
            held_for: Duration::from_secs(50),
            memory_before: 1 << 20,
            memory: 3 << 20,
            held,
            held_at_server: 10,
        };
        let driver = Duration::from_micros(20);
        let round = |net: &u64| CycleRound { acquire: Duration::from_micros(*net) + driver, release: driver, driver };
        ClientCosts { client: client.into(), version: "1".into(), holding, rounds: net_us.iter().map(round).collect() }
    }

    fn report(held: u64) -> BenchmarkReport {
        let conditions = BenchmarkConditions { leases: 10, rounds: 3, pairs: 1, cores: 2, load: 0.0 };
        let clients = vec![costs("rust", &[100, 400, 100], 10), costs("go", &[200, 400, 500], held)];
        BenchmarkReport { conditions, clients }
    }

    #[test]
    fn a_client_is_compared_with_rust_round_by_round() {
        let report = report(10);
        let relative = report.relative(&report.clients[1]).expect("rust is there");
        assert_eq!(relative, RelativeTime { median: 2.0, min: 1.0, max: 5.0 });
        let body = report.json();
        assert_eq!(body["clients"][1]["cycle"]["relative"]["median"], 2.0, "{body}");
        let text = report.text();
        assert!(text.contains("1.00–5.00") && text.contains("     0.50         1.00         3.0"), "{text}");
        assert!(report.lost_leases().is_empty());
    }

    #[test]
    fn a_client_that_lost_leases_is_named() {
        let report = report(9);
        assert_eq!(report.lost_leases(), ["go holds 9 of 10 leases, at the server 10"]);
        assert!(report.text().contains("FAILED: go holds 9 of 10"), "{}", report.text());
    }
}
