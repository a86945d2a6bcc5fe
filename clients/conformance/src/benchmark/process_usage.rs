//! CPU time and memory of a process, from /proc.

use std::io;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

/// CPU time of all threads of a process, in user and kernel mode, including threads that have ended.
pub fn cpu_time(process_id: u32) -> io::Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process_id}/stat"))?;
    let ticks = ticks(&text).ok_or_else(|| io::Error::other(format!("/proc/{process_id}/stat: {text}")))?;
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// Ticks in user and kernel mode of a `stat` file. The name of the program, in parentheses, may contain anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ').skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Resident memory of a process in bytes.
pub fn resident_bytes(process_id: u32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process_id}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other(format!("/proc/{process_id}/status has no VmRSS")))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn ticks_are_read_after_a_name_with_spaces_and_parentheses() {
        let stat = "17 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("17 (a) S 1"), None);
    }

    #[test]
    fn a_thread_that_computes_and_memory_that_is_written_are_counted() {
        let id = std::process::id();
        let (before, memory) = (cpu_time(id).expect("it runs"), resident_bytes(id).expect("it runs"));
        let written = std::thread::spawn(move || {
            let began = Instant::now();
            while cpu_time(id).expect("it runs") < before + Duration::from_millis(50) {
                assert!(began.elapsed() < Duration::from_secs(120), "no CPU time is counted");
            }
            vec![1_u8; 32 << 20]
        });
        let written = written.join().expect("it does not panic");
        let grown = resident_bytes(id).expect("it runs").saturating_sub(memory);
        assert!(grown >= 16 << 20, "{grown} bytes, with {} written", written.len());
    }
}
