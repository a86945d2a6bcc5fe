//! Wrong usage and invalid values: exit codes, and messages that show the correct form.

mod support;

use std::collections::BTreeMap;

use support::{CommandRun, Server, UNUSED_ADDRESS, leasehold, run};

fn usage(args: &[&str]) -> CommandRun {
    let result = run(&mut leasehold(args));
    assert_eq!((result.exit, result.out.as_str()), (2, ""), "{args:?}: {result:?}");
    result
}

#[test]
fn a_typo_suggests_the_nearest_word() {
    let table = [
        (&["aquire"][..], "'acquire'"),
        (&["acquire", "a", "--holdr", "w"], "'--holder'"),
        (&["ls", "--jsn"], "'--json'"),
        (&["charter", "chek", "f"], "'check'"),
    ];
    for (args, nearest) in table {
        let result = usage(args);
        assert!(result.err.contains(nearest), "{args:?}: {result:?}");
    }
}

#[test]
fn missing_arguments_are_named() {
    let table = [
        (&["acquire"][..], "<RESOURCE>"),
        (&["acquire", "a", "--ttl", "1s"], "--holder"),
        (&["acquire", "a", "--holder", "w"], "--ttl"),
        (&["renew", "a"], "--token"),
        (&["revoke", "a"], "--comment"),
        (&["quarantine", "waive"], "--comment"),
        (&["held-by"], "<HOLDER>"),
        (&["completions"], "<SHELL>"),
    ];
    for (args, missing) in table {
        let result = usage(args);
        assert!(result.err.contains(missing), "{args:?}: {result:?}");
    }
}

#[test]
fn a_duration_without_a_unit_is_rejected_with_an_example() {
    for ttl in ["10", "0", "-1", "10 s", "1e3", "1.5s", "NaN", "∞", "", "10S", "18446744073709551616ms"] {
        let result = usage(&["acquire", "a", "--holder", "w", &format!("--ttl={ttl}")]);
        assert!(result.err.contains("10s"), "{ttl:?}: {result:?}");
    }
    for args in [["renew", "a", "--token=x", "--ttl=5"], ["revoke", "a", "--comment=x", "--grace=5"]] {
        assert!(usage(&args).err.contains("10s"), "{args:?}");
    }
}

#[test]
fn usage_errors_are_json_with_the_json_flag() {
    let result = usage(&["acquire", "a", "--holder", "w", "--ttl", "10", "--json"]);
    let problem = result.problem();
    assert_eq!(problem["code"], "INVALID_ARGUMENT");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("10s")), "{problem}");
}

#[test]
fn invalid_addresses_are_configuration_errors() {
    for addr in ["", "host", "host:", ":1", "http://127.0.0.1:7421", "a:1,a:1", "a:1,", "a:0", "a:65536", "a:1 ,b:1"] {
        for result in
            [run(&mut leasehold(&["--addr", addr, "ls"])), run(leasehold(&["ls"]).env("LEASEHOLD_ADDR", addr))]
        {
            let result = result.fails(78, "leasehold: CONFIG{addr}: ");
            assert!(result.err.lines().count() == 1, "{result:?}");
        }
    }
    let problem = run(&mut leasehold(&["ls", "--addr", "host", "--json"])).problem();
    assert_eq!((&problem["code"], &problem["key"]), (&"CONFIG".into(), &"addr".into()));
}

#[test]
fn unreachable_servers_are_skipped_and_then_reported_as_unavailable() {
    let server = Server::start();
    let both = format!("{UNUSED_ADDRESS},{}", server.address);
    run(&mut leasehold(&["status", "--addr", &both])).ok();
    let result = run(&mut leasehold(&["acquire", "a", "--holder", "w", "--ttl", "1s", "--addr", UNUSED_ADDRESS]));
    let result = result.fails(5, "leasehold: UNAVAILABLE: no server answered (");
    assert!(result.err.contains(UNUSED_ADDRESS), "{result:?}");
}

/// The metrics that count bad input, by line.
fn bad_input_counts(server: &Server) -> BTreeMap<String, u64> {
    let metrics = server.http("GET", "/metrics", "", "");
    let lines = metrics.lines().filter(|line| line.starts_with("leasehold_invalid_requests_total{"));
    let pairs = lines.map(|line| line.rsplit_once(' ').expect("a figure has a value"));
    pairs.map(|(name, value)| (name.to_owned(), value.parse().expect("a count"))).collect()
}

/// The counts that have increased, and by how much.
fn increases(server: &Server, before: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let since = |(name, now): (String, u64)| (before.get(&name).copied().unwrap_or(0), name, now);
    let grown = bad_input_counts(server).into_iter().map(since).filter(|(before, _, now)| before != now);
    grown.map(|(before, name, now)| (name, now - before)).collect()
}

#[test]
fn invalid_names_and_values_are_rejected_by_field_without_a_trace() {
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
    for (name, holder, ttl, prefix) in table {
        let metrics = bad_input_counts(&server);
        let result = server.run(&["acquire", name, "--holder", holder, "--ttl", ttl]);
        let exit = if prefix.starts_with("PERMISSION") { 6 } else { 2 };
        let result = result.fails(exit, &format!("leasehold: {prefix}"));
        assert!(result.err.lines().count() == 1, "{result:?}");
        let (code, field) = prefix.split_once('{').unwrap_or((prefix, "resource"));
        let line = format!(r#"leasehold_invalid_requests_total{{code="{code}",field="{field}"}}"#);
        assert_eq!(increases(&server, &metrics), [(line, 1)], "{result:?}");
    }
    let wrong: [&[&str]; 5] =
        [&["--wait", "25h"], &["--slots", "0"], &["--units", "0"], &["--slots", "1048577"], &["--priority", "256"]];
    for options in wrong {
        let result = server.run(&[&["acquire", "a", "--holder", "w", "--ttl", "1s"], options].concat());
        assert!(result.exit == 2 && result.err.contains(options[0].trim_start_matches('-')), "{options:?}: {result:?}");
    }
    // Read-only commands validate names before they call the server.
    let metrics = bad_input_counts(&server);
    for command in ["ls", "show", "waiters", "history", "watch"] {
        server.run(&[command, "a//b"]).fails(2, "leasehold: INVALID_ARGUMENT{");
    }
    server.run(&["held-by", &holder]).fails(2, "leasehold: INVALID_ARGUMENT{holder}: ");
    assert_eq!(increases(&server, &metrics), []);
    assert_eq!(server.json(&["ls"])["resources"], serde_json::json!([]), "nothing was acquired");
    assert_eq!(server.json(&["status"])["counter"], before, "no token number was issued");
}

#[test]
fn no_command_accepts_a_password_or_secret_as_an_argument() {
    for option in ["--password", "--secret", "--key", "--tls-password"] {
        usage(&["acquire", "a", "--holder", "w", "--ttl", "1s", option, "x"]);
        usage(&["serve", option, "x"]);
    }
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let server = Server::start();
    server.acquire("a", "w1");
    for args in [&["ls"][..], &["status", "--json"], &["--help"], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = server.command(args).stdout(writer).output().expect("the binary was built for this test");
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()), "{args:?}");
    }
}

#[test]
fn completion_scripts_contain_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&mut leasehold(&["completions", shell])).ok().out;
        for command in ["acquire", "held-by", "charter", "run", "elect", "progress", "completions"] {
            assert!(script.contains(command), "{shell} does not complete {command}");
        }
        assert!(!script.contains("__supervise") && !script.contains("__exec"), "{shell} completes an internal command");
    }
    usage(&["completions", "cmd"]);
}
