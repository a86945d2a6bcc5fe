//! A driver process: sends requests to it and delivers its replies by id.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_testkit::process::{TestProcess, tied_command};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::failure::{ScenarioFailure, broken};

/// Environment variable with the path of a file: milliseconds by which clocks over the Rust client are ahead.
const FAKE_SUSPEND_FILE: &str = "LEASEHOLD_TESTING_FAKE_SUSPEND_FILE";
/// Time for a driver to start and reply to `hello`.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Settings of the environment that would change what a client does.
const CLIENT_SETTINGS: [&str; 8] = [
    "LEASEHOLD_ADDR",
    "LEASEHOLD_TOKEN",
    "LEASEHOLD_PROFILE",
    "LEASEHOLD_TLS_CA",
    "LEASEHOLD_TLS_CERT",
    "LEASEHOLD_TLS_KEY",
    "LEASEHOLD_BEARER_FILE",
    "LEASEHOLD_SECRET_FILE",
];

/// Replies that are waited for, by request id; `None` after the output has ended.
type ReplyChannels = Arc<Mutex<Option<HashMap<u64, Sender<Value>>>>>;

/// What a driver replies to `hello`.
#[derive(Clone, Debug, Default)]
pub struct DriverHello {
    /// Version of the client.
    pub version: String,
    /// Features that the client does not have, with the reasons.
    pub skips: HashMap<String, String>,
}

/// A running driver. It is killed when it is dropped.
pub struct DriverProcess {
    process: Mutex<TestProcess>,
    stdin: Mutex<Option<ChildStdin>>,
    pending: ReplyChannels,
    next_id: AtomicU64,
    log: bool,
    name: String,
    directory: TempDir,
}

impl DriverProcess {
    /// Starts a driver and greets it.
    pub fn start(
        name: &str,
        command: &[String],
        root: &Path,
        log: bool,
    ) -> Result<(Self, DriverHello), ScenarioFailure> {
        let directory = leasehold_testkit::temp_dir::in_memory()?;
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let mut command = tied_command("KILL", &words);
        let (output, write_end) = io::pipe()?;
        command.current_dir(root).stdin(Stdio::piped()).stdout(write_end);
        command.stderr(File::create(directory.path().join("stderr"))?);
        command.env(FAKE_SUSPEND_FILE, directory.path().join("suspended-ms"));
        for setting in CLIENT_SETTINGS {
            command.env_remove(setting);
        }
        let mut process = TestProcess::spawn_tied(command)?;
        let stdin = Mutex::new(process.take_stdin());
        let pending = ReplyChannels::new(Mutex::new(Some(HashMap::new())));
        let driver = Self {
            process: Mutex::new(process),
            stdin,
            pending,
            next_id: AtomicU64::new(1),
            log,
            name: name.to_owned(),
            directory,
        };
        driver.read_replies(output);
        let hello = driver.hello()?;
        Ok((driver, hello))
    }

    fn read_replies(&self, output: io::PipeReader) {
        let (pending, log, name) = (self.pending.clone(), self.log, self.name.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if log {
                    eprintln!("{name} ← {line}");
                }
                let reply: Value = serde_json::from_str(&line).unwrap_or_default();
                let id = reply.get("id").and_then(Value::as_u64);
                let receiver = id.and_then(|id| lock(&pending).as_mut()?.remove(&id));
                match receiver {
                    // A scenario that failed no longer waits.
                    Some(receiver) => drop(receiver.send(reply)),
                    None => eprintln!("{name}: a line that answers no request: {line}"),
                }
            }
            // Drops all senders: those who wait learn that the process has ended.
            lock(&pending).take();
        });
    }

    fn hello(&self) -> Result<DriverHello, ScenarioFailure> {
        let reply = self.send("hello", Map::new())?.1.recv_timeout(START_TIMEOUT);
        let Ok(reply) = reply else { return broken(format!("no reply to hello{}", self.last_words())) };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let skips = reply["ok"]["skips"].as_object().cloned().unwrap_or_default();
        Ok(DriverHello {
            version: text(&reply["ok"]["version"]),
            skips: skips.iter().map(|(feature, reason)| (feature.clone(), text(reason))).collect(),
        })
    }

    /// Sends a request. Returns its id and the channel of its reply.
    pub fn send(&self, op: &str, mut fields: Map<String, Value>) -> Result<(u64, Receiver<Value>), ScenarioFailure> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        fields.insert("id".to_owned(), json!(id));
        fields.insert("op".to_owned(), json!(op));
        let line = Value::Object(fields).to_string();
        let (sender, receiver) = channel();
        match lock(&self.pending).as_mut() {
            Some(pending) => pending.insert(id, sender),
            None => return broken(format!("the driver has ended{}", self.last_words())),
        };
        if self.log {
            eprintln!("{} → {line}", self.name);
        }
        let mut stdin = lock(&self.stdin);
        let Some(stdin) = stdin.as_mut() else { return broken("standard input is closed") };
        match stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush()) {
            Ok(()) => Ok((id, receiver)),
            Err(error) => broken(format!("the driver does not read: {error}{}", self.last_words())),
        }
    }

    /// Sends a request and waits for its success.
    pub fn request(&self, op: &str, fields: Value, timeout: Duration) -> Result<Value, ScenarioFailure> {
        let Value::Object(fields) = fields else { return broken("the fields of a request are an object") };
        let mut reply = match self.send(op, fields)?.1.recv_timeout(timeout) {
            Ok(reply) => reply,
            Err(error) => return broken(format!("{} {op}: {error}{}", self.name, self.last_words())),
        };
        match reply.get_mut("ok") {
            Some(ok) => Ok(ok.take()),
            None => broken(format!("{} {op}: {reply}", self.name)),
        }
    }

    /// Process id.
    pub fn process_id(&self) -> u32 {
        lock(&self.process).id()
    }

    /// Stops the process with SIGSTOP, and waits until it is stopped.
    pub fn pause(&self) {
        lock(&self.process).stop();
    }

    /// Continues the process.
    pub fn resume(&self) {
        lock(&self.process).resume();
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&self) {
        lock(&self.process).kill();
    }

    /// The end of what the driver wrote to standard error, as part of a message.
    pub fn last_words(&self) -> String {
        let text = std::fs::read(self.directory.path().join("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().rev().take(12).collect();
        if lines.is_empty() {
            return String::new();
        }
        format!("; its standard error ends with:\n    {}", lines.into_iter().rev().collect::<Vec<_>>().join("\n    "))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
