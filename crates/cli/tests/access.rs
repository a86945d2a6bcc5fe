//! The access file of a real server: identities by unix socket, reloads, and errors with file, line and key.

mod support;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use support::{CommandRun, Server, leasehold, run};
use tempfile::TempDir;

/// A server with an access file and a unix socket.
struct Setup {
    directory: TempDir,
    server: Server,
}

/// The user id of this test.
fn my_uid() -> u32 {
    std::fs::metadata("/proc/self").expect("the process exists").uid()
}

/// A grant to this user.
fn mine(role: &str, prefix: &str) -> String {
    format!("[[grant]]\nprincipal = \"uid:{}\"\nrole = {role:?}\nprefix = {prefix:?}\n", my_uid())
}

const ANONYMOUS: &str = "[[grant]]\nprincipal = \"anonymous\"\nrole = \"observer\"\nprefix = \"public\"\n";

impl Setup {
    fn start(access: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).to_str().expect("a UTF-8 path").to_owned();
        std::fs::write(path("access.toml"), access).expect("the file is writable");
        let (data, access, socket) = (path("data"), path("access.toml"), path("socket"));
        let mut all = vec!["--listen", "127.0.0.1:0", "--data", &data, "--access", &access, "--socket", &socket];
        all.extend(flags);
        let server = Server::with_flags(&all);
        Self { directory, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes the access file as an editor does: a new file in its place.
    fn write_access(&self, access: &str) {
        std::fs::write(self.path("new.toml"), access).expect("the file is writable");
        std::fs::rename(self.path("new.toml"), self.path("access.toml")).expect("the file can be replaced");
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = leasehold(args);
        command.env("LEASEHOLD_ADDR", format!("unix:{}", self.path("socket").display()));
        command
    }

    /// Runs a command over the unix socket.
    fn run(&self, args: &[&str]) -> CommandRun {
        run(&mut self.command(args))
    }
}

#[test]
fn a_user_of_the_socket_has_its_grants_and_a_plain_connection_those_of_anonymous() {
    let setup = Setup::start(&format!("{}{ANONYMOUS}", mine("holder", "jobs")), &[]);
    setup.run(&["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).ok();
    setup.run(&["acquire", "public/a", "--holder", "w", "--ttl", "60s"]).fails(6, "leasehold: PERMISSION_DENIED");
    setup.run(&["show", "jobs/a"]).ok();
    let hidden = setup.run(&["show", "public/a"]).fails(1, "leasehold: NOT_FOUND");
    assert_eq!(hidden.out, "", "nothing is shown");
    setup.run(&["revoke", "jobs/a", "--comment", "c"]).fails(6, "leasehold: PERMISSION_DENIED");
    setup
        .run(&["backup", setup.path("backup").to_str().expect("a UTF-8 path")])
        .fails(6, "leasehold: PERMISSION_DENIED");
    // From the same machine, but without an identity.
    setup.server.run(&["status"]).ok();
    setup.server.run(&["acquire", "jobs/b", "--holder", "w", "--ttl", "60s"]).fails(6, "leasehold: PERMISSION_DENIED");
    setup.server.run(&["show", "jobs/a"]).fails(1, "leasehold: NOT_FOUND");
    let line = setup.server.wait_for_log("request denied");
    for part in ["principal=", "via=", "action=", "reason="] {
        assert!(line.contains(part), "{line}");
    }
    for path in ["/healthz", "/readyz", "/v1/openapi.json"] {
        assert!(setup.server.http("GET", path, "", "").starts_with("HTTP/1.1 200"), "{path}");
    }
    assert!(setup.server.http("GET", "/metrics", "", "").starts_with("HTTP/1.1 403"));
}

#[test]
fn sighup_applies_the_access_file_and_an_invalid_one_changes_nothing() {
    let setup = Setup::start(&mine("holder", "jobs"), &[]);
    setup.run(&["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).ok();
    setup.write_access(&mine("holder", "disks"));
    setup.server.signal("HUP");
    setup.server.wait_for_log("access rules reloaded");
    setup.run(&["acquire", "jobs/b", "--holder", "w", "--ttl", "60s"]).fails(6, "leasehold: PERMISSION_DENIED");
    setup.run(&["acquire", "disks/a", "--holder", "w", "--ttl", "60s"]).ok();
    setup.write_access(&mine("root", "jobs"));
    setup.server.signal("HUP");
    let line = setup.server.wait_for_log("access rules unchanged");
    assert!(line.contains("access.toml, 3, role}") && line.contains("unknown role"), "{line}");
    setup.run(&["acquire", "disks/b", "--holder", "w", "--ttl", "60s"]).ok();
}

#[test]
fn a_changed_access_file_is_noticed_without_a_signal_and_ends_watches() {
    let setup = Setup::start(&mine("admin", ""), &["--file-check", "1"]);
    let mut watch = support::spawn_piped(&mut setup.command(&["watch"]));
    setup.run(&["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).ok();
    let mut lines = std::io::BufReader::new(watch.stdout.take().expect("the output is piped"));
    let mut line = String::new();
    // The watch is open once it has shown an event; acquires repeat until then.
    let mut number = 0;
    let (sender, first) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        std::io::BufRead::read_line(&mut lines, &mut line).expect("the watch prints");
        sender.send(()).expect("the test waits");
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut lines, &mut rest).expect("the watch ends");
    });
    while first.recv_timeout(std::time::Duration::from_millis(200)).is_err() {
        number += 1;
        assert!(number < 300, "the watch shows no event");
        setup.run(&["acquire", &format!("jobs/{number}"), "--holder", "w", "--ttl", "60s"]).ok();
    }
    setup.write_access(ANONYMOUS);
    setup.server.wait_for_log("access rules reloaded");
    let ended = support::wait_for_output(watch);
    assert_eq!(ended.exit, 6, "{}", ended.err);
    assert!(ended.err.contains("PERMISSION_DENIED"), "{}", ended.err);
    reader.join().expect("the reader does not panic");
    setup.run(&["status"]).fails(6, "leasehold: PERMISSION_DENIED");
}

#[test]
fn an_invalid_access_file_stops_the_start_and_the_check_with_file_line_and_key() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    let config = path("leasehold.toml");
    let text = format!("listen = \"127.0.0.1:0\"\ndata = {:?}\naccess = {:?}\n", path("data"), path("access.toml"));
    std::fs::write(&config, text).expect("the file is writable");
    let cases = [
        ("", "access.toml, grant}", "no grant"),
        ("[[grant]]\nprincipal = \"uid:1\"\nrole = \"holder\"\n", "prefix}", "missing field"),
        (
            "[[grant]]\nprincipal = \"root\"\nrole = \"admin\"\nprefix = \"\"\n",
            "access.toml, 2, principal}",
            "not a principal",
        ),
        (
            "[[grant]]\nprincipal = \"uid:1\"\nrole = \"admin\"\nprefix = \"a\"\n",
            "access.toml, 4, prefix}",
            "whole cluster",
        ),
        (
            "[[grant]]\nprincipal = \"uid:1\"\nrole = \"holder\"\nprefix = \"a\"\ndeny = true\n",
            "access.toml, 5, deny}",
            "",
        ),
    ];
    for (access, place, message) in cases {
        std::fs::write(path("access.toml"), access).expect("the file is writable");
        for command in [vec!["serve", "--config", &config], vec!["config", "check", &config]] {
            let failed = run(&mut leasehold(&command)).fails(78, "leasehold: CONFIG{");
            assert!(failed.err.contains(place) && failed.err.contains(message), "{access:?}: {}", failed.err);
        }
    }
    std::fs::remove_file(path("access.toml")).expect("the file exists");
    run(&mut leasehold(&["serve", "--config", &config])).fails(78, "leasehold: CONFIG{");
    std::fs::write(path("access.toml"), mine("admin", "")).expect("the file is writable");
    run(&mut leasehold(&["config", "check", &config])).ok();
}

#[test]
fn a_dangerous_command_waits_for_a_second_identity() {
    let two = "[[grant]]\nprincipal = \"anonymous\"\nrole = \"approver\"\nprefix = \"\"\n\
               [two_person]\nactions = [\"set_max_ttl\", \"revoke\"]\nrevoke_up_to = 1\n";
    let setup = Setup::start(&format!("{}{two}", mine("admin", "")), &[]);
    let set = ["cluster", "set-max-ttl", "20m", "--comment", "slow batches"];
    let waits = setup.run(&set).fails(8, "leasehold: APPROVAL_REQUIRED{1}");
    assert!(waits.err.contains("leasehold approve 1"), "{}", waits.err);
    setup.run(&set).fails(8, "leasehold: APPROVAL_REQUIRED{1}");
    let listed = setup.run(&["proposals"]).ok().out;
    for part in ["set max ttl to 20m", "slow batches", &format!("uid:{}", my_uid())] {
        assert!(listed.contains(part), "{part} is missing in {listed}");
    }
    setup.run(&["approve", "1"]).fails(6, "leasehold: PERMISSION_DENIED");
    setup.server.run(&["approve", "1", "--digest", "00"]).fails(2, "error: invalid value '00' for '--digest <HEX>'");
    let digest = listed.split_whitespace().find(|word| word.len() == 16 && word.bytes().all(|b| b.is_ascii_hexdigit()));
    let other = digest.expect("the list shows the digest").replace(char::is_alphanumeric, "0");
    setup.server.run(&["approve", "1", "--digest", &other]).fails(1, "leasehold: CONFLICT");
    setup.server.run(&["approve", "2"]).fails(1, "leasehold: NOT_FOUND");
    let done = setup.server.run(&["approve", "1"]).ok().out;
    assert!(done.contains("approved and executed proposal 1") && done.contains("set max ttl to 20m"), "{done}");
    setup.server.run(&["approve", "1"]).fails(1, "leasehold: NOT_FOUND");
    assert!(setup.run(&["status", "--json"]).ok().out.contains("1200000"), "the ttl was changed");
    // One lease is revoked without an approval; the withdrawn proposal is not executed.
    setup.run(&["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).ok();
    setup.run(&["revoke", "jobs/a", "--comment", "c"]).ok();
    setup.run(&["cluster", "set-max-ttl", "30m", "--comment", "more"]).fails(8, "leasehold: APPROVAL_REQUIRED{2}");
    setup.run(&["proposals", "cancel", "2"]).ok();
    setup.server.run(&["approve", "2"]).fails(1, "leasehold: NOT_FOUND");
    let history = setup.run(&["history", "--json"]).ok().out;
    for part in ["proposed", "proposal_approved", "proposal_canceled", "anonymous"] {
        assert!(history.contains(part), "{part} is missing in {history}");
    }
}

#[test]
fn other_ways_to_a_dangerous_effect_wait_too_and_who_may_act_alone_gives_a_reason() {
    let rules = |alone: &str| {
        let approver = "[[grant]]\nprincipal = \"anonymous\"\nrole = \"approver\"\nprefix = \"\"\n";
        let others = ["holder", "observer"].map(|role| approver.replace("approver", role)).concat();
        format!("{}{approver}{others}[two_person]\nactions = [\"revoke\"]\n{alone}", mine("admin", ""))
    };
    let setup = Setup::start(&rules(""), &[]);
    setup.server.run(&["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).ok();
    let charter = setup.path("preempt.toml");
    let text = "[[charters]]\nprefix = \"jobs\"\ncharter = { preemption = { rule = \"lower_priority\", grace_ms = 1 } }\n\
                [[charters]]\nprefix = \"disks\"\ncharter = {}\n";
    std::fs::write(&charter, text).expect("the file is writable");
    let apply = ["charter", "apply", charter.to_str().expect("a path"), "--comment", "faster"];
    let both = setup.run(&apply).fails(8, "leasehold: APPROVAL_REQUIRED");
    assert!(both.err.contains("each of 1, 2"), "{}", both.err);
    let handoff = ["handoff", "jobs/a", "--to", "w2", "--gap", "--drain", "2s"];
    setup.run(&handoff).fails(8, "leasehold: APPROVAL_REQUIRED{3}");
    let listed = setup.server.run(&["proposals"]).ok().out;
    for part in [
        "set charter jobs",
        "handoff jobs/a (1 lease) to w2 with gap, drain 2s",
        "charter of proposal 1: ",
        "lower_priority",
    ] {
        assert!(listed.contains(part), "{part} is missing in {listed}");
    }
    // The holder of the proposal ends, another one comes: the approval does not hit it.
    setup.run(&["revoke", "jobs/a", "--comment", "it hangs"]).fails(8, "leasehold: APPROVAL_REQUIRED{4}");
    let alone = ["revoke", "jobs/a", "--comment", "it hangs", "--alone", "the site is down; größer"];
    let denied = setup.run(&alone).fails(6, "leasehold: PERMISSION_DENIED");
    assert!(denied.err.contains("act alone"), "{}", denied.err);
    setup.write_access(&rules(&format!("alone = [\"uid:{}\"]\n", my_uid())));
    setup.server.signal("HUP");
    setup.server.wait_for_log("access rules reloaded");
    setup.run(&["revoke", "jobs/a", "--comment", "it hangs", "--alone", " "]).fails(2, "error");
    setup.run(&alone).ok();
    setup.server.wait_for_log("ACTED_ALONE");
    setup.server.run(&["acquire", "jobs/a", "--holder", "other", "--ttl", "60s"]).ok();
    let changed = setup.server.run(&["approve", "4"]).fails(1, "leasehold: CONFLICT{lease}");
    assert!(changed.err.contains("not the ones that were named"), "{}", changed.err);
    assert!(setup.run(&["show", "jobs/a"]).ok().out.contains("other"), "the new holder has it");
    let history = setup.run(&["history", "--json"]).ok().out;
    for part in ["\"kind\":\"acted_alone\"", "the site is down; größer", "\"proposal\":4"] {
        assert!(history.contains(part), "{part} is missing in {history}");
    }
    let metrics = setup.server.http("GET", "/metrics", "", "");
    assert!(metrics.contains("leasehold_acts_alone_total{action=\"revoke\"} 1"), "{metrics}");
}

#[test]
fn an_identity_at_its_limit_is_refused_and_an_invalid_limit_names_its_line() {
    let limit = format!("[[limit]]\nprincipal = \"uid:{}\"\nleases = 1\n", my_uid());
    let setup = Setup::start(&format!("{}{limit}", mine("holder", "jobs")), &[]);
    setup.run(&["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).ok();
    let refused = setup.run(&["acquire", "jobs/b", "--holder", "w", "--ttl", "60s"]);
    let refused = refused.fails(7, "leasehold: RESOURCE_EXHAUSTED{identity_leases, 1, 2}");
    assert!(refused.err.contains("ask an administrator"), "{}", refused.err);
    setup.server.wait_for_log("limit of an identity reached");
    setup.write_access(&format!("{}{}", mine("holder", "jobs"), limit.replace("leases = 1", "leases = -1")));
    setup.server.signal("HUP");
    let line = setup.server.wait_for_log("access rules unchanged");
    assert!(line.contains("access.toml, 7, leases}"), "{line}");
    setup.write_access(&format!("{}{}", mine("holder", "jobs"), limit.replace("leases = 1", "leases = 2")));
    setup.server.signal("HUP");
    setup.server.wait_for_log("access rules reloaded");
    setup.run(&["acquire", "jobs/b", "--holder", "w", "--ttl", "60s"]).ok();
}
