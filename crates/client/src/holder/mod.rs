//! The holder of a process: one session on one stream, renewed from a thread of its own, so that a blocked event loop
//! loses nothing.

mod actors;
mod alarms;
mod asking;
mod cell;
mod chance;
mod drive;
mod granting;
mod group;
mod inbox;
mod leases;
mod line;
mod reply;
mod requests;
mod saying;
mod session;
#[cfg(test)]
mod tests;
mod timers;

pub(crate) use cell::{Alive, Cell, View};
pub(crate) use inbox::{Ask, Call, Given, Wanted};
pub(crate) use reply::{Said, Told, reply};
pub(crate) use saying::{Listen, Spoken, Undo};

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::holder::{RateError, Timing};
use leasehold_core::name::HolderName;

use crate::clock::Clock;
use crate::failure::Asked;
use crate::look::checked;
use crate::meter::Hooks;
use crate::stream::Link;
use crate::{Client, Error, Options};
use chance::Chance;
use inbox::{By, Inbox};
use line::{Line, Settings};
use reply::{Reply, gone};

/// What clients and guards reach the thread by. When the last one is dropped, the session is closed and the thread ends.
pub(crate) struct Handle {
    inbox: Arc<Inbox>,
    pub(crate) clock: Clock,
    pub(crate) rate: RateError,
    /// Who holds, for people to read.
    pub(crate) holder: String,
}

impl Handle {
    /// Starts the thread. It connects when there is something to ask.
    pub(crate) fn start(client: &Client) -> Result<Arc<Self>, Error> {
        let options = &client.shared.options;
        let ttl_ms = u64::try_from(options.session.as_millis()).unwrap_or(u64::MAX);
        let timing = Timing::new(ttl_ms, options.rate_error).map_err(|wrong| Error::invalid("session", wrong))?;
        let holder = options.holder.clone().unwrap_or_else(|| format!("process-{}", std::process::id()));
        checked(HolderName::parse(&holder))?;
        let patience_ms = u64::try_from(options.request.as_millis()).unwrap_or(u64::MAX);
        let name = holder.clone();
        let told = client.shared.session.clone();
        let settings = Settings { holder, timing, patience_ms, rate: options.rate_error, told };
        // Of its own, so that no connection depends on the caller's event loop; and no call outlasts a session.
        let most = Duration::from_millis(ttl_ms / 4);
        let own = client.apart(Options {
            connect: options.connect.min(most),
            request: options.request.min(most),
            ..options.clone()
        });
        if let Some(seen) = client.seen() {
            own.saw(seen);
        }
        let (clock, chance) = match &client.shared.link {
            Link::Wire => (Clock::Boot, Chance::drawn(Clock::Boot.now().0)),
            #[cfg(any(test, feature = "testing"))]
            Link::Memory(door) => {
                door.hand().begun();
                (Clock::Hand(door.hand()), Chance::seeded(door.seed()))
            }
        };
        let meter = Hooks(client.shared.meter.get().cloned());
        let line = Line::new(settings, own, meter, chance);
        let inbox = Arc::new(Inbox::new());
        let (theirs, time) = (inbox.clone(), clock.clone());
        let unable = |why: std::io::Error| Error::unavailable(format!("no thread to hold with: {why}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unable)?;
        let work = move || runtime.block_on(drive::drive(line, time, theirs));
        std::thread::Builder::new().name("leasehold".into()).spawn(work).map_err(unable)?;
        Ok(Arc::new(Self { inbox, clock, rate: options.rate_error, holder: name }))
    }

    pub(crate) fn put(&self, ask: Ask) {
        self.inbox.put(ask);
    }

    pub(crate) fn key(&self) -> u64 {
        self.inbox.key()
    }

    /// Asks something that is answered. Waits only for room.
    pub(crate) async fn ask<T>(
        self: &Arc<Self>,
        ask: impl FnOnce(By, Weak<Self>) -> Ask,
        read: fn(Given) -> Result<T, Error>,
    ) -> Result<Asked<T>, Error> {
        let room = self.inbox.room.clone().acquire_owned().await.map_err(|_| gone())?;
        let (tell, told) = reply();
        let key = self.inbox.key();
        self.inbox.put(ask(By { key, tell, _room: room }, Arc::downgrade(self)));
        Ok(Asked { handle: self.clone(), key, told, read, settled: false })
    }

    /// An error once the thread has ended: nobody sleeps or asks here any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.inbox.is_over() { Err(gone()) } else { Ok(()) }
    }

    /// Ends the session and the thread.
    pub(crate) async fn close(self: Arc<Self>) -> Result<(), Error> {
        let (tell, told) = reply();
        self.inbox.put(Ask::Close(tell));
        let closing = Asked { handle: self, key: 0, told, read: |_| Ok(()), settled: true };
        match closing.outcome().await {
            Ok(()) => Ok(()),
            // The thread has ended all the same.
            Err(_) => Err(Error::indeterminate("no server heard the goodbye; what is held ends by its ttl", None)),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}
