//! What clocks do: how far holders' are from ours, whether ours jumps, and what the kernel says of it.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::time::Now;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rtime_clock::adjtime::{Timex, adjtimex};

/// A wall clock that moved so much against the steady one between two turns was set, not slewed.
const STEP_MS: i64 = 500;
/// The farthest clock is told for one to two of these.
const WINDOW: Duration = Duration::from_secs(300);

/// The figures of clocks.
pub struct ClockMeter {
    skew: Gauge<f64, AtomicU64>,
    error: Gauge<f64, AtomicU64>,
    farthest: Mutex<Farthest>,
    steps: Family<WayLabel, Counter>,
    step: Gauge<f64, AtomicU64>,
    offset: Mutex<Option<i64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WayLabel {
    direction: &'static str,
}

impl ClockMeter {
    /// Figures in a registry.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let meter = Self {
            skew: Gauge::default(),
            error: Gauge::default(),
            farthest: Mutex::default(),
            steps: Family::default(),
            step: Gauge::default(),
            offset: Mutex::default(),
        };
        for direction in ["forward", "back"] {
            meter.steps.get_or_create(&WayLabel { direction }).inc_by(0);
        }
        let about = "The wall clock of the holder that is farthest off, minus the server's, of the last minutes";
        registry.register("clock_skew_seconds", about, meter.skew.clone());
        let about = "The bound that the kernel gives for the error of the server's wall clock; NaN if it does not tell";
        registry.register("clock_error_seconds", about, meter.error.clone());
        registry.register("clock_steps", "Times that the server's wall clock was set", meter.steps.clone());
        registry.register("clock_step_seconds", "By how much it was set the last time", meter.step.clone());
        meter
    }

    /// A holder told its wall clock.
    pub fn holder(&self, wall_ms: u64, own_ms: u64) {
        let skew = signed(wall_ms).saturating_sub(signed(own_ms));
        self.farthest().add(skew, Instant::now());
    }

    /// A turn has read the clocks. What looks like a step is looked at twice: between two clocks a thread can be stopped.
    pub fn turn(&self, now: Now, again: impl Fn() -> Now) {
        let mut offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        let here = apart(now);
        let Some(before) = offset.replace(here) else { return };
        if (here - before).abs() < STEP_MS {
            return;
        }
        let here = apart(again());
        *offset = Some(here);
        if (here - before).abs() >= STEP_MS {
            self.stepped(here - before);
        }
    }

    /// The wall clock was set by so much.
    pub fn stepped(&self, ms: i64) {
        let direction = if ms < 0 { "back" } else { "forward" };
        self.steps.get_or_create(&WayLabel { direction }).inc();
        self.step.set(ms as f64 / 1_000.0);
    }

    /// Before the figures are told.
    pub(super) fn refresh(&self) {
        self.skew.set(self.farthest().of(Instant::now()) as f64 / 1_000.0);
        self.error.set(kernel_bound().unwrap_or(f64::NAN));
    }

    fn farthest(&self) -> std::sync::MutexGuard<'_, Farthest> {
        self.farthest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By how much the wall clock may be wrong, in seconds, as far as the kernel knows.
fn kernel_bound() -> Option<f64> {
    let mut asked = Timex::new();
    // A sandbox may forbid the call, though it only reads.
    adjtimex(&mut asked).ok()?;
    Some(asked.0.maxerror as f64 / 1_000_000.0)
}

/// The wall clock minus the steady one, in milliseconds.
fn apart(now: Now) -> i64 {
    signed(now.wall.0) - signed(now.instant.0 / 1_000_000)
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// The farthest skew of this window and of the one before.
#[derive(Debug, Default)]
struct Farthest {
    began: Option<Instant>,
    now: i64,
    before: i64,
}

impl Farthest {
    fn add(&mut self, skew: i64, at: Instant) {
        self.turn_over(at);
        self.now = farther(self.now, skew);
    }

    fn of(&mut self, at: Instant) -> i64 {
        self.turn_over(at);
        farther(self.before, self.now)
    }

    fn turn_over(&mut self, at: Instant) {
        let since = at.saturating_duration_since(*self.began.get_or_insert(at));
        if since >= WINDOW {
            self.before = if since < 2 * WINDOW { self.now } else { 0 };
            (self.now, self.began) = (0, Some(at));
        }
    }
}

/// The one that is farther from nothing.
fn farther(one: i64, other: i64) -> i64 {
    if other.unsigned_abs() > one.unsigned_abs() { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::time::{Instant as Steady, Wall};

    fn at(steady_ms: u64, wall_ms: u64) -> Now {
        Now { instant: Steady(steady_ms * 1_000_000), wall: Wall(wall_ms) }
    }

    fn steps(meter: &ClockMeter, direction: &'static str) -> u64 {
        meter.steps.get_or_create(&WayLabel { direction }).get()
    }

    #[test]
    fn a_clock_that_is_set_is_counted_and_one_that_runs_is_not() {
        let meter = ClockMeter::new(&mut Registry::default());
        let turn = |now: Now| meter.turn(now, || now);
        turn(at(0, 1_000_000));
        turn(at(60_000, 1_060_020));
        assert_eq!((steps(&meter, "forward"), steps(&meter, "back")), (0, 0), "twenty milliseconds are no step");
        turn(at(61_000, 1_361_020));
        assert_eq!((steps(&meter, "forward"), meter.step.get()), (1, 300.0));
        turn(at(62_000, 1_062_020));
        assert_eq!((steps(&meter, "back"), meter.step.get()), (1, -300.0));
    }

    #[test]
    fn a_thread_that_stood_still_between_two_clocks_is_no_step() {
        let meter = ClockMeter::new(&mut Registry::default());
        meter.turn(at(0, 1_000_000), || unreachable!("nothing to compare with"));
        meter.turn(at(1_000, 1_009_000), || at(9_001, 1_009_001));
        meter.turn(at(10_000, 1_010_000), || unreachable!("nothing moved"));
        assert_eq!((steps(&meter, "forward"), steps(&meter, "back")), (0, 0));
    }

    #[test]
    fn the_kernel_tells_its_bound() {
        assert!(kernel_bound().is_some_and(|seconds| seconds >= 0.0));
    }

    #[test]
    fn the_farthest_holder_is_told_for_a_while() {
        let mut farthest = Farthest::default();
        let begin = Instant::now();
        farthest.add(-4_000, begin);
        farthest.add(250, begin);
        assert_eq!(farthest.of(begin), -4_000);
        farthest.add(100, begin + WINDOW);
        assert_eq!(farthest.of(begin + WINDOW), -4_000, "of the window before");
        assert_eq!(farthest.of(begin + 2 * WINDOW), 100);
        assert_eq!(farthest.of(begin + 5 * WINDOW), 0, "nobody came for long");
    }
}
