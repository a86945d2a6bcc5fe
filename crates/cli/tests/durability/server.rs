//! A `leasehold serve` process on a free port, killed or stopped by its process id.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Timeout for every wait; generous for busy machines.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A server process. It is killed when it is dropped.
pub struct Server {
    pub address: String,
    child: Child,
    lines: Receiver<String>,
    log: Vec<String>,
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
        let mut child = Start { args, ..Start::default() }.spawn(data, Stdio::null());
        std::thread::sleep(after);
        child.kill().expect("the child can be killed");
        child.wait().expect("the process ended");
    }

    /// kill −9.
    pub fn kill(&mut self) {
        self.child.kill().expect("the child can be killed");
        self.child.wait().expect("the process ended");
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success(), "the server runs");
    }

    /// Stops the server with SIGTERM and waits for its end.
    pub fn stop(mut self) {
        self.signal("TERM");
        let status = self.wait();
        assert!(status.success(), "{status}: {:?}", self.log_text());
    }

    /// Waits for the process to end.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                // Its last log lines may still be in the pipe.
                while let Ok(line) = self.lines.recv_timeout(TEST_TIMEOUT) {
                    self.log.push(line);
                }
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end: {:?}", self.log_text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Fetches the metrics.
    pub fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let request = b"GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
        stream.write_all(request).expect("the server reads");
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics).expect("the server responds");
        metrics
    }

    /// All log lines so far.
    pub fn log_text(&mut self) -> String {
        self.log.extend(self.lines.try_iter());
        self.log.join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("server log: {}", self.log_text());
        }
        // A failing test leaves no process behind; killing an ended one fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Start {
    /// Starts a server on a directory. Returns the log of a server that fails to start.
    pub fn at(&self, data: &Path) -> Result<Server, String> {
        let mut child = self.spawn(data, Stdio::piped());
        let stderr = child.stderr.take().expect("the stream is piped");
        let (sender, lines) = channel();
        // The thread ends with the pipe.
        std::thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
        let mut log = Vec::new();
        loop {
            match lines.recv_timeout(TEST_TIMEOUT) {
                Ok(line) => {
                    let address = line.split("serving on ").nth(1).and_then(|rest| rest.split(',').next());
                    let address = address.map(str::to_owned);
                    log.push(line);
                    if let Some(address) = address {
                        return Ok(Server { address, child, lines, log });
                    }
                }
                Err(error) => {
                    let _ = child.kill();
                    let status = child.wait().expect("the process ended");
                    let slow = if error == RecvTimeoutError::Timeout { "too slow, " } else { "" };
                    return Err(format!("{slow}{status}: {}", log.join("\n")));
                }
            }
        }
    }

    fn spawn(&self, data: &Path, stderr: Stdio) -> Child {
        let binary = env!("CARGO_BIN_EXE_leasehold");
        let mut words = self.under.split_whitespace().chain([binary]);
        let mut command = Command::new(words.next().expect("at least the binary"));
        command.args(words).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        command.args(self.args.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().expect("the binary can be started")
    }
}

/// Runs one test at a time: the load of another test could starve a holder, which would then lose its lease.
pub fn exclusive_run() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // A test that failed with the lock does not fail the others.
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Selects one of three numbers by `LEASEHOLD_DEPTH`.
pub fn depth(quick: usize, full: usize, deep: usize) -> usize {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => quick,
        Ok("deep") => deep,
        _ => full,
    }
}
