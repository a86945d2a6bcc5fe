//! Signals, kills and reaps all descendants of this process, including those that left their process group or session.
//!
//! This process is a subreaper: a descendant that loses its parent becomes its child, so that none can escape.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use leasehold::Error;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, pidfd_open, pidfd_send_signal, set_child_subreaper, wait,
};

/// First and longest pause between two polls while killed processes exit.
const POLL_BACKOFF: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];

/// Makes this process the new parent of descendants whose parent dies.
pub fn become_subreaper() -> rustix::io::Result<()> {
    set_child_subreaper(Some(getpid()))
}

/// Checks that `/proc` shows the processes of this pid namespace: otherwise no descendant would be found.
pub fn check_proc() -> Result<(), Error> {
    let own = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    if own == Some(getpid().as_raw_pid()) {
        return Ok(());
    }
    let message =
        "does not show the processes of this pid namespace; mount procfs for it, as `unshare --mount-proc` does";
    Err(Error::config("/proc", message))
}

/// The process group of this process; `None` if its leader is outside of this pid namespace.
pub fn own_group() -> Option<i32> {
    ProcStat::read(getpid().as_raw_pid()).map(|own| own.group).filter(|group| *group != 0)
}

/// Sends a signal to all descendants. Returns those that this user may not signal.
pub fn signal_all(signal: Signal) -> Vec<i32> {
    let mut unkillable = Vec::new();
    for process in live_descendants() {
        if process.signal(signal) == Err(Errno::PERM) {
            unkillable.push(process.pid);
        }
    }
    unkillable
}

/// Reaps every dead child. Returns whether any child is left.
pub fn reap(mut on_exit: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => on_exit(pid, status),
            Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Kills all descendants, and returns when all are dead and reaped, except those that this user may not kill.
pub fn kill_all(mut on_exit: impl FnMut(Pid, WaitStatus)) -> Vec<i32> {
    let mut pause = POLL_BACKOFF[0];
    // Orphans become children immediately: without a child there is no descendant.
    while reap(&mut on_exit) {
        let unkillable = signal_all(Signal::KILL);
        if !unkillable.is_empty() && live_descendants().iter().all(|process| unkillable.contains(&process.pid)) {
            return unkillable;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL_BACKOFF[1]);
    }
    Vec::new()
}

/// A process as `/proc` describes it. The start time distinguishes it from a later process with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcStat {
    pid: i32,
    parent: i32,
    group: i32,
    start_time: u64,
    dead: bool,
}

impl ProcStat {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: i32, stat: &str) -> Option<Self> {
        // The command name may contain spaces and parentheses; the fields follow the last one.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let (state, parent, group) = (*fields.first()?, fields.get(1)?.parse().ok()?, fields.get(2)?.parse().ok()?);
        let start_time = fields.get(19)?.parse().ok()?;
        Some(Self { pid, parent, group, start_time, dead: matches!(state, "Z" | "X") })
    }

    fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        let handle = pidfd_open(Pid::from_raw(self.pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        // The pidfd refers to one process permanently. If the start time still matches, it is the process that was listed.
        match Self::read(self.pid) {
            Some(now) if now.start_time == self.start_time => pidfd_send_signal(handle, signal),
            _ => Err(Errno::SRCH),
        }
    }
}

/// Live descendants of this process.
fn live_descendants() -> Vec<ProcStat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    descendants(getpid().as_raw_pid(), &pids.filter_map(ProcStat::read).collect::<Vec<_>>())
}

/// Live descendants of `root`. Dead processes count as links: they still name their parent.
fn descendants(root: i32, all: &[ProcStat]) -> Vec<ProcStat> {
    let mut children: BTreeMap<i32, Vec<ProcStat>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let (mut found, mut visited, mut stack) = (Vec::new(), BTreeSet::from([root]), vec![root]);
    while let Some(parent) = stack.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            if visited.insert(process.pid) {
                stack.push(process.pid);
                found.extend((!process.dead).then_some(process));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> ProcStat {
        ProcStat { pid, parent, group: 1, start_time: 1, dead: false }
    }

    #[test]
    fn descendants_are_found_and_siblings_are_not() {
        let dead = ProcStat { dead: true, ..process(4, 2) };
        let all = [process(1, 0), process(2, 1), process(3, 2), dead, process(5, 4), process(6, 1), process(7, 6)];
        let mut found: Vec<_> = descendants(2, &all).iter().map(|process| process.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 5]);
    }

    #[test]
    fn a_cycle_from_an_inconsistent_process_list_terminates() {
        let all = [process(2, 3), process(3, 2), process(2, 2)];
        assert_eq!(descendants(2, &all).iter().map(|process| process.pid).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 5 6";
        assert_eq!(
            ProcStat::parse(7, stat),
            Some(ProcStat { pid: 7, parent: 3, group: 7, start_time: 4_242, dead: false })
        );
        let dead = stat.replace(" S ", " Z ");
        assert!(ProcStat::parse(7, &dead).is_some_and(|process| process.dead));
        for torn in ["", "7", "7 (a", "7 (a) S", "7 (a) S x", "7 (a) S 3 7"] {
            assert_eq!(ProcStat::parse(7, torn), None, "{torn:?}");
        }
    }

    #[test]
    fn the_current_process_can_be_read() {
        let own = ProcStat::read(getpid().as_raw_pid()).expect("this process is alive");
        assert!(!own.dead && own.start_time > 0);
        assert_eq!(own_group(), Some(rustix::process::getpgrp().as_raw_pid()));
        check_proc().expect("tests run with their own procfs");
    }
}
