//! A run: several rounds, one line for each, and totals.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use leasehold::duration::HumanDuration;
use serde::Serialize;

use crate::evidence::summary::Summary;
use crate::round::{self, RoundOutcome, RoundRequirements};
use crate::testbed::ClusterPlan;

/// Maximum length of a round: checkers must be able to handle its journal and history.
const ROUND: Duration = Duration::from_secs(60);

/// Options of `run`.
#[derive(clap::Args)]
pub struct ChaosRun {
    /// Duration of fault injection, in rounds of at most a minute; each round uses the next seed and starts from scratch
    #[arg(long = "for", value_name = "DURATION", default_value = "60s")]
    duration: HumanDuration,
    /// Seed of the first round
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One server on a file journal, or three on etcd
    #[arg(long, default_value = "1", value_parser = ["1", "3"])]
    servers: String,
    /// Number of holders
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(3..=24))]
    holders: u32,
    /// Minimum number of pauses beyond the ttl per minute; a round continues until it has its share
    #[arg(long, default_value_t = 10)]
    pauses: u64,
    /// Minimum number of late writes per minute
    #[arg(long, default_value_t = 10)]
    late: u64,
    /// Holders write only to the unfenced twins, to see the run fail
    #[arg(long)]
    fence_off: bool,
    /// Print the totals as one JSON document
    #[arg(long)]
    json: bool,
    /// Print every injected fault of each round
    #[arg(long)]
    verbose: bool,
    /// Path of the `leasehold` binary [default: next to this binary]
    #[arg(long, value_name = "FILE")]
    leasehold: Option<PathBuf>,
    /// Keep the files of each round in this directory, which must not contain them yet
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
}

/// Totals of a run.
#[derive(Debug, Default, Serialize)]
struct RunTotals {
    servers: usize,
    seed: u64,
    rounds: u64,
    seconds: f64,
    pauses: u64,
    pauses_beyond_ttl: u64,
    #[serde(flatten)]
    summary: Summary,
    faults: BTreeMap<&'static str, u64>,
    notes: Vec<String>,
    broken: Vec<crate::verdict::BrokenPromise>,
}

impl ChaosRun {
    /// Runs all rounds. Returns true if every promise held; a run without fences must return false.
    pub fn run(&self) -> io::Result<bool> {
        let duration = Duration::from_millis(self.duration.millis());
        let sibling = std::env::current_exe()?.with_file_name("leasehold");
        let binary = self.leasehold.clone().unwrap_or(sibling);
        if !binary.exists() {
            let next = "build it (cargo build -p leasehold-cli), or set --leasehold";
            return Err(io::Error::other(format!("{} does not exist; {next}", binary.display())));
        }
        let servers = if self.servers == "3" { 3 } else { 1 };
        let mut totals = RunTotals { servers, seed: self.seed, ..RunTotals::default() };
        let bar = if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.set_style(ProgressStyle::with_template("{spinner} {msg}").map_err(io::Error::other)?);
        let mut left = duration;
        while !left.is_zero() && totals.broken.is_empty() {
            let length = left.min(ROUND);
            left -= length;
            let seed = self.seed + totals.rounds;
            let plan =
                ClusterPlan { seed, servers, holders: self.holders, fenced: !self.fence_off, binary: binary.clone() };
            let share = |each_minute: u64| (each_minute * length.as_millis() as u64).div_ceil(60_000);
            let required = RoundRequirements { pauses: share(self.pauses), late: share(self.late) };
            let progress = |phase: &str| bar.set_message(format!("seed {seed}: {phase}"));
            let outcome = self.round(&plan, length, required, &progress)?;
            self.print_round(&outcome, &bar);
            totals.add(outcome);
        }
        bar.finish_and_clear();
        self.print_totals(&totals)?;
        Ok(totals.broken.is_empty())
    }

    fn round(
        &self,
        plan: &ClusterPlan,
        duration: Duration,
        required: RoundRequirements,
        progress: &dyn Fn(&str),
    ) -> io::Result<RoundOutcome> {
        match &self.keep {
            Some(keep) => {
                let dir = keep.join(format!("seed-{}", plan.seed));
                std::fs::create_dir_all(&dir)?;
                round::run(plan, &dir, duration, required, progress)
            }
            None => {
                let dir = tempfile::tempdir()?;
                let mut outcome = match round::run(plan, dir.path(), duration, required, progress) {
                    Ok(outcome) => outcome,
                    Err(error) => {
                        let error = format!("{error}; the files are in {}", dir.keep().display());
                        return Err(io::Error::other(error));
                    }
                };
                // The files of a failed round are evidence, unless the round was meant to fail.
                if !outcome.broken.is_empty() && plan.fenced {
                    outcome.notes.push(format!("the files are in {}", dir.keep().display()));
                }
                Ok(outcome)
            }
        }
    }

    /// Prints one line for a round.
    fn print_round(&self, outcome: &RoundOutcome, bar: &ProgressBar) {
        bar.suspend(|| {
            if self.json {
                return;
            }
            let summary = &outcome.summary;
            println!(
                "seed {}: {:.0} s, {} grants, {} writes, {} pauses ({} beyond the ttl), {} late writes ({} accepted), {} batches",
                outcome.seed,
                outcome.seconds,
                summary.grants,
                summary.writes,
                outcome.pauses,
                outcome.pauses_beyond_ttl,
                summary.late,
                summary.late_accepted,
                outcome.batches,
            );
            if self.verbose {
                outcome.fault_log.iter().for_each(|line| println!("  {line}"));
            }
        });
    }

    fn print_totals(&self, totals: &RunTotals) -> io::Result<()> {
        if self.json {
            println!("{}", serde_json::to_string(totals)?);
            return Ok(());
        }
        totals.notes.iter().for_each(|note| println!("note: {note}"));
        for found in &totals.broken {
            println!("BROKEN {} ({}): {}", found.promise, found.by, found.detail);
            found.events.iter().for_each(|event| println!("  {event}"));
        }
        let faults: Vec<_> = totals.faults.iter().map(|(word, count)| format!("{word} {count}")).collect();
        println!("faults: {}", faults.join(", "));
        let summary = &totals.summary;
        println!(
            "chaos: {} servers, seeds {} to {}, {:.0} s: {} grants, {} pauses ({} beyond the ttl), {} late writes: {} refused, \
             {} without a reply, {} accepted; {} writes corrupted the unfenced twins; {} promises broken",
            totals.servers,
            totals.seed,
            totals.seed + totals.rounds.saturating_sub(1),
            totals.seconds,
            summary.grants,
            totals.pauses,
            totals.pauses_beyond_ttl,
            summary.late,
            summary.late_refused,
            summary.late_unknown,
            summary.late_accepted,
            summary.corrupted,
            totals.broken.len(),
        );
        Ok(())
    }
}

impl RunTotals {
    fn add(&mut self, outcome: RoundOutcome) {
        self.rounds += 1;
        self.seconds += outcome.seconds;
        self.pauses += outcome.pauses;
        self.pauses_beyond_ttl += outcome.pauses_beyond_ttl;
        self.summary.add(&outcome.summary);
        for (word, count) in outcome.faults {
            *self.faults.entry(word).or_default() += count;
        }
        self.notes.extend(outcome.notes.into_iter().map(|note| format!("seed {}: {note}", outcome.seed)));
        self.broken.extend(outcome.broken);
    }
}
