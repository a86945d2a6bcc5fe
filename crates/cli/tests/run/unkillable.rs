//! A process that the wrapper's user may not kill: its lease is not released.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Signal, geteuid, kill_process};

use crate::harness::{Fixture, WrapperProcess, is_alive};

/// A setuid-root program, like `sudo`.
fn becomes_root(directory: &Path) -> String {
    let setpriv = std::env::split_paths(&std::env::var_os("PATH").expect("it is set"))
        .map(|at| at.join("setpriv"))
        .find(|path| path.exists())
        .expect("util-linux contains setpriv");
    let path = directory.join("root");
    std::fs::copy(setpriv, &path).expect("copied");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).expect("permissions are set");
    format!("{} --reuid=0", path.display())
}

#[test]
fn a_process_that_the_user_may_not_kill_keeps_the_lease_until_its_ttl_ends() {
    assert!(geteuid().is_root(), "this test creates a setuid-root program; run it as root");
    let fixture = Fixture::new();
    std::fs::set_permissions(fixture.tmp_dir.path(), PermissionsExt::from_mode(0o777)).expect("permissions are set");
    let tools = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(tools.path(), PermissionsExt::from_mode(0o755)).expect("permissions are set");
    let nobody = ["env", "--default-signal", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let cases = [
        // The command exits and leaves the process; the wrapper exits with the command's code.
        (["run", "a", "--ttl", "4s"], "exit 6", 6),
        // A candidate does not campaign again while the process is alive.
        (["elect", "b", "--ttl", "4s"], "exit 6", 1),
    ];
    for (args, last, exit) in cases {
        let name = args[1];
        // The process prints its id when it is root, and closes the wrapper's pipes.
        let script = format!(
            "{} sh -c 'echo unkillable $$; exec sleep 600 <&- >&- 2>&-' & read line; {last}",
            becomes_root(tools.path())
        );
        let mut wrapped = WrapperProcess::start(
            &mut fixture.started_by(&nobody, &[&args[..], &["--", "sh", "-c", &script]].concat()),
        );
        let unkillable = wrapped.wait_pid("unkillable");
        wrapped.write_stdin("end\n");
        let result = wrapped.wait_exit();
        let was_alive = is_alive(unkillable);
        let shown = fixture.server.run(&["history", name]).ok().out;
        let next = fixture.start(&["run", name, "--wait", "60s"], "echo began");
        next.wait_line("began");
        assert_eq!(next.wait_exit().exit, 0);
        let history = fixture.history(name);
        kill_process(unkillable, Signal::KILL).expect("root may kill it");
        assert!(was_alive, "this user may not kill it");
        assert_eq!(result.exit, exit, "{result:?}");
        assert!(result.errors.contains("cannot kill process"), "{result:?}");
        assert!(result.errors.contains("is not released"), "{result:?}");
        assert!(!shown.contains("released"), "{shown}");
        assert!(history.iter().any(|line| line.contains("ttl")), "it expired with its ttl: {history:?}");
    }
}
