//! The wrapper's side of its minder: starting it, telling it, and taking its place if it dies.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::getpgrp;
use tokio::net::UnixListener;

use super::place::{self, Place};
use super::talk::{Order, Report, Talk};
use super::{below, minder};
use crate::told::Failure;

/// How long a minder may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(60);

/// A minder that waits for its command, or minds it.
pub struct Minder {
    process: Child,
    talk: Talk,
}

impl Minder {
    /// Starts a minder for a command. Nothing of the command runs before the order to start it.
    pub async fn start(place: &Place, command: &[OsString], env: &[(&str, &OsStr)]) -> Result<Self, Failure> {
        // If the minder dies, whatever it minded becomes this process's.
        below::gather().map_err(|error| not_minded(error.into()))?;
        let control = place::control(place.path());
        let listener = UnixListener::bind(&control).map_err(not_minded)?;
        let process = Command::new("/proc/self/exe")
            .arg0("leasehold")
            .arg(minder::WORD)
            .arg(place.path())
            .arg(getpgrp().as_raw_pid().to_string())
            .args(command)
            .envs(env.iter().copied())
            .process_group(0)
            .spawn()
            .map_err(not_minded)?;
        let came = tokio::time::timeout(PATIENCE, listener.accept()).await;
        // It has been found, and nobody else needs to find it.
        let _ = std::fs::remove_file(&control);
        let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
        let (stream, _) = came.map_err(|_| late()).and_then(|came| came).map_err(not_minded)?;
        Ok(Self { process, talk: Talk::over(stream) })
    }

    /// Tells it something. One that cannot be told is dead, which the next report says.
    pub async fn order(&self, order: &Order) {
        let _ = self.talk.say(order).await;
    }

    /// What became of the command; none if the minder died.
    pub async fn report(&mut self) -> Option<Report> {
        self.talk.hear().await
    }

    /// Takes the place of a minder that died. Nothing of the command is left when this returns, but for those told.
    pub fn replace(&self) -> Vec<i32> {
        below::end(|_, _| {})
    }

    /// Lets it go, after the lease was given back.
    pub async fn leave(self) {
        self.order(&Order::Leave).await;
        let Self { talk, mut process } = self;
        drop(talk);
        // It has nothing left to do; one that died was taken in already.
        let _ = process.wait();
    }
}

fn not_minded(error: std::io::Error) -> Failure {
    Failure::Other(format!("the command's minder cannot be started: {error}"))
}
