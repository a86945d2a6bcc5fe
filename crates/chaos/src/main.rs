//! `leasehold-chaos`: breaks real processes, and hands what they saw to the simulator's checkers.

#![forbid(unsafe_code)]

mod blow;
mod holder;
mod machine;
mod nemesis;
mod process;
mod proxy;
mod read;
mod round;
mod run;
mod said;
mod seat;
mod stage;
mod under;
mod verdict;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use run::Run;

/// Breaks real processes, and hands what they saw to the simulator's checkers.
#[derive(Parser)]
#[command(name = "leasehold-chaos", version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Runs servers, targets and holders, and strikes them; fails if a promise is broken.
    Run(Run),
    /// The part of a holder; started by a run.
    #[command(hide = true)]
    Holder,
}

fn main() -> ExitCode {
    match Args::parse().command {
        Sub::Holder => {
            holder::play();
            ExitCode::SUCCESS
        }
        Sub::Run(run) => match run.play() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("leasehold-chaos: {error}");
                ExitCode::from(2)
            }
        },
    }
}
