//! `leasehold doctor` about one machine: clocks, disk, limits, configuration and certificates.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{CommandRun, Server, UNUSED_ADDRESS, leasehold, run};

/// The findings of a run.
pub struct Findings {
    pub run: CommandRun,
    body: Value,
}

impl Findings {
    #[track_caller]
    pub fn of(command: &mut Command) -> Self {
        let run = run(command.args(["-o", "json"]));
        assert!(matches!(run.exit, 0 | 8), "{run:?}");
        let body = run.json();
        let count = |status: &str| {
            let all = body["checks"].as_array().expect("an array").iter();
            Value::from(all.filter(|check| check["status"] == status).count())
        };
        assert_eq!(
            (&body["errors"], &body["warnings"], &body["not_checked"]),
            (&count("error"), &count("warning"), &count("not_checked"))
        );
        assert_eq!(run.exit == 8, body["errors"] != 0, "{body}");
        for check in body["checks"].as_array().expect("an array") {
            assert_eq!(check["status"] == "ok", check["next_step"].is_null(), "a problem has a next step: {check}");
        }
        Self { run, body }
    }

    /// The findings of a check, as `status: message; next step`.
    pub fn all(&self, check: &str) -> Vec<String> {
        let all = self.body["checks"].as_array().expect("an array").iter().filter(|one| one["check"] == check);
        let text = |one: &Value| {
            let next = one["next_step"].as_str().map(|next| format!("; {next}")).unwrap_or_default();
            format!("{}: {}{next}", one["status"].as_str().expect("a word"), one["message"].as_str().expect("a text"))
        };
        all.map(text).collect()
    }

    #[track_caller]
    pub fn one(&self, check: &str) -> String {
        let found = self.all(check);
        assert_eq!(found.len(), 1, "{check}: {}", self.body);
        found.into_iter().next().expect("there is one")
    }

    /// The status of a check.
    #[track_caller]
    pub fn status(&self, check: &str) -> String {
        self.one(check).split(':').next().expect("a word").to_owned()
    }
}

/// The findings without a server.
fn doctor(args: &[&str]) -> Findings {
    Findings::of(leasehold(&[&["doctor"], args].concat()).env("LEASEHOLD_ADDR", UNUSED_ADDRESS))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

#[test]
fn the_machine_is_checked_without_a_server() {
    let data = tempfile::tempdir().expect("a directory");
    let found = doctor(&["--data", text(data.path())]);
    assert_eq!(found.run.exit, 8, "the server is missing");
    assert_eq!(found.status("clock"), "ok");
    for check in ["file_system", "sync_latency", "disk_space", "open_files", "core_dumps", "processes", "time_service"]
    {
        assert_eq!(found.all(check).len(), 1, "{check}");
    }
    assert!(found.one("connection").starts_with("error: cannot connect: "), "{}", found.one("connection"));
    for check in ["api", "version", "leader", "journal", "coverage", "backup"] {
        assert_eq!(found.status(check), "not_checked", "what was not checked is not in order");
    }
    assert_eq!(std::fs::read_dir(data.path()).expect("a directory").count(), 0, "nothing is left in the directory");
    let none = doctor(&[]);
    assert!(none.one("sync_latency").starts_with("not_checked: the data directory is not given; pass --data"));
}

#[test]
fn every_line_for_people_has_a_status_and_a_problem_has_a_next_step() {
    let found = run(leasehold(&["doctor"]).env("LEASEHOLD_ADDR", UNUSED_ADDRESS));
    assert_eq!(found.exit, 8);
    let lines: Vec<_> = found.out.lines().collect();
    assert!(lines.len() > 10, "{found:?}");
    for line in &lines {
        let status = ["ok  ", "warning  ", "error  ", "not checked  "].iter().find(|status| line.starts_with(**status));
        let status = status.unwrap_or_else(|| panic!("no status: {line}"));
        assert!(status.starts_with("ok") || line.contains("; "), "no next step: {line}");
    }
    assert!(found.err.contains(" error") && found.err.contains(" not checked"), "{found:?}");
    let colored = run(leasehold(&["doctor", "--color", "always"]).env("LEASEHOLD_ADDR", UNUSED_ADDRESS));
    assert!(colored.out.contains("\u{1b}[1;31merror      \u{1b}[0m"), "{colored:?}");
}

#[test]
fn a_missing_directory_is_an_error_and_a_future_one_is_not() {
    let parent = tempfile::tempdir().expect("a directory");
    let future = doctor(&["--data", text(&parent.path().join("new"))]);
    assert_ne!(future.status("disk_space"), "not_checked");
    assert!(!parent.path().join("new").exists());
    let missing = doctor(&["--data", text(&parent.path().join("no/such"))]);
    assert!(
        missing.one("file_system").starts_with("error: the directory does not exist"),
        "{}",
        missing.one("file_system")
    );
}

/// Runs doctor on a directory in memory of 1 MiB, as root of its own mount namespace. `fill` uses all of it first.
fn doctor_in_memory(fill: bool) -> Findings {
    let directory = tempfile::tempdir().expect("a directory");
    let fill = if fill { "head -c 2m /dev/zero > \"$1/ballast\" 2>/dev/null; " } else { "" };
    let script = format!(
        "mount -t tmpfs -o size=1m tmpfs \"$1\" && {{ {fill}exec \"$2\" doctor --data \"$1\" --addr {UNUSED_ADDRESS} -o json; }}"
    );
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(directory.path()).arg(env!("CARGO_BIN_EXE_leasehold"));
    let result = run(&mut command);
    assert!(result.exit == 8, "{result:?}");
    Findings { body: result.json(), run: result }
}

#[test]
fn a_disk_in_memory_is_a_warning_and_a_full_one_an_error() {
    let small = doctor_in_memory(false);
    assert!(small.one("file_system").starts_with("warning: the journal is on tmpfs"), "{}", small.one("file_system"));
    assert!(
        small.one("disk_space").starts_with("error: 1 MiB are free")
            || small.one("disk_space").starts_with("error: 0 MiB are free")
    );
    assert_ne!(small.status("sync_latency"), "not_checked");
    let full = doctor_in_memory(true);
    assert!(full.one("disk_space").starts_with("error: 0 MiB are free; free space"), "{}", full.one("disk_space"));
    assert!(full.one("sync_latency").starts_with("error: cannot write: "), "{}", full.one("sync_latency"));
}

#[test]
fn limits_are_those_of_this_process_or_of_a_server() {
    let under = |limits: &str| {
        let script = format!("{limits}; exec \"$0\" doctor --addr {UNUSED_ADDRESS} -o json");
        let result = run(Command::new("sh").args(["-c", &script]).arg(env!("CARGO_BIN_EXE_leasehold")));
        Findings { body: result.json(), run: result }
    };
    let few = under("ulimit -n 64; ulimit -c 0");
    assert!(
        few.one("open_files").starts_with("error: 64 open files; set LimitNOFILE=10200"),
        "{}",
        few.one("open_files")
    );
    assert_eq!(few.status("core_dumps"), "ok");
    let some = under("ulimit -n 1000");
    assert!(some.one("open_files").starts_with("warning: 1000 open files, and a server accepts 10000 connections"));
    let script = "ulimit -S -c unlimited 2>/dev/null || ulimit -S -c \"$(ulimit -H -c)\"";
    let dumps = under(script);
    let allowed = run(Command::new("sh").args(["-c", &format!("{script}; ulimit -c")]));
    assert_eq!(dumps.status("core_dumps") == "ok", allowed.out.trim() == "0", "{}", dumps.one("core_dumps"));
    let server = Server::start();
    let pid = run(Command::new("sh")
        .args(["-c", &format!("grep -l {} /proc/[0-9]*/cmdline | cut -d/ -f3", server.data.path().display())]));
    let pid = pid.out.lines().next().expect("the server runs").to_owned();
    let found = Findings::of(&mut server.command(&["doctor", "--pid", &pid]));
    assert!(found.run.out.contains(&format!("process {pid}")));
    assert_ne!(found.status("open_files"), "not_checked");
    let gone = doctor(&["--pid", "4194305"]);
    assert_eq!(gone.status("open_files"), "not_checked");
}

#[test]
fn the_time_service_is_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let fake = directory.path().join("timedatectl");
    let answer = |text: &str| {
        std::fs::write(&fake, format!("#!/bin/sh\necho {text}\n")).expect("the directory is writable");
        std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
        let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").expect("a path"));
        let mut command = leasehold(&["doctor", "--addr", UNUSED_ADDRESS]);
        Findings::of(command.env("PATH", path)).one("time_service")
    };
    assert_eq!(answer("yes"), "ok: the wall clock is synchronized");
    assert!(answer("no").starts_with("warning: the wall clock is not synchronized; run a time service"));
}

#[test]
fn a_boot_clock_without_suspend_is_an_error() {
    let script = format!("exec \"$0\" doctor --addr {UNUSED_ADDRESS} -o json");
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--time", "--monotonic=100000", "--fork", "sh", "-c", &script, env!("CARGO_BIN_EXE_leasehold")]);
    let result = run(&mut command);
    let found = Findings { body: result.json(), run: result };
    assert!(
        found.one("clock").starts_with("error: the boot clock is behind the monotonic clock"),
        "{}",
        found.one("clock")
    );
}

#[test]
fn a_configuration_and_its_certificates_are_checked() {
    let home = tempfile::tempdir().expect("a directory");
    let directory = home.path().join("server");
    let init = |days: &str, name: &str| {
        let target = home.path().join(name);
        let mut command = leasehold(&["init", text(&target), "--days", days, "--profile", name]);
        run(command.env("XDG_CONFIG_HOME", home.path())).ok();
        target
    };
    let config = init("90", "server").join("leasehold.toml");
    let good = doctor(&["--config", text(&config)]);
    assert_eq!(good.status("config"), "ok", "{}", good.one("config"));
    assert!(
        good.all("certificate").iter().all(|found| found.starts_with("ok: valid until ")),
        "{:?}",
        good.all("certificate")
    );
    assert!(!good.all("certificate").is_empty());
    let soon = init("5", "soon").join("leasehold.toml");
    let soon = doctor(&["--config", text(&soon)]);
    assert!(
        soon.all("certificate")
            .iter()
            .any(|found| found.starts_with("warning: it ends on ") && found.contains("ca renew")),
        "{:?}",
        soon.all("certificate")
    );

    std::fs::write(directory.join("access.toml"), "nonsense = 1\n").expect("the file is writable");
    let bad = doctor(&["--config", text(&config)]);
    assert!(
        bad.one("config").starts_with("error: ") && bad.one("config").contains("config check"),
        "{}",
        bad.one("config")
    );
    let file = home.path().join("plain.toml");
    std::fs::write(&file, "listen = \"0.0.0.0:7421\"\ninsecure_listen = true\njournal = \"memory\"\n").expect("a file");
    let plain = doctor(&["--config", text(&file)]);
    assert!(
        plain
            .all("config")
            .iter()
            .any(|found| found.starts_with("warning: the server listens on 0.0.0.0:7421 without TLS"))
    );
    assert!(plain.one("disk_space").starts_with("not_checked: the journal is in memory"));
    std::fs::write(&file, "max_connections = 50\nno_such_key = 1\n").expect("a file");
    let unknown = doctor(&["--config", text(&file)]);
    assert!(unknown.one("config").starts_with("error: ") && unknown.one("config").contains("no_such_key"));
    std::fs::write(&file, "max_connections = 70\n").expect("a file");
    let script =
        format!("ulimit -n 200; exec \"$0\" doctor --config {} --addr {UNUSED_ADDRESS} -o json", file.display());
    let few = run(Command::new("sh").args(["-c", &script]).arg(env!("CARGO_BIN_EXE_leasehold")));
    let few = Findings { body: few.json(), run: few };
    assert!(few.one("open_files").contains("a server accepts 70 connections"), "{}", few.one("open_files"));
}
