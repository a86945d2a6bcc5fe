//! Clocks of this machine. Deadlines count the boot clock; the wall clock lifts token numbers and stamps the audit log.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::finding::Finding;

/// Time between two readings.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest time of `timedatectl`.
const COMMAND_LIMIT: Duration = Duration::from_secs(2);
/// Difference of the clocks' rates that needs attention, in nanoseconds.
const RATE_LIMIT: u64 = 10_000_000;
/// Difference of two clocks that could not have been read at the same moment.
const READING_LIMIT: i128 = 1_000_000_000;
/// Exists once systemd-timesyncd has set the clock.
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";

/// The clocks at one moment, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Readings {
    boot: i128,
    monotonic: i128,
    wall: i128,
    /// The moment is known to this.
    uncertainty: i128,
}

pub fn check() -> Vec<Finding> {
    let first = read();
    std::thread::sleep(PAUSE);
    vec![judge(first, read()), time_service()]
}

fn read() -> Readings {
    let nanos = |clock| {
        let time = clock_gettime(clock);
        i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
    };
    let before = nanos(ClockId::Boottime);
    let (monotonic, wall) = (nanos(ClockId::Monotonic), nanos(ClockId::Realtime));
    let after = nanos(ClockId::Boottime);
    Readings { boot: i128::midpoint(before, after), monotonic, wall, uncertainty: after - before }
}

fn judge(first: Readings, second: Readings) -> Finding {
    const CHECK: &str = "clock";
    let uncertainty = first.uncertainty + second.uncertainty;
    if second.monotonic - second.boot > READING_LIMIT + uncertainty {
        let message = "the boot clock is behind the monotonic clock, so that time in suspend does not count";
        return Finding::error(CHECK, message, "run servers and holders where the kernel's boot clock is real");
    }
    let elapsed = second.boot - first.boot;
    if elapsed <= 0 {
        let message = "the boot clock did not advance";
        return Finding::error(CHECK, message, "run servers and holders where the kernel's boot clock is real");
    }
    let drift = (second.wall - first.wall) - elapsed;
    if drift.unsigned_abs() > u128::from(RATE_LIMIT) + uncertainty.unsigned_abs() {
        let message = format!(
            "the wall clock moved {} ms against the boot clock within {} ms",
            drift / 1_000_000,
            elapsed / 1_000_000
        );
        return Finding::warning(CHECK, message, "find what sets the clock; let one time service slew it");
    }
    let suspended = (second.boot - second.monotonic).max(0) / 1_000_000_000;
    let slept = if suspended > 0 { format!("; {suspended} s in suspend since the start") } else { String::new() };
    Finding::ok(CHECK, format!("boot clock and wall clock run at one rate{slept}"))
}

/// Whether a time service keeps the wall clock.
fn time_service() -> Finding {
    const CHECK: &str = "time_service";
    const NEXT: &str = "run a time service, for example chrony or systemd-timesyncd";
    match timedatectl().as_deref() {
        Some("yes") => Finding::ok(CHECK, "the wall clock is synchronized"),
        Some("no") => Finding::warning(CHECK, "the wall clock is not synchronized", NEXT),
        _ if Path::new(SYNCHRONIZED).exists() => Finding::ok(CHECK, "the wall clock was synchronized"),
        _ => {
            let message = "this machine does not show whether its wall clock is synchronized";
            Finding::not_checked(CHECK, message, "check the time service of the host")
        }
    }
}

/// The answer of systemd; none where it does not run.
fn timedatectl() -> Option<String> {
    let mut command = Command::new("timedatectl");
    command.args(["show", "--property=NTPSynchronized", "--value"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let started = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if started.elapsed() > COMMAND_LIMIT {
            // It is ended, so that nothing is left behind.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingStatus;
    use super::*;

    const MS: i128 = 1_000_000;

    fn at(boot: i128, monotonic: i128, wall: i128) -> Readings {
        Readings { boot: boot * MS, monotonic: monotonic * MS, wall: wall * MS, uncertainty: MS }
    }

    #[test]
    fn clocks_of_one_rate_are_in_order() {
        let found = judge(at(9_000, 9_000, 50_000), at(9_200, 9_200, 50_201));
        assert_eq!((found.status, found.next_step), (FindingStatus::Ok, None));
        let slept = judge(at(99_000, 9_000, 50_000), at(99_200, 9_200, 50_200));
        assert_eq!(slept.status, FindingStatus::Ok);
        assert!(slept.message.contains("90 s in suspend"), "{slept:?}");
    }

    #[test]
    fn clocks_that_differ_are_reported() {
        let stepped = judge(at(9_000, 9_000, 50_000), at(9_200, 9_200, 49_000));
        assert_eq!(stepped.status, FindingStatus::Warning);
        assert!(stepped.message.contains("moved -1200 ms"), "{stepped:?}");
        assert_eq!(judge(at(9_000, 99_000, 0), at(9_200, 99_200, 200)).status, FindingStatus::Error);
        assert_eq!(judge(at(9_000, 9_000, 0), at(9_000, 9_000, 0)).status, FindingStatus::Error);
    }
}
