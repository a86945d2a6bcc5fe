//! Servers of our own: processes that a bench or a demonstration starts in a place of its own, and that die with it.

pub mod etcd;
mod interrupted;
mod place;
mod process;
pub mod servers;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold::{Client, Endpoints};
use tokio::sync::oneshot;

use crate::told::Failure;
pub use interrupted::interrupted;
use place::Place;
pub use process::Process;

/// How long a server may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server process that ends with whoever started it.
pub struct Own {
    /// For whom, in the words of an error.
    who: &'static str,
    process: Process,
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
        let (process, says) = spawn(place.path()).map_err(|why| failed(who, &why))?;
        Ok(Self { who, process, says, started: Instant::now(), place })
    }

    /// Its place, which has room for other things too.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// Its process.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Kills the server and starts it again on what it left.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.process.kill();
        self.started = Instant::now();
        (self.process, self.says) = spawn(self.place.path()).map_err(|why| failed(self.who, &why))?;
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
}

/// Keeps a place, if this process was started to.
pub fn behind_the_scenes() -> Option<ExitCode> {
    place::behind_the_scenes()
}

/// On a free port that it finds itself: one that was looked for before may be somebody else's by then.
fn spawn(place: &Path) -> Result<(Process, oneshot::Receiver<String>), String> {
    let data = place.join("data");
    Process::server(place, ["--listen".as_ref(), "127.0.0.1:0".as_ref(), "--data".as_ref(), data.as_os_str()])
}

fn failed(who: &str, why: &str) -> Failure {
    Failure::Other(format!("{who}: {why}"))
}
