//! The wrapper: a client, a directory, the signals, and one hold after the other.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::time::Duration;

use leasehold::{Client, Code, Error, Guard, Loss, Stopped};

use super::hold::{Holding, Over};
use super::mind::Minder;
use super::notice::Notices;
use super::place::{self, Place};
use super::shape::{Shape, Times};
use super::signals::{Came, Signals};
use super::{ADDR, RESOURCE};
use crate::connection::Everywhere;
use crate::told::{Failure, Outcome, complain};

/// How long a server may take to take a lease back; without, it ends by its ttl.
const GIVING_BACK: Duration = Duration::from_secs(10);
/// How long it may take to hear that this process ends, or about a lease that is over.
const TAKING_LEAVE: Duration = Duration::from_secs(1);

/// What is there for as long as the wrapper is.
pub struct Wrapper<'a> {
    pub client: Client,
    name: &'a str,
    command: &'a [OsString],
    times: Times,
    addr: String,
    signals: Signals,
    notices: Notices,
    place: Place,
}

impl<'a> Wrapper<'a> {
    pub fn new(name: &'a str, shape: &'a Shape, ask: &Everywhere) -> Result<Self, Failure> {
        let times = shape.times()?;
        let client = shape.client(ask)?;
        let signals =
            Signals::listen().map_err(|error| Failure::Other(format!("cannot listen to signals: {error}")))?;
        let place = Place::make()?;
        let socket = place::progress(place.path());
        let notices = Notices::at(&socket).map_err(|error| {
            let at = socket.display();
            Error::config("TMPDIR", format!("{at}: no socket can be made there: {error}; set a shorter one"))
        })?;
        let addr = ask.addr_or_default().to_owned();
        Ok(Self { client, name, command: &shape.command, times, addr, signals, notices, place })
    }

    /// A minder for the next hold, started before the lease is there: it then costs no time.
    pub async fn minder(&self) -> Result<Minder, Failure> {
        let socket = place::progress(self.place.path());
        let env = [
            (RESOURCE, OsStr::new(self.name)),
            (ADDR, OsStr::new(&self.addr)),
            ("LEASEHOLD_SOCKET", socket.as_os_str()),
        ];
        Minder::start(&self.place, self.command, &env).await
    }

    /// Waits for something, unless a signal asks for the end before.
    pub async fn until_asked_to_end<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, Came> {
        tokio::select! {
            done = wait => Ok(done),
            came = self.signals.end() => Err(came),
        }
    }

    /// Runs the command under a lease, and gives the lease back when nothing of the command is left.
    pub async fn hold(&mut self, guard: Guard, mut minder: Minder, resigns: bool) -> Result<Over, Failure> {
        // The predecessor of an overlapping handoff may still run.
        match self.until_asked_to_end(guard.may_claim()).await {
            Ok(Ok(_claim)) => {}
            Ok(Err(lost)) => return Err(lost.into()),
            Err(came) => return Ok(Over::Resigned(came)),
        }
        let Self { signals, notices, times, .. } = self;
        let holding = Holding { guard: &guard, signals, notices, times: *times, resigns };
        let over = holding.run(&mut minder).await;
        self.give_back(guard, matches!(over, Over::Lost(_))).await;
        if !resigns {
            // Before the minder goes: there is no moment at which nobody would remove it. A candidate needs it again.
            place::remove(self.place.path());
        }
        minder.leave().await;
        Ok(over)
    }

    async fn give_back(&self, guard: Guard, lost: bool) {
        let patience = if guard.is_held() { GIVING_BACK } else { TAKING_LEAVE };
        let told = match tokio::time::timeout(patience, guard.release()).await {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure.into_error(),
            Err(_) => Error::new(Code::Timeout, "no server answered in time; wait for the ttl"),
        };
        if !lost {
            complain(&format!("leasehold: {}: not given back, it ends by its ttl: {told}", self.name));
        }
    }

    /// Ends the session, so that nobody waits for it.
    pub async fn close(self, outcome: Outcome) -> Outcome {
        // Whoever is not told finds out by the session's ttl.
        let _ = tokio::time::timeout(TAKING_LEAVE, self.client.close()).await;
        outcome
    }
}

/// A lease that was lost while its command ran.
pub fn lost(name: &str, loss: Option<Loss>) -> Failure {
    match loss {
        Some(loss) => Error::from(Stopped::Lost(loss)).into(),
        None => {
            let words = format!(
                "{name} was not renewed in time, or without progress, and the command was ended; acquire again"
            );
            Error::new(Code::LeaseLost, words).into()
        }
    }
}

/// One thread is enough: the lease is renewed by another.
pub fn block_on(work: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::Other(format!("cannot start: {error}")))?.block_on(work)
}
