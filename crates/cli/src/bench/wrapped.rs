//! From the death of a wrapped command to the start of its successor's: what a crash costs whoever waits.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::Address;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use super::Bench;
use super::failed;
use super::line::Stretch;
use super::report::Row;
use crate::told::Failure;

const NAME: &str = "bench/run";
/// How long a command may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// A machine that is too slow for more tells something after so many.
const LEAST: u64 = 5;

impl Bench<'_> {
    /// Wrappers in a row, each waiting for the one before, at a ttl that nobody waits for. Each command is killed.
    pub(super) async fn wrapped(&mut self) -> Result<(), Failure> {
        self.shown.set_message("a killed command and its successor");
        let addr = self.endpoints.all().iter().map(Address::as_str).collect::<Vec<_>>().join(",");
        let mut holder = Wrapped::begin(&addr)?;
        let mut command = holder.started().await?;
        let mut stretch = Stretch::new();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(self.args.seconds) || stretch.count < LEAST {
            let mut waiter = Wrapped::begin(&addr)?;
            while self.client.waiters(NAME).await?.is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let at = Instant::now();
            kill_process(command, Signal::KILL).map_err(|error| failed(&format!("its command is gone: {error}")))?;
            command = waiter.started().await?;
            stretch.waited(at, 1);
            stretch.took += at.elapsed();
            stretch.count += 1;
            holder = waiter;
        }
        drop(holder);
        self.rows.push(Row::of("a command killed under `run`, to its successor's", &stretch, None));
        Ok(())
    }
}

/// A wrapper whose command says its number first.
struct Wrapped {
    child: Child,
    says: oneshot::Receiver<String>,
}

impl Wrapped {
    fn begin(addr: &str) -> Result<Self, Failure> {
        let mut child = Command::new("/proc/self/exe")
            .args(["run", NAME, "--ttl", "30s", "--wait", "5m", "--addr", addr, "--"])
            .args(["sh", "-c", "echo $$; exec sleep 600"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(&format!("cannot start a command: {error}")))?;
        let (tell, says) = oneshot::channel();
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        // Ends with the command.
        std::thread::spawn(move || {
            if let Some(Ok(line)) = lines.next() {
                // A bench that was interrupted meanwhile does not want to know.
                let _ = tell.send(line);
            }
        });
        Ok(Self { child, says })
    }

    /// The command's process, when it is there.
    async fn started(&mut self) -> Result<Pid, Failure> {
        let said = tokio::time::timeout(PATIENCE, &mut self.says).await;
        let said = said.map_err(|_| failed("a command takes too long to start"))?.unwrap_or_default();
        said.parse().ok().and_then(Pid::from_raw).ok_or_else(|| failed("a command did not start"))
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        // Its minder ends the command; one whose command was killed has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
