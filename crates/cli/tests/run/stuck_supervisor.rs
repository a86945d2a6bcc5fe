//! A supervisor that is stopped: its wrapper has the same deadlines, and kills the command itself.

use leasehold_testkit::tcp_proxy::TcpProxy;
use rustix::process::{Signal, kill_process};

use crate::TTL;
use crate::harness::{Fixture, WrapperProcess, is_alive, is_stopped, report_alive, wait_until};
use crate::supervisor_death::ProcessFamily;
use crate::support::UNUSED_ADDRESS;

#[test]
fn a_command_whose_lease_is_revoked_dies_although_its_supervisor_is_stopped() {
    let fixture = Fixture::new();
    for on_lost in ["term", "kill"] {
        let args = ["run", "a", "--ttl", "10s", "--grace", "500ms", "--on-lost", on_lost];
        let family = ProcessFamily::of(fixture.start(&args, crate::supervisor_death::FAMILY));
        kill_process(family.supervisor, Signal::STOP).expect("it runs");
        wait_until("the supervisor is stopped", || is_stopped(family.supervisor));
        fixture.server.run(&["revoke", "a", "--comment", "a test"]).ok();
        let result = family.wrapped.wait_exit();
        assert_eq!(result.exit, 3, "{result:?}");
        assert!(!family.descendants.iter().any(|pid| is_alive(*pid)), "no process outlives the wrapper");
        assert!(!is_alive(family.supervisor));
        assert!(result.errors.contains("supervisor did not report in time"), "{result:?}");
    }
    fixture.assert_clean();
}

#[test]
fn a_command_whose_wrapper_is_disconnected_dies_although_its_supervisor_is_stopped() {
    let fixture = Fixture::new();
    let proxy = TcpProxy::start(&fixture.server.address);
    let mut first = fixture.command(&["run", "a", "--ttl", TTL, "--", "sh", "-c", crate::supervisor_death::FAMILY]);
    let family = ProcessFamily::of(WrapperProcess::start(first.env("LEASEHOLD_ADDR", proxy.address().to_string())));
    let successor = fixture.start(&["run", "a", "--wait", "60s"], &report_alive(&family.descendants));
    fixture.server.wait_for_waiter("a");
    kill_process(family.supervisor, Signal::STOP).expect("it runs");
    wait_until("the supervisor is stopped", || is_stopped(family.supervisor));
    proxy.set_upstream(UNUSED_ADDRESS);
    proxy.disconnect_all();
    assert_eq!(successor.wait_line(""), "began", "a process of the family was alive when the successor started");
    assert_eq!(successor.wait_exit().exit, 0);
    let result = family.wrapped.wait_exit();
    assert_eq!(result.exit, 3, "{result:?}");
    fixture.assert_clean();
}

#[test]
fn a_supervisor_that_was_stopped_does_not_kill_a_command_whose_lease_was_renewed_meanwhile() {
    let fixture = Fixture::new();
    let script = "trap 'echo got USR2' USR2; echo supervisor $PPID; until read line; do :; done; exit 7";
    let mut wrapped = fixture.start(&["run", "a", "--ttl", TTL], script);
    let supervisor = wrapped.wait_pid("supervisor");
    kill_process(supervisor, Signal::STOP).expect("it runs");
    wait_until("the supervisor is stopped", || is_stopped(supervisor));
    // Longer than the ttl: every deadline that the supervisor has read is over.
    std::thread::sleep(std::time::Duration::from_secs(6));
    kill_process(supervisor, Signal::CONT).expect("it runs");
    // The supervisor forwards the signal, so it has polled its deadlines.
    wrapped.signal(Signal::USR2);
    wrapped.wait_line("got USR2");
    wrapped.write_stdin("end\n");
    let result = wrapped.wait_exit();
    assert_eq!((result.exit, result.errors.as_str()), (7, ""), "{result:?}");
    fixture.assert_clean();
}

#[test]
fn a_leader_resigns_although_its_supervisor_is_stopped() {
    let fixture = Fixture::new();
    let family = ProcessFamily::of(
        fixture.start(&["elect", "a", "--ttl", "1m", "--grace", "500ms"], crate::supervisor_death::FAMILY),
    );
    kill_process(family.supervisor, Signal::STOP).expect("it runs");
    wait_until("the supervisor is stopped", || is_stopped(family.supervisor));
    family.wrapped.signal(Signal::TERM);
    let result = family.wrapped.wait_exit();
    assert_eq!(result.exit, 0, "{result:?}");
    assert!(!family.descendants.iter().any(|pid| is_alive(*pid)));
    fixture.assert_clean();
}

#[test]
fn a_stopped_supervisor_with_a_full_socket_does_not_block_its_wrapper() {
    let fixture = Fixture::new();
    let wrapped = fixture.start(&["run", "a", "--ttl", "10s"], "echo supervisor $PPID; echo child $$; exec sleep 600");
    let (supervisor, child) = (wrapped.wait_pid("supervisor"), wrapped.wait_pid("child"));
    kill_process(supervisor, Signal::STOP).expect("it runs");
    wait_until("the supervisor is stopped", || is_stopped(supervisor));
    // Each signal is forwarded; the socket to the supervisor holds some hundreds of messages.
    for _ in 0..2_000 {
        wrapped.signal(Signal::USR1);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    fixture.server.run(&["revoke", "a", "--comment", "a test"]).ok();
    assert_eq!(wrapped.wait_exit().exit, 3);
    assert!(!is_alive(child));
    fixture.assert_clean();
}
