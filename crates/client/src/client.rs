//! The client: connections to the servers, and one session for all its leases.

mod builder;

pub use builder::ClientBuilder;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::secret::{LeaseSecret, SessionSecret};
use leasehold_core::token::Token;
use leasehold_core::trace_context::TraceContext;
use leasehold_wire::headers::IdempotencyKey;
use tokio::sync::watch;

use crate::metrics_hook::MetricsSink;
use crate::server_pool::ServerPool;
use crate::session_stream::SessionResume;
use crate::session_worker::{SessionConfig, WorkerHandle};
use crate::{Endpoints, Error, MetricsHook};

/// A client of one cluster. Cheap to clone; clones share connections and session.
///
/// It connects with the first request, and starts a thread with the first lease. See the [crate documentation](crate) for an
/// example.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) servers: ServerPool,
    shared: Arc<ClientShared>,
}

struct ClientShared {
    rejoin_timeout: Duration,
    session_config: SessionConfig,
    metrics: Option<Arc<dyn MetricsHook>>,
    /// The current session, for subscribers.
    session: watch::Sender<Option<SessionResume>>,
    /// Started with the first lease.
    worker: Mutex<Option<Arc<WorkerHandle>>>,
}

impl fmt::Debug for ClientShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientShared").field("session_config", &self.session_config).finish_non_exhaustive()
    }
}

impl Client {
    /// A client with default settings. `endpoints` is one or more `host:port` or `unix:PATH`, separated by commas.
    ///
    /// This does not connect; the first request does.
    pub fn new(endpoints: &str) -> Result<Self, Error> {
        Self::builder(endpoints).map(ClientBuilder::build)
    }

    /// A builder for a client. `endpoints` is one or more `host:port`, `https://host:port` (with [`ClientBuilder::tls`]) or
    /// `unix:PATH`, separated by commas.
    pub fn builder(endpoints: &str) -> Result<ClientBuilder, Error> {
        Endpoints::parse(endpoints).map(ClientBuilder::from)
    }

    /// The worker of this client and its clones. Starts it if necessary.
    pub(crate) fn worker(&self) -> Result<Arc<WorkerHandle>, Error> {
        let mut worker = self.worker_slot();
        if let Some(worker) = &*worker {
            return Ok(worker.clone());
        }
        let ClientShared { session_config, metrics, session, .. } = &*self.shared;
        let metrics = MetricsSink(metrics.clone());
        Ok(worker.insert(WorkerHandle::start(&self.servers, session_config, metrics, session.clone())?).clone())
    }

    fn worker_slot(&self) -> MutexGuard<'_, Option<Arc<WorkerHandle>>> {
        self.shared.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of this client and its clones, as it changes; none before the first lease. A process that outlives this one
    /// can end the session with it: [`Client::stream`], then [`Client::close_session`].
    pub fn session(&self) -> watch::Receiver<Option<SessionResume>> {
        self.shared.session.subscribe()
    }

    pub(crate) fn session_config(&self) -> &SessionConfig {
        &self.shared.session_config
    }

    pub(crate) fn holder_name(&self) -> String {
        self.shared.session_config.holder_name()
    }

    pub(crate) fn rejoin_timeout(&self) -> Duration {
        self.shared.rejoin_timeout
    }

    /// Closes the session, which releases all leases in one step, and waits for the confirmation. Dropping the last clone and
    /// guard does the same without waiting. Later calls about its leases fail; a new lock opens a new session.
    pub async fn close(&self) -> Result<(), Error> {
        let worker = self.worker_slot().take();
        match worker {
            Some(worker) => worker.close().await,
            None => Ok(()),
        }
    }

    /// A clone whose next change carries this idempotency key: under one key a change is executed at most once (L11), so the
    /// client retries it by itself. Use a key for one request and its retries.
    #[must_use]
    pub fn with_idempotency_key(&self, key: IdempotencyKey) -> Self {
        let mut client = self.clone();
        client.servers.idempotency_key = Some(key);
        client
    }

    /// A clone whose calls present the secret of a lease ([`GrantedLease::secret`](crate::GrantedLease::secret)). A server with access
    /// rules requires it of every unary call that acts on the lease, together with the identity that was granted it (A6).
    #[must_use]
    pub fn with_lease_secret(&self, secret: &LeaseSecret) -> Self {
        let mut client = self.clone();
        client.servers.lease_secret = Some(secret.clone());
        client
    }

    /// A clone whose calls present the secret of a session ([`OpenedSession::secret`](crate::OpenedSession::secret)). A server with
    /// access rules requires it of every unary call in the session, and of an idempotency key of the session (A6). It also proves the
    /// leases that the session carries.
    #[must_use]
    pub fn with_session_secret(&self, secret: &SessionSecret) -> Self {
        let mut client = self.clone();
        client.servers.session_secret = Some(secret.clone());
        client
    }

    /// A clone that executes dangerous commands without the approval of a second identity, for this reason. A server refuses that
    /// unless its access file lets this identity act alone. It records the reason, logs it and counts it (A14).
    #[must_use]
    pub fn acting_alone(&self, reason: &str) -> Self {
        let mut client = self.clone();
        client.servers.alone = Some(reason.into());
        client
    }

    /// A clone whose unary calls and locks belong to this operation of a distributed trace.
    #[must_use]
    pub fn with_traceparent(&self, trace: TraceContext) -> Self {
        let mut client = self.clone();
        client.servers.trace = Some(trace);
        client
    }

    /// A clone whose queries may be answered by a standby that has reached `min_position` of the journal; 0 for any position.
    /// The reply is as of [`Client::last_position`] and may be behind the leader; it lacks renewals that wrote no record (E1).
    #[must_use]
    pub fn allow_standby(&self, min_position: u64) -> Self {
        let mut client = self.clone();
        client.servers.standby = Some(min_position);
        client
    }

    /// The journal position that the last reply depends on.
    pub fn last_position(&self) -> Option<u64> {
        self.servers.last_position()
    }

    /// The highest token that this client was granted.
    pub fn highest_token(&self) -> Option<Token> {
        self.servers.highest_token().map(|highest| highest.token.parsed())
    }
}

impl From<Endpoints> for Client {
    /// A client with default settings.
    fn from(endpoints: Endpoints) -> Self {
        ClientBuilder::from(endpoints).build()
    }
}
