//! `leasehold elect`: one of many candidates runs the command, and another takes over when it cannot.

use std::time::Duration;

use leasehold::duration::Lasting;
use leasehold::{Code, Error, Guard, NextStep, Stopped};
use leasehold_core::limits::WAIT_MAX;

use super::hold::Over;
use super::mind::Minder;
use super::shape::Shape;
use super::voice::Voice;
use super::wrap::{self, Wrapper};
use crate::connection::Everywhere;
use crate::told::{Answer, Failure, Outcome};

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
        let mut minder = wrapper.minder().await?;
        let outcome = campaign(args, &mut wrapper, &mut minder).await;
        wrapper.close(minder, outcome).await
    })
}

async fn campaign(args: &Args, wrapper: &mut Wrapper<'_>, minder: &mut Minder) -> Outcome {
    let Args { name, shape, .. } = args;
    let pause = Duration::from_millis(args.pause.millis());
    loop {
        let lock = shape.lock(&wrapper.client, name, Duration::from_millis(WAIT_MAX));
        let voice = wrapper.voice.clone();
        let won = wrapper.asks(minder, stand(|| lock.acquire(), pause, &voice)).await;
        let Ok(won) = won else {
            return Ok(Answer::ended(0));
        };
        let after = match wrapper.hold(won?, minder, true).await {
            Over::Resigned(_) => return Ok(Answer::ended(0)),
            Over::Unstarted(unstarted) => return Ok(wrapper.unstarted(unstarted)),
            Over::Lost(Some(loss)) if Stopped::Lost(loss).next_step() == NextStep::LeaveToCaller => {
                return Err(wrap::lost(name, Some(loss)));
            }
            Over::Ended(ended) => format!("the command ended with {}", ended.exit()),
            Over::Lost(Some(loss)) => loss.to_string(),
            Over::Lost(None) => "the lease could not be kept".to_owned(),
            Over::Failed(why) => why,
        };
        if wrapper.beyond {
            return Err(Failure::Other(format!("{name}: {after}; does not stand again beside what may not be ended")));
        }
        voice.say(format!("leasehold: {name}: {after}; stands again"));
        // There is always one: it would remove the directory if this process were killed.
        let next = wrapper.minder().await?;
        std::mem::replace(minder, next).leave();
        if wrapper.until_asked_to_end(tokio::time::sleep(pause)).await.is_err() {
            return Ok(Answer::ended(0));
        }
    }
}

/// Asks until it is granted, or refused for good.
async fn stand<F>(ask: impl Fn() -> F, pause: Duration, voice: &Voice) -> Result<Guard, Error>
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
            voice.say(format!("leasehold: {error}; asks again"));
        }
        tokio::time::sleep(pause).await;
    }
}
