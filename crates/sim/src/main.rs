//! `leasehold-sim`: breaks leases from a seed, to see whether the promises hold.

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use leasehold_sim::runs::{self, Plan};
use leasehold_sim::trace;
use leasehold_sim::world::Setup;

/// Breaks leases from a seed, to see whether the promises hold.
#[derive(Parser)]
#[command(name = "leasehold-sim", version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Plays many seeds; fails if a promise is broken in one of them.
    Run {
        /// How many.
        #[arg(long, default_value_t = 3_000)]
        seeds: u64,
        /// The first.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// How many side by side.
        #[arg(long)]
        jobs: Option<usize>,
        /// Fails as well if some request was never under way while some fault struck.
        #[arg(long)]
        coverage: bool,
        /// Targets let everything in, to see the run go red.
        #[arg(long)]
        fence_off: bool,
    },
    /// Plays one seed and prints what happens, one line for each event.
    Replay {
        /// The seed.
        seed: u64,
        /// Targets let everything in.
        #[arg(long)]
        fence_off: bool,
    },
    /// Looks for the smallest world in which a seed still breaks the same promise.
    Shrink {
        /// The seed.
        seed: u64,
    },
    /// Switches on every built-in fault and plays until it is found; fails if one survives.
    #[cfg(feature = "mutants")]
    Mutants {
        /// How many seeds a fault may survive.
        #[arg(long, default_value_t = 2_000)]
        seeds: u64,
        /// Only the faults whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    // What panics in a run is told as a broken promise, with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let good = match args.command {
        Sub::Run { seeds, from, jobs, coverage, fence_off } => run(seeds, from, jobs, coverage, fence_off),
        Sub::Replay { seed, fence_off } => replay(&Setup { planted: planted(fence_off), ..Setup::of(seed) }),
        Sub::Shrink { seed } => shrink(seed),
        #[cfg(feature = "mutants")]
        Sub::Mutants { seeds, only } => mutants(seeds, &only),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn planted(fence_off: bool) -> Option<leasehold_sim::planted::Planted> {
    fence_off.then_some(leasehold_sim::planted::Planted::FenceOff)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn run(seeds: u64, from: u64, jobs: Option<usize>, coverage: bool, fence_off: bool) -> bool {
    let started = Instant::now();
    let bar = ProgressBar::new(seeds);
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} seeds, {per_sec}, {eta} left");
    bar.set_style(style.expect("a template that is written here"));
    let each = || bar.inc(1);
    let jobs = jobs.unwrap_or_else(cores);
    let report = runs::many(&Plan { from, seeds, jobs, planted: planted(fence_off), stop: fence_off, each: &each });
    bar.finish_and_clear();
    for failure in &report.failures {
        println!("seed {}: {} ({})", failure.seed, failure.violation, failure.by);
    }
    if let Some(first) = report.failures.first() {
        println!("see it again: leasehold-sim replay {}{}", first.seed, if fence_off { " --fence-off" } else { "" });
    }
    let missing = if coverage { runs::never_met(&report.coverage) } else { Vec::new() };
    for (fault, kind) in &missing {
        println!("never met: {fault} while {kind} was under way");
    }
    let (played, twice, failed) = (report.played, report.twice, report.failures.len());
    let per_second = played as f64 / started.elapsed().as_secs_f64().max(0.001);
    println!("{played} seeds, {twice} of them twice, {failed} failed, {per_second:.0} a second");
    report.failures.is_empty() && missing.is_empty()
}

fn replay(setup: &Setup) -> bool {
    let (history, found) = runs::play(setup);
    let (faults, holders, _) = leasehold_sim::world::drawn(setup.seed);
    let faults = setup.faults.unwrap_or(faults);
    let words: Vec<_> = faults.iter().map(leasehold_sim::fault::Fault::word).collect();
    println!("seed {}: {} holders, {}", setup.seed, setup.holders.unwrap_or(holders), words.join(" "));
    print!("{}", trace::lines(&history));
    match found {
        None => {
            println!("every promise holds; trace {:016x}", history.digest());
            true
        }
        Some((by, violation)) => {
            println!("BROKEN {violation} ({by}); trace {:016x}", history.digest());
            false
        }
    }
}

fn shrink(seed: u64) -> bool {
    match runs::shrink(seed) {
        None => {
            println!("seed {seed} breaks nothing");
            true
        }
        Some((setup, _)) => replay(&setup),
    }
}

#[cfg(feature = "mutants")]
fn mutants(seeds: u64, only: &str) -> bool {
    use leasehold_sim::killing;
    println!("{:<8} {:<24} {:<28} median seeds", "promise", "fault", "found by");
    let mut survivors = Vec::new();
    let mut count = 0;
    for fault in killing::all() {
        if !format!("{fault:?}").contains(only) {
            continue;
        }
        count += 1;
        let killed = killing::kill(fault, seeds, cores());
        let by = killed.by.as_deref().unwrap_or("SURVIVES");
        println!("{:<8} {:<24} {by:<28} {}", killed.promise, killed.fault, killed.seeds);
        if killed.by.is_none() {
            survivors.push(killed.fault);
        }
    }
    println!("{count} faults, {} survive: {}", survivors.len(), survivors.join(" "));
    survivors.is_empty()
}
