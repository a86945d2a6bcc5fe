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

/// Bytes of orders that may lie here.
const UNSENT: usize = 1 << 16;

/// A minder that waits for its command, or minds it.
pub struct Minder {
    process: Child,
    talk: Talk,
    /// What was ordered and has not gone out: one that stands still takes nothing in.
    unsent: Vec<u8>,
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
        Ok(Self { process, talk: Talk::over(stream), unsent: Vec::new() })
    }

    /// Tells it something, without waiting: one that stands still holds up nobody. One that takes nothing in for that long
    /// hears less, and its wrapper looks at the clock too. One that cannot be told is dead, which the next report says.
    pub fn order(&mut self, order: &Order) {
        if self.unsent.len() < UNSENT
            && let Ok(line) = serde_json::to_vec(order)
        {
            self.unsent.extend_from_slice(&line);
            self.unsent.push(b'\n');
        }
        let _ = self.talk.say_some(&mut self.unsent);
    }

    /// What became of the command; none if the minder died.
    pub async fn report(&mut self) -> Option<Report> {
        self.talk.hear().await
    }

    /// Takes the place of a minder that died or stands still. Nothing of the command is left when this returns, nor of the
    /// minder, but for those told.
    pub fn replace(&self) -> Vec<i32> {
        below::end(|_, _| {})
    }

    /// Lets it go, after the lease was given back, or before there was one.
    pub fn leave(mut self) {
        self.order(&Order::Leave);
        // It has nothing left to do, also if it stands still; one that died was taken in already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn not_minded(error: std::io::Error) -> Failure {
    Failure::Other(format!("the command's minder cannot be started: {error}"))
}
