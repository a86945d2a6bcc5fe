//! `leasehold top`: leases, waiters and what needs attention in a terminal, updated while it is watched.
//!
//! The main thread draws and changes the model; one thread reads keys, one waits for signals, one talks to the server. Nothing that the
//! server does can block a key.

mod counters;
mod draw;
mod event_loop;
mod filter;
mod job;
mod key;
mod message;
mod model;
mod page_content;
mod pages;
mod terminal;
mod update;
mod view;
mod worker;

use std::panic::AssertUnwindSafe;
use std::sync::mpsc::channel;
use std::time::Duration;

use leasehold::duration::HumanDuration;
use leasehold::{Code, Error};
use signal_hook::iterator::Signals;
use tokio::sync::mpsc::unbounded_channel;

use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult};
use crate::table::format_time;
use message::ScreenMessage;
use model::DoneAction;

/// Watch leases, waiters and holes in a terminal, and revoke or hand off with a preview
///
/// Keys are those of k9s: `:` switches the view, `/` filters, `s` sorts, `Enter` describes a resource, `r` revokes, `h` hands off, `?`
/// lists all keys, `q` quits. The server filters, sorts and pages: the screen never loads more leases than it shows. Actions done on
/// the screen are printed when it closes.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold top --interval 500ms")]
pub struct Args {
    /// Time between two refreshes, from 200ms to 1h. A refresh that takes long is repeated less often
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    interval: HumanDuration,
}

/// Bounds of the interval.
const INTERVAL: std::ops::RangeInclusive<u64> = 200..=3_600_000;

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    if !INTERVAL.contains(&args.interval.millis()) {
        let message = format!("--interval: must be from 200ms to 1h, got {}; use 1s", args.interval);
        return Err(Error::new(Code::InvalidArgument, message).into());
    }
    let is_document = global.format().is_document();
    if is_document || !terminal::is_usable() {
        let what = if is_document {
            "--output: the screen is no document"
        } else {
            "standard input and output must be a terminal"
        };
        let message = format!("{what}; run `leasehold ls --watch` for a list that a program can read");
        return Err(Error::new(Code::InvalidArgument, message).into());
    }
    let endpoints = global.endpoints()?;
    let (messages, received) = channel();
    let (jobs, requested) = unbounded_channel();
    let failed = |what: &str, error: std::io::Error| CommandError::Other(format!("cannot {what}: {error}"));
    let signals = Signals::new(event_loop::SIGNALS).map_err(|error| failed("wait for signals", error))?;
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        spawned.map(drop).map_err(|error| failed("start a thread", error))
    };
    let sender = messages.clone();
    spawn("top-signals", Box::new(move || event_loop::wait_for_signals(signals, &sender)))?;
    let sender = messages.clone();
    spawn(
        "top-server",
        Box::new(move || {
            let work = AssertUnwindSafe(|| worker::run(endpoints, requested, &sender));
            let ended = std::panic::catch_unwind(work).unwrap_or_else(|_| Err("a thread has panicked".to_owned()));
            if let Err(problem) = ended {
                // The screen is gone already if this fails.
                let _ = sender.send(ScreenMessage::Failed(problem));
            }
        }),
    )?;
    spawn("top-keys", Box::new(move || event_loop::read_keys(&messages)))?;
    let done = event_loop::run(Duration::from_millis(args.interval.millis()), &received, &jobs);
    let done = done.map_err(CommandError::Other)?;
    if done.is_empty() {
        return Ok(CommandOutput::EMPTY);
    }
    Ok(CommandOutput::from(done.iter().map(action_line).collect::<Vec<_>>().join("\n")))
}

/// An action for the record.
fn action_line(done: &DoneAction) -> String {
    format!("{}  {} {}: {}", format_time(done.wall_ms), done.action.title().to_lowercase(), done.resource, done.reason)
}
