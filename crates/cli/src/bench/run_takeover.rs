//! Latency of `leasehold run`: the time from the death of a command to the start of its successor.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::Address;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use super::Bench;
use super::failed;
use super::report::BenchRow;
use super::session_load::Sample;
use crate::output::CommandError;

const NAME: &str = "bench/run";
/// Time that a command has to start.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Minimum number of measurements, on a slow machine.
const MIN_COUNT: u64 = 5;

impl Bench<'_> {
    /// Starts wrappers that each wait for the previous one, and kills their commands. The ttl is too long to matter.
    pub(super) async fn run_latency(&mut self) -> Result<(), CommandError> {
        self.progress.set_message("successor of a killed command");
        let addr = self.endpoints.addresses().iter().map(Address::as_str).collect::<Vec<_>>().join(",");
        let mut holder = WrappedCommand::begin(&addr, &self.variables)?;
        let mut command = holder.started().await?;
        let mut sample = Sample::new();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(self.args.seconds) || sample.count < MIN_COUNT {
            let mut waiter = WrappedCommand::begin(&addr, &self.variables)?;
            while self.client.waiters(NAME).await?.is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let at = Instant::now();
            kill_process(command, Signal::KILL)
                .map_err(|error| failed(&format!("cannot kill the command: {error}")))?;
            command = waiter.started().await?;
            sample.record(at, 1);
            sample.elapsed += at.elapsed();
            sample.count += 1;
            holder = waiter;
        }
        drop(holder);
        self.rows.push(BenchRow::from_sample("killed command under `run` to start of its successor", &sample, None));
        Ok(())
    }
}

/// A wrapper whose command first prints its process id.
struct WrappedCommand {
    child: Child,
    pid: oneshot::Receiver<String>,
}

impl WrappedCommand {
    fn begin(addr: &str, variables: &[(&'static str, OsString)]) -> Result<Self, CommandError> {
        let mut child = Command::new("/proc/self/exe")
            .args(["run", NAME, "--ttl", "30s", "--wait", "5m", "--addr", addr, "--"])
            .args(["sh", "-c", "echo $$; exec sleep 600"])
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(&format!("cannot start a command: {error}")))?;
        let (sender, pid) = oneshot::channel();
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        // The thread ends with the command.
        std::thread::spawn(move || {
            if let Some(Ok(line)) = lines.next() {
                // The receiver may have been dropped by an interrupt.
                let _ = sender.send(line);
            }
        });
        Ok(Self { child, pid })
    }

    /// Waits until the command has started. Returns its process id.
    async fn started(&mut self) -> Result<Pid, CommandError> {
        let pid = tokio::time::timeout(TIMEOUT, &mut self.pid).await;
        let pid = pid.map_err(|_| failed("a command did not start in time"))?.unwrap_or_default();
        pid.parse().ok().and_then(Pid::from_raw).ok_or_else(|| failed("a command did not start"))
    }
}

impl Drop for WrappedCommand {
    fn drop(&mut self) {
        // The supervisor ends the command. A wrapper whose command was killed has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
