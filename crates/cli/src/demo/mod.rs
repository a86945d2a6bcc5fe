//! `leasehold demo`: the failure that fences are for, with real processes, as it happens.

mod deposed;
mod grantor;
mod holder;
mod ledger;
mod pair;
mod paused;
mod stage;
mod talk;
mod timeline;

use std::process::ExitCode;
use std::time::Duration;

use leasehold::duration::Lasting;

use crate::connection::Everywhere;
use crate::told::{Answer, Failure, Outcome, json};
use timeline::Timeline;

/// Watch a paused holder write late: refused by a fence, corrupting without one
///
/// Starts a server, two holders and two SQLite databases of its own, all real and all gone afterwards. The first holder is
/// stopped (SIGSTOP) with a write prepared, for longer than its ttl; the second takes over and writes; the first is
/// continued and writes late. The fenced database must refuse it, and the unfenced one must be corrupted: only then is the
/// exit code 0, otherwise 8. With a pause shorter than the ttl the lease is still the first holder's, and its write counts.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold demo --ttl 2s --pause 5s")]
pub struct Args {
    /// How long a renewal lasts, from 500ms to 1m
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    ttl: Lasting,
    /// How long the holder, or the grantor, is stopped, up to 10m [default: one and a half times the ttl]
    #[arg(long, value_name = "DURATION")]
    pause: Option<Lasting>,
    /// Without the fenced database: watch the corruption
    #[arg(long, conflicts_with = "grantor")]
    no_fence: bool,
    /// Stop the grantor instead: nobody is granted meanwhile, and no live holder loses
    #[arg(long)]
    grantor: bool,
    /// Stop the grantor that leads, of two over an etcd of their own: the other takes its place, and the woken one is refused
    #[arg(long, requires = "grantor")]
    etcd: bool,
}

/// What is played.
#[derive(Clone, Copy, Debug)]
struct Plan {
    ttl: Duration,
    pause: Duration,
    fenced: bool,
}

/// The exit code of a demonstration that did not show what it must.
const EXIT_FAILED: u8 = 8;
const TTL: std::ops::RangeInclusive<u64> = 500..=60_000;
const PAUSE_MAX: u64 = 600_000;

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let plan = plan(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&format!("cannot start: {error}")))?;
    let mut timeline = Timeline::new(!ask.json);
    let verdict = runtime.block_on(async {
        let interrupted = crate::own::interrupted("demo")?;
        let played = async {
            if args.etcd {
                deposed::play(plan, &mut timeline).await
            } else if args.grantor {
                grantor::play(plan, &mut timeline).await
            } else {
                paused::play(plan, &mut timeline).await
            }
        };
        // Whichever way it ends, its processes and its directory end with it.
        tokio::select! {
            verdict = played => verdict,
            () = interrupted => Err(failed("interrupted; nothing is left of its processes and its directory")),
        }
    })?;
    let text = if ask.json {
        let body = serde_json::json!({
            "shown": verdict.shown, "ttl_ms": args.ttl.millis(), "pause_ms": millis(plan.pause),
            "targets": verdict.targets, "events": timeline.events(),
        });
        json(&body)
    } else {
        format!("\n{}", verdict.words)
    };
    if verdict.shown {
        return Ok(Answer::from(text));
    }
    let note = "the demonstration failed: what must happen did not; keep its output and tell us".to_owned();
    Ok(Answer::but(text, note, EXIT_FAILED))
}

/// Plays a holder, if this process was started to be one.
pub fn behind_the_scenes() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    (words.next()? == holder::WORD).then(|| holder::main(words))
}

/// What a demonstration came to.
struct Verdict {
    /// Whether what must happen did.
    shown: bool,
    words: String,
    targets: serde_json::Value,
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let ttl = args.ttl.millis();
    if !TTL.contains(&ttl) {
        return Err(wrong(&format!("--ttl {}: from 500ms to 1m", args.ttl)));
    }
    let pause = args.pause.map_or(ttl + ttl / 2, Lasting::millis);
    if pause > PAUSE_MAX {
        return Err(wrong(&format!("--pause {}ms: up to 10m", pause)));
    }
    Ok(Plan { ttl: Duration::from_millis(ttl), pause: Duration::from_millis(pause), fenced: !args.no_fence })
}

fn wrong(why: &str) -> Failure {
    crate::told::coded("INVALID_ARGUMENT", &why)
}

fn failed(why: &str) -> Failure {
    Failure::Other(format!("demo: {why}"))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
