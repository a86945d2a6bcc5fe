//! A browser without a window, driven by the DevTools protocol over a pipe: it opens no port, and its messages have one order.

use std::cell::{RefCell, RefMut};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use leasehold_testkit::process::{TIMEOUT, TestProcess};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Passes the pipes of standard input and output to the browser as descriptors 3 and 4, where it expects them.
const WITH_PIPES: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null";

/// A running browser.
pub struct Chromium {
    process: RefCell<TestProcess>,
    pipe: RefCell<DevToolsPipe>,
    _profile: TempDir,
}

struct DevToolsPipe {
    input: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    events: Vec<BrowserEvent>,
}

/// Something that happened in a page.
#[derive(Clone, Debug)]
pub struct BrowserEvent {
    /// The session of the page.
    pub session: String,
    /// The name of the event.
    pub method: String,
    /// What happened.
    pub params: Value,
}

impl Chromium {
    /// Starts a browser with an empty profile. It resolves `evil.test` to this machine, and connects to nothing by itself.
    pub fn start() -> Self {
        let profile = tempfile::tempdir().expect("a directory");
        let mut command = Command::new("sh");
        command.args(["-c", WITH_PIPES, "sh", "chromium", "--remote-debugging-pipe"]);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-component-update"]);
        command.args(["--disable-sync", "--disable-extensions", "--hide-scrollbars", "--force-color-profile=srgb"]);
        command.args(["--font-render-hinting=none", "--host-resolver-rules=MAP evil.test 127.0.0.1"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("a shell starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, messages) = channel();
        // Ends with the browser. Each message ends with a zero byte.
        std::thread::spawn(move || {
            let messages = output.split(0).map_while(Result::ok);
            for message in messages.filter_map(|message| serde_json::from_slice(&message).ok()) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let pipe = DevToolsPipe { input, messages, last_id: 0, events: Vec::new() };
        Self { process: RefCell::new(child.into()), pipe: RefCell::new(pipe), _profile: profile }
    }

    /// Sends a command to a page, or to the browser, and returns its result or its error.
    pub fn try_call(&self, session: Option<&str>, method: &str, params: Value) -> Result<Value, String> {
        let id = {
            let mut pipe = self.pipe.borrow_mut();
            pipe.last_id += 1;
            let mut message = json!({ "id": pipe.last_id, "method": method, "params": params });
            if let Some(session) = session {
                message["sessionId"] = json!(session);
            }
            pipe.input.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
            pipe.last_id
        };
        // Events may arrive all the time.
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let message = self.receive(deadline.saturating_duration_since(Instant::now()));
            let Some(message) = message else { panic!("no reply to {method}: {:?}", self.log()) };
            if message["id"] == json!(id) {
                return match &message["error"] {
                    Value::Null => Ok(message["result"].clone()),
                    error => Err(format!("{method}: {error}")),
                };
            }
        }
    }

    /// Sends a command that must succeed.
    #[track_caller]
    pub fn call(&self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.try_call(session, method, params).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The next message within a time; an event is kept. Panics if the browser has ended.
    fn receive(&self, limit: Duration) -> Option<Value> {
        let mut pipe = self.pipe.borrow_mut();
        let message = match pipe.messages.recv_timeout(limit) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => panic!("the browser ended: {:?}", self.log()),
        };
        if let Some(method) = message["method"].as_str() {
            let session = message["sessionId"].as_str().unwrap_or_default().to_owned();
            let event = BrowserEvent { session, method: method.to_owned(), params: message["params"].clone() };
            pipe.events.push(event);
        }
        Some(message)
    }

    /// Reads the events that arrive within a time, or up to the first one.
    pub fn read_events(&self, limit: Duration) {
        if self.receive(limit).is_some() {
            while self.receive(Duration::ZERO).is_some() {}
        }
    }

    /// All events so far, in their order.
    pub fn events(&self) -> RefMut<'_, Vec<BrowserEvent>> {
        RefMut::map(self.pipe.borrow_mut(), |pipe| &mut pipe.events)
    }

    /// What the browser printed, which explains why it does not reply.
    fn log(&self) -> Vec<String> {
        self.process.borrow_mut().stderr().so_far()
    }
}
