//! A file that is replaced by processes which are stopped and killed, at chosen places and at any.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use leasehold_fence::Error;

use crate::part::{PLAY, Target};
use crate::stories::{World, lines, rounds};
use crate::support::token;

/// What a claim and a write do to the filesystem; before each of them the writer is killed once, however often it does it.
const CALLS: [&str; 10] =
    ["openat", "flock", "fgetxattr", "read", "fchmod", "write", "fsetxattr", "fsync", "rename", "unlink"];

pub fn stopped_inside() {
    let world = World::new("replace");
    let mut old = world.start("replacing", 33);
    assert_eq!(old.says().as_deref(), Some("inside"));
    old.stop();
    let Target::Replace(file) = world.open() else { unreachable!("it is a replaced file's world") };
    let file = file.patience(Duration::from_millis(50));
    match file.claim(&token(34)) {
        // Where the kernel's list of locks names another device than the file does, nobody can be named.
        Err(Error::Blocked { by, .. }) => assert!(by == [old.id()] || by.is_empty(), "{by:?}, not {}", old.id()),
        other => panic!("the claim passed a write in flight: {other:?}"),
    }
    assert!(world.numbers().is_empty());
    old.go_on();
    old.order("go on");
    assert_eq!(old.says().as_deref(), Some("written"), "nobody came between its check and its rename");
    world.open().claim(34).expect("and now the successor gets in");
    assert_eq!(world.numbers(), [33]);
}

pub fn killed_anywhere() {
    for call in CALLS {
        let mut kills = 0;
        while killed_before(call, kills + 1) {
            kills += 1;
        }
        let least = match call {
            "fsync" => 6,
            "fsetxattr" | "rename" | "flock" => 3,
            _ => 1,
        };
        assert!(kills >= least, "{call}: a claim and two writes make at least {least} of these, not {kills}");
    }
}

/// Kills a writer before its system call of this kind and count. False if it made fewer, and so came to its end.
fn killed_before(call: &str, count: u64) -> bool {
    let world = World::new("replace");
    let inject = format!("inject={call}:signal=SIGKILL:when={count}");
    let writer = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject])
        .arg(std::env::current_exe().expect("this program"))
        .args([PLAY, "twice", "replace"])
        .arg(world.path())
        .arg("33")
        .output()
        .expect("strace starts; ./test installs it");
    let said = String::from_utf8(writer.stdout).expect("text");
    let told = said.lines().filter(|line| *line == "written").count();
    let how = format!("killed before {call} {count}");
    let written = world.written();
    let expected = [(33, "first".to_owned()), (33, "second".to_owned())];
    assert!(expected.starts_with(&written), "{how}: {written:?}");
    let (landed, told) = (written.len(), told.saturating_sub(1));
    assert!(landed == told || landed == told + 1, "{how}: {told} told, {landed} kept");
    let Target::Replace(file) = world.open() else { unreachable!("it is a replaced file's world") };
    let mark = file.mark().expect(&how).map(|mark| mark.get());
    if landed > 0 {
        assert_eq!(mark, Some(33), "{how}: the mark came with the content");
    }
    file.claim(&token(34)).expect(&how);
    assert_eq!(file.write(&token(33), b"late").expect_err(&how).code(), "STALE_TOKEN");
    assert_eq!(world.written(), written, "{how}: what a successor finds stays");
    let folder = world.path();
    let left = std::fs::read_dir(folder.parent().expect("a folder")).expect("readable").count();
    assert_eq!(left, 1, "{how}: its draft went with the next claim");
    !writer.status.success()
}

pub fn whole() {
    let world = World::new("replace");
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut seen = 0;
            while !over.load(Ordering::SeqCst) {
                let all = lines(&std::fs::read_to_string(world.path()).expect("it is always there"));
                assert!(all.len() >= seen, "a reader saw {seen} lines, and then {}", all.len());
                assert!(all.iter().map(|(number, _)| number).is_sorted(), "{all:?}");
                seen = all.len();
            }
            seen
        });
        for round in 1..=rounds() {
            let mut holder = world.start("busy", round);
            for count in 0..(round * 5) % 17 {
                assert_eq!(holder.says(), Some(count.to_string()));
            }
            holder.kill();
        }
        over.store(true, Ordering::SeqCst);
        reader.join().expect("every reader found a whole file");
    });
    assert!(!world.numbers().is_empty());
}
