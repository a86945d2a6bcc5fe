//! `leasehold-chaos`: injects faults into real processes and checks their history with the simulator's checkers.

#![forbid(unsafe_code)]

mod environment;
mod evidence;
mod fault;
mod fault_wrappers;
mod holder;
mod holder_log;
mod holder_process;
mod nemesis;
mod rollbacks;
mod round;
mod run;
mod testbed;
mod verdict;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rollbacks::RollbackRun;
use run::ChaosRun;

/// Inject faults into real processes and check every promise with the simulator's checkers
#[derive(Parser)]
#[command(name = "leasehold-chaos", version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: ChaosCommand,
}

#[derive(Subcommand)]
enum ChaosCommand {
    /// Run servers, targets and holders under faults; fail if a promise is broken
    Run(ChaosRun),
    /// Roll journals back and restore etcd; fail if one of them is not detected
    Rollbacks(RollbackRun),
    /// Run as a holder; started by `run`
    #[command(hide = true)]
    Holder,
}

fn main() -> ExitCode {
    match Args::parse().command {
        ChaosCommand::Holder => {
            holder::run();
            ExitCode::SUCCESS
        }
        ChaosCommand::Run(run) => exit_code(run.run()),
        ChaosCommand::Rollbacks(run) => exit_code(run.run()),
    }
}

fn exit_code(held: std::io::Result<bool>) -> ExitCode {
    match held {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("leasehold-chaos: {error}");
            ExitCode::from(2)
        }
    }
}
