//! The binary `leasehold`: command-line parsing and dispatch.

mod bench;
#[cfg(test)]
mod cli_reference_test;
mod commands;
mod completion;
mod coverage;
mod demo;
mod dev_cluster;
mod doctor;
mod fence;
mod file_set;
mod global_args;
mod input_file;
mod live;
mod local_cluster;
mod output;
mod output_format;
mod part_file;
mod pki;
mod profile;
mod random_name;
mod resource_sentence;
mod run;
mod serve;
mod shell_text;
mod styled_text;
mod table;
mod target;
mod terminal_text;
mod top;
mod yaml;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use commands::{
    acquire, approve, audit, backup, bearer, ca, charter, check, cluster, completions, config, deadlocks, free,
    handoff, health, held_by, history, init, keys, ls, man_pages, proposals, quarantine, release, renew, restore,
    revoke, show, status, step_down, token, trace, usage, waiters, watch,
};

/// Lease server with fencing tokens
///
/// `serve` runs a server; most other commands call one. Exit codes: 0 success, 1 other error, 2 wrong usage, 3 lease lost or
/// token stale, 4 busy or timed out, 5 unavailable or outcome unknown, 6 not allowed, 7 limit reached, 8 check failed,
/// 65 damaged data, 78 wrong configuration.
#[derive(Parser)]
#[command(name = "leasehold", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    global: global_args::GlobalArgs,
    #[command(subcommand)]
    command: CliCommand,
}

const EXAMPLES: &str = "Example:
  leasehold serve &
  leasehold acquire jobs/settle --holder worker-1 --ttl 30s
  leasehold ls";

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one value, parsed once")]
enum CliCommand {
    Serve(Box<serve::Args>),
    Init(init::Args),
    Ca(ca::Args),
    Bearer(bearer::Args),
    Keys(keys::Args),
    Acquire(acquire::Args),
    Renew(renew::Args),
    Release(release::Args),
    Run(run::Args),
    Elect(run::Elect),
    Progress(run::Progress),
    Check(check::Args),
    Handoff(handoff::Args),
    Revoke(revoke::Args),
    Free(free::Args),
    Quarantine(quarantine::Args),
    Proposals(proposals::Args),
    Approve(approve::Args),
    Ls(ls::Args),
    Show(show::Args),
    HeldBy(held_by::Args),
    Waiters(waiters::Args),
    Deadlocks(deadlocks::Args),
    Watch(watch::Args),
    History(history::Args),
    Trace(trace::Args),
    Top(top::Args),
    Usage(usage::Args),
    Status(status::Args),
    Health(health::Args),
    Cluster(cluster::Args),
    StepDown(step_down::Args),
    Charter(charter::Args),
    Coverage(coverage::Args),
    Fence(fence::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Bench(bench::Args),
    Demo(demo::Args),
    DevCluster(dev_cluster::Args),
    Config(config::Args),
    Token(token::Args),
    Audit(audit::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
    CompleteNames(completion::Args),
    ManPages(man_pages::Args),
}

impl CliCommand {
    /// Whether the command may call a server, so that a profile matters. A missing profile must not stop the command that creates it.
    fn connects(&self) -> bool {
        !matches!(
            self,
            Self::Serve(_)
                | Self::Init(_)
                | Self::Ca(_)
                | Self::Bearer(_)
                | Self::Config(_)
                | Self::Token(_)
                | Self::Completions(_)
                | Self::CompleteNames(_)
                | Self::ManPages(_)
        )
    }
}

fn main() -> ExitCode {
    if let Some(exit_code) = run::run_internal_subcommand()
        .or_else(demo::run_internal_subcommand)
        .or_else(local_cluster::run_internal_subcommand)
    {
        return exit_code;
    }
    let mut args = match parse() {
        Ok(args) => args,
        Err(error) => return output::usage_error(&error),
    };
    if args.command.connects()
        && let Err(error) = args.global.apply_profile()
    {
        return output::finish(Err(error.into()), args.global.style());
    }
    let global = &args.global;
    let result = match &args.command {
        CliCommand::Serve(args) => serve::run(args),
        CliCommand::Init(args) => init::run(args, global),
        CliCommand::Ca(args) => ca::run(args, global),
        CliCommand::Bearer(args) => bearer::run(args, global),
        CliCommand::Keys(args) => keys::run(args, global),
        CliCommand::Acquire(args) => acquire::run(args, global),
        CliCommand::Renew(args) => renew::run(args, global),
        CliCommand::Release(args) => release::run(args, global),
        CliCommand::Run(args) => run::run(args, global),
        CliCommand::Elect(args) => run::elect(args, global),
        CliCommand::Progress(args) => run::progress(args, global),
        CliCommand::Check(args) => check::run(args, global),
        CliCommand::Handoff(args) => handoff::run(args, global),
        CliCommand::Revoke(args) => revoke::run(args, global),
        CliCommand::Free(args) => free::run(args, global),
        CliCommand::Quarantine(args) => quarantine::run(args, global),
        CliCommand::Proposals(args) => proposals::run(args, global),
        CliCommand::Approve(args) => approve::run(args, global),
        CliCommand::Ls(args) => ls::run(args, global),
        CliCommand::Show(args) => show::run(args, global),
        CliCommand::HeldBy(args) => held_by::run(args, global),
        CliCommand::Waiters(args) => waiters::run(args, global),
        CliCommand::Deadlocks(args) => deadlocks::run(args, global),
        CliCommand::Watch(args) => watch::run(args, global),
        CliCommand::History(args) => history::run(args, global),
        CliCommand::Trace(args) => trace::run(args, global),
        CliCommand::Top(args) => top::run(args, global),
        CliCommand::Usage(args) => usage::run(args, global),
        CliCommand::Status(args) => status::run(args, global),
        CliCommand::Health(args) => health::run(args, global),
        CliCommand::Cluster(args) => cluster::run(args, global),
        CliCommand::StepDown(args) => step_down::run(args, global),
        CliCommand::Charter(args) => charter::run(args, global),
        CliCommand::Coverage(args) => coverage::run(args, global),
        CliCommand::Fence(args) => fence::run(args, global),
        CliCommand::Backup(args) => backup::run(args, global),
        CliCommand::Restore(args) => restore::run(args, global),
        CliCommand::Bench(args) => bench::run(args, global),
        CliCommand::Demo(args) => demo::run(args, global),
        CliCommand::DevCluster(args) => dev_cluster::run(args, global),
        CliCommand::Config(args) => config::run(args, global),
        CliCommand::Token(args) => token::run(args, global),
        CliCommand::Audit(args) => audit::run(args, global),
        CliCommand::Doctor(args) => doctor::run(args, global),
        CliCommand::Completions(args) => completions::run(args),
        CliCommand::CompleteNames(args) => completion::run(args),
        CliCommand::ManPages(args) => man_pages::run(args),
    };
    output::finish(result, global.style())
}

/// Parses the command line. Options of the output that contradict each other are wrong usage, before anything runs.
fn parse() -> Result<Args, clap::Error> {
    let mut root = Args::command();
    let matches = root.try_get_matches_from_mut(std::env::args_os())?;
    let args = Args::from_arg_matches(&matches).map_err(|error| error.format(&mut root))?;
    args.global.check_output(&mut root, &matches)?;
    Ok(args)
}
