//! `leasehold progress`: report the progress of a command to its wrapper.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Code, Error};

use super::notify_socket;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Timeout of the notification if the wrapper does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Report the progress of a command to its wrapper
///
/// For commands under `leasehold run` and `leasehold elect` with --progress, whose lease ends without progress. The number must
/// increase with each report. A program can also send the datagram `PROGRESS=N` to the socket LEASEHOLD_SOCKET itself.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  leasehold run jobs/settle --progress 30s -- sh -c 'work 1; leasehold progress 1; work 2'"
)]
pub struct Args {
    /// Progress of the work, larger than in the previous report
    #[arg(value_name = "N")]
    value: u64,
    /// Notification socket of the wrapper
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "SOCKET")]
    socket: PathBuf,
}

pub fn progress(args: &Args, global: &GlobalArgs) -> CommandResult {
    let failed = |error: std::io::Error| {
        let message = format!("cannot notify the wrapper: {error}; run this command under `leasehold run`");
        Error::new(Code::Unavailable, message)
    };
    let socket = UnixDatagram::unbound().map_err(failed)?;
    socket.set_write_timeout(Some(SEND_TIMEOUT)).map_err(failed)?;
    socket.send_to(notify_socket::message(args.value).as_bytes(), &args.socket).map_err(failed)?;
    Ok(global.done(format!("progress {}", args.value)))
}
