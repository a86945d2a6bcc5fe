//! Regression seeds, determinism, and runs with planted faults.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_sim::mutants::PlantedFault;
use leasehold_sim::runner::{self, RunPlan};
use leasehold_sim::trace;
use leasehold_sim::world::{self, Setup};

/// Seeds that failed once, with the cause. A seed's world changes when the simulator changes, so each cause also has a test of
/// its own: a history for the checker, or a story of the core.
const FAILED: &[(u64, &str)] = &[
    (26, "G1: progress that a predecessor received and did not record may be reported again"),
    (86, "P1: a preemption notice from before the journal was reverted still counts"),
    (201, "L1: a reentrant acquire may return a number from a grant of several resources"),
    (238, "W4: readers pass a writer that waits for a holder which waits behind it"),
    (350, "L1: a rotation without a reply holds under an unknown number"),
    (972, "budget exceeded: grants of several resources were tried in every order; their numbers order them"),
    (1113, "G1: a successor does not know the progress that a deposed grantor received"),
    (1383, "W2: a waiter for several resources with inherited priority is before an earlier waiter"),
    (1968, "W2: a resource that became free during a stall was never offered, and a wait gets no credit for a stall"),
    (2731, "T5: a restore on a machine whose clock is behind its backup is refused, correctly"),
    (3016, "L2: after a rollback a session id belongs to another session, whose end ends the leases"),
    (4348, "V4: the reply to a grant before a failover is repeated while the disk is full"),
    (12721, "L1: a request refused for a full disk is not remembered, and a duplicate was executed later"),
    (21348, "L2: a draining holder released its lease and continued as if it had not"),
    (176_456, "L2: a holder reported itself drained, and treated a late reply to a reentrant acquire as a new grant"),
    (371_908, "L2: as 176456, with a grantor that was stalled during the reentrant acquire and the drain"),
    (61926, "L1: a request of an ended session got the end of a lease that does not depend on the session"),
    (250_098, "L11: a duplicated `NotServing` was treated as the reply of the next server, which executed the request"),
    (376_509, "L1: as 61926, where the session was closed while the disk was full"),
    (404_986, "L1: as 61926, where the session expired during a partition"),
    (28782, "X1: after a restore a session id was reused, and two holders in one session were refused permanently"),
    (33267, "V1: the run ended during the append of a lease's end, which was reported before it was durable"),
    (335_460, "X1: as 28782, after a rollback"),
    (385_936, "V1: as 33267"),
    (
        531_176,
        "W4: a reader that held nothing passed a writer together with a reader that the writer depends on, which then left",
    ),
    (563_112, "L2: a holder released a reentrant lease twice, received neither reply, and continued"),
    (989_058, "X1: as 28782, after a rollback together with the clock, which was detected by then"),
    (683_184, "F1: the operator armed a target from the floor of a server that was deposed while suspended"),
];

#[test]
fn every_seed_that_ever_failed_passes_now() {
    for (seed, what) in FAILED {
        if let (_, Some((by, violation))) = runner::run_setup(&Setup::new(*seed)) {
            panic!("seed {seed} fails ({by}): {violation}; it failed before: {what}");
        }
    }
}

#[test]
fn some_seeds_pass_and_repeated_ones_give_the_same_trace() {
    let report = runner::run_seeds(&RunPlan { from: 100_000, ..RunPlan::new(101) });
    assert_eq!((report.runs, report.repeated), (101, 2), "one seed in a hundred runs twice");
    assert!(report.failures.is_empty(), "{:?}", report.failures);
}

#[test]
fn a_run_without_a_fence_fails_and_its_trace_shows_the_corrupted_write() {
    let plan = RunPlan { planted: Some(PlantedFault::FenceOff), stop: true, ..RunPlan::new(50) };
    let report = runner::run_seeds(&plan);
    let failure = report.failures.first().expect("without a fence a late write is applied");
    assert_eq!((failure.by, failure.violation.promise), ("fence_marks", "F1"));
    let (history, _) = runner::run_setup(&Setup { planted: plan.planted, ..Setup::new(failure.seed) });
    let words = failure.violation.detail.split("applied the corrupted write ").nth(1).expect("a write, not a claim");
    let [value, "under", late, "after", later] = words.split(' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let trace = trace::lines(&history);
    let corrupted = format!("writes {value} under {late}: applied");
    let place = trace.lines().position(|line| line.contains(&corrupted)).expect("the trace shows it");
    let before = trace.lines().position(|line| line.contains(&format!("under {later}: applied")));
    assert!(before.is_some_and(|before| before < place), "it comes after its successor's write");
    assert_eq!(runner::run_setup(&Setup::new(failure.seed)).1, None, "with its fence the same seed holds");
}

#[test]
fn a_shrunk_seed_is_smaller_and_breaks_the_same_promise() {
    let planted = Some(PlantedFault::ReplyBeforeDurable);
    let report = runner::run_seeds(&RunPlan { planted, stop: true, ..RunPlan::new(200) });
    let failure = report.failures.first().expect("a reply before durability is found");
    let (setup, violation) = runner::shrink(failure.seed, planted).expect("it fails");
    assert_eq!(violation.promise, failure.violation.promise);
    let (faults, holders, length) = world::draw_setup(failure.seed);
    let smaller = setup.faults.expect("a shrunk setup names its faults").iter().count() < faults.iter().count();
    assert!(smaller || setup.holders < Some(holders) || setup.length < Some(length), "{setup:?}");
    let events = |setup: &Setup| runner::run_setup(setup).0.events.len();
    assert!(events(&setup) < events(&Setup { planted, ..Setup::new(failure.seed) }), "it has fewer events");
    assert_eq!(runner::run_setup(&setup).1.map(|(_, found)| found), Some(violation));
}

/// A process that is killed at the end of its test.
struct RunningSim(Child);

impl Drop for RunningSim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interrupted_run_reports_its_seeds_so_far() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-sim"));
    command.args(["run", "--seeds", "100000000", "--jobs", "1", "--json"]).stdout(Stdio::piped());
    let mut run = RunningSim(command.spawn().expect("the simulator starts"));
    let id = run.0.id();
    // Wait until it handles SIGINT, which is the second bit from the right.
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("Linux reports it");
        u64::from_str_radix(caught.trim(), 16).expect("a mask") & 0b10 != 0
    };
    let waited = Instant::now();
    while !listens() {
        assert!(waited.elapsed() < Duration::from_secs(60), "it never handles SIGINT");
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("sh").args(["-c", &format!("kill -INT {id}")]).status().expect("a shell");
    assert!(sent.success());
    let mut line = String::new();
    run.0.stdout.take().expect("piped").read_to_string(&mut line).expect("text");
    assert_eq!(run.0.wait().expect("it ends").code(), Some(130));
    let found: serde_json::Value = serde_json::from_str(&line).expect("one line of JSON");
    assert_eq!(found["failures"], serde_json::json!([]));
    assert!(found["runs"].as_u64().is_some_and(|runs| runs < 100_000_000), "{line}");
}
