//! `--watch`: repeats a query and shows what changed, until interrupted.
//!
//! It polls. The event stream of a server reports grants and ends, but no renewals, waits or checks of fences, which the listings
//! show. One query runs at a time and the next one starts an interval after it, so that a slow server is never flooded.

mod change;
mod screen;

use std::time::Duration;

use leasehold::duration::HumanDuration;
use leasehold::{Client, Code, Error};
use serde::Serialize;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult};
use change::significant;
use screen::WatchScreen;

/// Options of listings that can be followed
#[derive(clap::Args)]
pub struct WatchArgs {
    /// Repeat the query until interrupted: on a terminal the result is redrawn in place, otherwise each changed result is
    /// printed once
    #[arg(long)]
    watch: bool,
    /// Time between two queries, at least 100ms
    #[arg(long, value_name = "DURATION", requires = "watch", default_value = "1s", value_parser = parse_interval)]
    interval: HumanDuration,
}

/// Shortest time between two queries.
const MIN_INTERVAL_MS: u64 = 100;

fn parse_interval(text: &str) -> Result<HumanDuration, String> {
    let interval: HumanDuration = text.parse().map_err(|error| format!("{error}"))?;
    match interval.millis() {
        MIN_INTERVAL_MS.. => Ok(interval),
        _ => Err(format!("{interval} is shorter than 100ms; for example 1s")),
    }
}

/// One result of a query: its document, which shows whether it changed, and what is printed.
pub struct LiveResult {
    document: Value,
    output: CommandOutput,
}

impl WatchArgs {
    /// The result of one query. Its document is needed only to find changes.
    pub fn result<B: Serialize>(&self, body: &B, output: CommandOutput) -> LiveResult {
        let document =
            if self.watch { serde_json::to_value(body).expect("all map keys are strings") } else { Value::Null };
        LiveResult { document, output }
    }
}

/// Runs a query once, or with `--watch` until it is interrupted.
pub fn run(
    args: &WatchArgs,
    global: &GlobalArgs,
    query: impl AsyncFn(Client) -> Result<LiveResult, CommandError>,
) -> CommandResult {
    global.with_client(async |client| {
        if !args.watch {
            return Ok(query(client).await?.output);
        }
        let mut stop = StopSignals::listen()?;
        let interval = Duration::from_millis(args.interval.millis());
        // An error of the first query is one of the arguments, or there is no server.
        let first = tokio::select! {
            result = query(client.clone()) => result?,
            () = stop.wait() => return Ok(CommandOutput::EMPTY),
        };
        let mut screen = WatchScreen::open(global.style(), args.interval);
        let ended = tokio::select! {
            ended = follow(first, &mut screen, interval, async || query(client.clone()).await) => ended,
            () = stop.wait() => Ok(()),
        };
        screen.close()?;
        ended.map(|()| CommandOutput::EMPTY)
    })
}

/// Shows result after result. Returns when the reader has closed standard output.
async fn follow(
    first: LiveResult,
    screen: &mut WatchScreen,
    interval: Duration,
    query: impl AsyncFn() -> Result<LiveResult, CommandError>,
) -> Result<(), CommandError> {
    let mut shown = significant(&first.document);
    if !screen.show(first.output, true)? {
        return Ok(());
    }
    loop {
        if !screen.wait(interval).await {
            return Ok(());
        }
        match query().await {
            Ok(result) => {
                screen.set_problem(None);
                let document = significant(&result.document);
                let is_changed = document != shown;
                shown = document;
                if !screen.show(result.output, is_changed)? {
                    return Ok(());
                }
            }
            Err(error) if is_temporary(&error) => {
                screen.set_problem(Some(error));
                if !screen.redraw()? {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether a later query may succeed: the server restarts, or the resource has no lease and no waiter now.
fn is_temporary(error: &CommandError) -> bool {
    let temporary = |error: &Error| {
        error.is_retryable() || matches!(error.code(), Some(Code::NotFound | Code::Timeout | Code::Cancelled))
    };
    match error {
        CommandError::Coded(error) | CommandError::WithExitCode(error, _) => temporary(error),
        CommandError::Other(_) => false,
    }
}

/// The signals that end `--watch` with exit code 0.
struct StopSignals([Signal; 3]);

impl StopSignals {
    fn listen() -> Result<Self, CommandError> {
        let listen =
            |kind| signal(kind).map_err(|error| CommandError::Other(format!("cannot listen to signals: {error}")));
        Ok(Self([listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?]))
    }

    async fn wait(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
