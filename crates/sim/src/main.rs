//! `leasehold-sim`: breaks leases from a seed, to see whether the promises hold.

mod told;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use leasehold_sim::planted::Planted;
use leasehold_sim::runs::{self, Plan};
use leasehold_sim::trace;
use leasehold_sim::world::Setup;

/// Breaks leases from a seed, to see whether the promises hold.
#[derive(Parser)]
#[command(name = "leasehold-sim", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Plays many seeds; fails if a promise is broken in one of them.
    Run(Run),
    /// Plays one seed and prints what happens, one line for each event.
    Replay {
        /// The seed.
        seed: u64,
        #[command(flatten)]
        with: With,
    },
    /// Looks for the smallest world in which a seed still breaks the same promise, and prints it.
    Shrink {
        /// The seed.
        seed: u64,
        #[command(flatten)]
        with: With,
    },
    /// Switches on every built-in fault and plays until it is found; fails if one survives.
    #[cfg(feature = "mutants")]
    Mutants {
        /// How many seeds a fault may survive.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// Only the faults whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
        /// One line of JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct Run {
    /// How many.
    #[arg(long, default_value_t = 3_000)]
    seeds: u64,
    /// The first.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many side by side; as many as there are cores unless said.
    #[arg(long)]
    jobs: Option<usize>,
    /// Stops after so many seconds, whatever is left.
    #[arg(long)]
    within: Option<u64>,
    /// Fails as well if some request was never under way while some fault struck.
    #[arg(long)]
    coverage: bool,
    /// One line of JSON instead of words.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    with: With,
}

#[derive(Args, Clone, Copy)]
struct With {
    /// Targets let everything in, to see the run go red.
    #[arg(long)]
    fence_off: bool,
    /// With this fault planted.
    #[arg(long, value_parser = Planted::named, conflicts_with = "fence_off")]
    planted: Option<Planted>,
}

impl With {
    fn planted(self) -> Option<Planted> {
        if self.fence_off { Some(Planted::FenceOff) } else { self.planted }
    }

    /// The same again, as it was said.
    fn again(self) -> String {
        match self.planted() {
            None => String::new(),
            Some(Planted::FenceOff) => " --fence-off".to_owned(),
            Some(planted) => format!(" --planted {planted:?}"),
        }
    }
}

/// Ended by whoever asked for it, as a shell tells it.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // What panics in a run is told as a broken promise, with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let halted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The first ends in order, with what was found until then; the second ends at once.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&halted));
        let _ = signal_hook::flag::register(signal, Arc::clone(&halted));
    }
    let good = match cli.command {
        Sub::Run(run) => run.play(&halted),
        Sub::Replay { seed, with } => replay(&Setup { planted: with.planted(), ..Setup::of(seed) }),
        Sub::Shrink { seed, with } => shrink(seed, with.planted()),
        #[cfg(feature = "mutants")]
        Sub::Mutants { seeds, only, json } => mutants(seeds, &only, json, &halted),
    };
    match (good, halted.load(Ordering::Relaxed)) {
        (true, false) => ExitCode::SUCCESS,
        (true, true) => ExitCode::from(INTERRUPTED),
        (false, _) => ExitCode::FAILURE,
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn bar(length: u64, of: &str) -> ProgressBar {
    let template = format!("{{wide_bar}} {{pos}} of {{len}} {of}, {{per_sec}}, {{eta}} left {{msg}}");
    let style = ProgressStyle::with_template(&template).expect("a template that is written here");
    ProgressBar::new(length).with_style(style)
}

impl Run {
    fn play(&self, halted: &AtomicBool) -> bool {
        let started = Instant::now();
        let bar = bar(self.seeds, "seeds");
        let report = runs::many(&Plan {
            from: self.from,
            seeds: self.seeds,
            jobs: self.jobs.unwrap_or_else(cores),
            planted: self.with.planted(),
            stop: self.with.planted().is_some(),
            until: self.within.map(|seconds| started + Duration::from_secs(seconds)),
            halted,
            each: &|| bar.inc(1),
        });
        bar.finish_and_clear();
        let missing = if self.coverage { runs::never_met(&report.coverage) } else { Vec::new() };
        let told = told::Run { report: &report, missing: &missing, again: self.with.again(), took: started.elapsed() };
        print!("{}", if self.json { told.json() } else { told.words() });
        report.failures.is_empty() && missing.is_empty()
    }
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

fn shrink(seed: u64, planted: Option<Planted>) -> bool {
    match runs::shrink(seed, planted) {
        None => {
            println!("seed {seed} breaks nothing");
            true
        }
        Some((setup, _)) => replay(&setup),
    }
}

#[cfg(feature = "mutants")]
fn mutants(seeds: u64, only: &str, json: bool, halted: &AtomicBool) -> bool {
    use leasehold_sim::killing;
    let faults: Vec<_> = killing::all().into_iter().filter(|fault| fault.name().contains(only)).collect();
    let bar = bar(faults.len() as u64, "faults");
    let mut rows = Vec::new();
    for fault in faults {
        if halted.load(Ordering::Relaxed) {
            break;
        }
        bar.set_message(fault.name());
        rows.push(killing::kill(fault, seeds, cores()));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let elsewhere: Vec<_> = killing::elsewhere().into_iter().filter(|row| row.fault.contains(only)).collect();
    let table = told::Mutants { rows: &rows, elsewhere: &elsewhere };
    print!("{}", if json { table.json() } else { table.words() });
    table.survivors().is_empty() && !rows.is_empty()
}
