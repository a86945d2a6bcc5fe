//! The client: which servers it knows, how long it is patient, and what it tells them beside each request.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use leasehold_core::holder::RateError;
use leasehold_core::token::Token;
use leasehold_wire::headers::Key;
use tokio::sync::watch;
use tonic::transport::Channel;

use crate::holder::Handle;
use crate::stream::{Link, Resume};
use crate::{Address, Endpoints, Error, Meter};

/// How patient a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// For a connection to be made.
    pub connect: Duration,
    /// For an answer; a wait that was asked for comes on top.
    pub request: Duration,
    /// For a broken watch to be made again.
    pub rejoin: Duration,
    /// Who holds, for people to read; absent: the process by its number.
    pub holder: Option<String>,
    /// How long the session lives without being heard. Everything that is held ends with it, so no lease lasts longer.
    pub session: Duration,
    /// How much faster or slower than real time any clock may run.
    pub rate_error: RateError,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            request: Duration::from_secs(10),
            rejoin: Duration::from_secs(30),
            holder: None,
            session: Duration::from_secs(30),
            rate_error: RateError::default(),
        }
    }
}

/// A connection to a cluster. Cheap to clone; clones share their connections. Nothing is dialled before it is needed.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: Option<Key>,
    /// The least position from which a server that stands by may answer a look.
    pub(crate) standby: Option<u64>,
}

pub(crate) struct Shared {
    pub(crate) endpoints: Endpoints,
    pub(crate) options: Options,
    pub(crate) link: Link,
    pub(crate) meter: OnceLock<Arc<dyn Meter>>,
    pub(crate) session: watch::Sender<Option<Resume>>,
    holder: Mutex<Option<Arc<Handle>>>,
    state: Mutex<State>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("endpoints", &self.endpoints)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What a client learns.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) channels: BTreeMap<Address, Channel>,
    /// Who answered last: asked first.
    pub(crate) answered: Option<Address>,
    /// The position that the last answer depends on.
    pub(crate) position: Option<u64>,
    /// Who was asked and said nothing: it may stand still, or be cut off from what it needs. Asked last, and not for long.
    pub(crate) doubted: BTreeSet<Address>,
    /// The highest token of any grant: a grantor that was rolled back is found by it (T9).
    pub(crate) seen: Option<Token>,
}

impl Client {
    /// A client for these servers, with the usual patience.
    pub fn connect(endpoints: Endpoints) -> Self {
        Self::with(endpoints, Options::default())
    }

    /// A client for these servers.
    pub fn with(endpoints: Endpoints, options: Options) -> Self {
        Self::linked(endpoints, options, Link::Wire)
    }

    pub(crate) fn linked(endpoints: Endpoints, options: Options, link: Link) -> Self {
        let (meter, holder, state) = (OnceLock::new(), Mutex::default(), Mutex::default());
        let session = watch::Sender::new(None);
        Self {
            shared: Arc::new(Shared { endpoints, options, link, meter, session, holder, state }),
            key: None,
            standby: None,
        }
    }

    /// The same servers over connections of its own.
    pub(crate) fn apart(&self, options: Options) -> Self {
        Self::linked(self.shared.endpoints.clone(), options, self.shared.link.clone())
    }

    /// Counts what happens to this client's leases. The first meter stays; set it before the first lease.
    pub fn metered(self, meter: Arc<dyn Meter>) -> Self {
        // A second one is not taken, as said.
        let _ = self.shared.meter.set(meter);
        self
    }

    /// The thread that holds for this client and its clones; started when it is first needed.
    pub(crate) fn handle(&self) -> Result<Arc<Handle>, Error> {
        let mut holder = self.shared.holder.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &*holder {
            Some(handle) => Ok(handle.clone()),
            None => Ok(holder.insert(Handle::start(self)?).clone()),
        }
    }

    /// The session by which this client and its clones wait and hold, as it changes; none before there is one. Whoever
    /// outlives this process can end it with that ([`Client::stream`], then [`Client::close_session`]).
    pub fn session(&self) -> watch::Receiver<Option<Resume>> {
        self.shared.session.subscribe()
    }

    /// Who holds, for people to read.
    pub(crate) fn holder_name(&self) -> String {
        self.shared.options.holder.clone().unwrap_or_else(|| format!("process-{}", std::process::id()))
    }

    /// What stands in the grantor of a test, if that is whom this client asks.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn in_memory<T>(
        &self,
        look: impl FnOnce(&leasehold_core::grantor::Grantor) -> T,
    ) -> Option<Result<T, Error>> {
        match &self.shared.link {
            Link::Wire => None,
            Link::Memory(door) => Some(door.look(look)),
        }
    }

    /// The same for a single call, which is asked without a session.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn of_memory(
        &self,
        command: leasehold_core::command::Command<'_>,
        resource: &str,
    ) -> Option<Result<leasehold_wire::v1::response::Answer, Error>> {
        match &self.shared.link {
            Link::Wire => None,
            Link::Memory(door) => Some(door.ask(command, resource)),
        }
    }

    /// Gives everything back and ends the session: what is held ends in one step. A client that is only dropped does the
    /// same without waiting for it. Whatever is asked of its leases later is refused; a new lock opens a new session.
    pub async fn close(&self) -> Result<(), Error> {
        let holder = self.shared.holder.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        match holder {
            Some(handle) => handle.close().await,
            None => Ok(()),
        }
    }

    /// The same client, whose next change is recognised if it comes again: under this key it happens once (L11). A key
    /// is good for one request and its retries; the client then retries by itself.
    #[must_use]
    pub fn under(&self, key: Key) -> Self {
        Self { key: Some(key), ..self.clone() }
    }

    /// The same client, whose looks may be answered by a server that stands by, if that has come as far as this position
    /// of the journal; 0 for any. What it tells is as of [`Client::position`] and may be behind the leader, and renewals
    /// that left no record are not in it (E1).
    #[must_use]
    pub fn or_standby(&self, least: u64) -> Self {
        Self { standby: Some(least), ..self.clone() }
    }

    /// The journal position that the last answer depends on.
    pub fn position(&self) -> Option<u64> {
        self.state().position
    }

    /// The highest token that this client was granted.
    pub fn seen(&self) -> Option<Token> {
        self.state().seen
    }

    pub(crate) fn saw(&self, token: Token) {
        let mut state = self.state();
        if state.seen.is_none_or(|seen| seen.number < token.number) {
            state.seen = Some(token);
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl TryFrom<&str> for Client {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        Endpoints::parse(text).map(Self::connect)
    }
}
