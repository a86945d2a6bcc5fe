//! Mutation test of the core: each mutant is switched on, and some check must fail. Every promise of the core has a
//! mutant.
//!
//! A mutant is selected for the whole process, so this program runs them one after the other and reports like the test
//! harness. `LEASEHOLD_BLESS=1` rewrites `docs/internals/mutants.md`.

#![allow(clippy::disallowed_macros, reason = "this program prints its own report; the core prints nothing")]

mod model;
mod spec;
mod support;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use leasehold_core::access::{AccessGrant, Caller, Rights, Role};
use leasehold_core::command::{Acquire, Answer, Command, Input, OpenSession, Request, RequestId};
use leasehold_core::fence::{Mark, Verdict, admit};
use leasehold_core::grantor::{
    Grantor, Output, Query, QueryAnswer, QueryOutcome, RecoveredGrantor, TenureOptions, hide_names, recover,
};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{EndReason, Validity};
use leasehold_core::limits;
use leasehold_core::mutants::{MARKER, Mutant, choose};
use leasehold_core::name::Name;
use leasehold_core::record::{BatchHeader, Record};
use leasehold_core::refusal::{Cycle, CycleMember, Refusal};
use leasehold_core::time::{GrantorTime, Instant, Now, WallClock};
use leasehold_core::token::{Cluster, FenceKey, Incarnation, Number, Token, TokenError, TokenScope, plausible};
use model::{ModelKind, SearchDepth};

/// Number of random runs against the specification.
const SEEDS: u64 = 400;

/// A check: its name, and whether it passes.
type Check = (String, Box<dyn Fn() -> Result<(), String>>);

fn main() -> ExitCode {
    assert!(MARKER.starts_with(b"leasehold"), "the marker is compiled in");
    // A failing check panics, which is expected here; do not print each backtrace.
    std::panic::set_hook(Box::new(|_| {}));
    let mut report = Report::default();
    choose(None);
    let checks = checks();
    for (name, check) in &checks {
        if let Err(error) = passes(check) {
            report.add(&format!("without a mutant, {name}"), Err(error));
        }
    }
    report.add("without a mutant every check passes", Ok(()).and(report.clean()));
    let mut rows = Vec::new();
    for mutant in Mutant::ALL {
        choose(Some(*mutant));
        let detector = checks.iter().find(|(_, check)| passes(check).is_err()).map(|(name, _)| name.clone());
        choose(None);
        let result = detector.as_ref().map(|_| ()).ok_or("no check detects it".to_owned());
        report.add(&format!("{mutant:?} breaks {} and is detected", mutant.promise()), result);
        rows.push((mutant.promise(), format!("{mutant:?}"), detector.unwrap_or_default()));
    }
    report.add("every promise of the core has a mutant", promises_are_covered());
    report.add("docs/internals/mutants.md lists these mutants and the checks that detect them", check_table(&rows));
    report.finish()
}

/// Stories first, because they name the promise; then rules without a grantor, random runs and models.
fn checks() -> Vec<Check> {
    let mut checks: Vec<Check> = Vec::new();
    for (title, text) in support::all() {
        checks.push((format!("story: {title}"), Box::new(move || support::run(&text))));
    }
    checks.push(("rule: fence".into(), Box::new(the_fence_rule_is_kept)));
    checks.push(("rule: a full journal".into(), Box::new(a_full_journal_grants_nothing)));
    checks.push(("rule: ends are guarded".into(), Box::new(ends_are_guarded)));
    checks.push(("rule: batches are chained".into(), Box::new(batches_are_chained)));
    checks.push(("rule: requests are bounded".into(), Box::new(requests_are_bounded)));
    checks.push(("rule: two persons approve".into(), Box::new(support::approvals::check)));
    checks.push(("rule: keys of clients".into(), Box::new(support::client_idempotency_key_rules::check)));
    checks.push(("rule: changes name their caller".into(), Box::new(support::attribution::changes_name_their_caller)));
    checks.push(("rule: queries show what may be read".into(), Box::new(queries_show_only_what_may_be_read)));
    for (name, which) in [
        ("model: overlap", ModelKind::Overlap),
        ("model: tokens", ModelKind::Tokens),
        ("model: target", ModelKind::Target),
        ("model: renewal", ModelKind::Renewal),
    ] {
        checks.push((name.into(), Box::new(move || model::check(which, SearchDepth::Quick).map(drop))));
    }
    checks.push(("random runs".into(), Box::new(|| (0..SEEDS).try_for_each(spec::run_seed))));
    checks
}

fn passes(check: &dyn Fn() -> Result<(), String>) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(check)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned())
        }
    }
}

/// The common rules of all fences, as a truth table.
fn the_fence_rule_is_kept() -> Result<(), String> {
    let number = |n| Number::new(n).expect("a number");
    let name = Name::parse("ledger").map_err(|e| e.to_string())?;
    let key = FenceKey::new(Cluster(*b"cluster1"), name, 0);
    let token = Token {
        cluster: key.cluster,
        incarnation: Incarnation(1),
        resource: key.resource,
        scope: TokenScope::Slot(0),
        number: number(7),
    };
    let foreign = Token { cluster: Cluster(*b"cluster2"), ..token };
    let other = Token { resource: [9; 8], ..token };
    let rules = [
        ("F1 lower is stale", matches!(admit(Mark::Armed(number(8)), number(7)), Verdict::Stale { .. })),
        ("F1 equal is admitted", matches!(admit(Mark::Armed(number(7)), number(7)), Verdict::Admitted { .. })),
        ("F7 a lost mark refuses", admit(Mark::Lost, number(7)) == Verdict::Lost),
        ("T6 another cluster is refused", foreign.for_target(&key) == Err(TokenError::WrongCluster)),
        ("F4 another resource is refused", other.for_target(&key) == Err(TokenError::Resource)),
        ("F5 the far future is implausible", !plausible(Number::MAX, WallClock::after_era(1_000))),
        ("the right token is admitted", token.for_target(&key) == Ok(number(7))),
    ];
    match rules.iter().find(|(_, holds)| !holds) {
        Some((rule, _)) => Err((*rule).to_owned()),
        None => Ok(()),
    }
}

/// A grantor with one lease, and its batches.
fn one_grant() -> (Grantor, Vec<Vec<u8>>, LeaseId) {
    let opening = TenureOptions {
        cluster: Cluster(*b"cluster1"),
        incarnation: Incarnation(1),
        generation: 1,
        validity: Validity::Session,
        max_ttl: 60_000,
        restore: None,
    };
    let mut grantor = RecoveredGrantor::empty(1).open(AT, &opening).expect("a new cluster opens");
    let mut out = Output::default();
    grantor.take_output(&mut out);
    let mut batches = vec![out.batch.clone()];
    grantor.serve(AT);
    let acquire = Command::Acquire(Acquire::exclusive("ledger", "worker", 10_000));
    grantor.step(AT, &Input::Request(Request::tagged(1), acquire));
    grantor.take_output(&mut out);
    batches.push(out.batch.clone());
    let lease = grantor.held_by("worker").first().map(|held| held.lease).expect("the lease was granted");
    (grantor, batches, lease)
}

const AT: Now = Now { instant: Instant(0), wall: WallClock::after_era(1_000) };

/// V4: with a full journal nothing is granted, but held leases can be renewed and end.
fn a_full_journal_grants_nothing() -> Result<(), String> {
    let (mut grantor, _, _) = one_grant();
    grantor.set_endings_only(true);
    let acquire = Command::Acquire(Acquire::exclusive("other", "worker", 10_000));
    grantor.step(AT, &Input::Request(Request::tagged(2), acquire));
    let mut out = Output::default();
    grantor.take_output(&mut out);
    match &out.replies[0].answer {
        Answer::Refused(Refusal::StorageFull) => Ok(()),
        other => Err(format!("a full journal answered {other:?}")),
    }
}

/// L7: a recorded end with another token is corruption.
fn ends_are_guarded() -> Result<(), String> {
    let (_, batches, lease) = one_grant();
    let mut recovered = recover(1, None, batches.iter().map(Vec::as_slice)).map_err(|e| e.to_string())?;
    let mut forged = Vec::new();
    BatchHeader { chain: recovered.chain(), time: GrantorTime(0), wall: AT.wall }.encode(&mut forged);
    let end =
        Record::Ended { lease: lease.slot, number: Number::FIRST, reason: EndReason::Ttl, hold: false, comment: "" };
    end.encode(&mut forged);
    match recovered.apply(&forged) {
        Err(_) => Ok(()),
        Ok(()) => Err("an end with another token was accepted".to_owned()),
    }
}

/// A1: a batch that does not continue the hash chain is corruption.
fn batches_are_chained() -> Result<(), String> {
    let (_, batches, _) = one_grant();
    let mut recovered = recover(1, None, batches.iter().map(Vec::as_slice)).map_err(|e| e.to_string())?;
    let mut stray = Vec::new();
    BatchHeader { chain: [7; 32], time: GrantorTime(0), wall: AT.wall }.encode(&mut stray);
    Record::Idle.encode(&mut stray);
    match recovered.apply(&stray) {
        Err(_) => Ok(()),
        Ok(()) => Err("a batch outside the hash chain was accepted".to_owned()),
    }
}

/// A7: a listing and a deadlock name only what the caller may read.
fn queries_show_only_what_may_be_read() -> Result<(), String> {
    let (grantor, _, _) = one_grant();
    let rights = Rights::new(1, vec![AccessGrant { role: Role::Observer, prefix: "team".into() }]);
    let caller = Caller { principal: "dns:a", rights: &rights };
    let list = Query::List { prefix: String::new(), from: 0, limit: 10, leases: 10 };
    match grantor.query(&caller, &list) {
        QueryOutcome::Answered(QueryAnswer::Resources(found, _)) if found.is_empty() => {}
        _ => return Err("a listing shows a name without a grant".to_owned()),
    }
    let member = |waits_for: &str| CycleMember { holder: "a".into(), waits_for: waits_for.into() };
    let cycle = Cycle { length: 2, members: vec![member("team/x"), member("ledger")] };
    let mut refusal = Refusal::Deadlock(Box::new(cycle));
    hide_names(&caller, &mut refusal);
    match refusal {
        Refusal::Deadlock(left) if left.members == [member("team/x")] && left.length == 1 => Ok(()),
        other => Err(format!("a deadlock reveals names: {other:?}")),
    }
}

/// X2: a client that acknowledges nothing is refused before it exhausts the memory.
fn requests_are_bounded() -> Result<(), String> {
    let (mut grantor, _, _) = one_grant();
    let open = OpenSession { holder: "app", ttl_ms: 60_000, secret: [1; 32].into(), waits_only: false };
    grantor.step(AT, &Input::Request(Request::tagged(2), Command::OpenSession(open)));
    let session = SessionId { slot: 0, reuse: 0 };
    for sequence in 1..=limits::REQUESTS_PER_SESSION as u64 + 1 {
        let id = Some(RequestId { session, sequence, lowest: 1, digest: 0 });
        let request = Request { id, ..Request::tagged(sequence) };
        grantor.step(AT, &Input::Request(request, Command::Collect { resource: "log", below: sequence }));
    }
    let mut out = Output::default();
    grantor.take_output(&mut out);
    match out.replies.last().map(|reply| &reply.answer) {
        Some(Answer::Refused(Refusal::Exhausted { .. })) => Ok(()),
        other => Err(format!("a request above the limit was answered {other:?}")),
    }
}

/// Reads the table of guarantees: every promise of the core has a mutant here. The other promises are checked by the
/// simulator, or name their owner.
fn promises_are_covered() -> Result<(), String> {
    let text = std::fs::read_to_string(docs("explanation/guarantees.md")).map_err(|e| e.to_string())?;
    let mut known = 0;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("| **") else {
            continue;
        };
        let (id, rest) = rest.split_once("** |").ok_or_else(|| format!("no promise in: {line}"))?;
        let kept_by = rest.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default().trim();
        known += 1;
        let core = kept_by.split(';').any(|part| part.trim_start().starts_with("core"));
        let has_mutant = Mutant::ALL.iter().any(|mutant| mutant.promise() == id);
        if core && !has_mutant {
            return Err(format!("{id} is a promise of the core, but no mutant breaks it"));
        }
        if has_mutant && !core {
            return Err(format!(
                "{id} has a mutant in the core, but docs/explanation/guarantees.md does not list the core as its keeper"
            ));
        }
    }
    if known < 60 { Err(format!("only {known} promises found in docs/explanation/guarantees.md")) } else { Ok(()) }
}

#[allow(clippy::disallowed_methods, reason = "the test writes its page; the core writes no file")]
fn check_table(rows: &[(&str, String, String)]) -> Result<(), String> {
    let mut by_promise: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (promise, mutant, check) in rows {
        by_promise.entry(promise).or_default().push(format!("| {promise} | `{mutant}` | {check} |\n"));
    }
    let mut text = String::from(
        "# Mutants of the core\n\n\
         Every promise that the core keeps has at least one mutant: a fault that breaks it. `./test` activates them one by \
         one and fails\nif no check detects a mutant. The last column is the first check that does. This page is \
         generated; see\n`CONTRIBUTING.md`, \"Add a mutant\".\n\n\
         | promise | mutant | first detected by |\n|---|---|---|\n",
    );
    by_promise.values().flatten().for_each(|row| text.push_str(row));
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(docs("internals/mutants.md"), &text).map_err(|e| e.to_string())?;
    }
    let current = std::fs::read_to_string(docs("internals/mutants.md")).map_err(|e| e.to_string())?;
    if current == text { Ok(()) } else { Err("the page differs; rewrite it with LEASEHOLD_BLESS=1".to_owned()) }
}

/// A page of the documentation, by its path below `docs`.
fn docs(page: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page)
}

/// Reports like the test harness, so that these checks are counted as tests.
#[derive(Default)]
struct Report {
    passed: usize,
    failed: Vec<(String, String)>,
}

impl Report {
    fn add(&mut self, name: &str, result: Result<(), String>) {
        let name = name.replace(char::is_whitespace, "_");
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("test {name} ... ok");
            }
            Err(error) => {
                println!("test {name} ... FAILED");
                self.failed.push((name, error));
            }
        }
    }

    fn clean(&self) -> Result<(), String> {
        if self.failed.is_empty() { Ok(()) } else { Err("some checks fail".to_owned()) }
    }

    fn finish(self) -> ExitCode {
        for (name, error) in &self.failed {
            println!("\n---- {name} ----\n{error}");
        }
        let (word, failed) = if self.failed.is_empty() { ("ok", 0) } else { ("FAILED", self.failed.len()) };
        println!(
            "\ntest result: {word}. {} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out",
            self.passed
        );
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
