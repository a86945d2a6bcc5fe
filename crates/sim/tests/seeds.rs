//! Every seed that ever failed is played again; and what a run must show when something is broken on purpose.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_sim::planted::Planted;
use leasehold_sim::runs::{self, Plan};
use leasehold_sim::trace;
use leasehold_sim::world::{self, Setup};

/// Seeds that failed once, and what it was. A seed's world changes when worlds learn something new; so what was wrong also
/// stands where it was mended, as a history that the checker is tested on, or as a story of the core.
const FAILED: &[(u64, &str)] = &[
    (26, "G1: what a predecessor saw of a holder's progress and did not record counts again"),
    (86, "P1: a notice that was given before the journal was set back still stands"),
    (201, "L1: what is entered again may have its number from a grant of several"),
    (238, "W4: readers pass a writer who waits for one that waits behind it"),
    (350, "L1: a rotation without an answer holds under a number that nobody knows"),
    (972, "no order within the budget: grants of several resources were tried in every order; numbers order them"),
    (1113, "G1: what a deposed grantor saw of a holder's progress, its successor did not"),
    (1383, "W2: who waits for several and has inherited urgency stands before who came first"),
    (1968, "W2: what came free while its grantor stood still was never offered, and a stall gives a wait nothing"),
    (2731, "T5: a restore on a machine whose clock is behind its backup is refused, and rightly"),
    (
        3016,
        "L2: after a rollback a session's id is another's; its leases end with a session that their holder never had",
    ),
    (4348, "V4: what was granted before a failover is told again while the disk is full"),
    (12721, "L1: a request that found no room is not remembered, and another copy of it was done later"),
    (21348, "L2: a holder that must go gave its lease back and went on as if it had not"),
    (176_456, "L2: a holder said that it has drained, and took a late answer to its entering again for a new grant"),
    (371_908, "L2: the same, from a grantor that stood still while the holder entered again and drained"),
    (61926, "L1: a request of a session that is over was told the end of a lease that lives without it"),
    (250_098, "L11: a doubled `elsewhere` was taken for the answer of the server that was asked next, and did it"),
    (376_509, "L1: as 61926, where the session was closed while the disk was full"),
    (404_986, "L1: as 61926, where the session ran out behind a partition"),
    (28782, "X1: after a restore a session's id was another's, and two holders in one session were refused for ever"),
    (
        33267,
        "V1: the run ended while the end of a lease was on its way to the journal, and was shown before it was there",
    ),
    (335_460, "X1: the same as 28782 after a rollback"),
    (385_936, "V1: the same as 33267"),
    (
        531_176,
        "W4: a reader who held nothing was let pass a writer beside one whom the writer waits for, and that one left",
    ),
    (563_112, "L2: a holder left twice what it had entered twice, heard neither answer, and went on"),
    (989_058, "X1: as 28782 after a rollback that took the clock along, which was known by then"),
    (683_184, "F1: the operator armed a target from the floor of a server that was deposed in its sleep"),
];

#[test]
fn every_seed_that_ever_failed_holds_now() {
    for (seed, what) in FAILED {
        if let (_, Some((by, violation))) = runs::play(&Setup::of(*seed)) {
            panic!("seed {seed} fails ({by}): {violation}; it failed before: {what}");
        }
    }
}

#[test]
fn some_seeds_hold_and_those_that_are_played_twice_give_the_same_trace() {
    let report = runs::many(&Plan { from: 100_000, ..Plan::of(101) });
    assert_eq!((report.played, report.twice), (101, 2), "one in a hundred is played twice");
    assert!(report.failures.is_empty(), "{:?}", report.failures);
}

#[test]
fn without_a_fence_a_run_is_red_and_its_trace_shows_the_corrupted_write() {
    let plan = Plan { planted: Some(Planted::FenceOff), stop: true, ..Plan::of(50) };
    let report = runs::many(&plan);
    let failure = report.failures.first().expect("without a fence a late write gets in");
    assert_eq!((failure.by, failure.violation.promise), ("stale", "F1"));
    let (history, _) = runs::play(&Setup { planted: plan.planted, ..Setup::of(failure.seed) });
    let words = failure.violation.why.split("took the corrupted write ").nth(1).expect("a write, not a claim");
    let [value, "under", late, "after", later] = words.split(' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let trace = trace::lines(&history);
    let corrupted = format!("writes {value} under {late}: applied");
    let place = trace.lines().position(|line| line.contains(&corrupted)).expect("the trace shows it");
    let before = trace.lines().position(|line| line.contains(&format!("under {later}: applied")));
    assert!(before.is_some_and(|before| before < place), "it comes after its successor's write");
    assert_eq!(runs::play(&Setup::of(failure.seed)).1, None, "with its fence the same seed holds");
}

#[test]
fn a_shrunk_seed_is_smaller_and_breaks_the_same_promise() {
    let planted = Some(Planted::ToldBeforeDurable);
    let report = runs::many(&Plan { planted, stop: true, ..Plan::of(200) });
    let failure = report.failures.first().expect("what is told before it is durable is found");
    let (setup, violation) = runs::shrink(failure.seed, planted).expect("it fails");
    assert_eq!(violation.promise, failure.violation.promise);
    let (faults, holders, length) = world::drawn(failure.seed);
    let smaller = setup.faults.expect("said").iter().count() < faults.iter().count();
    assert!(smaller || setup.holders < Some(holders) || setup.length < Some(length), "{setup:?}");
    let events = |setup: &Setup| runs::play(setup).0.events.len();
    assert!(events(&setup) < events(&Setup { planted, ..Setup::of(failure.seed) }), "less happens in it");
    assert_eq!(runs::play(&setup).1.map(|(_, found)| found), Some(violation));
}

/// A process that ends with its test, whatever becomes of that.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interrupted_run_tells_what_it_played_until_then() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-sim"));
    command.args(["run", "--seeds", "100000000", "--jobs", "1", "--json"]).stdout(Stdio::piped());
    let mut run = Running(command.spawn().expect("the simulator starts"));
    let id = run.0.id();
    // Not before it listens: the second signal from the right is an interrupt.
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("Linux tells");
        u64::from_str_radix(caught.trim(), 16).expect("a mask") & 0b10 != 0
    };
    let waited = Instant::now();
    while !listens() {
        assert!(waited.elapsed() < Duration::from_secs(60), "it never listens");
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("sh").args(["-c", &format!("kill -INT {id}")]).status().expect("a shell");
    assert!(sent.success());
    let mut line = String::new();
    run.0.stdout.take().expect("piped").read_to_string(&mut line).expect("text");
    assert_eq!(run.0.wait().expect("it ends").code(), Some(130));
    let told: serde_json::Value = serde_json::from_str(&line).expect("one line of JSON");
    assert_eq!(told["failures"], serde_json::json!([]));
    assert!(told["played"].as_u64().is_some_and(|played| played < 100_000_000), "{line}");
}
