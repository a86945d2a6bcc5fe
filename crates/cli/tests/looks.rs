//! `ls`, `show`, `held-by`, `waiters`, `usage`, `status` and `watch` against a real server.

mod support;

use std::io::{BufRead, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use support::{Server, await_line, begin, end, keys};

#[test]
fn resources_are_listed_under_whole_segments_with_who_holds_them() {
    let server = Server::start();
    for name in ["team/a", "team/a/b", "team/ab", "other"] {
        server.acquire(name, "w1");
    }
    let listed = server.json(&["ls", "team/a"]);
    let names: Vec<_> = listed["resources"].as_array().expect("a list").iter().map(|one| &one["resource"]).collect();
    assert_eq!(names, ["team/a", "team/a/b"]);
    assert_eq!((keys(&listed), &listed["next"]), (vec!["next", "position", "resources"], &Value::Null));
    let told = server.run(&["ls"]).ok();
    let mut lines = told.out.lines();
    let head = lines.next().expect("a head");
    assert_eq!(head.split_whitespace().collect::<Vec<_>>()[..3], ["RESOURCE", "HOLDER", "NUMBER"]);
    assert_eq!(lines.count(), 4);
    assert_eq!(server.run(&["ls", "nothing/here"]).ok().out.lines().count(), 1, "only the head");
}

#[test]
fn a_listing_stops_where_it_is_told_to_and_goes_on_from_there() {
    let server = Server::start();
    for n in 0..5 {
        server.acquire(&format!("r/{n}"), "w1");
    }
    let mut seen = Vec::new();
    let mut from = "0".to_owned();
    loop {
        let told = server.run(&["ls", "r", "--most", "2", "--from", &from, "--json"]).ok();
        let page = told.json();
        let resources = page["resources"].as_array().expect("a list");
        assert!(resources.len() <= 2);
        seen.extend(resources.iter().map(|one| one["resource"].to_string()));
        match page["next"].as_u64() {
            Some(next) => from = next.to_string(),
            None => break,
        }
        assert!(told.err.contains(&format!("--from {from}")), "{told:?}");
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}

#[test]
fn a_resource_and_a_holder_are_shown_with_numbers_and_never_with_a_token() {
    let server = Server::start();
    server.acquire("a", "w1");
    server.acquire("b", "w1");
    server.acquire("c", "w2");
    let shown = server.json(&["show", "a"]);
    assert_eq!((&shown["held"], &shown["waiters"], &shown["capacity"]), (&1.into(), &0.into(), &1.into()));
    let lease = &shown["leases"][0];
    assert_eq!((&lease["holder"], &lease["access"]), (&"w1".into(), &"exclusive".into()));
    assert!(lease["token_number"].is_string() && lease.get("token").is_none());
    let held = server.json(&["held-by", "w1"]);
    assert_eq!(held.as_array().map(Vec::len), Some(2));
    assert_eq!(server.json(&["held-by", "nobody"]), serde_json::json!([]));
    server.run(&["show", "nothing"]).fails(1, "leasehold: NOT_FOUND{resource}: ");
    for args in [&["ls"][..], &["show", "a"], &["held-by", "w1"], &["ls", "--json"], &["held-by", "w1", "--json"]] {
        let told = server.run(args).ok();
        assert!(told.out.contains("w1") && !told.out.contains("lh1-"), "{told:?}");
    }
}

#[test]
fn waiters_stand_in_the_order_in_which_they_are_served() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let wait = |holder: &str| {
        begin(&mut server.command(&["acquire", "a", "--holder", holder, "--ttl", "100ms", "--wait", "60s"]))
    };
    let second = wait("w2");
    server.until_waited_for("a");
    let third = wait("w3");
    server.until("a", |show| show["waiters"] == 2);
    let waiting = server.json(&["waiters", "a"]);
    assert_eq!((&waiting[0]["holder"], &waiting[1]["holder"]), (&"w2".into(), &"w3".into()));
    let rows = server.run(&["waiters", "a"]).ok().out;
    assert!(rows.lines().nth(1).is_some_and(|row| row.starts_with("1") && row.contains("w2")), "{rows}");
    server.run(&["release", "a", "--token", &token]).ok();
    end(second).ok();
    end(third).ok();
    assert_eq!(server.json(&["waiters", "a"]), serde_json::json!([]));
}

#[test]
fn usage_is_told_by_reason() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    server.run(&["release", "a", "--token", &token]).ok();
    server.acquire("a", "w2");
    server.run(&["revoke", "a", "--reason", "x"]).ok();
    let used = server.json(&["usage"]);
    let holders: Vec<_> = used.as_array().expect("a list").iter().map(|one| &one["holder"]).collect();
    assert_eq!(holders, ["w1", "w2"]);
    let one = server.json(&["usage", "w1"]);
    assert_eq!((&one[0]["holder"], &one[0]["rows"][0]["reason"]), (&"w1".into(), &"released".into()));
    assert!(server.run(&["usage"]).ok().out.contains("w2"));
}

#[test]
fn the_grantor_is_told_in_figures() {
    let server = Server::start();
    server.acquire("a", "w1");
    let status = server.json(&["status"]);
    assert_eq!((&status["held"], &status["rung"], &status["tenure"]), (&1.into(), &"session".into(), &1.into()));
    assert!(status["counter"].is_string() && status["quarantine_ms"].is_null());
    let told = server.run(&["status"]).ok();
    assert!(told.out.contains("longest ttl      10m00s"), "{told:?}");
}

/// An address that stays while the servers behind it come and go.
struct Relay {
    address: String,
    server: Arc<Mutex<String>>,
}

impl Relay {
    fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let server = Arc::new(Mutex::new(server.address.clone()));
        let to = server.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let address = to.lock().expect("nobody panics with it in hand").clone();
                // Where nobody listens, the client's connection is closed too.
                if let Ok(server) = TcpStream::connect(address) {
                    let pair = |one: &TcpStream| one.try_clone().expect("a connection has two halves");
                    let (back, there) = (pair(&server), pair(&client));
                    std::thread::spawn(move || pass(client, server));
                    std::thread::spawn(move || pass(back, there));
                }
            }
        });
        Self { address, server }
    }

    fn leads_to(&self, server: &Server) {
        self.server.lock().expect("nobody panics with it in hand").clone_from(&server.address);
    }
}

/// Until either end is closed, and then both are.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn events_come_as_lines_while_they_happen_and_over_a_restart() {
    let server = Server::start();
    let relay = Relay::to(&server);
    let mut watching = begin(server.command(&["watch", "jobs", "--json"]).env("LEASEHOLD_ADDR", &relay.address));
    let mut said = BufReader::new(watching.stderr.take().expect("it is piped"));
    await_line(&mut said, "watching");
    let token = server.acquire("jobs/a", "w1");
    server.acquire("other", "w1");
    server.run(&["release", "jobs/a", "--token", &token]).ok();
    let mut lines = BufReader::new(watching.stdout.take().expect("it is piped")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("an event").expect("a text");
        serde_json::from_str(&line).expect("one JSON document on each line")
    };
    let granted = next();
    assert_eq!((&granted["event"], &granted["resource"]), (&"granted".into(), &"jobs/a".into()));
    assert!(granted["token_number"].is_string() && granted.get("token").is_none());
    let ended = next();
    assert_eq!((&ended["event"], &ended["reason"]), (&"ended".into(), &"released".into()));

    let server = server.again();
    relay.leads_to(&server);
    await_line(&mut said, "connected again");
    server.acquire("jobs/b", "w1");
    assert_eq!(next()["resource"], "jobs/b");
    watching.kill().expect("it runs");
    watching.wait().expect("it ended");
}

#[test]
fn a_watch_whose_reader_went_away_ends_quietly() {
    let server = Server::start();
    let mut watching = begin(&mut server.command(&["watch"]));
    let mut said = BufReader::new(watching.stderr.take().expect("it is piped"));
    await_line(&mut said, "watching");
    drop(watching.stdout.take());
    server.acquire("a", "w1");
    assert_eq!(watching.wait().expect("it ends").code(), Some(0));
    assert_eq!(said.lines().count(), 0, "and says nothing about it");
}
