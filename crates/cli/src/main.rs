//! The binary `leasehold`: what people and scripts type.

mod acquire;
mod backup;
mod bench;
mod charter;
mod cluster;
mod completions;
mod config;
mod connection;
mod demo;
mod dev_cluster;
mod draft;
mod fence;
mod fences;
mod file;
mod hold;
mod look;
mod operate;
mod own;
#[cfg(test)]
mod page;
mod past;
mod restore;
mod run;
mod serve;
mod status;
mod table;
mod target;
mod token;
mod told;
mod trail;
mod waits;
mod watch;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Leasehold rents authority and fences the zombie.
///
/// `serve` runs a server; the other commands ask one. Exit codes: 0 done, 1 another error, 2 wrong usage, 3 lost or stale,
/// 4 busy or timed out, 5 unavailable or outcome unknown, 6 not allowed, 7 a limit, 8 a hole found, 65 damaged data,
/// 78 wrong configuration.
#[derive(Parser)]
#[command(name = "leasehold", version, arg_required_else_help = true, after_help = EXAMPLE)]
struct Args {
    #[command(flatten)]
    everywhere: connection::Everywhere,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLE: &str = "Example:
  leasehold serve &
  leasehold acquire jobs/settle --holder worker-1 --ttl 30s
  leasehold ls";

#[derive(Subcommand)]
enum Command {
    Serve(serve::Args),
    Acquire(acquire::Args),
    Renew(hold::Renew),
    Release(hold::Release),
    Run(run::Args),
    Elect(run::Elect),
    Progress(run::Progress),
    Check(hold::Check),
    Handoff(operate::Handoff),
    Revoke(operate::Revoke),
    Free(operate::Free),
    Quarantine(operate::Quarantine),
    Ls(look::Ls),
    Show(look::Show),
    HeldBy(look::HeldBy),
    Waiters(waits::Waiters),
    Deadlocks(waits::Deadlocks),
    Watch(watch::Args),
    History(past::History),
    Usage(past::Usage),
    Status(status::Args),
    Cluster(cluster::Args),
    StepDown(cluster::StepDown),
    Charter(charter::Args),
    Fences(fences::Args),
    Fence(fence::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Bench(bench::Args),
    Demo(demo::Args),
    DevCluster(dev_cluster::Args),
    Config(config::Args),
    Token(token::Args),
    Trail(trail::Args),
    Completions(completions::Args),
}

fn main() -> ExitCode {
    if let Some(ended) = run::behind_the_scenes().or_else(demo::behind_the_scenes).or_else(own::behind_the_scenes) {
        return ended;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return told::misused(&error),
    };
    let (ask, json) = (&args.everywhere, args.everywhere.json);
    let outcome = match &args.command {
        Command::Serve(args) => serve::run(args),
        Command::Acquire(args) => acquire::run(args, ask),
        Command::Renew(args) => hold::renew(args, ask),
        Command::Release(args) => hold::release(args, ask),
        Command::Run(args) => run::run(args, ask),
        Command::Elect(args) => run::elect(args, ask),
        Command::Progress(args) => run::progress(args, ask),
        Command::Check(args) => hold::check(args, ask),
        Command::Handoff(args) => operate::handoff(args, ask),
        Command::Revoke(args) => operate::revoke(args, ask),
        Command::Free(args) => operate::free(args, ask),
        Command::Quarantine(args) => operate::quarantine(args, ask),
        Command::Ls(args) => look::ls(args, ask),
        Command::Show(args) => look::show(args, ask),
        Command::HeldBy(args) => look::held_by(args, ask),
        Command::Waiters(args) => waits::waiters(args, ask),
        Command::Deadlocks(_) => waits::deadlocks(ask),
        Command::Watch(args) => watch::run(args, ask),
        Command::History(args) => past::history(args, ask),
        Command::Usage(args) => past::usage(args, ask),
        Command::Status(args) => status::run(args, ask),
        Command::Cluster(args) => cluster::run(args, ask),
        Command::StepDown(_) => cluster::step_down(ask),
        Command::Charter(args) => charter::run(args, ask),
        Command::Fences(args) => fences::run(args, ask),
        Command::Fence(args) => fence::run(args, ask),
        Command::Backup(args) => backup::run(args, ask),
        Command::Restore(args) => restore::run(args, ask),
        Command::Bench(args) => bench::run(args, ask),
        Command::Demo(args) => demo::run(args, ask),
        Command::DevCluster(args) => dev_cluster::run(args, ask),
        Command::Config(args) => config::run(args, ask),
        Command::Token(args) => token::run(args, json),
        Command::Trail(args) => trail::run(args, ask),
        Command::Completions(args) => completions::run(args),
    };
    told::finish(outcome, json)
}
