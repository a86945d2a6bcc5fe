//! A really started `leasehold serve`: a process of its own on a free port, killed or stopped by its own id.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Nothing that goes well takes as long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server process. It is killed when it is dropped.
pub struct Server {
    /// Where it listens.
    pub address: String,
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

/// How a server is started.
#[derive(Default)]
pub struct Start {
    /// What the binary is run under: a program and its arguments. It must leave the process its id.
    pub under: &'static str,
    /// More flags.
    pub args: &'static str,
}

impl Server {
    /// Starts a server that comes to serve.
    pub fn start(data: &Path) -> Self {
        Start::default().at(data).unwrap_or_else(|said| panic!("not started: {said}"))
    }

    /// Starts a server and kills it a moment later, wherever it is by then.
    pub fn start_and_kill(data: &Path, args: &'static str, after: Duration) {
        let mut child = Start { args, ..Start::default() }.spawn(data, Stdio::null());
        std::thread::sleep(after);
        child.kill().expect("a child can be killed, dead or alive");
        child.wait().expect("it ended");
    }

    /// kill −9.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed, dead or alive");
        self.child.wait().expect("it ended");
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success(), "the server is there");
    }

    /// Asks it to stop, and waits until it has.
    pub fn stop(mut self) {
        self.signal("TERM");
        let status = self.wait();
        assert!(status.success(), "{status}: {:?}", self.said());
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                // Its last words may still be on their way here.
                while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
                    self.said.push(line);
                }
                return status;
            }
            assert!(Instant::now() < until, "the server does not end: {:?}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it measures.
    pub fn figures(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let request = b"GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
        stream.write_all(request).expect("it reads");
        let mut figures = String::new();
        stream.read_to_string(&mut figures).expect("it answers");
        figures
    }

    /// Everything it has said on standard error.
    pub fn said(&mut self) -> String {
        self.said.extend(self.lines.try_iter());
        self.said.join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server said: {}", self.said());
        }
        // A failing test must leave nothing behind; one that is dead already is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Start {
    /// Starts it on a directory; the words of a server that did not come to serve.
    pub fn at(&self, data: &Path) -> Result<Server, String> {
        let mut child = self.spawn(data, Stdio::piped());
        let told = child.stderr.take().expect("it is piped");
        let (tell, lines) = channel();
        // Ends with the pipe; nobody needs to wait for it.
        std::thread::spawn(move || {
            BufReader::new(told).lines().map_while(Result::ok).all(|line| tell.send(line).is_ok())
        });
        let mut said = Vec::new();
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    let address = line.split("serving on ").nth(1).and_then(|rest| rest.split(',').next());
                    let address = address.map(str::to_owned);
                    said.push(line);
                    if let Some(address) = address {
                        return Ok(Server { address, child, lines, said });
                    }
                }
                Err(why) => {
                    let _ = child.kill();
                    let status = child.wait().expect("it ended");
                    let slow = if why == RecvTimeoutError::Timeout { "too slow, " } else { "" };
                    return Err(format!("{slow}{status}: {}", said.join("\n")));
                }
            }
        }
    }

    fn spawn(&self, data: &Path, stderr: Stdio) -> Child {
        let binary = env!("CARGO_BIN_EXE_leasehold");
        let mut words = self.under.split_whitespace().chain([binary]);
        let mut command = Command::new(words.next().expect("the binary at least"));
        command.args(words).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        command.args(self.args.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().expect("it can be started")
    }
}

/// One test at a time: a holder that is starved by the load of another test would lose its lease, and rightly.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // A test that failed with this in hand is no reason for another to fail.
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// How hard to try: one of three numbers, by `LEASEHOLD_DEPTH`.
pub fn depth(quick: usize, full: usize, deep: usize) -> usize {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => quick,
        Ok("deep") => deep,
        _ => full,
    }
}
