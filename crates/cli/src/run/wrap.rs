//! The wrapper: a client, a directory, the signals, and one hold after the other.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::io;
use std::time::Duration;

use leasehold::stream::Resume;
use leasehold::{Client, Code, Error, Guard, Loss, State, Stopped};
use tokio::sync::watch;

use super::hold::{Finished, Holding, Over};
use super::mind::Minder;
use super::notice::Notices;
use super::place::{self, Place};
use super::shape::{Shape, Times};
use super::signals::{Came, Signals};
use super::talk::{Order, Unstarted};
use super::voice::Voice;
use super::will::Will;
use super::{ADDR, RESOURCE};
use crate::connection::Everywhere;
use crate::told::{Answer, Failure, Outcome};

/// How long a server may take to take a lease back; without, it ends by its ttl.
const GIVING_BACK: Duration = Duration::from_secs(10);
/// How long it may take to hear that this process ends, or about a lease that is over.
const TAKING_LEAVE: Duration = Duration::from_secs(1);

/// How long the last words may take to be read by somebody where a lease is kept for as long as they are not.
const LAST_WORDS: Duration = Duration::from_secs(5);

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
    pub voice: Voice,
    /// The session by which it waits and holds.
    session: watch::Receiver<Option<Resume>>,
    /// Somebody lives who may not be ended: the lease is not given back.
    pub beyond: bool,
}

impl<'a> Wrapper<'a> {
    pub fn new(name: &'a str, shape: &'a Shape, ask: &Everywhere) -> Result<Self, Failure> {
        let times = shape.times()?;
        let client = shape.client(ask)?;
        let session = client.session();
        let cannot = |what: &str, error: io::Error| Failure::Other(format!("cannot {what}: {error}"));
        let signals = Signals::listen().map_err(|error| cannot("listen to signals", error))?;
        let voice = Voice::new().map_err(|error| cannot("start a thread", error))?;
        let place = Place::make()?;
        let socket = place::progress(place.path());
        let notices = Notices::at(&socket).map_err(|error| {
            let at = socket.display();
            Error::config("TMPDIR", format!("{at}: no socket can be made there: {error}; set a shorter one"))
        })?;
        let addr = ask.addr_or_default().to_owned();
        let command = &shape.command;
        Ok(Self { client, name, command, times, addr, signals, notices, place, voice, session, beyond: false })
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

    /// Waits for the lease, unless a signal asks for the end before. The minder is told by which session: if this process
    /// dies meanwhile, the minder takes back what nobody waits for any more.
    pub async fn asks<T>(&mut self, minder: &mut Minder, wait: impl Future<Output = T>) -> Result<T, Came> {
        let mut wait = std::pin::pin!(wait);
        self.session.mark_changed();
        loop {
            tokio::select! {
                done = &mut wait => return Ok(done),
                came = self.signals.end() => return Err(came),
                Ok(()) = self.session.changed() => {
                    if let Some(resume) = &*self.session.borrow_and_update() {
                        minder.order(&Order::Session(Will::of(resume)));
                    }
                }
            }
        }
    }

    /// Waits for something, unless a signal asks for the end before.
    pub async fn until_asked_to_end<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, Came> {
        tokio::select! {
            done = wait => Ok(done),
            came = self.signals.end() => Err(came),
        }
    }

    /// Runs the command under a lease, and gives the lease back when nothing of the command is left.
    pub async fn hold(&mut self, guard: Guard, minder: &mut Minder, resigns: bool) -> Over {
        // The predecessor of an overlapping handoff may still run.
        let over = match self.until_asked_to_end(guard.may_claim()).await {
            Ok(Ok(_claim)) => None,
            Ok(Err(_)) => Some(Over::Lost(if let State::Lost(loss) = guard.state() { Some(loss) } else { None })),
            Err(came) => Some(Over::Resigned(came)),
        };
        if let Some(over) = over {
            self.give_back(guard, matches!(over, Over::Lost(_))).await;
            return over;
        }
        if resigns {
            let number = guard.token_number().get();
            self.voice.say(format!("leasehold: {}: leads under token number {number}", self.name));
        }
        let Self { signals, notices, times, voice, .. } = self;
        let holding = Holding { guard: &guard, signals, notices, voice, times: *times, resigns };
        let Finished { over, beyond } = holding.run(minder).await;
        if beyond.is_empty() {
            self.give_back(guard, matches!(over, Over::Lost(_))).await;
        } else {
            self.keep(guard, &beyond);
        }
        over
    }

    /// Somebody lives who may write: the lease ends by its ttl, and not before. This process ends without giving it back.
    fn keep(&mut self, guard: Guard, beyond: &[i32]) {
        let pids = beyond.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        self.voice.say(format!(
            "leasehold: process {pids} may not be ended by this user; only fences stop its writes; {} is not given back, it \
             ends by its ttl",
            self.name
        ));
        self.beyond = true;
        // A guard that is dropped gives back.
        std::mem::forget(guard);
        // It is renewed for as long as this process lives, which is not for long, whether its last words are read or not.
        std::thread::spawn(|| {
            std::thread::sleep(LAST_WORDS);
            std::process::exit(1);
        });
    }

    async fn give_back(&self, guard: Guard, lost: bool) {
        let patience = if guard.is_held() { GIVING_BACK } else { TAKING_LEAVE };
        let told = match tokio::time::timeout(patience, guard.release()).await {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure.into_error(),
            Err(_) => Error::new(Code::Timeout, "no server answered in time; wait for the ttl"),
        };
        if !lost {
            self.voice.say(format!("leasehold: {}: not given back, it ends by its ttl: {told}", self.name));
        }
    }

    /// Says why there is no command, and ends as a shell would.
    pub fn unstarted(&self, unstarted: Unstarted) -> Answer {
        self.voice.say(format!("leasehold: {}", unstarted.why));
        Answer::ended(unstarted.exit)
    }

    /// Ends the session, so that nobody waits for it, and then the minder.
    pub async fn close(self, minder: Minder, outcome: Outcome) -> Outcome {
        if !self.beyond {
            // Whoever is not told finds out by the session's ttl.
            let _ = tokio::time::timeout(TAKING_LEAVE, self.client.close()).await;
        }
        // Before the minder goes: there is no moment at which nobody would remove it.
        place::remove(self.place.path());
        minder.leave();
        self.voice.end(TAKING_LEAVE);
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
