//! `leasehold coverage`: the targets that a lease protects, whether each checks tokens, and the holes.

mod probe;
mod report;
mod verdict;

use leasehold::duration::HumanDuration;
use leasehold::json::{CoverageBody, TargetCoverageBody};
use leasehold::{Code, Error};
use leasehold_core::coverage::Hole;

use crate::commands::comment_arg::parse_comment;
use crate::global_args::GlobalArgs;
use crate::live::{self, LiveResult, WatchArgs};
use crate::output::{CommandError, CommandResult};
use crate::target::{AddressParser, TargetAddress, parse_named};
use probe::TargetProbe;
use report::Row;

/// Show which targets of a resource check tokens, and where a zombie could write
///
/// A target is declared in the charter, known from the reports of its fence, or both. A target without a working fence is a
/// hole; if there is any, the exit code is 8. Checks are counted since the server started; zombies are counted permanently.
///
/// --probe presents a token below the mark to each target and expects a rejection. At a target that is declared as forced it
/// also attempts writes without a token. Everything is rolled back.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  leasehold coverage jobs/settle --probe --target ledger=sqlite:/var/lib/app/ledger.db"
)]
pub struct Args {
    /// Resource whose targets are shown
    #[arg(value_name = "RESOURCE")]
    name: String,
    /// Present a stale token to each target, and expect what the charter declares
    #[arg(long, conflicts_with = "watch")]
    probe: bool,
    /// Address of a target. A database address can end in ?tables=TABLE[,TABLE...], the tables that must be protected
    #[arg(
        long = "target", value_name = "NAME=ADDRESS", requires = "probe", value_parser = AddressParser::new(parse_named)
    )]
    targets: Vec<(String, TargetAddress)>,
    /// Also connect to addresses in the charter, and open files that it names. No password of the environment is sent
    #[arg(long, requires = "probe")]
    charter_addresses: bool,
    /// Longest time of the probe of one target
    #[arg(long, value_name = "DURATION", requires = "probe", default_value = "10s")]
    timeout: HumanDuration,
    /// Remove a target that no longer exists
    #[arg(long, value_name = "TARGET", requires = "comment", conflicts_with = "probe")]
    forget: Option<String>,
    /// Comment for the audit log
    #[arg(long, value_name = "TEXT", requires = "forget", value_parser = parse_comment)]
    comment: Option<String>,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Exit code if there is a hole.
const EXIT_HOLE: u8 = 8;

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    if let (Some(target), Some(comment)) = (&args.forget, &args.comment) {
        global.call(async |client| client.forget_target(&args.name, target, comment).await)?;
        return Ok(global.done(format!("forgot target {target} of {}", args.name)));
    }
    if let Some((name, _)) =
        args.targets.iter().enumerate().find_map(|(at, target)| {
            args.targets[..at].iter().any(|(earlier, _)| *earlier == target.0).then_some(target)
        })
    {
        let message = format!("--target names {name} twice; name each target once");
        return Err(Error::new(Code::InvalidArgument, message).into());
    }
    live::run(&args.watch, global, async |client| {
        let mut coverage = client.coverage(&args.name).await?;
        let probes = if args.probe {
            let status = client.status().await?;
            let invalid =
                |_| CommandError::Other("the server returned an invalid status; check its version".to_owned());
            let cluster = status.cluster.parse().map_err(invalid)?;
            let incarnation = status.incarnation.parse().map_err(invalid)?;
            probe::probe_targets(args, &coverage, cluster, incarnation).await
        } else {
            Vec::new()
        };
        Ok(coverage_result(args, &mut coverage, &probes, global))
    })
}

fn coverage_result(
    args: &Args,
    coverage: &mut CoverageBody,
    probes: &[TargetProbe],
    global: &GlobalArgs,
) -> LiveResult {
    coverage.targets.retain(|target| !target.name.is_empty() || probes.is_empty());
    let known: Vec<String> = coverage.targets.iter().map(|target| target.name.clone()).collect();
    // Targets that only the command line names are shown too.
    let others = probes.iter().filter(|probe| !known.contains(&probe.target));
    coverage.targets.extend(others.map(|probe| undeclared(&probe.target)));
    let limit = |probe: &TargetProbe| probe.limit.as_ref().map(|limit| format!("{}: {limit}", probe.target));
    let limits: Vec<String> = probes.iter().filter_map(limit).collect();
    let row = |target: TargetCoverageBody| {
        let probe = probes.iter().find(|probe| probe.target == target.name).cloned();
        Row::new(&args.name, target, probe)
    };
    let rows: Vec<Row> = std::mem::take(&mut coverage.targets).into_iter().map(row).collect();
    let holes: Vec<String> = rows.iter().filter_map(|row| row.hole.as_ref()).map(|hole| hole.message.clone()).collect();
    let body = report::json_body(&coverage.resource, &rows, &holes);
    let output = global.listing(&body, report::names(&rows), || report::text_table(&rows, global.is_wide()));
    if holes.is_empty() {
        let note = limits.join("\n");
        return args.watch.result(&body, output.with_note((!note.is_empty()).then_some(note)));
    }
    let count = if holes.len() == 1 { "1 hole".to_owned() } else { format!("{} holes", holes.len()) };
    let note = [vec![format!("{count} in the coverage of {}:\n  {}", coverage.resource, holes.join("\n  "))], limits];
    let note = note.concat().join("\n");
    args.watch.result(&body, output.with_note(Some(note)).with_exit(EXIT_HOLE))
}

fn undeclared(name: &str) -> TargetCoverageBody {
    TargetCoverageBody {
        name: name.to_owned(),
        at: String::new(),
        declared: false,
        mode: None,
        slots: Vec::new(),
        hole: Some(Hole::Undeclared.word().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_name_may_contain_an_equals_sign() {
        let parsed = |text: &str| parse_named(text).map(|(name, address)| (name, address.redacted()));
        let pair = |name: &str, address: &str| (name.to_owned(), address.to_owned());
        assert_eq!(parsed("ledger=sqlite:/a=b.db").unwrap(), pair("ledger", "sqlite:/a=b.db"));
        assert_eq!(parsed("a=b=sqlite:/a=b.db").unwrap(), pair("a=b", "sqlite:/a=b.db"));
        assert_eq!(parsed("x=postgres://app:p=w@db/s").unwrap(), pair("x", "postgres://app@db/s"));
        for invalid in ["", "ledger", "=sqlite:/x", "ledger=", "ledger=/var/ledger.db"] {
            assert!(parsed(invalid).is_err(), "{invalid}");
        }
    }
}
