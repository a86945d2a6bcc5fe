//! Builder of a client: servers, TLS, timeouts, holder name and session ttl.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::holder::ClockDrift;
use leasehold_core::trace_context::TraceContext;
use tokio::sync::watch;

use super::{Client, ClientShared};
use crate::server_pool::{ServerPool, Timeouts};
use crate::session_worker::SessionConfig;
use crate::transport::Transport;
use crate::{BearerTokenFile, Endpoints, MetricsHook, TlsOptions};

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
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct ClientBuilder {
    endpoints: Endpoints,
    transport: Transport,
    timeouts: Timeouts,
    rejoin_timeout: Duration,
    session: SessionConfig,
    metrics: Option<Arc<dyn MetricsHook>>,
}

impl From<Endpoints> for ClientBuilder {
    fn from(endpoints: Endpoints) -> Self {
        Self::new(endpoints, Transport::Network)
    }
}

impl ClientBuilder {
    fn new(endpoints: Endpoints, transport: Transport) -> Self {
        Self {
            endpoints,
            transport,
            timeouts: Timeouts::default(),
            rejoin_timeout: Duration::from_secs(30),
            session: SessionConfig::default(),
            metrics: None,
        }
    }

    /// A client of a grantor in this process.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn in_memory(link: Arc<crate::in_memory::MemoryLink>) -> Self {
        Self::new(Endpoints::none(), Transport::Memory(link))
    }

    /// Connects with TLS 1.3, verifies the servers against the host of their address, and proves the identity of this client. The
    /// files are read whenever a connection is made.
    ///
    /// ```no_run
    /// use leasehold::{Client, TlsOptions};
    ///
    /// # fn example() -> Result<(), leasehold::Error> {
    /// let tls = TlsOptions::new("ca.pem", "worker.pem", "worker.key");
    /// let client = Client::builder("https://lease-1:7421,https://lease-2:7421")?.tls(tls).build();
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.endpoints = self.endpoints.with_tls(options);
        self
    }

    /// Presents the bearer token in this file with each request. The file is read for each request, so that a replaced token is used
    /// at once. A token is never sent over a plain connection to another machine, nor to a server that is neither an endpoint nor
    /// shows the name of the cluster in its certificate.
    ///
    /// ```no_run
    /// use leasehold::{BearerTokenFile, Client, TlsOptions};
    ///
    /// # fn example() -> Result<(), leasehold::Error> {
    /// let client = Client::builder("https://lease-1:7421")?
    ///     .tls(TlsOptions::without_certificate("ca.pem"))
    ///     .bearer_file(BearerTokenFile::new("/run/secrets/leasehold.token"))
    ///     .build();
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bearer_file(mut self, file: BearerTokenFile) -> Self {
        self.endpoints = self.endpoints.with_bearer(file);
        self
    }

    /// Time to establish a connection. Default: 3 s.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// Time to wait for a reply. The wait time of a lock is added to it. Default: 10 s.
    pub const fn request_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.request = timeout;
        self
    }

    /// Time to re-establish a broken [`Watch`](crate::Watch). Default: 30 s.
    pub const fn rejoin_timeout(mut self, timeout: Duration) -> Self {
        self.rejoin_timeout = timeout;
        self
    }

    /// Holder name, shown to other holders and operators. Default: `process-` and the process id.
    pub fn holder(mut self, name: impl Into<String>) -> Self {
        self.session.holder = Some(name.into());
        self
    }

    /// Time until the session ends unless it is renewed. All leases of the client end with it, so no lease has a longer ttl.
    /// Default: 30 s.
    pub const fn session_ttl(mut self, ttl: Duration) -> Self {
        self.session.ttl = ttl;
        self
    }

    /// Upper bound on how much faster or slower than real time any clock runs.
    pub const fn clock_drift(mut self, drift: ClockDrift) -> Self {
        self.session.clock_drift = drift;
        self
    }

    /// The operation of a distributed trace that the requests of this client belong to, unless they name another one. The server keeps
    /// it in its audit log, and exports holds as spans below it, if it exports spans.
    ///
    /// ```no_run
    /// use leasehold::{Client, traceparent_from_env};
    ///
    /// # fn example() -> Result<(), leasehold::Error> {
    /// let mut builder = Client::builder("127.0.0.1:7421")?;
    /// if let Some(trace) = traceparent_from_env() {
    ///     builder = builder.traceparent(trace);
    /// }
    /// # drop(builder.build());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn traceparent(mut self, trace: TraceContext) -> Self {
        self.session.trace = Some(trace);
        self
    }

    /// Callbacks for metrics.
    pub fn metrics(mut self, hook: Arc<dyn MetricsHook>) -> Self {
        self.metrics = Some(hook);
        self
    }

    /// Makes the client. It connects with its first request.
    pub fn build(self) -> Client {
        let Self { endpoints, transport, timeouts, rejoin_timeout, session, metrics } = self;
        let shared = ClientShared {
            rejoin_timeout,
            session_config: session,
            metrics,
            session: watch::Sender::new(None),
            worker: Mutex::default(),
        };
        let mut servers = ServerPool::new(endpoints, transport, timeouts);
        servers.trace = shared.session_config.trace;
        Client { servers, shared: Arc::new(shared) }
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("endpoints", &self.endpoints)
            .field("timeouts", &self.timeouts)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
