//! `leasehold elect`: one candidate leads, and another takes over.

use leasehold_testkit::tcp_proxy::TcpProxy;
use rustix::process::{Signal, kill_process};

use crate::TTL;
use crate::harness::{Fixture, WrapperProcess, is_alive, wait_until};
use crate::support::{Server, UNUSED_ADDRESS, run};

const LEADS: &str = "echo leads $$; while :; do sleep 0.01; done";

#[test]
fn one_of_two_candidates_leads_and_the_other_takes_over_when_it_resigns() {
    let fixture = Fixture::new();
    let first = fixture.start(&["elect", "a", "--ttl", "1m"], LEADS);
    let leader = first.wait_pid("leads");
    let second = fixture.start(&["elect", "a", "--ttl", "1m"], LEADS);
    fixture.server.wait_for_waiter("a");
    assert!(second.has_no_output());
    first.signal(Signal::TERM);
    let result = first.wait_exit();
    assert_eq!(result.exit, 0, "{result:?}");
    assert!(!is_alive(leader));
    second.wait_line("leads");
    second.signal(Signal::INT);
    assert_eq!(second.wait_exit().exit, 0);
    fixture.assert_clean();
}

#[test]
fn a_candidate_campaigns_again_when_its_command_exits() {
    let fixture = Fixture::new();
    let candidate = fixture.start(&["elect", "a", "--pause", "10ms"], "echo leads $$; exit 1");
    let (first, second, third) =
        (candidate.wait_pid("leads"), candidate.wait_pid("leads"), candidate.wait_pid("leads"));
    assert!(first != second && second != third && first != third);
    candidate.signal(Signal::TERM);
    let result = candidate.wait_exit();
    assert_eq!(result.exit, 0, "{result:?}");
    assert!(result.errors.contains("the command exited with 1; campaigns again"), "{result:?}");
    fixture.assert_clean();
}

#[test]
fn when_the_leaders_command_is_killed_the_other_candidate_leads() {
    let fixture = Fixture::new();
    let first = fixture.start(&["elect", "a", "--ttl", "1m", "--pause", "1m"], LEADS);
    let leader = first.wait_pid("leads");
    let second = fixture.start(&["elect", "a", "--ttl", "1m"], LEADS);
    fixture.server.wait_for_waiter("a");
    kill_process(leader, Signal::KILL).expect("it runs");
    second.wait_line("leads");
    // A candidate can also be terminated during its pause.
    for candidate in [first, second] {
        candidate.signal(Signal::TERM);
        assert_eq!(candidate.wait_exit().exit, 0);
    }
}

#[test]
fn a_leader_that_cannot_renew_terminates_its_command_and_leads_again_later() {
    let fixture = Fixture::new();
    let candidate = fixture.start(&["elect", "a", "--ttl", TTL, "--pause", "10ms"], LEADS);
    let before = candidate.wait_pid("leads");
    fixture.server.signal("STOP");
    wait_until("the command is dead", || !is_alive(before));
    fixture.server.signal("CONT");
    assert_ne!(candidate.wait_pid("leads"), before);
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.wait_exit().exit, 0);
}

#[test]
fn a_leader_whose_lease_was_revoked_does_not_campaign_again() {
    let fixture = Fixture::new();
    let candidate = fixture.start(&["elect", "a"], LEADS);
    candidate.wait_line("leads");
    fixture.server.run(&["revoke", "a", "--comment", "a test"]).ok();
    let result = candidate.wait_exit();
    assert_eq!(result.exit, 3, "{result:?}");
    assert!(result.errors.contains("LEASE_LOST{revoked, operator}"), "{result:?}");
}

#[test]
fn a_leader_whose_lease_is_revoked_with_a_grace_period_does_not_campaign_again() {
    let fixture = Fixture::new();
    // The second command ignores SIGTERM and exits by itself, perhaps before its wrapper learns of the revocation.
    let revokes = r#"trap '' TERM; echo leads; "$LEASEHOLD" revoke a --grace 1m --comment 'a test' >&2"#;
    for script in [LEADS, revokes] {
        let candidate = fixture.start(&["elect", "a", "--pause", "10ms"], script);
        candidate.wait_line("leads");
        if script == LEADS {
            fixture.server.run(&["revoke", "a", "--grace", "1m", "--comment", "a test"]).ok();
        }
        let result = candidate.wait_exit();
        assert_eq!(result.exit, 3, "{result:?}");
        assert!(result.errors.contains("LEASE_LOST{revoked, operator}"), "{result:?}");
        assert_eq!(result.errors.matches("elected leader").count(), 1, "{result:?}");
    }
    fixture.assert_clean();
}

#[test]
fn a_candidate_that_is_handed_off_campaigns_again() {
    let fixture = Fixture::new();
    let candidate = fixture.start(&["elect", "a", "--pause", "10ms"], LEADS);
    let before = candidate.wait_pid("leads");
    fixture.server.run(&["handoff", "a", "--gap"]).ok();
    assert_ne!(candidate.wait_pid("leads"), before);
    candidate.signal(Signal::TERM);
    let result = candidate.wait_exit();
    assert_eq!(result.exit, 0, "{result:?}");
    assert!(result.errors.contains("the lease expired: handed_off"), "{result:?}");
}

#[test]
fn a_candidate_that_cannot_connect_says_so_and_retries() {
    let fixture = Fixture::new();
    let proxy = TcpProxy::start(&fixture.server.address);
    proxy.set_upstream(UNUSED_ADDRESS);
    let mut command = fixture.command(&["elect", "a", "--", "sh", "-c", LEADS]);
    let candidate = WrapperProcess::start(command.env("LEASEHOLD_ADDR", proxy.address().to_string()));
    candidate.wait_stderr("; retrying");
    proxy.set_upstream(&fixture.server.address);
    candidate.wait_line("leads");
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.wait_exit().exit, 0);
    fixture.assert_clean();
}

#[test]
fn a_lease_that_was_revoked_during_an_outage_is_not_acquired_again() {
    let fixture = Fixture::new();
    let proxy = TcpProxy::start(&fixture.server.address);
    let mut command = fixture.command(&["elect", "a", "--ttl", TTL, "--pause", "10ms", "--", "sh", "-c", LEADS]);
    let candidate = WrapperProcess::start(command.env("LEASEHOLD_ADDR", proxy.address().to_string()));
    let leader = candidate.wait_pid("leads");
    proxy.set_upstream(UNUSED_ADDRESS);
    proxy.disconnect_all();
    fixture.server.run(&["revoke", "a", "--comment", "a test"]).ok();
    wait_until("the command is dead", || !is_alive(leader));
    candidate.wait_stderr("campaigns again");
    proxy.set_upstream(&fixture.server.address);
    let result = candidate.wait_exit();
    assert_eq!(result.exit, 3, "{result:?}");
    assert!(result.errors.contains("LEASE_LOST{revoked, operator}"), "{result:?}");
    assert!(result.lines.is_empty(), "it did not lead again: {result:?}");
    fixture.assert_clean();
}

#[test]
fn a_candidate_whose_servers_belong_to_another_cluster_ends_with_the_reason() {
    let fixture = Fixture::new();
    let (proxy, replacement) = (TcpProxy::start(&fixture.server.address), Server::start());
    let mut command = fixture.command(&["elect", "a", "--ttl", TTL, "--pause", "10ms", "--", "sh", "-c", LEADS]);
    let candidate = WrapperProcess::start(command.env("LEASEHOLD_ADDR", proxy.address().to_string()));
    candidate.wait_line("leads");
    proxy.set_upstream(&replacement.address);
    proxy.disconnect_all();
    let result = candidate.wait_exit();
    assert_eq!((result.exit, result.lines.len()), (2, 0), "{result:?}");
    assert!(result.errors.contains("leasehold: WRONG_CLUSTER: "), "{result:?}");
    fixture.assert_clean();
}

#[test]
fn a_candidate_survives_the_removal_of_its_runtime_directory() {
    let fixture = Fixture::new();
    let script = r#"echo leads $$; echo socket $LEASEHOLD_SOCKET; rm -r "$(dirname "$LEASEHOLD_SOCKET")""#;
    let candidate = fixture.start(&["elect", "a", "--pause", "10ms"], script);
    let first = candidate.wait_line("socket");
    assert_ne!(candidate.wait_line("socket"), first);
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.wait_exit().exit, 0);
    fixture.assert_clean();
}

#[test]
fn other_signals_are_forwarded_to_the_command() {
    let fixture = Fixture::new();
    let script = "trap 'echo got USR1' USR1; echo leads $$; while :; do sleep 0.01; done";
    let candidate = fixture.start(&["elect", "a"], script);
    candidate.wait_line("leads");
    candidate.signal(Signal::USR1);
    candidate.wait_line("got USR1");
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.wait_exit().exit, 0);
}

#[test]
fn a_command_that_cannot_be_started_ends_the_campaign() {
    let fixture = Fixture::new();
    let output = run(&mut fixture.command(&["elect", "a", "--", "no-such-command"]));
    assert_eq!(output.exit, 127, "{output:?}");
    assert_eq!(fixture.start(&["run", "a", "--no-wait"], "true").wait_exit().exit, 0, "the lease was released");
}

#[test]
fn a_command_that_exits_with_126_or_127_is_not_mistaken_for_a_missing_command() {
    let fixture = Fixture::new();
    for exit in [126, 127] {
        let candidate = fixture.start(&["elect", "a", "--pause", "10ms"], &format!("echo leads $$; exit {exit}"));
        assert_ne!(candidate.wait_pid("leads"), candidate.wait_pid("leads"));
        candidate.signal(Signal::TERM);
        assert_eq!(candidate.wait_exit().exit, 0);
    }
    fixture.assert_clean();
}

#[test]
fn a_leader_whose_supervisor_is_killed_kills_its_command_and_campaigns_again() {
    let fixture = Fixture::new();
    let candidate = fixture.start(&["elect", "a", "--pause", "10ms"], &format!("echo supervisor $PPID; {LEADS}"));
    let (supervisor, before) = (candidate.wait_pid("supervisor"), candidate.wait_pid("leads"));
    kill_process(supervisor, Signal::KILL).expect("it runs");
    assert_ne!(candidate.wait_pid("leads"), before);
    assert!(!is_alive(before));
    candidate.wait_stderr("supervisor was killed; the command was killed; campaigns again");
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.wait_exit().exit, 0);
    fixture.assert_clean();
}

#[test]
fn a_candidate_that_loses_its_lease_before_it_may_claim_campaigns_again_without_leading() {
    let fixture = Fixture::new();
    let mut first = fixture.start(&["run", "a", "--ttl", "1m"], "trap '' TERM; echo began; read line");
    first.wait_line("began");
    let candidate = fixture.start(&["elect", "a", "--ttl", TTL, "--pause", "10ms"], LEADS);
    fixture.server.wait_for_waiter("a");
    fixture.server.run(&["handoff", "a", "--overlap", "--drain", "1m"]).ok();
    fixture.server.wait_until_resource("a", |shown| shown["waiters"] == 0);
    candidate.signal(Signal::STOP);
    wait_until("its lease has expired", || fixture.history("a").iter().any(|line| line.contains("ttl")));
    candidate.signal(Signal::CONT);
    candidate.wait_stderr("campaigns again");
    first.write_stdin("end\n");
    candidate.wait_line("leads");
    candidate.signal(Signal::TERM);
    let result = candidate.wait_exit();
    assert_eq!(result.exit, 0, "{result:?}");
    let position = |text: &str| result.errors.find(text).unwrap_or_else(|| panic!("{text}: {result:?}"));
    assert!(position("campaigns again") < position("elected leader"), "{result:?}");
    assert_eq!(result.errors.matches("elected leader").count(), 1, "{result:?}");
    fixture.assert_clean();
}
