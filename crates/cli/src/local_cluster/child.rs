//! A child process that the kernel kills with its parent, and whose log is drained so that it never blocks.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use crate::run::{pdeathsig_program, pdeathsig_self};

/// A child process that is killed on drop, and when this process dies.
pub struct ChildProcess {
    child: Child,
}

impl ChildProcess {
    /// Starts a server with these flags. The receiver yields its address when it serves or is a standby. A start error is
    /// written into `directory`.
    pub fn server<S: AsRef<OsStr>>(
        directory: &Path,
        flags: impl IntoIterator<Item = S>,
    ) -> Result<(Self, oneshot::Receiver<String>), String> {
        let mut child = pdeathsig_self(directory)
            .and_then(|mut command| {
                command
                    .args(["serve", "--log-format", "text", "--log-level", "info"])
                    .args(flags)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
            })
            .map_err(|error| format!("cannot start a server: {error}"))?;
        let (sender, listening) = oneshot::channel();
        let lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines().map_while(Result::ok);
        // The thread ends with the server. It reads the whole log, so that the pipe never fills.
        std::thread::spawn(move || {
            let mut sender = Some(sender);
            for line in lines {
                let at = line.split("serving on ").nth(1).or_else(|| line.split("standing by on ").nth(1));
                let addr = at.and_then(|rest| rest.split(',').next());
                if let Some((sender, addr)) = addr.and_then(|addr| Some((sender.take()?, addr))) {
                    // The receiver may have been dropped by an interrupt.
                    let _ = sender.send(addr.to_owned());
                }
            }
        });
        Ok((Self { child }, listening))
    }

    /// Starts another program, with its output discarded.
    pub fn program<S: AsRef<OsStr>>(
        directory: &Path,
        program: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Self, String> {
        let child = pdeathsig_program(directory, program).and_then(|mut command| {
            let quiet = command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            quiet.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH).spawn()
        });
        child.map(|child| Self { child }).map_err(|error| format!("cannot start {program}: {error}"))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn has_exited(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have exited already.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// CPU time used so far.
    pub fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // The command name may contain spaces; the fields follow its closing parenthesis.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / rustix::param::clock_ticks_per_second())
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1_024
    }

    /// Kills it with SIGKILL, as a crash would, and reaps it.
    pub fn kill(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
