//! Leader election across processes: after SIGTERM the next leader takes over immediately, not after the ttl.

use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::ClientBuilder;
use tokio::signal::unix::{SignalKind, signal};

use crate::processes::{Process, run_as_holder_process, run_in_parent};
use crate::servers::Server;
use crate::{client, holders_and_waiters, until};

/// Longer than any test: a successor that leads sooner did not wait for the expiry.
const TTL: Duration = Duration::from_secs(30);

/// Leads under load until SIGTERM.
async fn lead_until_sigterm(client: ClientBuilder) {
    let client = client.build();
    let mut sigterm = signal(SignalKind::terminate()).expect("a handler");
    for at in 0..64 {
        let other = client.lock(format!("load/{at}")).acquire().await.expect("the resource is free");
        tokio::spawn(async move { while other.put("at", b"x").await.is_ok() {} });
    }
    let election = client.election("a").ttl(TTL);
    let stop = async move {
        sigterm.recv().await;
    };
    let led = election.lead(stop, async |hold| {
        println!("@leads {}", hold.token_number());
        hold.draining_started().await;
        hold.put("last", b"words").await.is_ok()
    });
    println!("@finished {:?}", led.await.expect("it was not revoked"));
    client.close().await.expect("the server responds");
}

#[test]
fn a_leader_under_load_hands_off_on_sigterm_instead_of_expiring() {
    if run_as_holder_process(lead_until_sigterm) {
        return;
    }
    run_in_parent(async {
        let server = Server::start();
        let observer = client(&server, "observer");
        let name = "leader::a_leader_under_load_hands_off_on_sigterm_instead_of_expiring";
        let mut command = Command::new(std::env::current_exe().expect("the test binary"));
        command.stdin(Stdio::null());
        let mut leader = Process::spawn_test(command, name, &server, std::path::Path::new("/dev/null"));
        let first: u64 = leader.wait_for_output("@leads").parse().expect("a number");
        let election = client(&server, "w2").election("a").ttl(TTL);
        let next = tokio::spawn(async move { election.campaign().await });
        until(async || holders_and_waiters(&observer, "a").await == (1, 1)).await;
        leader.signal("TERM");
        let second = next.await.expect("the task completed").expect("it was elected");
        assert!(second.token_number().get() > first);
        assert_eq!(leader.wait_for_output("@finished"), "Some(true)", "its last write was accepted");
        assert!(leader.0.wait().success());
        let ends = observer.recent_ends("a", 1).await.expect("the server responds");
        assert_eq!(ends[0].reason, "handed_off");
    });
}
