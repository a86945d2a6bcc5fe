//! A process of our own: it dies with us, and what it says is read so that it can go on.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use crate::run::{dies_with_us, program_dies_with_us};

/// A process that ends with whoever started it.
pub struct Process {
    child: Child,
}

impl Process {
    /// A server with these flags, which says where it serves or stands by. Notes of its starter go into this directory.
    pub fn server<S: AsRef<OsStr>>(
        notes: &Path,
        flags: impl IntoIterator<Item = S>,
    ) -> Result<(Self, oneshot::Receiver<String>), String> {
        let mut child = dies_with_us(notes)
            .and_then(|mut command| {
                command
                    .args(["serve", "--log", "text", "--log-level", "info"])
                    .args(flags)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
            })
            .map_err(|error| format!("cannot start a server: {error}"))?;
        let (tell, says) = oneshot::channel();
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        // Ends with the server. What it says later is read too, so that it can go on saying it.
        std::thread::spawn(move || {
            let mut tell = Some(tell);
            for line in lines {
                let at = line.split("serving on ").nth(1).or_else(|| line.split("standing by on ").nth(1));
                let addr = at.and_then(|rest| rest.split(',').next());
                if let Some((tell, addr)) = addr.and_then(|addr| Some((tell.take()?, addr))) {
                    // Whoever was interrupted meanwhile does not want to know.
                    let _ = tell.send(addr.to_owned());
                }
            }
        });
        Ok((Self { child }, says))
    }

    /// Another program, which says nothing.
    pub fn program<S: AsRef<OsStr>>(
        notes: &Path,
        program: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Self, String> {
        let child = program_dies_with_us(notes, program).and_then(|mut command| {
            let quiet = command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            quiet.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH).spawn()
        });
        child.map(|child| Self { child }).map_err(|error| format!("cannot start {program}: {error}"))
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end.
    pub fn ask_to_stop(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have gone by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Processor time used so far.
    pub fn processor(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // The command's name may hold spaces; the fields count from behind its bracket.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / rustix::param::clock_ticks_per_second())
    }

    /// Bytes of memory that it has now.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1_024
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        // It may have gone by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
