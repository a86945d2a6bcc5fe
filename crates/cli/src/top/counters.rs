//! Counters of the server for the header, read from its metrics, and the rates between two readings.

use std::time::Duration;

/// Counters at one moment. Those of the server's own work start with it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerCounters {
    /// Renewals, alone and in batches.
    pub renewals: f64,
    /// Batches that became durable, and the seconds that took.
    pub syncs: f64,
    pub sync_seconds: f64,
    /// Refused writes of zombies, over all time.
    pub zombies: f64,
    /// Holes in the coverage.
    pub holes: f64,
}

impl ServerCounters {
    /// Reads the text of `/metrics`. What it does not contain is zero.
    pub fn parse(text: &str) -> Self {
        let mut counters = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.split_once(' ') else { continue };
            let value = value.split(' ').next().and_then(|value| value.parse().ok()).unwrap_or(0.0);
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            match name {
                "leasehold_batch_renewals_total" => counters.renewals += value,
                "leasehold_request_seconds_count" if labels.contains("operation=\"renew\"") => {
                    counters.renewals += value
                }
                "leasehold_journal_sync_seconds_count" => counters.syncs += value,
                "leasehold_journal_sync_seconds_sum" => counters.sync_seconds += value,
                "leasehold_zombie_writes_refused_total" => counters.zombies += value,
                "leasehold_coverage_holes" => counters.holes += value,
                _ => {}
            }
        }
        counters
    }
}

/// What happens per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerRates {
    pub renewals_per_second: f64,
    /// Mean time to make a batch durable, in milliseconds; none if nothing was written.
    pub sync_ms: Option<f64>,
}

impl ServerRates {
    /// The rates between two readings; none if a counter started again.
    pub fn between(before: &ServerCounters, after: &ServerCounters, elapsed: Duration) -> Option<Self> {
        let (renewals, syncs) = (after.renewals - before.renewals, after.syncs - before.syncs);
        let seconds = elapsed.as_secs_f64();
        if renewals < 0.0 || syncs < 0.0 || seconds <= 0.0 {
            return None;
        }
        let sync_ms = (syncs > 0.0).then(|| (after.sync_seconds - before.sync_seconds) / syncs * 1_000.0);
        Some(Self { renewals_per_second: renewals / seconds, sync_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "# HELP leasehold_batch_renewals_total renewals\n\
        leasehold_batch_renewals_total 40\n\
        leasehold_request_seconds_count{operation=\"renew\",code=\"OK\"} 2\n\
        leasehold_request_seconds_count{operation=\"renew_batch\",code=\"OK\"} 900\n\
        leasehold_request_seconds_count{operation=\"renew\",code=\"NOT_CURRENT\"} 1\n\
        leasehold_journal_sync_seconds_count 10\n\
        leasehold_journal_sync_seconds_sum 0.02\n\
        leasehold_zombie_writes_refused_total 3\n\
        leasehold_coverage_holes{hole=\"weaker\"} 1\n\
        leasehold_coverage_holes{hole=\"undeclared\"} 4\n\
        # EOF\n";

    #[test]
    fn counters_are_read_from_the_metrics() {
        let counters = ServerCounters::parse(METRICS);
        let expected = ServerCounters { renewals: 43.0, syncs: 10.0, sync_seconds: 0.02, zombies: 3.0, holes: 5.0 };
        assert_eq!(counters, expected);
        assert_eq!(ServerCounters::parse("nothing\n\n{ }"), ServerCounters::default());
    }

    #[test]
    fn rates_are_those_between_two_readings_and_not_after_a_restart() {
        let before = ServerCounters::parse(METRICS);
        let after = ServerCounters { renewals: 63.0, syncs: 14.0, sync_seconds: 0.03, ..before };
        let rates = ServerRates::between(&before, &after, Duration::from_secs(2)).expect("two readings");
        assert!((rates.renewals_per_second - 10.0).abs() < 1e-9);
        assert!((rates.sync_ms.expect("syncs") - 2.5).abs() < 1e-9);
        assert_eq!(
            ServerRates::between(&before, &before, Duration::from_secs(1)).and_then(|rates| rates.sync_ms),
            None
        );
        assert_eq!(ServerRates::between(&after, &before, Duration::from_secs(2)), None);
        assert_eq!(ServerRates::between(&before, &after, Duration::ZERO), None);
    }
}
