//! What cannot be meant is refused before anything is held, with its exit code and the next step.

use crate::support::{leasehold, run};
use crate::wrapped::World;

#[test]
fn what_cannot_be_meant_is_refused_and_runs_nothing() {
    let world = World::new();
    let long = "n".repeat(513);
    let table: &[(&[&str], i32, &str)] = &[
        (&["run", "a"], 2, "CMD"),
        (&["run", "a", "true"], 2, "--"),
        (&["run", "--", "touch"], 2, "NAME"),
        (&["run", "a", "--ttl", "10", "--"], 2, "10s"),
        (&["run", "a", "--ttl", "0s", "--"], 2, "INVALID_ARGUMENT{ttl}"),
        (&["run", "a", "--ttl", "99ms", "--"], 2, "INVALID_ARGUMENT{ttl}"),
        (&["run", "a", "--ttl", "11m", "--"], 2, "INVALID_ARGUMENT{ttl"),
        (&["run", "a", "--ttl", "8d", "--"], 2, "INVALID_ARGUMENT{ttl}"),
        (&["run", "a", "--ttl", "18446744073709551615ms", "--"], 2, "INVALID_ARGUMENT{ttl}"),
        (&["run", "a", "--ttl", "10s", "--grace", "10s", "--"], 2, "INVALID_ARGUMENT{grace}"),
        (&["run", "a", "--ttl", "1s", "--grace", "501ms", "--"], 2, "INVALID_ARGUMENT{grace}"),
        (&["run", "a", "--grace=-1s", "--"], 2, "10s"),
        (&["run", "a", "--wait", "25h", "--"], 2, "INVALID_ARGUMENT{wait}"),
        (&["run", "a", "--wait", "1s", "--no-wait", "--"], 2, "--no-wait"),
        (&["run", "a", "--slots", "0", "--"], 2, "INVALID_ARGUMENT{"),
        (&["run", "a", "--slots=-1", "--"], 2, "--slots"),
        (&["run", "a", "--progress", "1ms", "--"], 2, "INVALID_ARGUMENT{progress}"),
        (&["run", "a", "--on-lost", "pray", "--"], 2, "term"),
        (&["run", "a", "--exit-code-busy", "256", "--"], 2, "--exit-code-busy"),
        (&["run", "a", "--holder", "", "--"], 2, "INVALID_ARGUMENT{holder}"),
        (&["run", "", "--"], 2, "INVALID_ARGUMENT{resource}"),
        (&["run", &long, "--"], 2, "INVALID_ARGUMENT{resource}"),
        (&["run", "a//b", "--"], 2, "INVALID_ARGUMENT{resource}"),
        (&["run", "_sys/a", "--"], 6, "PERMISSION_DENIED"),
        (&["run", "a", "--addr", "nowhere", "--"], 78, "CONFIG{addr}"),
        (&["elect", "a"], 2, "CMD"),
        (&["elect", "a", "--wait", "1s", "--"], 2, "--wait"),
        (&["elect", "a", "--pause", "1", "--"], 2, "10s"),
        (&["elect", "a//b", "--"], 2, "INVALID_ARGUMENT{resource}"),
        (&["elect", "a", "--ttl", "1s", "--grace", "1s", "--"], 2, "INVALID_ARGUMENT{grace}"),
    ];
    let mark = world.room.path().join("mark");
    for (args, exit, told) in table {
        let mut command = world.command(args);
        if args.last() == Some(&"--") {
            command.arg("touch").arg(&mark);
        }
        let refused = run(&mut command);
        assert_eq!(refused.exit, *exit, "{args:?}: {refused:?}");
        assert!(refused.err.contains(told) && refused.out.is_empty(), "{args:?}: {refused:?}");
        assert!(!mark.exists(), "{args:?} ran its command");
    }
    assert_eq!(world.server.json(&["ls"])["resources"], serde_json::json!([]), "nothing was taken");
    world.is_empty();
}

#[test]
fn who_cannot_have_it_is_told_so_with_the_code_of_its_choice() {
    let world = World::new();
    let holder = world.begin(&["run", "a"], "echo began; read line");
    holder.hears("began");
    for (args, exit, told) in [
        (&["run", "a", "--no-wait"][..], 4, "leasehold: BUSY{1}: "),
        (&["run", "a", "--no-wait", "--exit-code-busy", "75"], 75, "leasehold: BUSY{1}: "),
        (&["run", "a", "--wait", "100ms"], 4, "leasehold: TIMEOUT: "),
        (&["run", "a", "--wait", "100ms", "--exit-code-busy", "0"], 0, "leasehold: TIMEOUT: "),
    ] {
        let ended = world.begin(args, "echo ran").ends();
        assert_eq!((ended.exit, ended.lines.len()), (exit, 0), "{args:?}: {ended:?}");
        assert!(ended.errors.starts_with(told) && ended.errors.lines().count() == 1, "{ended:?}");
    }
    let problem = run(&mut world.command(&["run", "a", "--no-wait", "--json", "--", "true"])).problem();
    assert_eq!(problem["code"], "BUSY");
    assert_eq!(holder.ends().exit, 1, "read found the end of its input");
    world.is_empty();
}

#[test]
fn progress_without_a_wrapper_says_what_is_missing() {
    let progress = |args: &[&str]| run(leasehold(args).env_remove("LEASEHOLD_SOCKET"));
    let told = progress(&["progress", "1"]);
    assert!(told.exit == 2 && told.err.contains("--socket"), "{told:?}");
    for wrong in ["-1", "x", "1.5", "18446744073709551616", ""] {
        let told = progress(&["progress", "--socket", "/nowhere", "--", wrong]);
        assert_eq!(told.exit, 2, "{told:?}");
    }
    let room = tempfile::tempdir().expect("a directory");
    let gone = room.path().join("gone");
    let told = progress(&["progress", "1", "--socket", gone.to_str().expect("a text")]);
    let told = told.fails(5, "leasehold: UNAVAILABLE: the wrapper was not told");
    assert!(told.err.contains("leasehold run"), "{told:?}");
}

#[test]
fn a_place_that_is_no_good_for_sockets_is_named() {
    let world = World::new();
    let deep = world.room.path().join("d".repeat(100));
    std::fs::create_dir(&deep).expect("a directory");
    for place in [world.room.path().join("missing"), deep.clone()] {
        let told = run(world.command(&["run", "a", "--", "true"]).env("TMPDIR", &place));
        let told = told.fails(78, "leasehold: CONFIG{TMPDIR}: ");
        assert_eq!(told.err.lines().count(), 1, "{told:?}");
    }
    std::fs::remove_dir(&deep).expect("it is empty");
    world.is_empty();
}
