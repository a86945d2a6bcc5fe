//! etcd gone for a while, slow, or set back: nobody is granted, nobody is early, and whoever renews afterwards holds on.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::befalls::depth;
use crate::deposed::{ask, guarded, knock, until_held};
use crate::etcd_support::Server as Etcd;
use crate::history::History;
use crate::number;
use crate::support::{leasehold, run, text};
use crate::trio::{PATIENCE, Trio};

#[test]
fn without_a_quorum_nobody_is_granted_and_afterwards_everybody_who_renews_holds_on() {
    let mut trio = Trio::over(Etcd::three());
    let (_runtime, guard) = guarded(&trio, "kept", Duration::from_secs(3));
    let (token, history) = (guard.token(), History::default());
    let asked = Instant::now();
    let silent = ask(&trio, &["acquire", "silent", "--holder", "h", "--ttl", "3s"]).ok().json();
    history.lasts(number(&silent), asked, Duration::from_secs(3));
    let leader = trio.server(trio.leader()).address.clone();
    let first = ask(&trio, &["acquire", "held", "--holder", "h", "--ttl", "10m"]).ok().json();
    let mut second = knock(&leader, "/v1/leases/held:acquire", "", r#"{"holder":"next","ttl":"10m","wait":"120s"}"#);
    trio.server(trio.leader()).until_waited_for("held");
    trio.etcd.kill(0);
    trio.etcd.kill(1);
    // For a call that waits the server opens a session, which lasts for less than this.
    let mut patient = knock(&leader, "/v1/leases/later:acquire", "", r#"{"holder":"h","ttl":"10m","wait":"60s"}"#);
    let mut waiting = knock(&leader, "/v1/leases/free:acquire", "", r#"{"holder":"h","ttl":"10m"}"#);
    std::thread::sleep(Duration::from_secs(depth(12, 30) as u64));
    waiting.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    let heard = waiting.read(&mut [0; 1]);
    assert!(heard.is_err(), "whoever cannot ask etcd says nothing: {heard:?}");
    trio.etcd.begin(0);
    trio.etcd.begin(1);
    assert!(trio.etcd.is_up(0) && trio.etcd.is_up(1), "they come back");
    until_held(&guard);
    assert_eq!(guard.token(), token, "it was suspended, and its lease was not ended");
    let next = ask(&trio, &["acquire", "silent", "--holder", "next", "--ttl", "10m", "--wait", "60s"]).ok().json();
    history.ran_out(number(&silent), Instant::now());
    assert!(number(&next) > number(&silent));
    ask(&trio, &["release", "held", "--token", &text(&first["token"])]).ok();
    let mut answer = String::new();
    let _ = second.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 200"), "who waited before has kept its place: {answer}");
    // What was asked meanwhile happened once, or not at all; in either case it is answered.
    waiting.set_read_timeout(Some(PATIENCE)).expect("a socket");
    for (asked, name) in [(&mut waiting, "free"), (&mut patient, "later")] {
        let mut answer = String::new();
        let _ = asked.read_to_string(&mut answer);
        let shown = ask(&trio, &["show", name]);
        assert_eq!(answer.starts_with("HTTP/1.1 200"), shown.exit == 0, "{answer} and {shown:?}");
        assert!(!answer.contains("LEASE_LOST"), "who waits had nothing to lose: {answer}");
    }
}

#[test]
fn a_slow_disk_of_etcd_punishes_nobody_who_renews() {
    let under = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e"];
    // With much more etcd itself elects nobody: its own time-out is a second.
    let under: Vec<_> = under.into_iter().chain(["inject=fdatasync:delay_enter=250000"]).collect();
    let trio = Trio::over(Etcd::start_under(&under, 1));
    let (_runtime, guard) = guarded(&trio, "kept", Duration::from_secs(5));
    let (token, history) = (guard.token(), History::default());
    for round in 0..depth(2, 20) {
        let name = format!("silent/{round}");
        let asked = Instant::now();
        let silent = ask(&trio, &["acquire", &name, "--holder", "h", "--ttl", "2s"]).ok().json();
        history.lasts(number(&silent), asked, Duration::from_secs(2));
        let next = ask(&trio, &["acquire", &name, "--holder", "next", "--ttl", "10m", "--wait", "60s"]).ok().json();
        history.ran_out(number(&silent), Instant::now());
        assert!(number(&next) > number(&silent));
    }
    until_held(&guard);
    assert_eq!(guard.token(), token);
}

#[test]
fn an_etcd_that_was_set_back_is_refused_until_that_is_accepted() {
    let mut trio = Trio::over(Etcd::single());
    let snapshot = trio.etcd.above.path().join("snapshot.db");
    let snapshot = snapshot.to_str().expect("a path of text").to_owned();
    let before = ask(&trio, &["acquire", "a", "--holder", "h", "--ttl", "60s"]).ok().json();
    trio.etcd.ctl_ok(&["snapshot", "save", &snapshot]);
    let lost = ask(&trio, &["acquire", "b", "--holder", "h", "--ttl", "60s"]).ok().json();
    trio.until_all_have_seen();
    for at in 0..3 {
        let witness = trio.etcd.above.path().join(format!("server-{at}/witness"));
        assert!(
            witness.exists(),
            "whoever has seen a journal knows it again, also if it stood by before there was one"
        );
    }
    trio.etcd.set_back(&snapshot);
    // Those who live have seen more than there is.
    for at in 0..3 {
        let mut server = trio.take(at);
        assert_ne!(server.wait(), Some(0));
        let said = server.everything_said().join("\n");
        assert!(said.contains("set back"), "{said}");
    }
    // So has whoever is started again, and says what to do.
    let flags = trio.flags(0);
    let serve = |more: &[&str]| {
        let mut command = leasehold(&["serve"]);
        run(command.args(&flags).args(more))
    };
    let told = serve(&[]);
    assert!(told.err.contains("ROLLED_BACK") && told.err.contains("--accept-restored"), "{told:?}");
    assert_ne!(told.exit, 0);
    trio.accept_restored();
    (0..3).for_each(|at| trio.begin(at));
    trio.leader();
    let told = ask(&trio, &["acquire", "c", "--holder", "h", "--ttl", "60s"]);
    assert!(told.err.contains("QUARANTINED"), "nothing is granted for one ttl: {told:?}");
    for grant in [&before, &lost] {
        let name = if grant == &before { "a" } else { "b" };
        let told = ask(&trio, &["renew", name, "--token", &text(&grant["token"])]);
        assert_eq!(told.exit, 3, "nothing of the old life is renewed: {told:?}");
    }
}
