//! Every process below one, and their end: those that left their group, their session and their parents too.
//!
//! The process they are below is a subreaper: whoever loses its parent becomes its child, and none can leave.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, pidfd_open, pidfd_send_signal, set_child_subreaper, wait,
};

/// How long to wait for what was killed before looking again, at first and at most.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];

/// Whoever loses its parent below this process becomes its child.
pub fn gather() -> rustix::io::Result<()> {
    set_child_subreaper(Some(getpid()))
}

/// Sends a signal to everything below. Who may not be signalled is told.
pub fn signal(signal: Signal) -> Vec<i32> {
    let mut beyond = Vec::new();
    for process in living() {
        if process.signal(signal) == Err(Errno::PERM) {
            beyond.push(process.pid);
        }
    }
    beyond
}

/// Takes in every child that is dead. Whether there is any other left.
pub fn reap(mut told: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => told(pid, status),
            Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Kills everything below, and returns when all of it is dead and taken in, but for those that this user may not end.
pub fn end(mut told: impl FnMut(Pid, WaitStatus)) -> Vec<i32> {
    let mut pause = LOOK_AGAIN[0];
    // Orphans become children at once: without a child there is nobody below.
    while reap(&mut told) {
        let beyond = signal(Signal::KILL);
        if !beyond.is_empty() && living().iter().all(|process| beyond.contains(&process.pid)) {
            return beyond;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOK_AGAIN[1]);
    }
    Vec::new()
}

/// A process, told apart from a later one of the same number by when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    began: u64,
    dead: bool,
}

impl Process {
    /// As the kernel describes it now.
    fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: i32, stat: &str) -> Option<Self> {
        // A command's name may hold spaces and brackets; the fields count from behind the last one.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let (state, parent, began) = (*fields.first()?, fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?);
        Some(Self { pid, parent, began, dead: matches!(state, "Z" | "X") })
    }

    fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        let handle = pidfd_open(Pid::from_raw(self.pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        // What the handle holds cannot be exchanged any more: if it is still who was seen, it is the one that is signalled.
        match Self::read(self.pid) {
            Some(now) if now.began == self.began => pidfd_send_signal(handle, signal),
            _ => Err(Errno::SRCH),
        }
    }
}

/// Everything below this process that lives.
fn living() -> Vec<Process> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    below(getpid().as_raw_pid(), &numbers.filter_map(Process::read).collect::<Vec<_>>())
}

/// Those of all that are below one and live. The dead still say who their parent was.
fn below(root: i32, all: &[Process]) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let (mut found, mut seen, mut look) = (Vec::new(), BTreeSet::from([root]), vec![root]);
    while let Some(parent) = look.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            if seen.insert(process.pid) {
                look.push(process.pid);
                found.extend((!process.dead).then_some(process));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, began: 1, dead: false }
    }

    #[test]
    fn everything_below_is_found_and_nothing_beside() {
        let dead = Process { dead: true, ..process(4, 2) };
        let all = [process(1, 0), process(2, 1), process(3, 2), dead, process(5, 4), process(6, 1), process(7, 6)];
        let mut found: Vec<_> = below(2, &all).iter().map(|process| process.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 5]);
    }

    #[test]
    fn a_list_that_was_read_while_it_changed_cannot_lead_in_a_circle() {
        let all = [process(2, 3), process(3, 2), process(2, 2)];
        assert_eq!(below(2, &all).iter().map(|process| process.pid).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_name_with_brackets_does_not_move_the_fields() {
        let stat = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 5 6";
        assert_eq!(Process::parse(7, stat), Some(Process { pid: 7, parent: 3, began: 4_242, dead: false }));
        let dead = stat.replace(" S ", " Z ");
        assert!(Process::parse(7, &dead).is_some_and(|process| process.dead));
        for torn in ["", "7", "7 (a", "7 (a) S", "7 (a) S x", "7 (a) S 3 7"] {
            assert_eq!(Process::parse(7, torn), None, "{torn:?}");
        }
    }

    #[test]
    fn this_process_is_there() {
        let own = Process::read(getpid().as_raw_pid()).expect("it lives");
        assert!(!own.dead && own.began > 0);
    }
}
