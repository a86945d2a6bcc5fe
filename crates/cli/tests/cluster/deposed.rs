//! Leaders that lose their office, at every rhythm: the old one decides nothing more, nothing ends before its time, and
//! nothing is endless.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use leasehold::{Client, Endpoints, Guard, Options, State};
use serde_json::Value;

use crate::befalls::depth;
use crate::etcd_support::Server as Etcd;
use crate::history::History;
use crate::support::{Told, leasehold, run, text};
use crate::trio::{PATIENCE, Trio};
use crate::{number, until_it_points};

/// What the command line says when somebody else holds.
const BUSY: i32 = 4;

/// A runtime for those who hold, and a guard that is renewed on it whoever leads.
pub fn guarded(trio: &Trio, name: &str, ttl: Duration) -> (tokio::runtime::Runtime, Guard) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let options = Options { holder: Some("guard".into()), ..Options::default() };
    let client = Client::with(Endpoints::parse(&trio.everywhere()).expect("addresses"), options);
    let guard = runtime.block_on(async { client.lock(name).ttl(ttl).acquire().await }).expect("it is free");
    (runtime, guard)
}

/// Waits until a guard holds, also if it was suspended meanwhile.
pub fn until_held(guard: &Guard) {
    let over = Instant::now() + PATIENCE;
    while guard.state() != State::Held {
        assert!(Instant::now() < over, "{:?}", guard.state());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command that asks them all.
pub fn ask(trio: &Trio, args: &[&str]) -> Told {
    run(leasehold(args).arg("--json").env("LEASEHOLD_ADDR", trio.everywhere()))
}

/// A request that lies at a server's door. Whether it is ever read is the server's affair.
pub fn knock(address: &str, path: &str, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the kernel takes it");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let head = format!("POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).expect("the kernel takes it");
    stream
}

#[test]
fn a_leader_that_wakes_grants_renews_expires_and_shows_nothing() {
    let trio = Trio::over(Etcd::single());
    let old = trio.leader();
    let (_runtime, guard) = guarded(&trio, "kept", Duration::from_secs(5));
    let token = guard.token();
    let before = trio.server(old).json(&["acquire", "a", "--holder", "h", "--ttl", "10m"]);
    let held = text(&before["token"]);
    trio.server(old).signal("STOP");
    let stopped = Instant::now();
    let address = &trio.server(old).address;
    let shown = format!("lease-token: {held}\r\n");
    let asked = [
        knock(address, "/v1/leases/a:renew", &shown, ""),
        knock(address, "/v1/leases/a:release", &shown, ""),
        knock(address, "/v1/leases/free:acquire", "", r#"{"holder":"h","ttl":"10m"}"#),
    ];
    let new = trio.another_than(old);
    trio.server(new).run(&["release", "a", "--token", &held]).ok();
    let after = trio.server(new).json(&["acquire", "a", "--holder", "other", "--ttl", "10m"]);
    let free = trio.server(new).json(&["acquire", "free", "--holder", "other", "--ttl", "10m"]);
    // By the clock of the one that sleeps, the guard's lease is over by then; its holder has renewed elsewhere.
    std::thread::sleep(Duration::from_secs(7).saturating_sub(stopped.elapsed()));
    until_held(&guard);
    trio.server(old).signal("CONT");
    for mut stream in asked {
        let mut answer = String::new();
        // A connection that breaks says nothing, and that is no answer.
        let _ = stream.read_to_string(&mut answer);
        assert!(!answer.starts_with("HTTP/1.1 2"), "it decided: {answer}");
    }
    trio.until_it_stands_by(old);
    until_it_points(trio.server(old));
    until_held(&guard);
    assert_eq!(guard.token(), token, "its lease was not ended");
    for (name, grant) in [("a", &after), ("free", &free)] {
        let shown = trio.server(new).json(&["show", name]);
        assert!(shown.to_string().contains(&text(&grant["token_number"])), "{name}: {shown}");
    }
    assert_eq!(trio.server(old).run(&["renew", "a", "--token", &held]).exit, 3, "whoever is asked");
}

#[test]
fn a_renewal_acked_just_before_the_leader_died_counts() {
    const TTL: Duration = Duration::from_secs(3);
    let mut trio = Trio::over(Etcd::single());
    let history = History::default();
    for round in 0..depth(2, 40) {
        let name = format!("renewed/{round}");
        let (floor, asked) = (history.floor(), Instant::now());
        let grant = ask(&trio, &["acquire", &name, "--holder", "h", "--ttl", "3s"]).ok().json();
        let old = trio.leader();
        history.granted(&name, &("h".to_owned(), round as u64), number(&grant), floor);
        history.lasts(number(&grant), asked, TTL);
        let token = text(&grant["token"]);
        let renewed = Instant::now();
        if ask(&trio, &["renew", &name, "--token", &token]).exit == 0 {
            history.lasts(number(&grant), renewed, TTL);
        }
        trio.kill(old);
        trio.another_than(old);
        let successor =
            ask(&trio, &["acquire", &name, "--holder", "next", "--ttl", "10m", "--wait", "60s"]).ok().json();
        history.ran_out(number(&grant), Instant::now());
        history.ending(&name, number(&grant));
        history.granted(&name, &("next".to_owned(), round as u64), number(&successor), history.floor());
        trio.begin(old);
    }
}

/// Failovers at a rhythm, until so many have been. Returns how many leases of silent holders ended meanwhile.
fn fail_over(trio: &Trio, rounds: usize, ttl: Duration, every: Duration) -> usize {
    let name = format!("silent/{}", every.as_millis());
    let (ttl_text, history) = (format!("{}ms", ttl.as_millis()), History::default());
    let (mut last, mut ended) = (None::<u64>, 0);
    for round in 0..rounds {
        trio.leader();
        std::thread::sleep(every);
        let (floor, asked) = (history.floor(), Instant::now());
        let told = ask(trio, &["acquire", &name, "--holder", "silent", "--ttl", &ttl_text]);
        if told.exit == 0 {
            let grant: Value = told.json();
            if let Some(last) = last.replace(number(&grant)) {
                history.ran_out(last, Instant::now());
                history.ending(&name, last);
                ended += 1;
            }
            history.granted(&name, &("silent".to_owned(), round as u64), number(&grant), floor);
            history.lasts(number(&grant), asked, ttl);
        } else {
            assert_eq!(told.exit, BUSY, "{told:?}");
        }
        // Served time is what is on record. A server that nobody asks anything new records it once a second.
        ask(trio, &["acquire", &format!("other/{}/{round}", every.as_millis()), "--holder", "other", "--ttl", "1s"])
            .ok();
        trio.etcd.ctl_ok(&["del", "/trio/leader"]);
    }
    ended
}

#[test]
fn a_dead_holders_lease_ends_though_the_leader_changes_every_half_and_quarter_of_a_ttl() {
    let trio = Trio::over(Etcd::single());
    let rounds = depth(20, 200);
    let ttl = Duration::from_secs(2);
    for part in [2, 4] {
        // At most two ttls of served time, one of credit for standing still, and a little for every tenure.
        let ended = fail_over(&trio, rounds, ttl, ttl / part);
        println!("every ttl/{part}: {ended} leases ended in {rounds} tenures");
        assert!(ended > 0, "a silent holder's lease is endless (L9)");
    }
}
