//! `leasehold run`, `elect` and `progress`: a lease for any command, without a line of its code.
//!
//! Three processes: the wrapper holds the lease, the minder ends the command in time, the starter becomes the command.

mod below;
mod course;
mod elect;
mod hold;
mod mind;
mod minder;
mod notice;
mod place;
mod progress;
mod shape;
mod signals;
mod starter;
mod talk;
mod voice;
mod will;
mod wrap;

pub use elect::{Args as Elect, elect};
pub use progress::{Args as Progress, progress};
pub use starter::{dies_with_us, program_dies_with_us};

use std::process::ExitCode;
use std::time::Duration;

use leasehold::duration::Lasting;
use leasehold::{Code, Error};
use leasehold_core::limits::WAIT_MAX;
use leasehold_core::refusal::Refusal;

use crate::connection::Everywhere;
use crate::told::{Answer, Failure, Outcome};
use hold::Over;
use mind::Minder;
use shape::Shape;
use wrap::Wrapper;

/// What a command finds in its environment, and its minder too.
const TOKEN: &str = "LEASEHOLD_TOKEN";
const RESOURCE: &str = "LEASEHOLD_RESOURCE";
const ADDR: &str = "LEASEHOLD_ADDR";

/// How long to wait for those who do not say.
const WAIT: Lasting = Lasting::from_millis(30_000);

/// Run a command while holding a lease
///
/// Takes the lease, runs the command, renews, and gives the lease back the moment the command is dead. If the lease cannot be
/// kept, the command and everything that it started is ended before a successor can start; the same if this process is
/// killed. What is left behind when the command ends is killed. The command finds LEASEHOLD_TOKEN, LEASEHOLD_TOKEN_NUMBER,
/// LEASEHOLD_RESOURCE, LEASEHOLD_LEASE, LEASEHOLD_ADDR and LEASEHOLD_SOCKET in its environment. Signals are passed on.
///
/// Ends with the command's own code, 128 + n if signal n ended it, 127 if there is no such command; with 3 if the lease was
/// lost, with 4 if it was not to be had.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold run jobs/settle --ttl 10s --wait 30s -- ./settle --all")]
pub struct Args {
    /// The resource
    name: String,
    /// How long to wait for the lease
    #[arg(long, value_name = "DURATION", default_value_t = WAIT)]
    wait: Lasting,
    /// Do not wait at all
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// What to end with when the lease is not to be had
    #[arg(long, value_name = "N", default_value_t = Code::Busy.exit())]
    exit_code_busy: u8,
    #[command(flatten)]
    shape: Shape,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let wait = if args.no_wait { 0 } else { args.wait.millis() };
    if wait > WAIT_MAX {
        return Err(Error::from(&Refusal::Invalid { field: "wait", reason: "longer than 24h; choose less" }).into());
    }
    wrap::block_on(async {
        let mut wrapper = Wrapper::new(&args.name, &args.shape, ask)?;
        let mut minder = wrapper.minder().await?;
        let outcome = hold_once(args, Duration::from_millis(wait), &mut wrapper, &mut minder).await;
        wrapper.close(minder, outcome).await
    })
}

async fn hold_once(args: &Args, wait: Duration, wrapper: &mut Wrapper<'_>, minder: &mut Minder) -> Outcome {
    let lock = args.shape.lock(&wrapper.client, &args.name, wait);
    let guard = match wrapper.asks(minder, lock.acquire()).await {
        Ok(Ok(guard)) => guard,
        Ok(Err(failure)) => {
            let error = failure.into_error();
            let busy = matches!(error.code(), Some(Code::Busy | Code::Timeout));
            return Err(if busy { Failure::Ending(error, args.exit_code_busy) } else { error.into() });
        }
        Err(came) => return Ok(Answer::ended(came.exit())),
    };
    match wrapper.hold(guard, minder, false).await {
        Over::Ended(ended) => Ok(Answer::ended(ended.exit())),
        Over::Resigned(came) => Ok(Answer::ended(came.exit())),
        Over::Unstarted(unstarted) => Ok(wrapper.unstarted(unstarted)),
        Over::Lost(loss) => Err(wrap::lost(&args.name, loss)),
        Over::Failed(why) => Err(Failure::Other(why)),
    }
}

/// What this process is, if it was not typed by anybody.
pub fn behind_the_scenes() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let word = args.next()?;
    if word == minder::WORD {
        return Some(minder::main(args));
    }
    (word == starter::WORD).then(|| starter::main(args))
}
