//! The server that a bench drives: a process of its own in a directory of its own, or one that is there already.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::{Client, Endpoints};
use tokio::sync::oneshot;

use crate::told::Failure;

/// How long a server may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server process that ends with the bench.
pub struct Own {
    child: Child,
    directory: PathBuf,
    /// What it says first: where it serves, if it does.
    says: oneshot::Receiver<String>,
    started: Instant,
}

impl Own {
    /// Starts a server on a fresh directory inside of this one.
    pub fn start(beside: &Path) -> Result<Self, Failure> {
        let directory = beside.join(format!("leasehold-bench-{}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| failed(&format!("{}: {error}", directory.display())))?;
        let (child, says) = spawn(&directory).inspect_err(|_| {
            // Nobody else would.
            let _ = fs::remove_dir_all(&directory);
        })?;
        Ok(Self { child, directory, says, started: Instant::now() })
    }

    /// Kills the server and starts it again on what it left.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.kill();
        self.started = Instant::now();
        (self.child, self.says) = spawn(&self.directory)?;
        Ok(())
    }

    /// Waits until it answers. Tells where, and how long that took since its start.
    pub async fn answers(&mut self) -> Result<(Endpoints, Duration), Failure> {
        let said = tokio::time::timeout(PATIENCE, &mut self.says).await;
        let addr = said.map_err(|_| failed("its server takes too long to start"))?;
        let endpoints = Endpoints::parse(&addr.map_err(|_| failed("its server ended before it served"))?)?;
        loop {
            // A client of its own each time: a broken connection waits before it is tried again.
            match Client::connect(endpoints.clone()).status().await {
                Ok(_) => return Ok((endpoints, self.started.elapsed())),
                Err(error) if self.started.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
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

    fn kill(&mut self) {
        // It may have gone by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.kill();
        // What cannot be removed is left where the system cleans up.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// On a free port that it finds itself: one that was looked for before may be somebody else's by then.
fn spawn(directory: &Path) -> Result<(Child, oneshot::Receiver<String>), Failure> {
    let program = std::env::current_exe().map_err(|error| failed(&format!("cannot find itself: {error}")))?;
    let mut child = Command::new(program)
        .args(["serve", "--listen", "127.0.0.1:0", "--log", "text", "--log-level", "info", "--data"])
        .arg(directory.join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&format!("cannot start a server: {error}")))?;
    let (tell, says) = oneshot::channel();
    let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
    // Ends with the server. What it says later is read too, so that it can go on saying it.
    std::thread::spawn(move || {
        let mut tell = Some(tell);
        for line in lines {
            let addr = line.split("serving on ").nth(1).and_then(|rest| rest.split(',').next());
            if let Some((tell, addr)) = addr.and_then(|addr| Some((tell.take()?, addr))) {
                // A bench that was interrupted meanwhile does not want to know.
                let _ = tell.send(addr.to_owned());
            }
        }
    });
    Ok((child, says))
}

pub fn failed(why: &str) -> Failure {
    Failure::Other(format!("bench: {why}"))
}
