//! The client: its settings, its connections, and what it has learned from the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::holder::ClockDrift;
use leasehold_core::token::Token;
use leasehold_wire::headers::IdempotencyKey;
use tokio::sync::watch;
use tonic::transport::Channel;

use crate::session_stream::{SessionResume, Transport};
use crate::session_worker::WorkerHandle;
use crate::{Address, Endpoints, Error, MetricsHook};

/// Settings of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientConfig {
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) rejoin_timeout: Duration,
    pub(crate) holder: Option<String>,
    pub(crate) session_ttl: Duration,
    pub(crate) clock_drift: ClockDrift,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(10),
            rejoin_timeout: Duration::from_secs(30),
            holder: None,
            session_ttl: Duration::from_secs(30),
            clock_drift: ClockDrift::default(),
        }
    }
}

/// Builds a [`Client`] with other settings than the defaults.
///
/// ```no_run
/// use std::time::Duration;
/// use leasehold::Client;
///
/// # fn example() -> Result<(), leasehold::Error> {
/// let client = Client::builder("lease-1:7421,lease-2:7421")?
///     .holder("settlement-7")
///     .session_ttl(Duration::from_secs(10))
///     .build();
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct ClientBuilder {
    endpoints: Endpoints,
    transport: Transport,
    config: ClientConfig,
    metrics: Option<MetricsHookRef>,
}

#[derive(Clone)]
struct MetricsHookRef(Arc<dyn MetricsHook>);

impl fmt::Debug for MetricsHookRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsHook")
    }
}

impl From<Endpoints> for ClientBuilder {
    fn from(endpoints: Endpoints) -> Self {
        Self { endpoints, transport: Transport::Network, config: ClientConfig::default(), metrics: None }
    }
}

impl ClientBuilder {
    /// A client of a grantor in this process.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn in_memory(link: Arc<crate::in_memory::MemoryLink>) -> Self {
        let (endpoints, config) = (Endpoints::none(), ClientConfig::default());
        Self { endpoints, transport: Transport::Memory(link), config, metrics: None }
    }

    /// Time to establish a connection. Default: 3 s.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// Time to wait for a reply. The wait time of a lock is added to it. Default: 10 s.
    pub const fn request_timeout(mut self, timeout: Duration) -> Self {
        self.config.request_timeout = timeout;
        self
    }

    /// Time to re-establish a broken [`Watch`](crate::Watch). Default: 30 s.
    pub const fn rejoin_timeout(mut self, timeout: Duration) -> Self {
        self.config.rejoin_timeout = timeout;
        self
    }

    /// Holder name, shown to other holders and operators. Default: `process-` and the process id.
    pub fn holder(mut self, name: impl Into<String>) -> Self {
        self.config.holder = Some(name.into());
        self
    }

    /// Time until the session ends unless it is renewed. All leases of the client end with it, so no lease has a longer ttl.
    /// Default: 30 s.
    pub const fn session_ttl(mut self, ttl: Duration) -> Self {
        self.config.session_ttl = ttl;
        self
    }

    /// Upper bound on how much faster or slower than real time any clock runs.
    pub const fn clock_drift(mut self, drift: ClockDrift) -> Self {
        self.config.clock_drift = drift;
        self
    }

    /// Callbacks for metrics.
    pub fn metrics(mut self, hook: Arc<dyn MetricsHook>) -> Self {
        self.metrics = Some(MetricsHookRef(hook));
        self
    }

    /// Makes the client. It connects with its first request.
    pub fn build(self) -> Client {
        let Self { endpoints, transport, config, metrics } = self;
        let shared = ClientShared {
            endpoints,
            config,
            transport,
            metrics: metrics.map(|hook| hook.0),
            session: watch::Sender::new(None),
            worker: Mutex::default(),
            state: Mutex::default(),
        };
        Client { shared: Arc::new(shared), idempotency_key: None, standby: None }
    }
}

/// A client of one cluster. Cheap to clone; clones share connections and session.
///
/// It connects with the first request, and starts a thread with the first lease. See the [crate documentation](crate) for an
/// example.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) shared: Arc<ClientShared>,
    pub(crate) idempotency_key: Option<IdempotencyKey>,
    /// Lowest journal position from which a standby may answer a query.
    pub(crate) standby: Option<u64>,
}

pub(crate) struct ClientShared {
    pub(crate) endpoints: Endpoints,
    pub(crate) config: ClientConfig,
    pub(crate) transport: Transport,
    pub(crate) metrics: Option<Arc<dyn MetricsHook>>,
    pub(crate) session: watch::Sender<Option<SessionResume>>,
    worker: Mutex<Option<Arc<WorkerHandle>>>,
    state: Mutex<ClientState>,
}

impl fmt::Debug for ClientShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientShared")
            .field("endpoints", &self.endpoints)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// What a client has learned from the servers.
#[derive(Debug, Default)]
pub(crate) struct ClientState {
    pub(crate) channels: BTreeMap<Address, Channel>,
    /// The server that answered last: tried first.
    pub(crate) last_server: Option<Address>,
    /// The journal position that the last reply depends on.
    pub(crate) last_position: Option<u64>,
    /// Servers that did not answer in time: they may be paused, or cut off. Tried last, with a short timeout.
    pub(crate) suspects: BTreeSet<Address>,
    /// The highest token of any grant: it reveals a grantor that was rolled back (T9).
    pub(crate) highest_token: Option<Token>,
}

impl Client {
    /// A client with default settings. `endpoints` is one or more `host:port`, separated by commas.
    ///
    /// This does not connect; the first request does.
    pub fn new(endpoints: &str) -> Result<Self, Error> {
        Self::builder(endpoints).map(ClientBuilder::build)
    }

    /// A builder for a client. `endpoints` is one or more `host:port`, separated by commas.
    pub fn builder(endpoints: &str) -> Result<ClientBuilder, Error> {
        Endpoints::parse(endpoints).map(ClientBuilder::from)
    }

    /// A client of the same servers with connections of its own and shorter timeouts.
    pub(crate) fn with_own_connections(&self, max_timeout: Duration) -> Self {
        let mut config = self.shared.config.clone();
        config.connect_timeout = config.connect_timeout.min(max_timeout);
        config.request_timeout = config.request_timeout.min(max_timeout);
        let (endpoints, transport) = (self.shared.endpoints.clone(), self.shared.transport.clone());
        ClientBuilder { endpoints, transport, config, metrics: None }.build()
    }

    /// The worker of this client and its clones. Starts it if necessary.
    pub(crate) fn worker(&self) -> Result<Arc<WorkerHandle>, Error> {
        let mut worker = self.shared.worker.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &*worker {
            Some(worker) => Ok(worker.clone()),
            None => Ok(worker.insert(WorkerHandle::start(self)?).clone()),
        }
    }

    /// The session of this client and its clones, as it changes; none before the first lease. A process that outlives this one
    /// can end the session with it: [`Client::stream`], then [`Client::close_session`].
    pub fn session(&self) -> watch::Receiver<Option<SessionResume>> {
        self.shared.session.subscribe()
    }

    pub(crate) fn holder_name(&self) -> String {
        self.shared.config.holder.clone().unwrap_or_else(|| format!("process-{}", std::process::id()))
    }

    /// Queries the grantor of a test directly; none for a client of a real server.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn memory_query<T>(
        &self,
        query: impl FnOnce(&leasehold_core::grantor::Grantor) -> T,
    ) -> Option<Result<T, Error>> {
        match &self.shared.transport {
            Transport::Network => None,
            Transport::Memory(link) => Some(link.query(query)),
        }
    }

    /// Executes a unary call at the grantor of a test; none for a client of a real server.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn memory_call(
        &self,
        command: leasehold_core::command::Command<'_>,
        resource: &str,
    ) -> Option<Result<leasehold_wire::v1::response::Answer, Error>> {
        match &self.shared.transport {
            Transport::Network => None,
            Transport::Memory(link) => Some(link.call(command, resource)),
        }
    }

    /// Closes the session, which releases all leases in one step, and waits for the confirmation. Dropping the last clone and
    /// guard does the same without waiting. Later calls about its leases fail; a new lock opens a new session.
    pub async fn close(&self) -> Result<(), Error> {
        let worker = self.shared.worker.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        match worker {
            Some(worker) => worker.close().await,
            None => Ok(()),
        }
    }

    /// A clone whose next change carries this idempotency key: under one key a change is executed at most once (L11), so the
    /// client retries it by itself. Use a key for one request and its retries.
    #[must_use]
    pub fn with_idempotency_key(&self, key: IdempotencyKey) -> Self {
        Self { idempotency_key: Some(key), ..self.clone() }
    }

    /// A clone whose queries may be answered by a standby that has reached `min_position` of the journal; 0 for any position.
    /// The reply is as of [`Client::last_position`] and may be behind the leader; it lacks renewals that wrote no record (E1).
    #[must_use]
    pub fn allow_standby(&self, min_position: u64) -> Self {
        Self { standby: Some(min_position), ..self.clone() }
    }

    /// The journal position that the last reply depends on.
    pub fn last_position(&self) -> Option<u64> {
        self.state().last_position
    }

    /// The highest token that this client was granted.
    pub fn highest_token(&self) -> Option<Token> {
        self.state().highest_token
    }

    pub(crate) fn observe_token(&self, token: Token) {
        let mut state = self.state();
        if state.highest_token.is_none_or(|highest| highest.number < token.number) {
            state.highest_token = Some(token);
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ClientState> {
        self.shared.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl From<Endpoints> for Client {
    /// A client with default settings.
    fn from(endpoints: Endpoints) -> Self {
        ClientBuilder::from(endpoints).build()
    }
}
