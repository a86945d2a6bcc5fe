//! Child processes of these tests. The kernel kills them with this process.

use std::process::{Command, Stdio};

use leasehold_testkit::process::{TestProcess, tied_command};

/// Starts a program whose standard output is read.
pub fn start_printing(program: &str, args: &[String]) -> TestProcess {
    let mut command = command(program, args);
    command.stdout(Stdio::piped());
    TestProcess::spawn_tied(command).expect("it starts")
}

/// Starts a program whose standard error is read.
pub fn start_logging(program: &str, args: &[String]) -> TestProcess {
    let mut command = command(program, args);
    command.stderr(Stdio::piped());
    TestProcess::spawn_tied(command).expect("it starts")
}

fn command(program: &str, args: &[String]) -> Command {
    let mut command = tied_command("KILL", &[program]);
    command.args(args).stdin(Stdio::piped());
    command.env_remove("LEASEHOLD_ADDR").env_remove("NOTIFY_SOCKET").env_remove("LEASEHOLD_LOG_LEVEL");
    command
}

/// Waits for the exit. Returns the exit code and all lines of standard error.
pub fn wait_exit(mut process: TestProcess) -> (Option<i32>, Vec<String>) {
    let code = process.wait().code();
    process.stderr().read_to_end();
    (code, process.stderr().so_far())
}
