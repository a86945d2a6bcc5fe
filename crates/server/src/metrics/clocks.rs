//! Metrics of clocks: skew of holders, and steps of the server's wall clock.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::time::Now;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// A wall clock that moved this much against the monotonic clock between two turns was set, not slewed.
const STEP_MS: i64 = 500;
/// The largest skew is reported for one to two of these windows.
const WINDOW: Duration = Duration::from_secs(300);

/// Metrics of clocks.
pub struct ClockMetrics {
    skew: Gauge<f64, AtomicU64>,
    max_skew: Mutex<MaxSkew>,
    steps: Family<DirectionLabel, Counter>,
    step: Gauge<f64, AtomicU64>,
    offset: Mutex<Option<i64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

impl ClockMetrics {
    /// Registers the metrics.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            skew: Gauge::default(),
            max_skew: Mutex::default(),
            steps: Family::default(),
            step: Gauge::default(),
            offset: Mutex::default(),
        };
        for direction in ["forward", "back"] {
            metrics.steps.get_or_create(&DirectionLabel { direction }).inc_by(0);
        }
        let about = "Largest difference between a holder's wall clock and the server's in the last minutes";
        registry.register("holder_clock_skew_seconds", about, metrics.skew.clone());
        registry.register("clock_steps", "Times that the server's wall clock was set", metrics.steps.clone());
        registry.register(
            "clock_step_seconds",
            "Size of the last step of the server's wall clock",
            metrics.step.clone(),
        );
        metrics
    }

    /// A holder has reported its wall clock.
    pub fn holder(&self, wall_ms: u64, own_ms: u64) {
        let skew = signed(wall_ms).saturating_sub(signed(own_ms));
        self.max_skew().add(skew, Instant::now());
    }

    /// A turn has read the clocks. A suspected step is read twice, because a thread can be suspended between two clocks.
    pub fn turn(&self, now: Now, read_again: impl Fn() -> Now) {
        let mut offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        let here = offset_ms(now);
        let Some(before) = offset.replace(here) else { return };
        if (here - before).abs() < STEP_MS {
            return;
        }
        let here = offset_ms(read_again());
        *offset = Some(here);
        if (here - before).abs() >= STEP_MS {
            self.stepped(here - before);
        }
    }

    /// The wall clock was set by `ms` milliseconds.
    pub fn stepped(&self, ms: i64) {
        let direction = if ms < 0 { "back" } else { "forward" };
        self.steps.get_or_create(&DirectionLabel { direction }).inc();
        self.step.set(ms as f64 / 1_000.0);
    }

    /// Updates the gauges before a scrape.
    pub(super) fn refresh(&self) {
        self.skew.set(self.max_skew().of(Instant::now()) as f64 / 1_000.0);
    }

    fn max_skew(&self) -> std::sync::MutexGuard<'_, MaxSkew> {
        self.max_skew.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wall clock minus the monotonic clock, in milliseconds.
fn offset_ms(now: Now) -> i64 {
    signed(now.wall.0) - signed(now.instant.0 / 1_000_000)
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// The largest skew of the current window and of the previous one.
#[derive(Debug, Default)]
struct MaxSkew {
    started: Option<Instant>,
    current: i64,
    previous: i64,
}

impl MaxSkew {
    fn add(&mut self, skew: i64, at: Instant) {
        self.rotate(at);
        self.current = larger(self.current, skew);
    }

    fn of(&mut self, at: Instant) -> i64 {
        self.rotate(at);
        larger(self.previous, self.current)
    }

    fn rotate(&mut self, at: Instant) {
        let since = at.saturating_duration_since(*self.started.get_or_insert(at));
        if since >= WINDOW {
            self.previous = if since < 2 * WINDOW { self.current } else { 0 };
            (self.current, self.started) = (0, Some(at));
        }
    }
}

/// The one with the larger absolute value.
fn larger(one: i64, other: i64) -> i64 {
    if other.unsigned_abs() > one.unsigned_abs() { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::time::{Instant as Monotonic, WallClock};

    fn at(monotonic_ms: u64, wall_ms: u64) -> Now {
        Now { instant: Monotonic(monotonic_ms * 1_000_000), wall: WallClock(wall_ms) }
    }

    fn steps(metrics: &ClockMetrics, direction: &'static str) -> u64 {
        metrics.steps.get_or_create(&DirectionLabel { direction }).get()
    }

    #[test]
    fn a_step_of_the_wall_clock_is_counted_and_slewing_is_not() {
        let metrics = ClockMetrics::new(&mut Registry::default());
        let turn = |now: Now| metrics.turn(now, || now);
        turn(at(0, 1_000_000));
        turn(at(60_000, 1_060_020));
        assert_eq!((steps(&metrics, "forward"), steps(&metrics, "back")), (0, 0), "20 ms are not a step");
        turn(at(61_000, 1_361_020));
        assert_eq!((steps(&metrics, "forward"), metrics.step.get()), (1, 300.0));
        turn(at(62_000, 1_062_020));
        assert_eq!((steps(&metrics, "back"), metrics.step.get()), (1, -300.0));
    }

    #[test]
    fn a_thread_suspended_between_two_clocks_is_not_a_step() {
        let metrics = ClockMetrics::new(&mut Registry::default());
        metrics.turn(at(0, 1_000_000), || unreachable!("nothing to compare with"));
        metrics.turn(at(1_000, 1_009_000), || at(9_001, 1_009_001));
        metrics.turn(at(10_000, 1_010_000), || unreachable!("nothing moved"));
        assert_eq!((steps(&metrics, "forward"), steps(&metrics, "back")), (0, 0));
    }

    #[test]
    fn the_largest_skew_is_reported_for_two_windows() {
        let mut skew = MaxSkew::default();
        let begin = Instant::now();
        skew.add(-4_000, begin);
        skew.add(250, begin);
        assert_eq!(skew.of(begin), -4_000);
        skew.add(100, begin + WINDOW);
        assert_eq!(skew.of(begin + WINDOW), -4_000, "from the previous window");
        assert_eq!(skew.of(begin + 2 * WINDOW), 100);
        assert_eq!(skew.of(begin + 5 * WINDOW), 0, "no report for several windows");
    }
}
