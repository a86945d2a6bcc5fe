//! `leasehold health`: asks one server whether it serves, for containers and service managers, which have no HTTP client.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::duration::HumanDuration;
use leasehold::{Address, Code, Endpoints, Error};
use serde_json::json;

use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Longest response that is read.
const MAX_RESPONSE_BYTES: u64 = 4_096;

/// Check that one server serves
///
/// Asks the first address for `/readyz`, and no other server. The server is ready if it leads and completes a turn, which
/// proves that its journal works, or if it stands by. Exit code 5 means that it is not ready. No certificate and no right is
/// needed, but the connection must be plain: with TLS, use the unix socket of the server.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold --addr unix:/run/leasehold/leasehold.sock health")]
pub struct Args {
    /// Only check that the process responds (`/healthz`), even if its journal waits for space or for etcd
    #[arg(long)]
    alive: bool,
    /// Longest time for the whole response, with the connection and the lookup of the name
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    timeout: HumanDuration,
    /// Print nothing on standard output; the exit code is the answer
    #[arg(long, short, conflicts_with_all = ["json", "output"])]
    quiet: bool,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let endpoints = Endpoints::parse(global.addr_or_default())?;
    let address = &endpoints.addresses()[0];
    if address.unix_path().is_none() && global.uses_tls()? {
        let message = format!("{address} requires TLS; check the unix socket of the server: --addr unix:PATH");
        return Err(Error::new(Code::InvalidArgument, message).with_next_step("Use the unix socket.").into());
    }
    let path = if args.alive { "/healthz" } else { "/readyz" };
    if args.timeout.millis() == 0 {
        let message = "timeout: 0 leaves no time for a response; use for example --timeout 5s";
        return Err(Error::new(Code::InvalidArgument, message).with_next_step("Set a longer timeout.").into());
    }
    let unavailable = |what: String| Error::new(Code::Unavailable, format!("{address}: {what}; retry"));
    let response = get_within(args.timeout, address, path).map_err(|error| unavailable(error.to_string()))?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((response.as_str(), ""));
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    let state = body.trim();
    if status != "200" {
        let status = if status.is_empty() { "no HTTP response".to_owned() } else { format!("HTTP {status}") };
        return Err(unavailable(format!("{path} answers {status} {state}").trim_end().to_owned()).into());
    }
    let output = global.output(&json!({ "state": state }), || state.to_owned());
    Ok(if args.quiet { output.without_text() } else { output })
}

/// The response to `GET path`, or a failure when the time is over. One deadline covers everything: the system has none for looking up
/// a name, and a timeout of a socket begins again with each byte.
fn get_within(timeout: HumanDuration, address: &Address, path: &'static str) -> io::Result<String> {
    let (to, response) = mpsc::sync_channel(1);
    let address = address.clone();
    // Ends with the process if nothing ends it before.
    thread::spawn(move || {
        // Fails if the time is over.
        let _ = to.send(get(&address, path));
    });
    let late =
        |_| io::Error::new(io::ErrorKind::TimedOut, format!("{path} did not answer completely within {timeout}"));
    response.recv_timeout(Duration::from_millis(timeout.millis())).map_err(late)?
}

/// The response to `GET path`.
fn get(address: &Address, path: &str) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    match address.unix_path() {
        Some(socket) => exchange(UnixStream::connect(socket)?, &request),
        None => exchange(TcpStream::connect(address.as_str())?, &request),
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}
