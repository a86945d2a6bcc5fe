//! `leasehold elect`: one of many candidates runs the command, and another takes over when it cannot.

use std::time::Duration;

use leasehold::duration::Lasting;
use leasehold::{Code, Error, Guard, NextStep, Stopped};
use leasehold_core::limits::WAIT_MAX;

use super::hold::Over;
use super::shape::Shape;
use super::starter::{NOT_FOUND, NOT_RUN};
use super::talk::Ended;
use super::wrap::{self, Wrapper};
use crate::connection::Everywhere;
use crate::told::{Answer, Failure, Outcome, complain};

/// How long to pause for those who do not say.
const PAUSE: Lasting = Lasting::from_millis(1_000);

/// Run a command while leading, and campaign again and again
///
/// Waits for the lease for as long as it takes, also while no server answers, and runs the command under it as `run` does.
/// When the command ends, by itself or because the lease expired, the lease is given back and this candidate stands again
/// after a pause. SIGTERM or Ctrl-C ends the command (TERM, and KILL after the grace), resigns and ends with 0. A lease that
/// was revoked is not asked for again: it ends with 3. A command that cannot be started ends it with 126 or 127.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold elect services/scheduler -- ./scheduler")]
pub struct Args {
    /// The resource
    name: String,
    /// How long to pause before standing again
    #[arg(long, value_name = "DURATION", default_value_t = PAUSE)]
    pause: Lasting,
    #[command(flatten)]
    shape: Shape,
}

pub fn elect(args: &Args, ask: &Everywhere) -> Outcome {
    wrap::block_on(async {
        let mut wrapper = Wrapper::new(&args.name, &args.shape, ask)?;
        let outcome = campaign(args, &mut wrapper).await;
        wrapper.close(outcome).await
    })
}

async fn campaign(args: &Args, wrapper: &mut Wrapper<'_>) -> Outcome {
    let Args { name, shape, .. } = args;
    let pause = Duration::from_millis(args.pause.millis());
    loop {
        let minder = wrapper.minder().await?;
        let lock = shape.lock(&wrapper.client, name, Duration::from_millis(WAIT_MAX));
        let won = wrapper.until_asked_to_end(stand(|| lock.acquire(), pause)).await;
        let Ok(won) = won else {
            return Ok(Answer::ended(0));
        };
        let guard: Guard = won?;
        complain(&format!("leasehold: {name}: leads under token number {}", guard.token_number().get()));
        let after = match wrapper.hold(guard, minder, true).await? {
            Over::Resigned(_) => return Ok(Answer::ended(0)),
            Over::Failed(why) => return Err(Failure::Other(why)),
            Over::Ended(Ended::Code(code @ (NOT_RUN | NOT_FOUND))) => return Ok(Answer::ended(code)),
            Over::Ended(ended) => format!("the command ended with {}", ended.exit()),
            Over::Lost(Some(loss)) if Stopped::Lost(loss).next_step() == NextStep::LeaveToCaller => {
                return Err(wrap::lost(name, Some(loss)));
            }
            Over::Lost(Some(loss)) => loss.to_string(),
            Over::Lost(None) => "the lease could not be kept".to_owned(),
        };
        complain(&format!("leasehold: {name}: {after}; stands again"));
        if wrapper.until_asked_to_end(tokio::time::sleep(pause)).await.is_err() {
            return Ok(Answer::ended(0));
        }
    }
}

/// Asks until it is granted, or refused for good.
async fn stand<F>(ask: impl Fn() -> F, pause: Duration) -> Result<Guard, Error>
where
    F: Future<Output = Result<Guard, leasehold::Failure<Guard>>>,
{
    let mut told = None;
    loop {
        let error = match ask().await {
            Ok(guard) => return Ok(guard),
            Err(failure) => failure.into_error(),
        };
        let patient = matches!(error.code(), Some(Code::Busy | Code::Timeout | Code::StorageFull));
        if !patient && error.exit() != Code::Unavailable.exit() {
            return Err(error);
        }
        // Once for each reason: an outage may be long.
        if told.replace(error.word().to_owned()).as_deref() != Some(error.word()) {
            complain(&format!("leasehold: {error}; asks again"));
        }
        tokio::time::sleep(pause).await;
    }
}
