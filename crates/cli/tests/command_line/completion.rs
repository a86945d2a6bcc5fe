//! Completion of names in bash, which is driven in a terminal as a person does, and what other shells ask for.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_testkit::tcp_proxy::{Flow, TcpProxy};

use crate::pseudo_terminal::PseudoTerminal;
use crate::support::{Server, UNUSED_ADDRESS, leasehold, run, spawn_piped};
use crate::tls::{TlsServer, WORKER};

/// bash with the completion script, in a terminal.
fn bash(address: &str) -> PseudoTerminal {
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("leasehold.bash");
    std::fs::write(&script, run(&mut leasehold(&["completions", "bash"])).ok().out).expect("the directory is writable");
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().expect("a directory");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").expect("a path"));
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile", "-i"]).env("PATH", path).env("PS1", "READY>").env("TERM", "dumb");
    command.env("LEASEHOLD_ADDR", address).env("INPUTRC", "/dev/null").env_remove("LEASEHOLD_PROFILE");
    let mut terminal = PseudoTerminal::start(&command, 200, 50);
    terminal.wait_for_text(0, "READY>");
    terminal.type_keys(&format!("bind 'set bell-style none'; source {}; echo lo''aded\n", script.display()));
    let seen = terminal.wait_for_text(0, "loaded\r\n");
    terminal.wait_for_text(seen - "loaded\r\n".len(), "READY>");
    terminal
}

/// Types a line with a tab, runs `echo` on the result, and returns what bash made of it.
#[track_caller]
fn completed(bash: &mut PseudoTerminal, line: &str) -> String {
    let from = bash.output().len();
    // The line is kept as an argument of `printf`: the shell shows which words it has.
    bash.type_keys(&format!("{line}\t"));
    let seen = bash.wait_for(from, "reply to the tab", |output| output.len() > line.len());
    bash.type_keys("\u{1}printf '<%s>' \u{5} END\n");
    bash.wait_for(seen, "the line's words", |output| output.contains("<END>"));
    let output = bash.output();
    let words = output[from..].rsplit_once("<printf>").map_or(&output[from..], |(_, words)| words);
    let start = words.find("<leasehold>").unwrap_or_else(|| panic!("no words: {output:?}"));
    bash.wait_for(seen, "another prompt", |output| {
        output.rsplit_once("<END>").is_some_and(|(_, rest)| rest.contains("READY>"))
    });
    let words = &words[start..];
    words[..words.find("<END>").expect("it was waited for")].to_owned()
}

#[test]
fn bash_completes_names_from_the_server() {
    let server = Server::start();
    for (resource, holder) in [("jobs/settle", "worker-1"), ("jobs/billing", "worker-1"), ("team/a/x", "the other")] {
        server.acquire(resource, holder);
    }
    let mut bash = bash(&server.address);
    assert_eq!(completed(&mut bash, "leasehold show jobs/s"), "<leasehold><show><jobs/settle>");
    assert_eq!(completed(&mut bash, "leasehold show te"), "<leasehold><show><team/a/x>");
    assert_eq!(completed(&mut bash, "leasehold ls te"), "<leasehold><ls><team>", "a prefix is completed by segments");
    assert_eq!(completed(&mut bash, "leasehold ls --holder wor"), "<leasehold><ls><--holder><worker-1>");
    assert_eq!(completed(&mut bash, "leasehold ls --holder=wor"), "<leasehold><ls><--holder=worker-1>");
    assert_eq!(
        completed(&mut bash, "leasehold held-by the"),
        "<leasehold><held-by><the other>",
        "a name with a space is one word"
    );
    assert_eq!(completed(&mut bash, "leasehold -o json show jobs/b"), "<leasehold><-o><json><show><jobs/billing>");
    assert_eq!(completed(&mut bash, "leasehold deadl"), "<leasehold><deadlocks>", "commands are completed as before");
    assert_eq!(completed(&mut bash, "leasehold status --sta"), "<leasehold><status><--standby>");
}

#[test]
fn bash_lists_names_that_begin_alike() {
    let server = Server::start();
    server.acquire("jobs/settle", "w1");
    server.acquire("jobs/billing", "w1");
    let mut bash = bash(&server.address);
    bash.type_keys("leasehold show jobs/\t\t");
    bash.wait_for(0, "both names", |output| output.contains("jobs/billing") && output.contains("jobs/settle"));
}

#[test]
fn bash_completes_targets_proposals_and_charters() {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("charter.toml");
    let charter = "prefix = \"jobs/settle\"\n[[charter.targets]]\nname = \"ledger\"\nat = \"sqlite:/x\"\nmode = \"cooperative\"\n";
    std::fs::write(&file, charter).expect("the directory is writable");
    server.run(&["charter", "apply", file.to_str().expect("a UTF-8 path"), "--comment", "x"]).ok();
    server.acquire("jobs/settle", "w1");
    let mut bash = bash(&server.address);
    assert_eq!(
        completed(&mut bash, "leasehold coverage jobs/settle --forget le"),
        "<leasehold><coverage><jobs/settle><--forget><ledger>"
    );
    assert_eq!(completed(&mut bash, "leasehold charter remove jo"), "<leasehold><charter><remove><jobs/settle>");
    let waiter = ["acquire", "jobs/settle", "--holder", "next-1", "--ttl", "60s", "--wait", "60s"];
    let mut waiting = spawn_piped(&mut server.command(&waiter));
    server.wait_for_waiter("jobs/settle");
    assert_eq!(
        completed(&mut bash, "leasehold handoff jobs/settle --to ne"),
        "<leasehold><handoff><jobs/settle><--to><next-1>"
    );
    waiting.kill().expect("it runs");
    waiting.wait().expect("it ends");
}

/// What `complete-names` prints for these words.
fn names(command: &mut Command) -> Vec<String> {
    let result = run(command).ok();
    assert_eq!(result.err, "", "it is silent: {result:?}");
    result.out.lines().map(str::to_owned).collect()
}

#[test]
fn nothing_is_printed_without_a_server() {
    let ask = |args: &[&str]| {
        names(leasehold(&[&["complete-names", "--"], args].concat()).env("LEASEHOLD_ADDR", UNUSED_ADDRESS))
    };
    assert_eq!(ask(&["leasehold", "show", ""]), [""; 0]);
    assert_eq!(ask(&["leasehold", "--addr", "not an address", "show", ""]), [""; 0]);
    assert_eq!(ask(&["leasehold", "--as", "no-such-profile", "show", ""]), [""; 0]);
    assert_eq!(ask(&["leasehold", "--tls-ca", "/no/such/file", "show", ""]), [""; 0]);
    let mut bash = bash(UNUSED_ADDRESS);
    assert_eq!(completed(&mut bash, "leasehold show --st"), "<leasehold><show><--standby>", "options are completed");
}

#[test]
fn a_server_that_does_not_answer_delays_the_shell_only_shortly() {
    let server = Server::start();
    server.acquire("a", "w1");
    let proxy = TcpProxy::start(&server.address);
    let ask = || {
        let mut command = leasehold(&["complete-names", "--", "leasehold", "show", ""]);
        names(command.env("LEASEHOLD_ADDR", proxy.address().to_string()))
    };
    assert_eq!(ask(), ["a"]);
    proxy.set_both(Flow::Hold);
    let started = Instant::now();
    assert_eq!(ask(), [""; 0]);
    // The limit is half a second; a request without it would end after ten.
    assert!(started.elapsed() < Duration::from_secs(8), "it has no time limit: {:?}", started.elapsed());
}

#[test]
fn other_shells_pass_words_and_get_whole_words_or_values() {
    let server = Server::start();
    server.acquire("jobs/a", "the other");
    let ask = |args: &[&str]| names(&mut server.command(&[&["complete-names"], args].concat()));
    assert_eq!(ask(&["--", "leasehold", "show", "jo"]), ["jobs/a"]);
    assert_eq!(ask(&["--", "leasehold", "ls", "--holder=th"]), ["--holder=the other"], "zsh replaces the whole word");
    assert_eq!(ask(&["--values", "--", "leasehold", "ls", "--holder=th"]), ["the other"], "fish replaces the value");
    assert_eq!(ask(&["--", "leasehold", "show", "x"]), [""; 0]);
    assert_eq!(ask(&["--", "leasehold", "run", "jobs/a", "--", "cat", "jo"]), [""; 0]);
    let unused = names(
        server.command(&["complete-names", "--", "leasehold", "--addr", UNUSED_ADDRESS, "show", ""]).env_remove("X"),
    );
    assert_eq!(unused, [""; 0], "the address of the line is used");
}

#[test]
fn profiles_are_completed_without_a_server() {
    let home = tempfile::tempdir().expect("a directory");
    for name in ["admin", "worker"] {
        let folder = home.path().join("leasehold").join(name);
        std::fs::create_dir_all(&folder).expect("a directory");
        std::fs::write(folder.join("profile.toml"), "").expect("a file");
    }
    std::fs::create_dir_all(home.path().join("leasehold/none")).expect("a directory");
    let mut command = leasehold(&["complete-names", "--", "leasehold", "--as", ""]);
    assert_eq!(names(command.env("XDG_CONFIG_HOME", home.path())), ["admin", "worker"]);
}

#[test]
fn only_names_that_the_caller_may_list_are_offered() {
    let server = TlsServer::start();
    let (admin, worker) = (server.client("admin", crate::tls::ADMIN), server.client("worker", WORKER));
    for resource in ["jobs/a", "secret/b"] {
        server.run(&admin, &["acquire", resource, "--holder", "w1", "--ttl", "60s"]).ok();
    }
    let rules = format!(
        "[[grant]]\nprincipal = \"{}\"\nrole = \"admin\"\nprefix = \"\"\n[[grant]]\nprincipal = \"{WORKER}\"\nrole = \"observer\"\nprefix = \"jobs\"\n",
        crate::tls::ADMIN
    );
    std::fs::write(&server.access, rules).expect("the file is writable");
    server.server.signal("HUP");
    server.server.wait_for_log("access");
    let ask = |certificate| names(&mut server.command(certificate, &["complete-names", "--", "leasehold", "show", ""]));
    assert_eq!(ask(&admin), ["jobs/a", "secret/b"]);
    assert_eq!(ask(&worker), ["jobs/a"]);
}
