//! Measures how busy the machine is, to distinguish a late client from a machine that had no time for it.
//!
//! Scenarios use ttls of seconds. When many more programs want to run than there are processors, a holder can lose its lease although
//! its client does everything right. A case that fails then proves nothing, and is repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Runnable threads per processor above which a failure proves nothing.
const STARVED: u64 = 4;
const INTERVAL: Duration = Duration::from_millis(100);

/// Sums of samples, taken in the background until it is dropped.
#[derive(Debug)]
pub struct MachineLoad {
    samples: Arc<LoadSamples>,
}

#[derive(Debug, Default)]
struct LoadSamples {
    runnable: AtomicU64,
    count: AtomicU64,
    is_stopped: AtomicBool,
}

impl MachineLoad {
    /// Starts to measure.
    pub fn start() -> Self {
        let samples = Arc::new(LoadSamples::default());
        let background = samples.clone();
        std::thread::spawn(move || {
            while !background.is_stopped.load(Ordering::Acquire) {
                if let Some(runnable) = runnable_threads() {
                    background.runnable.fetch_add(runnable, Ordering::AcqRel);
                    background.count.fetch_add(1, Ordering::AcqRel);
                }
                std::thread::sleep(INTERVAL);
            }
        });
        Self { samples }
    }

    /// Average number of runnable threads per processor, if it is too high for any conclusion.
    pub fn starved(&self) -> Option<u64> {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let samples = self.samples.count.load(Ordering::Acquire).max(1);
        let average = self.samples.runnable.load(Ordering::Acquire) / samples / processors;
        (average >= STARVED).then_some(average)
    }
}

impl Drop for MachineLoad {
    fn drop(&mut self) {
        self.samples.is_stopped.store(true, Ordering::Release);
    }
}

/// The number of threads that run or wait for a processor: the first number of the fourth field of `/proc/loadavg`.
fn runnable_threads() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}
