//! A server of its own for each test, and the binary as somebody at a terminal runs it.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::Value;
use tempfile::TempDir;

/// Nothing here takes longer, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where nobody listens. A port that was free a moment ago may be another test's by now; this one is given to nobody.
pub const NOBODY: &str = "127.0.0.1:1";

/// The binary, without what the caller's environment says to it.
pub fn leasehold(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(args).env_remove("LEASEHOLD_ADDR").env_remove("LEASEHOLD_TOKEN").env_remove("NOTIFY_SOCKET");
    command.env_remove("LEASEHOLD_LOG_LEVEL");
    command
}

/// Sends a signal to a child. One that is to stand still does when this returns: until the kernel says so, some of its threads go on.
pub fn signal(child: &Child, name: &str) {
    let sent =
        Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().expect("kill is there");
    assert!(sent.success());
    if name == "STOP" {
        waitid(WaitId::Pid(Pid::from_child(child)), WaitIdOptions::STOPPED).expect("it is our child");
    }
}

/// How a run of the binary ended.
#[derive(Debug)]
pub struct Told {
    pub exit: i32,
    pub out: String,
    pub err: String,
}

impl Told {
    /// The one JSON document that was printed.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "one document on one line: {self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The one JSON problem that was printed.
    #[track_caller]
    pub fn problem(&self) -> Value {
        assert_eq!(self.out, "", "a failure prints no answer");
        serde_json::from_str(&self.err).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.exit, 0, "{self:?}");
        self
    }

    #[track_caller]
    pub fn fails(self, exit: i32, begins: &str) -> Self {
        assert_eq!(self.exit, exit, "{self:?}");
        assert!(self.err.starts_with(begins), "{self:?}");
        assert_eq!(self.out, "", "a failure prints no answer");
        self
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Told {
    let output = command.stdin(Stdio::null()).output().expect("the binary was built for this test");
    told(output)
}

/// The same, with something on standard input.
#[track_caller]
pub fn run_with(command: &mut Command, input: &str) -> Told {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the binary was built for this test");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    told(child.wait_with_output().expect("it ends"))
}

fn told(output: std::process::Output) -> Told {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the binary prints text");
    Told { exit: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// A server of its own on a free port, over a directory of its own.
pub struct Server {
    child: Child,
    pub address: String,
    pub data: TempDir,
    /// What it said until it served.
    pub said: Vec<String>,
    /// What it says since.
    says: Mutex<Receiver<String>>,
}

impl Server {
    pub fn start() -> Self {
        Self::on("127.0.0.1:0", tempfile::tempdir().expect("a directory"))
    }

    /// Stops as a crash would, and starts again over the same directory. The address is another: the old port may be
    /// somebody else's by now.
    pub fn again(mut self) -> Self {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ended");
        let data = std::mem::replace(&mut self.data, tempfile::tempdir().expect("a directory"));
        Self::on("127.0.0.1:0", data)
    }

    fn on(listen: &str, data: TempDir) -> Self {
        let mut command = leasehold(&["serve", "--listen", listen, "--data"]);
        command.arg(data.path().join("journal"));
        Self::spawn(&mut command, data)
    }

    /// A server with these flags and no others.
    pub fn with(flags: &[&str]) -> Self {
        let mut command = leasehold(&["serve"]);
        Self::spawn(command.args(flags), tempfile::tempdir().expect("a directory"))
    }

    /// A server that tells a service manager behind this socket.
    pub fn managed(flags: &[&str], socket: &Path) -> Self {
        let mut command = leasehold(&["serve"]);
        command.args(flags).env("NOTIFY_SOCKET", socket);
        Self::spawn(&mut command, tempfile::tempdir().expect("a directory"))
    }

    fn spawn(command: &mut Command, data: TempDir) -> Self {
        let piped = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the binary was built for this test");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let address = loop {
            let line = lines.next().unwrap_or_else(|| panic!("a server that starts says where: {said:?}"));
            let at = line.split("serving on ").nth(1).or_else(|| line.split("standing by on ").nth(1));
            let served = at.and_then(|rest| rest.split(',').next()).map(str::to_owned);
            said.push(line);
            if let Some(address) = served {
                break address;
            }
        };
        // What it says later is read too, so that it can go on saying it.
        let (tell, says) = channel();
        std::thread::spawn(move || lines.try_for_each(|line| tell.send(line)));
        Self { address, child, data, said, says: Mutex::new(says) }
    }

    /// Waits until it says this.
    #[track_caller]
    pub fn await_log(&self, holds: &str) -> String {
        let says = self.says.lock().expect("one test, one thread");
        loop {
            let line = says.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it never said {holds:?}"));
            if line.contains(holds) {
                return line;
            }
        }
    }

    /// Every line of a server that has ended.
    pub fn everything_said(&self) -> Vec<String> {
        let says = self.says.lock().expect("one test, one thread");
        self.said.iter().cloned().chain(says.iter()).collect()
    }

    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }

    /// One request over HTTP, with more headers.
    pub fn http(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}");
        write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).expect("the server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server answers");
        answer
    }

    /// A command for this server.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = leasehold(args);
        command.env("LEASEHOLD_ADDR", &self.address);
        command
    }

    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Told {
        run(&mut self.command(args))
    }

    /// The JSON answer of a command that succeeds.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let mut with = args.to_vec();
        with.push("--json");
        self.run(&with).ok().json()
    }

    /// Takes an exclusive lease for a minute and returns its token.
    #[track_caller]
    pub fn acquire(&self, name: &str, holder: &str) -> String {
        text(&self.json(&["acquire", name, "--holder", holder, "--ttl", "60s"])["token"])
    }

    /// Waits until somebody waits for a resource.
    #[track_caller]
    pub fn until_waited_for(&self, name: &str) {
        self.until(name, |show| show["waiters"] != 0);
    }

    /// Waits until a resource looks like this.
    #[track_caller]
    pub fn until(&self, name: &str, looks: impl Fn(&Value) -> bool) {
        let over = Instant::now() + PATIENCE;
        loop {
            let shown = self.json(&["show", name]);
            if looks(&shown) {
                return;
            }
            assert!(Instant::now() < over, "{name} never looked as expected: {shown}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that ended already has nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a command whose end is waited for later.
pub fn begin(command: &mut Command) -> Child {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().expect("the binary was built for this test")
}

/// What a command that was begun ended with.
#[track_caller]
pub fn end(child: Child) -> Told {
    told(child.wait_with_output().expect("it ends"))
}

/// Reads standard error until a line holds this.
pub fn await_line(from: &mut BufReader<ChildStderr>, holds: &str) -> String {
    from.lines().map_while(Result::ok).find(|line| line.contains(holds)).expect("the line comes")
}

/// A JSON text.
#[track_caller]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text, not {value}")).to_owned()
}

/// The names of an object's fields.
#[track_caller]
pub fn keys(value: &Value) -> Vec<&str> {
    let fields = value.as_object().unwrap_or_else(|| panic!("an object, not {value}"));
    let mut keys: Vec<_> = fields.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}
