//! A leader in a process of its own that is told to end by a signal: the next one leads at once, not when a ttl is over.

use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::{Client, Options};
use tokio::signal::unix::{SignalKind, signal};

use crate::processes::{Process, as_holder, in_parent};
use crate::servers::Server;
use crate::{client, crowd, until};

/// Longer than a session of any test: who is followed sooner was not waited out.
const TTL: Duration = Duration::from_secs(30);

/// Leads under load until SIGTERM comes, as the example does.
async fn lead_until_told(client: Client, _: Options) {
    let mut told = signal(SignalKind::terminate()).expect("a handler");
    for at in 0..64 {
        let other = client.lock(format!("load/{at}")).acquire().await.expect("it is free");
        tokio::spawn(async move { while other.put("at", b"x").await.is_ok() {} });
    }
    let election = client.election("a").ttl(TTL);
    let stop = async move {
        told.recv().await;
    };
    let led = election.lead(stop, async |hold| {
        println!("@leads {}", hold.token_number());
        hold.leaving().await;
        hold.put("last", b"words").await.is_ok()
    });
    println!("@finished {:?}", led.await.expect("it was not revoked"));
    client.close().await.expect("the server hears it");
}

#[test]
fn a_leader_that_gets_sigterm_under_load_is_followed_by_its_handover_and_not_by_expiry() {
    if as_holder(lead_until_told) {
        return;
    }
    in_parent(async {
        let server = Server::start();
        let looking = client(&server, "looks");
        let name = "leads::a_leader_that_gets_sigterm_under_load_is_followed_by_its_handover_and_not_by_expiry";
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.stdin(Stdio::null());
        let mut leader = Process::again(command, name, &server, std::path::Path::new("/dev/null"));
        let first: u64 = leader.says("@leads").parse().expect("a number");
        let election = client(&server, "w2").election("a").ttl(TTL);
        let next = tokio::spawn(async move { election.campaign().await });
        until(async || crowd(&looking, "a").await == (1, 1)).await;
        leader.signal("TERM");
        let second = next.await.expect("it ran").expect("it was elected");
        assert!(second.token_number().get() > first);
        assert_eq!(leader.says("@finished"), "Some(true)", "its last words were taken");
        assert!(leader.child.wait().expect("it ends").success());
        let ends = looking.ends("a", 1).await.expect("the server answers");
        assert_eq!(ends[0].reason, "handed_off");
    });
}
