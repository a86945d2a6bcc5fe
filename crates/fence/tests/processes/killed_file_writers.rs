//! A fenced file whose writers are stopped and killed, at chosen system calls and at random.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use leasehold_fence::Error;

use crate::child_main::{CHILD_ARG, Target};
use crate::scenarios::{Fixture, lines, rounds};
use crate::support::token;

/// The system calls of a claim and a write. The writer is killed before each occurrence of each of them.
const CALLS: [&str; 10] =
    ["openat", "flock", "fgetxattr", "read", "fchmod", "write", "fsetxattr", "fsync", "rename", "unlink"];

pub fn stopped_in_replace() {
    let fixture = Fixture::new("file");
    let mut old = fixture.start("in_replace", 33);
    assert_eq!(old.next_line().as_deref(), Some("in progress"));
    old.stop();
    let Target::File(file) = fixture.open() else { unreachable!("the fixture has a file") };
    let file = file.with_claim_timeout(Duration::from_millis(50));
    match file.claim(token(34)) {
        // The kernel's list of locks can contain another device number than the file; then no process is reported.
        Err(Error::Blocked { blockers, .. }) => {
            assert!(blockers == [old.id()] || blockers.is_empty(), "{blockers:?}, not {}", old.id())
        }
        other => panic!("the claim passed a write in flight: {other:?}"),
    }
    assert!(fixture.numbers().is_empty());
    old.resume();
    old.send("continue");
    assert_eq!(old.next_line().as_deref(), Some("written"), "no claim between check and rename");
    fixture.open().claim(34).expect("the successor's claim");
    assert_eq!(fixture.numbers(), [33]);
}

pub fn killed_before_any_system_call() {
    for call in CALLS {
        let mut kills = 0;
        while killed_before(call, kills + 1) {
            kills += 1;
        }
        let min = match call {
            "fsync" => 6,
            "fsetxattr" | "rename" | "flock" => 3,
            _ => 1,
        };
        assert!(kills >= min, "{call}: a claim and two writes make at min {min} calls, not {kills}");
    }
}

/// Kills a writer before the given occurrence of a system call. False if the writer completed earlier.
fn killed_before(call: &str, count: u64) -> bool {
    let fixture = Fixture::new("file");
    let inject = format!("inject={call}:signal=SIGKILL:when={count}");
    let writer = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject])
        .arg(std::env::current_exe().expect("this program"))
        .args([CHILD_ARG, "twice", "file"])
        .arg(fixture.path())
        .arg("33")
        .output()
        .expect("strace starts; ./test installs it");
    let output = String::from_utf8(writer.stdout).expect("text");
    let acked = output.lines().filter(|line| *line == "written").count();
    let how = format!("killed before {call} {count}");
    let written = fixture.written();
    let expected = [(33, "first".to_owned()), (33, "second".to_owned())];
    assert!(expected.starts_with(&written), "{how}: {written:?}");
    let (stored, acked) = (written.len(), acked.saturating_sub(1));
    assert!(stored == acked || stored == acked + 1, "{how}: {acked} acknowledged, {stored} stored");
    let Target::File(file) = fixture.open() else { unreachable!("the fixture has a file") };
    let mark = file.mark().expect(&how).map(|mark| mark.get());
    if stored > 0 {
        assert_eq!(mark, Some(33), "{how}: the mark is stored with the content");
    }
    file.claim(token(34)).expect(&how);
    assert_eq!(file.write(token(33), b"late").expect_err(&how).code(), "STALE_TOKEN");
    assert_eq!(fixture.written(), written, "{how}: the content is unchanged after the claim");
    let path = fixture.path();
    let left = std::fs::read_dir(path.parent().expect("a directory")).expect("it can be read").count();
    assert_eq!(left, 1, "{how}: the claim removed the temporary file");
    !writer.status.success()
}

pub fn readers_get_complete_files() {
    let fixture = Fixture::new("file");
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut seen = 0;
            while !over.load(Ordering::SeqCst) {
                let all = lines(&std::fs::read_to_string(fixture.path()).expect("the file always exists"));
                assert!(all.len() >= seen, "a reader got {seen} lines, and then {}", all.len());
                assert!(all.iter().map(|(number, _)| number).is_sorted(), "{all:?}");
                seen = all.len();
            }
            seen
        });
        for round in 1..=rounds() {
            let mut holder = fixture.start("busy", round);
            for count in 0..(round * 5) % 17 {
                assert_eq!(holder.next_line(), Some(count.to_string()));
            }
            holder.kill();
        }
        over.store(true, Ordering::SeqCst);
        reader.join().expect("readers always get a complete file");
    });
    assert!(!fixture.numbers().is_empty());
}
