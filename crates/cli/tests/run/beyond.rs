//! A process that the wrapper's user may not end: while it may live, its lease is not given back.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Signal, geteuid, kill_process};

use crate::wrapped::{World, Wrapped, lives};

/// A program that becomes root whoever runs it, as `sudo` does.
fn becomes_root(directory: &Path) -> String {
    let found = std::env::split_paths(&std::env::var_os("PATH").expect("it is set"))
        .map(|at| at.join("setpriv"))
        .find(|path| path.exists())
        .expect("util-linux has it");
    let path = directory.join("root");
    std::fs::copy(found, &path).expect("it can be copied");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).expect("it is ours");
    format!("{} --reuid=0", path.display())
}

#[test]
fn what_a_user_may_not_end_keeps_the_lease_until_its_ttl_is_over() {
    assert!(geteuid().is_root(), "this test makes a program that becomes root; run it as root");
    let world = World::new();
    std::fs::set_permissions(world.room.path(), PermissionsExt::from_mode(0o777)).expect("it is ours");
    let tools = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(tools.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
    let nobody = ["env", "--default-signal", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let ways = [
        // The command ends and leaves it behind; the wrapper then ends with the command's code.
        (["run", "a", "--ttl", "4s"], "exit 6", 6),
        // A candidate does not stand again beside it.
        (["elect", "b", "--ttl", "4s"], "exit 6", 1),
    ];
    for (args, ends, exit) in ways {
        let name = args[1];
        // It says its number when it is root already, and does not hold the wrapper's pipes.
        let script = format!(
            "{} sh -c 'echo beyond $$; exec sleep 600 <&- >&- 2>&-' & read line; {ends}",
            becomes_root(tools.path())
        );
        let mut wrapped =
            Wrapped::begin(&mut world.under(&nobody, &[&args[..], &["--", "sh", "-c", &script]].concat()));
        let beyond = wrapped.process("beyond");
        wrapped.types("end\n");
        let ended = wrapped.ends();
        let lived = lives(beyond);
        let shown = world.server.run(&["history", name]).ok().out;
        let next = world.begin(&["run", name, "--wait", "60s"], "echo began");
        next.hears("began");
        assert_eq!(next.ends().exit, 0);
        let history = world.ends(name);
        kill_process(beyond, Signal::KILL).expect("root may");
        assert!(lived, "this user may not end it");
        assert_eq!(ended.exit, exit, "{ended:?}");
        assert!(ended.errors.contains("may not be ended by this user"), "{ended:?}");
        assert!(ended.errors.contains("not given back"), "{ended:?}");
        assert!(!shown.contains("released"), "{shown}");
        assert!(history.iter().any(|line| line.contains("ttl")), "it ended by its ttl: {history:?}");
    }
}
