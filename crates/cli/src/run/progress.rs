//! `leasehold progress`: a command tells its wrapper how far it is.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Code, Error};

use super::notice;
use crate::connection::Everywhere;
use crate::told::Outcome;

/// How long a wrapper that reads nothing is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tell the wrapper of this command how far it is
///
/// For commands under `run` and `elect`, whose lease ends without progress (--progress). The number must rise. Programs can
/// send `PROGRESS=N` as a datagram to LEASEHOLD_SOCKET themselves.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  leasehold run jobs/settle --progress 30s -- sh -c 'work 1; leasehold progress 1; work 2'"
)]
pub struct Args {
    /// How far the work is; must rise
    #[arg(value_name = "N")]
    at: u64,
    /// The wrapper's socket
    #[arg(long, env = "LEASEHOLD_SOCKET", value_name = "SOCKET")]
    socket: PathBuf,
}

pub fn progress(args: &Args, ask: &Everywhere) -> Outcome {
    let gone = |error: std::io::Error| {
        let words = format!("the wrapper was not told ({error}); run this under `leasehold run`");
        Error::new(Code::Unavailable, words)
    };
    let socket = UnixDatagram::unbound().map_err(gone)?;
    socket.set_write_timeout(Some(PATIENCE)).map_err(gone)?;
    socket.send_to(notice::of(args.at).as_bytes(), &args.socket).map_err(gone)?;
    Ok(ask.done(format!("progress {}", args.at)))
}
