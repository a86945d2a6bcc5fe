//! Metrics of the process under the names that Prometheus uses for every program: CPU, memory, files, threads, start time.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Bytes = Gauge<u64, AtomicU64>;

/// Metrics of the process. A value that the system does not provide stays 0.
pub struct ProcessMetrics {
    cpu: Counter<f64, AtomicU64>,
    resident: Bytes,
    virtual_memory: Bytes,
    open_fds: Bytes,
    max_fds: Bytes,
    threads: Bytes,
}

impl ProcessMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            cpu: Counter::default(),
            resident: Gauge::default(),
            virtual_memory: Gauge::default(),
            open_fds: Gauge::default(),
            max_fds: Gauge::default(),
            threads: Gauge::default(),
        };
        let start: Gauge<f64, AtomicU64> = Gauge::default();
        start.set(start_time().as_secs_f64());
        registry.register("process_cpu_seconds", "CPU time of the process", metrics.cpu.clone());
        registry.register("process_resident_memory_bytes", "Resident memory", metrics.resident.clone());
        registry.register("process_virtual_memory_bytes", "Virtual memory", metrics.virtual_memory.clone());
        registry.register("process_open_fds", "Open file descriptors", metrics.open_fds.clone());
        registry.register("process_max_fds", "Limit on open file descriptors", metrics.max_fds.clone());
        registry.register("process_threads", "Threads", metrics.threads.clone());
        registry.register("process_start_time_seconds", "Start of the process since 1970", start);
        metrics
    }

    /// Reads the values.
    pub(super) fn refresh(&self) {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let seconds = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        self.cpu.inner().store(seconds.to_bits(), Ordering::Relaxed);
        self.max_fds.set(rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX));
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            // The directory that is being read is open too.
            self.open_fds.set((files.count() as u64).saturating_sub(1));
        }
        if let Ok(statm) = fs::read_to_string("/proc/self/statm") {
            let mut pages = statm.split_ascii_whitespace().map_while(|pages| pages.parse::<u64>().ok());
            let page = rustix::param::page_size() as u64;
            self.virtual_memory.set(pages.next().unwrap_or(0) * page);
            self.resident.set(pages.next().unwrap_or(0) * page);
        }
        if let Ok(tasks) = fs::read_dir("/proc/self/task") {
            self.threads.set(tasks.count() as u64);
        }
    }
}

/// When the process started, since 1970: the system's start plus the start of the process since then.
fn start_time() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| process_age(&stat));
    now.saturating_sub(age.unwrap_or_default())
}

/// Age of the process, from the text of `/proc/self/stat`: its 22nd field is the start in ticks since the system's start. The name
/// of the program is in parentheses and may contain spaces.
fn process_age(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let ticks: u64 = after_name.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let since_boot = Duration::new(u64::try_from(since_boot.tv_sec).ok()?, u32::try_from(since_boot.tv_nsec).ok()?);
    let started = Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
    Some(since_boot.saturating_sub(started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_the_process_is_in_the_past_and_not_long_ago() {
        let stat = fs::read_to_string("/proc/self/stat").expect("the kernel provides it");
        let age = process_age(&stat).expect("the kernel's format");
        assert!(age < Duration::from_secs(24 * 3_600), "{age:?}");
        assert_eq!(process_age("1 (a) b) S"), None);
    }
}
