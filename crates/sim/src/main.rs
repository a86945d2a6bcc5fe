//! Command line of the simulator: `leasehold-sim run|replay|shrink|mutants`.

mod cli_output;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use leasehold_sim::mutants::PlantedFault;
use leasehold_sim::runner::{self, RunPlan};
use leasehold_sim::trace;
use leasehold_sim::world::Setup;

/// Simulate Leasehold with faults from a seed, and check every promise
#[derive(Parser)]
#[command(name = "leasehold-sim", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    /// Run many seeds; fail if a promise is broken in one of them
    Run(RunArgs),
    /// Run one seed and print one line per event
    Replay {
        /// The seed.
        seed: u64,
        #[command(flatten)]
        setup: SetupArgs,
    },
    /// Find the smallest world in which a seed still breaks the same promise, and print it
    Shrink {
        /// The seed.
        seed: u64,
        #[command(flatten)]
        setup: SetupArgs,
    },
    /// Enable each built-in fault and run until it is found; fail if one survives
    #[cfg(feature = "mutants")]
    Mutants {
        /// Seeds after which a fault counts as surviving
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// Independent tries of each fault; it must be found in all of them, and the median number of seeds is printed
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
        tries: u64,
        /// Only faults whose name contains this text
        #[arg(long, default_value = "")]
        only: String,
        /// Print one line of JSON instead of a table
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct RunArgs {
    /// Number of seeds
    #[arg(long, default_value_t = 3_000)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Threads; the number of cores by default
    #[arg(long)]
    jobs: Option<usize>,
    /// Stop after this many seconds
    #[arg(long)]
    within: Option<u64>,
    /// Also fail if some request was never in flight during some fault
    #[arg(long)]
    coverage: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    setup: SetupArgs,
}

#[derive(Args, Clone, Copy)]
struct SetupArgs {
    /// Targets admit everything, to see the run fail
    #[arg(long)]
    fence_off: bool,
    /// Plant this fault
    #[arg(long, value_parser = PlantedFault::parse, conflicts_with = "fence_off")]
    planted: Option<PlantedFault>,
}

impl SetupArgs {
    fn planted(self) -> Option<PlantedFault> {
        if self.fence_off { Some(PlantedFault::FenceOff) } else { self.planted }
    }

    /// The options that repeat this setup, as command-line text.
    fn repeat_options(self) -> String {
        match self.planted() {
            None => String::new(),
            Some(PlantedFault::FenceOff) => " --fence-off".to_owned(),
            Some(planted) => format!(" --planted {planted:?}"),
        }
    }
}

/// Exit code after Ctrl-C, as shells report it.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A panic inside a run is reported as a broken promise, with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let halted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The first signal ends the run cleanly and reports what was found; the second ends at once.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&halted));
        let _ = signal_hook::flag::register(signal, Arc::clone(&halted));
    }
    let passed = match cli.command {
        SimCommand::Run(run) => run.run(&halted),
        SimCommand::Replay { seed, setup } => replay(&Setup { planted: setup.planted(), ..Setup::new(seed) }),
        SimCommand::Shrink { seed, setup } => shrink(seed, setup.planted()),
        #[cfg(feature = "mutants")]
        SimCommand::Mutants { seeds, tries, only, json } => mutants(seeds, tries, &only, json, &halted),
    };
    match (passed, halted.load(Ordering::Relaxed)) {
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
    let style = ProgressStyle::with_template(&template).expect("the template is valid");
    ProgressBar::new(length).with_style(style)
}

impl RunArgs {
    fn run(&self, halted: &AtomicBool) -> bool {
        let started = Instant::now();
        let bar = bar(self.seeds, "seeds");
        let report = runner::run_seeds(&RunPlan {
            from: self.from,
            seeds: self.seeds,
            jobs: self.jobs.unwrap_or_else(cores),
            planted: self.setup.planted(),
            stop: self.setup.planted().is_some(),
            until: self.within.map(|seconds| started + Duration::from_secs(seconds)),
            halted,
            on_seed: &|| bar.inc(1),
        });
        bar.finish_and_clear();
        let missing = if self.coverage { runner::missing_combinations(&report.coverage) } else { Vec::new() };
        let summary = cli_output::RunSummary {
            report: &report,
            missing: &missing,
            repeat_options: self.setup.repeat_options(),
            took: started.elapsed(),
        };
        print!("{}", if self.json { summary.json() } else { summary.text() });
        report.failures.is_empty() && missing.is_empty()
    }
}

fn replay(setup: &Setup) -> bool {
    let (history, found) = runner::run_setup(setup);
    let (faults, holders, _) = leasehold_sim::world::draw_setup(setup.seed);
    let faults = setup.faults.unwrap_or(faults);
    let words: Vec<_> = faults.iter().map(leasehold_sim::fault::Fault::name).collect();
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

fn shrink(seed: u64, planted: Option<PlantedFault>) -> bool {
    match runner::shrink(seed, planted) {
        None => {
            println!("seed {seed} breaks no promise");
            true
        }
        Some((setup, _)) => replay(&setup),
    }
}

#[cfg(feature = "mutants")]
fn mutants(seeds: u64, tries: u64, only: &str, json: bool, halted: &AtomicBool) -> bool {
    use leasehold_sim::mutation_run;
    let faults: Vec<_> = mutation_run::all().into_iter().filter(|fault| fault.name().contains(only)).collect();
    let bar = bar(faults.len() as u64, "faults");
    let mut rows = Vec::new();
    for fault in faults {
        if halted.load(Ordering::Relaxed) {
            break;
        }
        bar.set_message(fault.name());
        rows.push(mutation_run::kill(fault, tries, seeds, cores()));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let not_served: Vec<_> = mutation_run::elsewhere().into_iter().filter(|row| row.fault.contains(only)).collect();
    let table = cli_output::Mutants { rows: &rows, not_served: &not_served };
    print!("{}", if json { table.json() } else { table.text() });
    table.survivors().is_empty() && !rows.is_empty()
}
