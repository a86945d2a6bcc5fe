//! A server of our own: a process that a bench or a demonstration starts in a place of its own, and that dies with it.

mod place;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

use leasehold::{Client, Endpoints};
use tokio::sync::oneshot;

use crate::run::dies_with_us;
use crate::told::Failure;
use place::Place;

/// How long a server may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server process that ends with whoever started it.
pub struct Own {
    /// For whom, in the words of an error.
    who: &'static str,
    child: Child,
    /// What it says first: where it serves, if it does.
    says: oneshot::Receiver<String>,
    started: Instant,
    /// After the process, so that it ends first.
    place: Place,
}

impl Own {
    /// Starts a server in a fresh place inside of this directory, named after whom it is for.
    pub fn start(who: &'static str, beside: &Path) -> Result<Self, Failure> {
        let place = Place::make(who, beside).map_err(|why| failed(who, &why))?;
        let (child, says) = spawn(place.path()).map_err(|why| failed(who, &why))?;
        Ok(Self { who, child, says, started: Instant::now(), place })
    }

    /// Its place, which has room for other things too.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// Kills the server and starts it again on what it left.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.kill();
        self.started = Instant::now();
        (self.child, self.says) = spawn(self.place.path()).map_err(|why| failed(self.who, &why))?;
        Ok(())
    }

    /// Waits until it answers. Tells where, and how long that took since its start.
    pub async fn answers(&mut self) -> Result<(Endpoints, Duration), Failure> {
        let said = tokio::time::timeout(PATIENCE, &mut self.says).await;
        let addr = said.map_err(|_| failed(self.who, "its server takes too long to start"))?;
        let addr = addr.map_err(|_| failed(self.who, "its server ended before it served"))?;
        let endpoints = Endpoints::parse(&addr)?;
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
    }
}

/// Keeps a place, if this process was started to.
pub fn behind_the_scenes() -> Option<ExitCode> {
    place::behind_the_scenes()
}

/// On a free port that it finds itself: one that was looked for before may be somebody else's by then.
fn spawn(place: &Path) -> Result<(Child, oneshot::Receiver<String>), String> {
    let mut child = dies_with_us(place)
        .and_then(|mut command| {
            command
                .args(["serve", "--listen", "127.0.0.1:0", "--log", "text", "--log-level", "info", "--data"])
                .arg(place.join("data"))
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
            let addr = line.split("serving on ").nth(1).and_then(|rest| rest.split(',').next());
            if let Some((tell, addr)) = addr.and_then(|addr| Some((tell.take()?, addr))) {
                // Whoever was interrupted meanwhile does not want to know.
                let _ = tell.send(addr.to_owned());
            }
        }
    });
    Ok((child, says))
}

fn failed(who: &str, why: &str) -> Failure {
    Failure::Other(format!("{who}: {why}"))
}
