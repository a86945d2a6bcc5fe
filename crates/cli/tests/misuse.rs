//! What cannot be meant is refused with its exit code, and the message shows how to write it.

mod support;

use std::collections::BTreeMap;

use support::{NOBODY, Server, Told, leasehold, run};

fn usage(args: &[&str]) -> Told {
    let told = run(&mut leasehold(args));
    assert_eq!((told.exit, told.out.as_str()), (2, ""), "{args:?}: {told:?}");
    told
}

#[test]
fn a_typing_error_gets_the_nearest_word() {
    let table = [
        (&["aquire"][..], "'acquire'"),
        (&["acquire", "a", "--holdr", "w"], "'--holder'"),
        (&["ls", "--jsn"], "'--json'"),
        (&["charter", "chek", "f"], "'check'"),
    ];
    for (args, nearest) in table {
        let told = usage(args);
        assert!(told.err.contains(nearest), "{args:?}: {told:?}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let table = [
        (&["acquire"][..], "<NAME>"),
        (&["acquire", "a", "--ttl", "1s"], "--holder"),
        (&["acquire", "a", "--holder", "w"], "--ttl"),
        (&["renew", "a"], "--token"),
        (&["revoke", "a"], "--reason"),
        (&["quarantine", "waive"], "--reason"),
        (&["held-by"], "<HOLDER>"),
        (&["completions"], "<SHELL>"),
    ];
    for (args, missing) in table {
        let told = usage(args);
        assert!(told.err.contains(missing), "{args:?}: {told:?}");
    }
}

#[test]
fn a_duration_without_its_unit_is_shown_how_to_write_it() {
    for ttl in ["10", "0", "-1", "10 s", "1e3", "1.5s", "NaN", "∞", "", "10S", "18446744073709551616ms"] {
        let told = usage(&["acquire", "a", "--holder", "w", &format!("--ttl={ttl}")]);
        assert!(told.err.contains("10s"), "{ttl:?}: {told:?}");
    }
    for args in [["renew", "a", "--token=x", "--ttl=5"], ["revoke", "a", "--reason=x", "--grace=5"]] {
        assert!(usage(&args).err.contains("10s"), "{args:?}");
    }
}

#[test]
fn whoever_asked_for_json_gets_it_for_wrong_usage_too() {
    let told = usage(&["acquire", "a", "--holder", "w", "--ttl", "10", "--json"]);
    let problem = told.problem();
    assert_eq!(problem["code"], "INVALID_ARGUMENT");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("10s")), "{problem}");
}

#[test]
fn wrong_endpoints_are_a_wrong_configuration() {
    for addr in ["", "host", "host:", ":1", "http://127.0.0.1:7421", "a:1,a:1", "a:1,", "a:0", "a:65536", "a:1 ,b:1"] {
        for told in [run(&mut leasehold(&["--addr", addr, "ls"])), run(leasehold(&["ls"]).env("LEASEHOLD_ADDR", addr))]
        {
            let told = told.fails(78, "leasehold: CONFIG{addr}: ");
            assert!(told.err.lines().count() == 1, "{told:?}");
        }
    }
    let problem = run(&mut leasehold(&["ls", "--addr", "host", "--json"])).problem();
    assert_eq!((&problem["code"], &problem["key"]), (&"CONFIG".into(), &"addr".into()));
}

#[test]
fn where_nobody_listens_the_next_is_asked_and_then_it_is_unavailable() {
    let server = Server::start();
    let both = format!("{NOBODY},{}", server.address);
    run(&mut leasehold(&["status", "--addr", &both])).ok();
    let told = run(&mut leasehold(&["acquire", "a", "--holder", "w", "--ttl", "1s", "--addr", NOBODY]));
    let told = told.fails(5, "leasehold: UNAVAILABLE: no server answers (");
    assert!(told.err.contains(NOBODY), "{told:?}");
}

/// Everything that callers got wrong so far, by the line that counts it.
fn counted(server: &Server) -> BTreeMap<String, u64> {
    let figures = server.http("GET", "/metrics", "", "");
    let lines = figures.lines().filter(|line| line.starts_with("leasehold_bad_input_total{"));
    let pairs = lines.map(|line| line.rsplit_once(' ').expect("a figure has a value"));
    pairs.map(|(name, value)| (name.to_owned(), value.parse().expect("a count"))).collect()
}

/// What is counted now and was not before.
fn more(server: &Server, before: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let since = |(name, now): (String, u64)| (before.get(&name).copied().unwrap_or(0), name, now);
    let grown = counted(server).into_iter().map(since).filter(|(before, _, now)| before != now);
    grown.map(|(before, name, now)| (name, now - before)).collect()
}

#[test]
fn names_and_values_are_refused_by_field_and_leave_nothing() {
    let server = Server::start();
    let before = server.json(&["status"])["counter"].clone();
    let long = "n".repeat(513);
    let deep = ["s"; 17].join("/");
    let holder = "h".repeat(129);
    let table = [
        ("", "w", "1s", "INVALID_ARGUMENT{resource"),
        (&long, "w", "1s", "INVALID_ARGUMENT{resource"),
        ("a\nb", "w", "1s", "INVALID_ARGUMENT{resource"),
        ("a//b", "w", "1s", "INVALID_ARGUMENT{resource"),
        ("/a", "w", "1s", "INVALID_ARGUMENT{resource"),
        ("a/", "w", "1s", "INVALID_ARGUMENT{resource"),
        ("a/../b", "w", "1s", "INVALID_ARGUMENT{resource"),
        ("e\u{301}", "w", "1s", "INVALID_ARGUMENT{resource"),
        ("a\u{202e}b", "w", "1s", "INVALID_ARGUMENT{resource"),
        (&deep, "w", "1s", "INVALID_ARGUMENT{resource"),
        ("_sys/a", "w", "1s", "PERMISSION_DENIED"),
        ("a/*", "w", "1s", "INVALID_ARGUMENT{resource"),
        ("a", "", "1s", "INVALID_ARGUMENT{holder"),
        ("a", &holder, "1s", "INVALID_ARGUMENT{holder"),
        ("a", "w", "0s", "INVALID_ARGUMENT{ttl"),
        ("a", "w", "99ms", "INVALID_ARGUMENT{ttl"),
        ("a", "w", "600001ms", "INVALID_ARGUMENT{ttl"),
        ("a", "w", "18446744073709551615ms", "INVALID_ARGUMENT{ttl"),
    ];
    for (name, holder, ttl, begins) in table {
        let figures = counted(&server);
        let told = server.run(&["acquire", name, "--holder", holder, "--ttl", ttl]);
        let exit = if begins.starts_with("PERMISSION") { 6 } else { 2 };
        let told = told.fails(exit, &format!("leasehold: {begins}"));
        assert!(told.err.lines().count() == 1, "{told:?}");
        let (code, field) = begins.split_once('{').unwrap_or((begins, "resource"));
        let line = format!(r#"leasehold_bad_input_total{{code="{code}",field="{field}"}}"#);
        assert_eq!(more(&server, &figures), [(line, 1)], "{told:?}");
    }
    let wrong: [&[&str]; 5] =
        [&["--wait", "25h"], &["--slots", "0"], &["--units", "0"], &["--slots", "1048577"], &["--priority", "256"]];
    for how in wrong {
        let told = server.run(&[&["acquire", "a", "--holder", "w", "--ttl", "1s"], how].concat());
        assert!(told.exit == 2 && told.err.contains(how[0].trim_start_matches('-')), "{how:?}: {told:?}");
    }
    // Whoever only looks is told before anybody is asked.
    let figures = counted(&server);
    for look in ["ls", "show", "waiters", "history", "watch"] {
        server.run(&[look, "a//b"]).fails(2, "leasehold: INVALID_ARGUMENT{");
    }
    server.run(&["held-by", &holder]).fails(2, "leasehold: INVALID_ARGUMENT{holder}: ");
    assert_eq!(more(&server, &figures), []);
    assert_eq!(server.json(&["ls"])["resources"], serde_json::json!([]), "nothing was taken");
    assert_eq!(server.json(&["status"])["counter"], before, "and no number was given out");
}

#[test]
fn no_command_takes_a_password_or_a_secret_as_an_argument() {
    for option in ["--password", "--secret", "--key", "--tls-key"] {
        usage(&["acquire", "a", "--holder", "w", "--ttl", "1s", option, "x"]);
        usage(&["serve", option, "x"]);
    }
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let server = Server::start();
    server.acquire("a", "w1");
    for args in [&["ls"][..], &["status", "--json"], &["--help"], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let output = server.command(args).stdout(writer).output().expect("the binary was built for this test");
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()), "{args:?}");
    }
}

#[test]
fn shells_can_complete_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&mut leasehold(&["completions", shell])).ok().out;
        for command in ["acquire", "held-by", "charter", "run", "elect", "progress", "completions"] {
            assert!(script.contains(command), "{shell} does not complete {command}");
        }
        assert!(!script.contains("__mind") && !script.contains("__start"), "{shell} completes what nobody types");
    }
    usage(&["completions", "cmd"]);
}
