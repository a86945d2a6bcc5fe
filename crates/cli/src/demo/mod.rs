//! `leasehold demo`: shows the failure that fences prevent, with real processes.

mod holder;
mod holder_paused;
mod ipc;
mod leader_paused;
mod ledger;
mod server_paused;
mod setup;
mod timeline;
mod two_holders;

use std::process::ExitCode;
use std::time::Duration;

use leasehold::duration::HumanDuration;

use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandResult};
use timeline::Timeline;

/// Show a late write: rejected by a fence, corrupting data without one
///
/// Starts a server, two holder processes and two SQLite databases in a temporary directory, and removes them at the end. The
/// first holder prepares a write and is paused (SIGSTOP) for longer than its ttl; the second acquires the lease and writes; the
/// first resumes and sends its late write. The fenced database must reject the write, and the unfenced one must be corrupted:
/// only then is the exit code 0, otherwise 8. With a pause shorter than the ttl the first holder keeps its lease, and its write
/// is accepted.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold demo --ttl 2s --pause 5s")]
pub struct Args {
    /// Time until the lease expires unless renewed, from 500ms to 1m
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    ttl: HumanDuration,
    /// How long to pause the holder or the grantor, up to 10m [default: 1.5 times the ttl]
    #[arg(long, value_name = "DURATION")]
    pause: Option<HumanDuration>,
    /// Use only the unfenced database, to show the corruption
    #[arg(long, conflicts_with = "grantor")]
    no_fence: bool,
    /// Pause the grantor instead: no lease is granted while it is paused, and no live holder loses its lease
    #[arg(long)]
    grantor: bool,
    /// Pause the leader of two servers over etcd: the other server takes over, and the resumed leader cannot decide anything
    #[arg(long, requires = "grantor")]
    etcd: bool,
}

/// Parameters of a demonstration.
#[derive(Clone, Copy, Debug)]
struct DemoPlan {
    ttl: Duration,
    pause: Duration,
    fenced: bool,
}

/// Exit code of a demonstration with an unexpected result.
const EXIT_FAILED: u8 = 8;
const TTL: std::ops::RangeInclusive<u64> = 500..=60_000;
const PAUSE_MAX: u64 = 600_000;
/// Summary of a demonstration that did not pass.
const UNEXPECTED: &str = "This is not the expected result.";

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let plan = plan(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&format!("cannot start: {error}")))?;
    let mut timeline = Timeline::new(!global.format().is_document());
    let verdict = runtime.block_on(async {
        let interrupted = crate::local_cluster::interrupt_signal("demo")?;
        let scenario = async {
            if args.etcd {
                leader_paused::run(plan, &mut timeline).await
            } else if args.grantor {
                server_paused::run(plan, &mut timeline).await
            } else {
                holder_paused::run(plan, &mut timeline).await
            }
        };
        // Either way, the processes and the directory are dropped at the end.
        tokio::select! {
            verdict = scenario => verdict,
            () = interrupted => Err(failed("interrupted; its processes and its directory are removed")),
        }
    })?;
    let body = serde_json::json!({
        "passed": verdict.passed, "ttl_ms": args.ttl.millis(), "pause_ms": millis(plan.pause),
        "targets": verdict.targets, "events": timeline.events(),
    });
    let output = global.output(&body, || format!("\n{}", verdict.summary));
    if verdict.passed {
        return Ok(output);
    }
    let note = "the demonstration failed: unexpected result; please report it with this output".to_owned();
    Ok(output.with_note(Some(note)).with_exit(EXIT_FAILED))
}

/// Runs a holder process if this process was started as one.
pub fn run_internal_subcommand() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    (args.next()? == holder::SUBCOMMAND).then(|| holder::main(args))
}

/// Result of a demonstration.
struct DemoVerdict {
    /// Whether the result is as expected.
    passed: bool,
    summary: String,
    targets: serde_json::Value,
}

fn plan(args: &Args) -> Result<DemoPlan, CommandError> {
    let ttl = args.ttl.millis();
    if !TTL.contains(&ttl) {
        return Err(invalid(&format!("--ttl {}: must be from 500ms to 1m", args.ttl)));
    }
    let pause = args.pause.map_or(ttl + ttl / 2, HumanDuration::millis);
    if pause > PAUSE_MAX {
        return Err(invalid(&format!("--pause {}ms: must be up to 10m", pause)));
    }
    Ok(DemoPlan { ttl: Duration::from_millis(ttl), pause: Duration::from_millis(pause), fenced: !args.no_fence })
}

fn invalid(message: &str) -> CommandError {
    crate::output::error_with_code("INVALID_ARGUMENT", &message)
}

fn failed(message: &str) -> CommandError {
    CommandError::Other(format!("demo: {message}"))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
