//! `leasehold-conformance`: runs the scenarios of the client suite against real servers, with a driver process per client.

#![forbid(unsafe_code)]

mod arguments;
mod benchmark;
mod broken_run;
mod driver_list;
mod driver_process;
mod environment;
mod expectation;
mod failure;
mod http_request;
mod prepared_clients;
mod report;
mod runner_step;
mod scenario;
mod scenario_run;
mod suite;
mod variables;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match arguments::CommandLine::parse().run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("leasehold-conformance: {error}");
            ExitCode::from(2)
        }
    }
}
