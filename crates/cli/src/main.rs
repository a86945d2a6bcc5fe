//! The binary `leasehold`: what people and scripts type.

mod restore;
mod serve;
mod token;
mod trail;

use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

/// Leasehold rents authority and fences the zombie.
///
/// Today it serves leases over gRPC and HTTP (try curl), and reads token texts. The commands that hold leases come with the
/// client.
#[derive(Parser)]
#[command(name = "leasehold", version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Restore(restore::Args),
    Serve(serve::Args),
    Token(token::Args),
    Trail(trail::Args),
}

/// What a command leaves: the text for standard output, or the code and text of a failure.
type Outcome = Result<String, Failure>;

/// Why a command did not do what was asked.
struct Failure {
    exit: u8,
    text: String,
}

/// The caller wrote something that cannot be meant.
const EXIT_USAGE: u8 = 2;
/// Anything that has no code of its own.
const EXIT_OTHER: u8 = 1;

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Restore(args) => restore::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Trail(args) => trail::run(&args),
    };
    match outcome {
        Ok(text) => print(&text),
        Err(failure) => {
            // If standard error is gone too, the exit code still tells.
            let _ = writeln!(io::stderr(), "{}", failure.text);
            ExitCode::from(failure.exit)
        }
    }
}

/// A reader that went away has read enough: that is no failure.
fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "leasehold: cannot write to standard output: {error}");
            ExitCode::from(EXIT_OTHER)
        }
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}
