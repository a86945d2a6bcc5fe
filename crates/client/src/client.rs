//! The client: which servers it knows, how long it is patient, and what it tells them beside each request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::token::Token;
use leasehold_wire::headers::Key;
use tonic::transport::Channel;

use crate::{Address, Endpoints, Error};

/// How patient a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// For a connection to be made.
    pub connect: Duration,
    /// For an answer; a wait that was asked for comes on top.
    pub request: Duration,
    /// For a broken watch to be made again.
    pub rejoin: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { connect: Duration::from_secs(3), request: Duration::from_secs(10), rejoin: Duration::from_secs(30) }
    }
}

/// A connection to a cluster. Cheap to clone; clones share their connections. Nothing is dialled before it is needed.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: Option<Key>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) endpoints: Endpoints,
    pub(crate) options: Options,
    state: Mutex<State>,
}

/// What a client learns.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) channels: BTreeMap<Address, Channel>,
    /// Who answered last: asked first.
    pub(crate) answered: Option<Address>,
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
        Self { shared: Arc::new(Shared { endpoints, options, state: Mutex::default() }), key: None }
    }

    /// The same client, whose next change is recognised if it comes again: under this key it happens once (L11). A key
    /// is good for one request and its retries; the client then retries by itself.
    #[must_use]
    pub fn under(&self, key: Key) -> Self {
        Self { shared: self.shared.clone(), key: Some(key) }
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
