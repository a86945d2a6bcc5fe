//! Wrappers and supervisors that are killed or stopped: no process of a command outlives its lease.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::TTL;
use crate::harness::{Fixture, WrapperProcess, is_alive, report_alive, wait_until};

/// A command with a grandchild in its own session and an orphan; all of them ignore SIGTERM.
pub const FAMILY: &str = r#"
    trap '' TERM HUP INT
    setsid sh -c 'echo grandchild $$; while :; do sleep 1; done' &
    (setsid sh -c 'echo orphan $$; while :; do sleep 1; done' &)
    echo supervisor $PPID
    echo child $$
    while :; do sleep 1; done"#;

/// A wrapper with its supervisor and all its descendants.
pub struct ProcessFamily {
    pub wrapped: WrapperProcess,
    pub supervisor: Pid,
    pub descendants: [Pid; 3],
}

impl ProcessFamily {
    fn start(fixture: &Fixture, ttl: &str) -> Self {
        Self::of(fixture.start(&["run", "a", "--ttl", ttl], FAMILY))
    }

    pub fn of(wrapped: WrapperProcess) -> Self {
        let (mut supervisor, mut descendants) = (None, Vec::new());
        while supervisor.is_none() || descendants.len() < 3 {
            let line = wrapped.wait_line("");
            let (role, pid) = line.split_once(' ').expect("a word and a number");
            let pid = pid.parse().ok().and_then(Pid::from_raw).expect("a process");
            if role == "supervisor" { supervisor = Some(pid) } else { descendants.push(pid) }
        }
        let (supervisor, descendants) = (supervisor.expect("it was output"), descendants.try_into().expect("three"));
        Self { wrapped, supervisor, descendants }
    }
}

/// Asserts that a successor runs and exits with 0.
#[track_caller]
fn succeeds(successor: WrapperProcess) {
    successor.wait_line("began");
    let result = successor.wait_exit();
    assert_eq!(result.exit, 0, "{result:?}");
}

/// Asserts that no process of the family is alive when the successor starts.
#[track_caller]
fn finds_none_alive(successor: &WrapperProcess) {
    let first = successor.wait_line("");
    assert_eq!(first, "began", "a process of the family was alive when the successor started");
}

#[test]
fn when_a_wrapper_is_killed_all_its_processes_are_dead_before_a_successor_starts() {
    let fixture = Fixture::new();
    // The successor need not wait for the ttl: the supervisor releases the lease when all processes are dead.
    let family = ProcessFamily::start(&fixture, "5m");
    let successor = fixture.start(&["run", "a", "--wait", "60s"], &report_alive(&family.descendants));
    fixture.server.wait_for_waiter("a");
    family.wrapped.signal(Signal::KILL);
    finds_none_alive(&successor);
    assert!(!family.descendants.iter().any(|pid| is_alive(*pid)));
    assert_eq!(successor.wait_exit().exit, 0);
    assert_eq!(family.wrapped.wait_exit().exit, -1);
    fixture.assert_clean();
}

#[test]
fn killing_a_whole_process_group_also_kills_descendants_outside_of_it() {
    let fixture = Fixture::new();
    let mut job = fixture.command(&["run", "a", "--ttl", "5m", "--", "sh", "-c", FAMILY]);
    // It has its own process group, like a job of a shell.
    let family = ProcessFamily::of(WrapperProcess::start(&mut job));
    let successor = fixture.start(&["run", "a", "--wait", "60s"], &report_alive(&family.descendants));
    fixture.server.wait_for_waiter("a");
    kill_process_group(family.wrapped.pid(), Signal::KILL).expect("it runs");
    finds_none_alive(&successor);
    assert_eq!((family.wrapped.wait_exit().exit, successor.wait_exit().exit), (-1, 0));
    fixture.assert_clean();
}

#[test]
fn when_a_wrapper_is_killed_while_no_server_replies_all_its_processes_die() {
    let fixture = Fixture::new();
    let family = ProcessFamily::start(&fixture, TTL);
    fixture.server.signal("STOP");
    family.wrapped.signal(Signal::KILL);
    wait_until("all are dead", || !family.descendants.iter().any(|pid| is_alive(*pid)));
    fixture.server.signal("CONT");
    fixture.assert_clean();
}

#[test]
fn when_a_supervisor_is_killed_its_wrapper_kills_the_command() {
    let fixture = Fixture::new();
    let family = ProcessFamily::start(&fixture, "5m");
    let successor = fixture.start(&["run", "a", "--wait", "60s"], &report_alive(&family.descendants));
    fixture.server.wait_for_waiter("a");
    kill_process(family.supervisor, Signal::KILL).expect("it runs");
    finds_none_alive(&successor);
    let result = family.wrapped.wait_exit();
    assert_eq!(result.exit, 1);
    assert!(result.errors.contains("supervisor was killed"), "{result:?}");
    assert_eq!(successor.wait_exit().exit, 0);
    fixture.assert_clean();
}

#[test]
fn when_a_wrapper_is_stopped_for_three_ttls_its_command_is_dead_before_a_successor_starts() {
    let fixture = Fixture::new();
    let family = ProcessFamily::start(&fixture, TTL);
    let successor =
        fixture.start(&["run", "a", "--wait", "60s"], &format!("{}; read line", report_alive(&family.descendants)));
    fixture.server.wait_for_waiter("a");
    family.wrapped.signal(Signal::STOP);
    finds_none_alive(&successor);
    std::thread::sleep(std::time::Duration::from_secs(12));
    family.wrapped.signal(Signal::CONT);
    let result = family.wrapped.wait_exit();
    assert_eq!(result.exit, 3, "{result:?}");
    assert!(result.errors.starts_with("leasehold: LEASE_LOST"), "{result:?}");
    assert_eq!(successor.wait_exit().exit, 1, "read found the end of its input");
    fixture.assert_clean();
}

#[test]
fn when_wrapper_and_supervisor_are_both_stopped_all_processes_die_when_they_resume() {
    let fixture = Fixture::new();
    let family = ProcessFamily::start(&fixture, TTL);
    let successor = fixture.start(&["run", "a", "--wait", "60s"], "echo began");
    fixture.server.wait_for_waiter("a");
    for pid in [family.wrapped.pid(), family.supervisor] {
        kill_process(pid, Signal::STOP).expect("it runs");
    }
    // Here only a fence protects the data, as the documentation states.
    succeeds(successor);
    assert!(family.descendants.iter().all(|pid| is_alive(*pid)), "no process could kill them");
    for pid in [family.supervisor, family.wrapped.pid()] {
        kill_process(pid, Signal::CONT).expect("it runs");
    }
    wait_until("all are dead", || !family.descendants.iter().any(|pid| is_alive(*pid)));
    assert_eq!(family.wrapped.wait_exit().exit, 3);
    fixture.assert_clean();
}

#[test]
fn a_command_dies_when_both_its_wrapper_and_its_supervisor_are_killed() {
    let fixture = Fixture::new();
    let wrapped = fixture.start(&["run", "a", "--ttl", "5m"], "echo supervisor $PPID; echo child $$; exec sleep 600");
    let (supervisor, child) = (wrapped.wait_pid("supervisor"), wrapped.wait_pid("child"));
    // Stop the wrapper first, so that it cannot act for the supervisor.
    wrapped.signal(Signal::STOP);
    kill_process(supervisor, Signal::STOP).expect("it runs");
    wrapped.signal(Signal::KILL);
    kill_process(supervisor, Signal::KILL).expect("it runs");
    wait_until("the command is dead", || !is_alive(child));
    assert_eq!(wrapped.wait_exit().exit, -1);
}

#[test]
fn a_signal_to_every_process_of_a_service_leaves_the_command_its_time() {
    let fixture = Fixture::new();
    let script = "trap 'sleep 0.1; echo cleaned; exit 5' TERM; echo supervisor $PPID; echo child $$; \
                  while :; do sleep 0.01; done";
    let wrapped = fixture.start(&["run", "a"], script);
    let (supervisor, child) = (wrapped.wait_pid("supervisor"), wrapped.wait_pid("child"));
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::USR1, Signal::USR2] {
        kill_process(supervisor, signal).expect("it runs");
    }
    for pid in [supervisor, wrapped.pid(), child] {
        kill_process(pid, Signal::TERM).expect("it runs");
    }
    wrapped.wait_line("cleaned");
    let result = wrapped.wait_exit();
    assert_eq!((result.exit, result.errors.as_str()), (5, ""), "{result:?}");
    fixture.assert_clean();
}

#[test]
fn a_chain_of_short_lived_forks_is_killed() {
    let fixture = Fixture::new();
    // Each process lives only briefly, and becomes a child of the supervisor. The chain lasts longer than the test's timeout.
    let hops = "setsid sh -c 'hop() { [ $1 -gt 0 ] || exit; hop $(($1 - 1)) & exit 0; }; hop 1000000' & ";
    let hops = format!("{hops} echo began; read line; exit 2");
    let mut wrapped = fixture.start(&["run", "a"], &hops);
    wrapped.wait_line("began");
    wrapped.write_stdin("end\n");
    assert_eq!(wrapped.wait_exit().exit, 2);
    fixture.assert_clean();
}
