//! Starts a server process per test and runs the `leasehold` binary as a user would.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testkit::process::TestProcess;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// Timeout for every wait in tests; generous for busy machines.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// An address without a listener. A port that was free a moment ago may belong to another test by now; port 1 never does.
pub const UNUSED_ADDRESS: &str = "127.0.0.1:1";

/// The binary, without settings from the environment of the test.
pub fn leasehold(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(args).env_remove("LEASEHOLD_ADDR").env_remove("LEASEHOLD_TOKEN").env_remove("NOTIFY_SOCKET");
    command.env_remove("LEASEHOLD_LOG_LEVEL").env_remove("TRACEPARENT").env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
    for name in
        ["LEASEHOLD_PROFILE", "LEASEHOLD_TLS_CA", "LEASEHOLD_TLS_CERT", "LEASEHOLD_TLS_KEY", "LEASEHOLD_BEARER_FILE"]
    {
        command.env_remove(name);
    }
    command
}

/// Sends a signal by name. After SIGSTOP, waits until the kernel reports the process stopped.
#[track_caller]
pub fn signal(process: &TestProcess, name: &str) {
    let signal = match name {
        "STOP" => return process.stop(),
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "KILL" => Signal::KILL,
        "TERM" => Signal::TERM,
        other => panic!("unknown signal {other}"),
    };
    process.signal(signal).expect("the process runs");
}

/// The address in the log line of a server that is ready.
pub fn serving_address(line: &str) -> Option<String> {
    let rest = line.split("serving on ").nth(1).or_else(|| line.split("standing by on ").nth(1))?;
    rest.split(',').next().map(str::to_owned)
}

/// Exit code and output of a run of the binary.
#[derive(Debug)]
pub struct CommandRun {
    pub exit: i32,
    pub out: String,
    pub err: String,
}

impl CommandRun {
    /// The one JSON document on standard output.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "expected one document on one line: {self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The one JSON problem on standard error.
    #[track_caller]
    pub fn problem(&self) -> Value {
        assert_eq!(self.out, "", "an error prints nothing on standard output");
        serde_json::from_str(&self.err).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.exit, 0, "{self:?}");
        self
    }

    #[track_caller]
    pub fn fails(self, exit: i32, prefix: &str) -> Self {
        assert_eq!(self.exit, exit, "{self:?}");
        assert!(self.err.starts_with(prefix), "{self:?}");
        assert_eq!(self.out, "", "an error prints nothing on standard output");
        self
    }
}

/// Runs a command to completion.
#[track_caller]
pub fn run(command: &mut Command) -> CommandRun {
    let output = command.stdin(Stdio::null()).output().expect("the binary was built for this test");
    command_run(output)
}

/// Runs a command to completion with `input` on standard input.
#[track_caller]
pub fn run_with_stdin(command: &mut Command, input: &str) -> CommandRun {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the binary was built for this test");
    child.stdin.take().expect("stdin is piped").write_all(input.as_bytes()).expect("the command reads its input");
    command_run(child.wait_with_output().expect("the command ends"))
}

fn command_run(output: std::process::Output) -> CommandRun {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
    CommandRun { exit: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// A server process on a free port with its own data directory.
pub struct Server {
    process: TestProcess,
    pub address: String,
    pub data: TempDir,
    /// Log lines until the server was ready.
    pub startup_log: Vec<String>,
}

impl Server {
    pub fn start() -> Self {
        Self::on("127.0.0.1:0", tempfile::tempdir().expect("a directory"))
    }

    /// Kills the server and restarts it on the same directory. The address changes: another test may use the old port by
    /// now.
    pub fn crash_and_restart(mut self) -> Self {
        self.process.kill();
        let data = std::mem::replace(&mut self.data, tempfile::tempdir().expect("a directory"));
        Self::on("127.0.0.1:0", data)
    }

    fn on(listen: &str, data: TempDir) -> Self {
        let mut command = leasehold(&["serve", "--listen", listen, "--data"]);
        command.arg(data.path().join("journal"));
        Self::spawn(&mut command, data)
    }

    /// Starts a server with only these flags.
    pub fn with_flags(flags: &[&str]) -> Self {
        let mut command = leasehold(&["serve"]);
        Self::spawn(command.args(flags), tempfile::tempdir().expect("a directory"))
    }

    /// Starts a server that notifies a service manager on this socket.
    pub fn with_notify_socket(flags: &[&str], socket: &Path) -> Self {
        let mut command = leasehold(&["serve"]);
        command.args(flags).env("NOTIFY_SOCKET", socket);
        Self::spawn(&mut command, tempfile::tempdir().expect("a directory"))
    }

    /// Starts a server with this command, which is ready when it says where it serves.
    pub fn spawn(command: &mut Command, data: TempDir) -> Self {
        let piped = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let process = TestProcess::spawn(piped).expect("the binary was built for this test");
        let mut startup_log = Vec::new();
        let address = loop {
            let line = process.stderr().next_line();
            let line = line.unwrap_or_else(|| panic!("the server ended before it was ready: {startup_log:?}"));
            let address = serving_address(&line);
            startup_log.push(line);
            if let Some(address) = address {
                break address;
            }
        };
        Self { address, process, data, startup_log }
    }

    /// Waits for a log line that contains `text`.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) -> String {
        self.process.stderr().wait_for(text)
    }

    /// A log line that contains `text`: one that was read at the start, or the next one.
    #[track_caller]
    pub fn find_log(&self, text: &str) -> String {
        let read = self.process.stderr().so_far();
        read.into_iter().find(|line| line.contains(text)).unwrap_or_else(|| self.wait_for_log(text))
    }

    /// All log lines of a server that has ended.
    pub fn all_log_lines(&self) -> Vec<String> {
        self.process.stderr().read_to_end();
        self.process.stderr().so_far()
    }

    pub fn signal(&self, name: &str) {
        signal(&self.process, name);
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the process to end.
    pub fn wait(&mut self) -> Option<i32> {
        self.process.wait().code()
    }

    /// Sends one HTTP request with additional headers.
    pub fn http(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{kind}{headers}");
        write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).expect("the server reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("the server responds");
        response
    }

    /// A command that calls this server.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = leasehold(args);
        command.env("LEASEHOLD_ADDR", &self.address);
        command
    }

    #[track_caller]
    pub fn run(&self, args: &[&str]) -> CommandRun {
        run(&mut self.command(args))
    }

    /// The JSON output of a command that succeeds.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let mut with = args.to_vec();
        with.push("--json");
        self.run(&with).ok().json()
    }

    /// Acquires an exclusive lease for a minute and returns its token.
    #[track_caller]
    pub fn acquire(&self, name: &str, holder: &str) -> String {
        text(&self.json(&["acquire", name, "--holder", holder, "--ttl", "60s"])["token"])
    }

    /// Waits until a resource has a waiter.
    #[track_caller]
    pub fn wait_for_waiter(&self, name: &str) {
        self.wait_until_resource(name, |show| show["waiters"] != 0);
    }

    /// Polls `leasehold show` until the condition holds.
    #[track_caller]
    pub fn wait_until_resource(&self, name: &str, condition: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let resource = self.json(&["show", name]);
            if condition(&resource) {
                return;
            }
            assert!(Instant::now() < deadline, "{name} did not reach the expected state: {resource}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Starts a command in the background; [`wait_for_output`] waits for its end.
pub fn spawn_piped(command: &mut Command) -> Child {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().expect("the binary was built for this test")
}

/// Waits for a background command to end.
#[track_caller]
pub fn wait_for_output(child: Child) -> CommandRun {
    command_run(child.wait_with_output().expect("the command ends"))
}

/// Reads standard error until a line contains `text`.
pub fn wait_for_line(from: &mut BufReader<ChildStderr>, text: &str) -> String {
    from.lines().map_while(Result::ok).find(|line| line.contains(text)).expect("the line is printed")
}

/// A JSON string.
#[track_caller]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("expected a string, not {value}")).to_owned()
}

/// The sorted field names of a JSON object.
#[track_caller]
pub fn keys(value: &Value) -> Vec<&str> {
    let fields = value.as_object().unwrap_or_else(|| panic!("expected an object, not {value}"));
    let mut keys: Vec<_> = fields.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}
