//! One round: start all processes, inject faults, heal everything, require progress, then check the evidence.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use leasehold_sim::history::{History, HistoryEvent};
use leasehold_sim::rng::SimRng;
use leasehold_testkit::process::{TIMEOUT, TestProcess};
use rustix::process::Signal;
use serde::Serialize;

use crate::environment::postgres::connect;
use crate::evidence::applied_writes;
use crate::evidence::derived_history::{Evidence, history};
use crate::evidence::summary::{Summary, summarize};
use crate::holder::target::TargetKind;
use crate::holder_log::{self, LogEntry, LoggedEvent};
use crate::nemesis::Nemesis;
use crate::testbed::{ChaosCluster, ClusterPlan};
use crate::verdict::{self, BrokenPromise};

/// Interval of the nemesis.
const POLL_INTERVAL: Duration = Duration::from_millis(15);
/// Interval of checks on marks, and of runs without fences.
const CHECK_INTERVAL: Duration = Duration::from_millis(700);

/// What a round must contain to count. It continues until it does.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRequirements {
    /// Pauses longer than the ttl.
    pub pauses: u64,
    /// Late writes to fenced targets.
    pub late: u64,
}

/// Result of a round.
#[derive(Debug, Default, Serialize)]
pub struct RoundOutcome {
    /// Seed of the round.
    pub seed: u64,
    /// Number of servers.
    pub servers: usize,
    /// Duration of fault injection, in seconds.
    pub seconds: f64,
    /// Pauses of holders.
    pub pauses: u64,
    /// Pauses longer than the ttl.
    pub pauses_beyond_ttl: u64,
    /// Counts of what holders did.
    pub summary: Summary,
    /// Injected faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Injected faults in order, as text.
    #[serde(skip)]
    pub fault_log: Vec<String>,
    /// Number of batches in the journal.
    pub batches: usize,
    /// Remarks for the operator.
    pub notes: Vec<String>,
    /// Broken promises, each with the events before it.
    pub broken: Vec<BrokenPromise>,
}

/// Runs a round with its files in `dir`.
pub fn run(
    plan: &ClusterPlan,
    dir: &Path,
    duration: Duration,
    required: RoundRequirements,
    progress: &dyn Fn(&str),
) -> io::Result<RoundOutcome> {
    let mut rng = SimRng::new(plan.seed);
    progress("starting");
    let mut system = ChaosCluster::start(plan, dir, &mut rng)?;
    let mut nemesis = Nemesis::new(SimRng::new(rng.draw()));
    let started = Instant::now();
    let mut outcome = RoundOutcome { seed: plan.seed, servers: plan.servers, ..RoundOutcome::default() };
    outcome
        .notes
        .extend(system.no_namespace.iter().map(|detail| format!("no network namespace for a holder: {detail}")));
    let mut marks = MarkWatcher::new(&system);
    let mut checked_at = Instant::now();
    loop {
        nemesis.turn(&mut system, true)?;
        std::thread::sleep(POLL_INTERVAL);
        if checked_at.elapsed() < CHECK_INTERVAL {
            continue;
        }
        checked_at = Instant::now();
        progress(&format!("{:.0} s, {} pauses beyond the ttl", started.elapsed().as_secs_f64(), nemesis.beyond_ttl));
        if !plan.fenced {
            let evidence = Evidence {
                entries: read_logs(&system)?,
                applied_writes: applied_writes::files(&system.files(), TargetKind::Twin)?,
                ..Evidence::default()
            };
            outcome.broken = verdict::without_fence(&history(&evidence));
            if !outcome.broken.is_empty() || started.elapsed() > duration + 10 * TIMEOUT {
                break;
            }
            continue;
        }
        outcome.broken.extend(marks.poll(&system));
        if started.elapsed() >= duration && is_sufficient(&system, &nemesis, required)? {
            break;
        }
        if started.elapsed() > duration + 10 * TIMEOUT {
            outcome.notes.push("too few events: the run proves nothing".to_owned());
            outcome.broken.push(BrokenPromise::plain("X1", "too few pauses and late writes within the time limit"));
            break;
        }
    }
    outcome.seconds = started.elapsed().as_secs_f64();
    if plan.fenced {
        progress("healing");
        outcome.broken.extend(check_progress(&mut system, &mut nemesis)?);
    }
    outcome.notes.append(&mut nemesis.unexpected_exits);
    let mut evidence = shut_down(&mut system, &mut nemesis, plan.fenced)?;
    progress("checking");
    evidence.entries.sort_by_key(|entry| entry.at);
    outcome.summary = summarize(&evidence);
    outcome.batches = evidence.batches.len();
    (outcome.pauses, outcome.pauses_beyond_ttl) = (nemesis.pauses, nemesis.beyond_ttl);
    if plan.fenced {
        let build = |evidence: &Evidence| with_faults(history(evidence), &nemesis);
        outcome.broken.extend(verdict::all(&evidence, build, &outcome.summary));
        if let Some(postgres) = &system.postgres {
            let (files, cluster) = (system.files(), system.cluster_id);
            let marks = system
                .runtime
                .block_on(async { applied_writes::marks(&files, cluster, &connect(postgres).await?).await });
            outcome.broken.extend(verdict::marks_cover(&evidence, &marks));
        }
    }
    if !outcome.broken.is_empty() && plan.fenced {
        std::fs::write(dir.join("trace"), leasehold_sim::trace::lines(&with_faults(history(&evidence), &nemesis)))?;
    }
    outcome.faults = nemesis.counts;
    let line = |(at, _, event): &(u64, _, String)| format!("{:>6}.{:03}  {event}", at / 1_000, at % 1_000);
    outcome.fault_log = nemesis.injected.iter().map(line).collect();
    Ok(outcome)
}

/// Reads the marks of the logs repeatedly, on a thread that may block on a stopped holder's lock.
struct MarkWatcher {
    known: BTreeMap<u32, u64>,
    reading: tokio::task::JoinHandle<io::Result<Vec<(u32, u64)>>>,
}

impl MarkWatcher {
    fn new(system: &ChaosCluster) -> Self {
        Self { known: BTreeMap::new(), reading: Self::read(system) }
    }

    fn read(system: &ChaosCluster) -> tokio::task::JoinHandle<io::Result<Vec<(u32, u64)>>> {
        let (files, cluster) = (system.files(), system.cluster_id);
        system.runtime.spawn_blocking(move || applied_writes::file_marks(&files, cluster))
    }

    fn poll(&mut self, system: &ChaosCluster) -> Vec<BrokenPromise> {
        if !self.reading.is_finished() {
            return Vec::new();
        }
        let reading = std::mem::replace(&mut self.reading, Self::read(system));
        let read = system.runtime.block_on(reading).unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
        verdict::marks_never_decrease(&mut self.known, &read)
    }
}

/// Adds the injected faults to the history, for the trace.
fn with_faults(mut history: History, nemesis: &Nemesis) -> History {
    for (at, fault, detail) in &nemesis.injected {
        history.add(*at, HistoryEvent::FaultInjected { fault: *fault, detail: detail.clone() });
    }
    history.events.sort_by_key(|(at, _)| *at);
    history
}

/// Log entries of all holders so far.
fn read_logs(system: &ChaosCluster) -> io::Result<Vec<LogEntry>> {
    let mut all = Vec::new();
    for holder_process in &system.holders {
        // A holder that has logged nothing has no file.
        all.extend(holder_log::read(&holder_process.args.history).unwrap_or_default());
    }
    all.sort_by_key(|entry| entry.at);
    Ok(all)
}

fn is_sufficient(system: &ChaosCluster, nemesis: &Nemesis, required: RoundRequirements) -> io::Result<bool> {
    if nemesis.beyond_ttl < required.pauses {
        return Ok(false);
    }
    let evidence = Evidence {
        entries: read_logs(system)?,
        applied_writes: applied_writes::files(&system.files(), TargetKind::Twin)?,
        ..Evidence::default()
    };
    let summary = summarize(&evidence);
    Ok(summary.late >= required.late.max(1) && summary.corrupted > 0)
}

/// Heals everything, then requires that every holder writes to both targets again.
fn check_progress(system: &mut ChaosCluster, nemesis: &mut Nemesis) -> io::Result<Vec<BrokenPromise>> {
    nemesis.heal(system)?;
    let healed = holder_log::clock().saturating_sub(system.origin) / 1_000;
    let until = Instant::now() + TIMEOUT;
    loop {
        nemesis.turn(system, false)?;
        std::thread::sleep(CHECK_INTERVAL / 4);
        let logs = read_logs(system)?;
        let idle: Vec<u32> =
            (0..system.holders.len() as u32).filter(|holder| !has_written(&logs, *holder, healed)).collect();
        if idle.is_empty() {
            return Ok(Vec::new());
        }
        if Instant::now() > until {
            let detail = format!("holders {idle:?} write nothing in a healed world within {} s", TIMEOUT.as_secs());
            return Ok(vec![BrokenPromise::plain("X1", &detail)]);
        }
    }
}

/// Whether a holder has written to a log and to a table since then.
fn has_written(logs: &[LogEntry], holder: u32, since: u64) -> bool {
    let own = logs.iter().filter(|entry| entry.holder == holder && entry.at > since);
    let mut kinds = BTreeMap::new();
    let mut done = [false; 2];
    for entry in own {
        match entry.event {
            LoggedEvent::WriteSent { op, target, value: true, .. } => drop(kinds.insert(op, TargetKind::of(target))),
            LoggedEvent::WriteAcknowledged { op } => match kinds.get(&op) {
                Some(TargetKind::File) => done[0] = true,
                Some(TargetKind::Postgres) => done[1] = true,
                _ => {}
            },
            _ => {}
        }
    }
    done == [true; 2]
}

/// Ends the holders, kills the servers and collects the evidence.
fn shut_down(system: &mut ChaosCluster, nemesis: &mut Nemesis, fenced: bool) -> io::Result<Evidence> {
    if fenced {
        system.holders.iter_mut().for_each(crate::holder_process::HolderProcess::request_exit);
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until && !system.holders.iter_mut().all(crate::holder_process::HolderProcess::has_ended)
        {
            nemesis.turn(system, false)?;
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    system.holders.iter_mut().for_each(crate::holder_process::HolderProcess::kill);
    for server in &mut system.servers {
        if let Some(process) = &server.process {
            // Fails if the process has ended.
            let _ = process.signal(Signal::CONT);
        }
        server.process.iter_mut().for_each(TestProcess::kill);
        server.mark_down();
    }
    let mut evidence = Evidence { entries: read_logs(system)?, ..Evidence::default() };
    if fenced {
        evidence.batches = system.batches()?;
        evidence.applied_writes = applied_writes::files(&system.files(), TargetKind::File)?;
        if let Some(postgres) = &system.postgres {
            evidence
                .applied_writes
                .extend(system.runtime.block_on(async { applied_writes::table(&connect(postgres).await?).await })?);
        }
    }
    evidence.applied_writes.extend(applied_writes::files(&system.files(), TargetKind::Twin)?);
    Ok(evidence)
}
