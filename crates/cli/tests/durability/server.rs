//! A `leasehold serve` process on a free port, killed or stopped by its process id.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use leasehold_testkit::process::TestProcess;
use rustix::process::Signal;

/// Timeout for every wait; generous for busy machines.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A server process. It is killed when it is dropped.
pub struct Server {
    pub address: String,
    process: TestProcess,
}

/// How a server is started.
#[derive(Default)]
pub struct Start {
    /// Wrapper program with arguments, for example strace. It must keep the process id.
    pub under: &'static str,
    /// Additional flags.
    pub args: &'static str,
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub fn start(data: &Path) -> Self {
        Start::default().at(data).unwrap_or_else(|log| panic!("not started: {log}"))
    }

    /// Starts a server and kills it after a delay, ready or not.
    pub fn start_and_kill(data: &Path, args: &'static str, after: Duration) {
        let mut process = Start { args, ..Start::default() }.spawn(data, Stdio::null());
        std::thread::sleep(after);
        process.kill();
    }

    /// kill −9.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).expect("the server runs");
    }

    /// Stops the server with SIGTERM and waits for its end.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "{status}: {:?}", self.log_text());
    }

    /// Waits for the process to end, and reads its last log lines.
    pub fn wait(&mut self) -> ExitStatus {
        let status = self.process.wait();
        self.process.stderr().read_to_end();
        status
    }

    /// Fetches the metrics.
    pub fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).expect("the server reads");
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics).expect("the server responds");
        metrics
    }

    /// Waits for a log line that contains a text.
    pub fn wait_for_log(&self, text: &str) -> String {
        self.process.stderr().wait_for(text)
    }

    /// All log lines so far.
    pub fn log_text(&self) -> String {
        self.process.stderr().so_far().join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("server log: {}", self.log_text());
        }
    }
}

impl Start {
    /// Starts a server on a directory. Returns the log of a server that fails to start.
    pub fn at(&self, data: &Path) -> Result<Server, String> {
        let mut process = self.spawn(data, Stdio::piped());
        while let Some(line) = process.stderr().next_line() {
            if let Some(rest) = line.split("serving on ").nth(1) {
                let address = rest.split(',').next().unwrap_or_default().to_owned();
                return Ok(Server { address, process });
            }
        }
        let status = process.wait();
        Err(format!("{status}: {}", process.stderr().so_far().join("\n")))
    }

    fn spawn(&self, data: &Path, stderr: Stdio) -> TestProcess {
        let binary = env!("CARGO_BIN_EXE_leasehold");
        let mut words = self.under.split_whitespace().chain([binary]);
        let mut command = Command::new(words.next().expect("at least the binary"));
        command.args(words).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        command.args(self.args.split_whitespace());
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        TestProcess::spawn(command).expect("the binary can be started")
    }
}

/// Runs one test at a time: the load of another test could starve a holder, which would then lose its lease.
pub fn exclusive_run() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // A test that failed with the lock does not fail the others.
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}
