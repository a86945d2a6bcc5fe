//! Acquire and release of one caller, in rounds that measure every client, so that all clients see the same machine.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{BenchedClient, TIMEOUT, progress};
use crate::failure::ScenarioFailure;

/// Rounds that are not counted: virtual machines compile what runs often.
const WARM_UP: u64 = 3;

/// Medians of one client in one round.
#[derive(Clone, Copy, Debug)]
pub struct CycleRound {
    /// Time of an acquire, with the driver's part.
    pub acquire: Duration,
    /// Time of a release, with the driver's part.
    pub release: Duration,
    /// Time of a request that the driver answers without the server.
    pub driver: Duration,
}

impl CycleRound {
    /// Time of acquire and release without the driver's part.
    pub fn net(&self) -> Duration {
        (self.acquire + self.release).saturating_sub(2 * self.driver)
    }
}

/// Measures all rounds. Each has the costs of the clients in their order; every round starts with another client.
pub fn measure(clients: &[BenchedClient], rounds: u64, pairs: u64) -> Result<Vec<Vec<CycleRound>>, ScenarioFailure> {
    let mut measured = Vec::new();
    for round in 0..WARM_UP + rounds {
        let mut costs = vec![None; clients.len()];
        for step in 0..clients.len() {
            let at = (step + round as usize) % clients.len();
            costs[at] = Some(measure_client(&clients[at], round, pairs)?);
        }
        if round >= WARM_UP {
            measured.push(costs.into_iter().flatten().collect());
            if (round + 1 - WARM_UP).is_multiple_of(5) {
                progress(&format!("acquire and release: {} of {rounds} rounds", round + 1 - WARM_UP));
            }
        }
    }
    Ok(measured)
}

fn measure_client(client: &BenchedClient, round: u64, pairs: u64) -> Result<CycleRound, ScenarioFailure> {
    let (mut acquires, mut releases, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let handle = format!("{round}.{pair}");
        idle.push(timed(|| client.driver.request("session", json!({ "client": client.name }), TIMEOUT).map(drop))?);
        acquires.push(timed(|| client.acquire(&handle))?);
        releases.push(timed(|| client.release(&handle))?);
    }
    Ok(CycleRound { acquire: median(acquires), release: median(releases), driver: median(idle) })
}

fn timed(act: impl FnOnce() -> Result<(), ScenarioFailure>) -> Result<Duration, ScenarioFailure> {
    let began = Instant::now();
    act()?;
    Ok(began.elapsed())
}

/// The middle value, the lower one of two.
pub fn median<T: PartialOrd + Copy + Default>(mut values: Vec<T>) -> T {
    values.sort_by(|left, right| left.partial_cmp(right).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(vec![5, 1, 9]), 5);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 8.0]), 2.0);
        assert_eq!(median(Vec::<u64>::new()), 0);
    }

    #[test]
    fn the_time_of_the_driver_is_subtracted_from_both_requests() {
        let [acquire, release, driver] = [900, 700, 100].map(Duration::from_micros);
        assert_eq!(CycleRound { acquire, release, driver }.net(), Duration::from_micros(1_400));
        assert_eq!(CycleRound { acquire, release, driver: acquire }.net(), Duration::ZERO);
    }
}
