//! A running server: opens the journal, recovers the state, opens a tenure, serves, and shuts down.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::grantor::{Grantor, OpenTenureError, Output, RecoveredGrantor, RestoreSpec, TenureOptions};
use leasehold_core::lease::Validity;
use leasehold_core::limits::TTL_MAX_DEFAULT;
use leasehold_core::time::WallClock;
use leasehold_core::token::{Cluster, Incarnation};
use leasehold_wire::TokenIssuer;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::access::AccessControl;
use crate::api::{self, Api};
use crate::bearer::BearerVerifier;
use crate::driver::{Driver, StopReason};
use crate::journal::{AppendOutcome, Journal, JournalError, JournalLocation, OpenError, OpenedJournal};
use crate::keys::{KeyError, KeySource, ServerKeys};
use crate::metrics::Metrics;
use crate::otlp::{self, CollectorSettings, SpanExporter, SpanSource};
use crate::recovery::StateReplay;
use crate::request_queue::RequestQueue;
use crate::sealing::TokenSealer;
use crate::snapshotter::{self, SnapshotConfig, SnapshotThread, Snapshotter};
use crate::status::ServerStatus;
use crate::transport::tls::{TlsError, TlsHandle, TlsSettings};
use crate::transport::{
    AllowedHosts, ConnectionLimit, ListenConfig, ListenError, Listener, RateLimit, ServeTask, ShutdownPhase,
    TransportLimits,
};
use crate::watch::Watchers;
use crate::{clock, random};

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Allow an address that other machines can reach, without TLS.
    pub insecure_listen: bool,
    /// Files for TLS; plain if there are none.
    pub tls: Option<TlsSettings>,
    /// The unix socket, if there is one.
    pub socket: Option<SocketConfig>,
    /// Names under which clients may address this server, besides IP addresses, `localhost` and the names of its certificate.
    pub allowed_hosts: Vec<String>,
    /// Longest ttl of a new cluster, if the operator states one. An existing cluster keeps its own; a quarantine lasts at least as
    /// long as stated.
    pub max_ttl_ms: Option<u64>,
    /// What the validity of leases rests on with this journal.
    pub validity: Validity,
    /// Set if the state comes from a backup.
    pub restore: Option<RestoreSpec>,
    /// Limits and timeouts of connections.
    pub limits: TransportLimits,
    /// Snapshots and retention of the audit log.
    pub snapshots: SnapshotConfig,
    /// Access rules; a reload changes them while serving.
    pub access: Arc<AccessControl>,
    /// The seal keys; a reload changes them while serving.
    pub sealer: Arc<TokenSealer>,
    /// Where the keys of the cluster are.
    pub keys: KeySource,
    /// Bearer tokens that requests may present. With some, a client certificate is not required (A3).
    pub bearers: Option<Arc<BearerVerifier>>,
    /// Where spans are exported to; nowhere if there is none.
    pub collector: Option<Arc<CollectorSettings>>,
}

/// The unix socket of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Its path.
    pub path: PathBuf,
    /// Whether the server starts only with it. One that is not required is bound when the journal is open, because it may be in the
    /// journal's directory.
    pub required: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7421)),
            insecure_listen: false,
            tls: None,
            socket: None,
            allowed_hosts: Vec::new(),
            max_ttl_ms: None,
            validity: Validity::Session,
            restore: None,
            limits: TransportLimits::default(),
            snapshots: SnapshotConfig::default(),
            access: Arc::default(),
            sealer: Arc::default(),
            keys: KeySource::default(),
            bearers: None,
            collector: None,
        }
    }
}

impl ServerConfig {
    /// Binds the address and a unix socket that is required.
    pub async fn bind(&self) -> Result<Listener, ServerError> {
        let tls = self.tls.clone().map(TlsHandle::load).transpose().map_err(ServerError::Tls)?;
        let config = ListenConfig {
            address: self.listen,
            insecure_listen: self.insecure_listen,
            tls,
            bearers: self.bearers.clone(),
            is_restricted: self.access.is_restricted(),
            limits: self.limits,
            traffic: self.access.traffic().clone(),
            allowed_hosts: AllowedHosts::new(self.allowed_hosts.iter().map(String::as_str)),
        };
        let mut listener = Listener::bind(config).await.map_err(ServerError::Listen)?;
        if let Some(socket) = self.socket.as_ref().filter(|socket| socket.required) {
            listener.bind_socket(&socket.path).map_err(ServerError::Listen)?;
        }
        Ok(listener)
    }
}

/// The server did not start.
#[derive(Debug)]
pub enum ServerError {
    /// The journal was not opened.
    Journal(OpenError),
    /// The tenure was not opened.
    Tenure(OpenTenureError),
    /// The first batch of the tenure was not made durable.
    Append(JournalError),
    /// Another server owns the journal.
    Fenced,
    /// The address was not bound.
    Listen(ListenError),
    /// The files for TLS cannot be used.
    Tls(TlsError),
    /// The keys cannot be used.
    Keys(KeyError),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(error) => error.fmt(f),
            Self::Tenure(error) => error.fmt(f),
            Self::Append(error) => error.fmt(f),
            Self::Fenced => f.write_str("another server has taken over the journal; this server stops"),
            Self::Listen(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Keys(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ServerError {}

/// A running server. It serves until [`ServerHandle::stop`] or until its journal is lost.
pub struct ServerHandle {
    /// The bound address; with its actual port if port 0 was requested.
    pub address: SocketAddr,
    /// Cluster and incarnation of the tokens that this server issues.
    pub issuer: TokenIssuer,
    /// Longest ttl of the cluster at the start.
    pub max_ttl_ms: u64,
    /// Warnings about the journal for the operator, one line each.
    pub warnings: Vec<String>,
    /// Limit on open connections; it can be changed while serving.
    pub connection_limit: Arc<ConnectionLimit>,
    /// Limit on requests per second of a connection and of a peer address; it can be changed while serving.
    pub rate_limit: Arc<RateLimit>,
    /// TLS of the address; it can be reloaded while serving.
    pub tls: Option<Arc<TlsHandle>>,
    /// The path of the unix socket.
    pub socket: Option<PathBuf>,
    api: Api,
    stopped: oneshot::Receiver<StopReason>,
    serving: ServeTask,
    snapshotter: SnapshotThread,
    /// Samples counters for the dashboard.
    sampler: JoinHandle<()>,
    /// Exports spans, if the server has a collector.
    exporter: Option<SpanExporter>,
}

/// Opens the journal, opens a tenure and serves.
pub async fn start<L>(location: L, config: ServerConfig) -> Result<ServerHandle, ServerError>
where
    L: JournalLocation,
    L::Journal: 'static,
{
    let mut listener = config.bind().await?;
    let mut replay = StateReplay::new(config.validity);
    let mut opened = location.open(&mut replay).await.map_err(ServerError::Journal)?;
    if let Some(socket) = config.socket.as_ref().filter(|socket| !socket.required)
        && let Err(error) = listener.bind_socket(&socket.path)
    {
        opened.warnings.push(format!("serving without a unix socket: {error}"));
    }
    // After the journal, which creates its directory.
    let keys = config.keys.load().map_err(ServerError::Keys)?;
    if keys.created && replay.recovered.cluster().is_some() {
        opened
            .warnings
            .push("created a cluster key; secrets of leases that were granted before are not valid".to_owned());
    }
    let status = ServerStatus::standalone(listener.address.to_string());
    lead(&listener, replay, opened, &config, Arc::new(keys), status).await
}

/// Opens a tenure over an open journal and serves.
pub(crate) async fn lead<J: Journal + 'static>(
    listener: &Listener,
    replay: StateReplay,
    opened: OpenedJournal<J>,
    config: &ServerConfig,
    keys: Arc<ServerKeys>,
    server_status: ServerStatus,
) -> Result<ServerHandle, ServerError> {
    let mut journal = opened.journal;
    let (backlog, saved_head) = (replay.backlog, replay.audit);
    let last_wall = replay.recovered.info().map(|about| about.wall);
    let grantor = open_tenure(replay.recovered, &mut journal, config).await?;
    let status = grantor.status();
    let issuer = TokenIssuer { cluster: status.cluster, incarnation: status.incarnation };
    tracing::info!(
        cluster = %status.cluster, incarnation = %status.incarnation, generation = status.generation,
        tenure = status.tenure, held = status.held, "journal opened"
    );
    if let Some((remaining_ms, rolled_back)) = status.quarantine {
        let cause = if rolled_back { "rollback" } else { "restore" };
        tracing::warn!(remaining_ms, cause, "quarantine: no lease is granted until it ends or is waived");
    }
    let (queue, watchers, metrics) =
        (Arc::new(RequestQueue::default()), Arc::new(Watchers::default()), listener.metrics.clone());
    check_wall_clock(clock::now().wall, last_wall, &metrics);
    let snapshotter = Snapshotter::new(journal.snapshots(), config.snapshots, backlog, metrics.snapshots())
        .with_saved_head(saved_head)
        .with_heads(issuer.cluster, Some(config.sealer.clone()));
    let snapshotter = snapshotter::start(snapshotter);
    let (snapshots, server_status) = (snapshotter.handle().clone(), Arc::new(server_status));
    let (access, denials) = (config.access.clone(), Arc::default());
    let sealer = config.sealer.clone();
    let api = Api {
        queue,
        issuer,
        watchers,
        metrics,
        snapshots,
        server_status,
        access,
        denials,
        sealer,
        keys,
        queue_waits: Arc::default(),
        sorted_listings: Arc::default(),
        dashboard: Arc::default(),
        standby: None,
    };
    let driver = Driver::new(grantor, journal, &api);
    let (driver, exporter) = match &config.collector {
        None => (driver, None),
        Some(collector) => {
            let address = api.server_status.address().to_owned();
            let source = SpanSource { cluster: issuer.cluster, incarnation: issuer.incarnation, address };
            let (spans, exporter) = otlp::start(collector.clone(), source, listener.metrics.spans());
            (driver.with_spans(spans), Some(exporter))
        }
    };
    let stopped = spawn_driver(driver);
    let sampler = tokio::spawn(api::sample(api.clone()));
    listener.metrics.set_leader(true);
    listener.set_max_ttl(status.max_ttl_ms);
    let serving = listener.serve(api::router(api.clone(), config.limits));
    Ok(ServerHandle {
        address: listener.address,
        issuer,
        max_ttl_ms: status.max_ttl_ms,
        warnings: opened.warnings,
        connection_limit: listener.connection_limit.clone(),
        rate_limit: listener.rate_limit.clone(),
        tls: listener.tls.clone(),
        socket: listener.socket_path().map(Path::to_owned),
        api,
        stopped,
        serving,
        snapshotter,
        sampler,
        exporter,
    })
}

/// A time that no correct wall clock is before: 2026-01-01, in milliseconds since 1970.
const MIN_WALL: WallClock = WallClock(1_767_225_600_000);

/// Warns about a wall clock that is behind. Nothing else depends on it: deadlines use the monotonic clock, and token numbers
/// continue from the highest.
fn check_wall_clock(now: WallClock, last: Option<WallClock>, metrics: &Metrics) {
    let min = last.map_or(MIN_WALL, |last| last.max(MIN_WALL));
    let behind_ms = min.0.saturating_sub(now.0);
    if behind_ms >= 1_000 {
        tracing::warn!(behind_ms, "wall clock is before the last record or before this version was built; set it");
        metrics.clocks().stepped(i64::try_from(behind_ms).map_or(i64::MIN, i64::wrapping_neg));
    }
}

/// Opens a tenure. Its opening is the first batch, and nothing is served before that batch is durable.
async fn open_tenure<J: Journal>(
    recovered: RecoveredGrantor,
    journal: &mut J,
    config: &ServerConfig,
) -> Result<Grantor, ServerError> {
    let default_ttl = if recovered.cluster().is_some() { 0 } else { TTL_MAX_DEFAULT };
    let options = TenureOptions {
        cluster: recovered.cluster().unwrap_or_else(|| Cluster(random::bytes())),
        incarnation: Incarnation(u32::from_ne_bytes(random::bytes())),
        generation: journal.generation(),
        validity: config.validity,
        max_ttl: config.max_ttl_ms.unwrap_or(default_ttl),
        restore: config.restore,
    };
    let mut grantor = recovered.open(clock::now(), &options).map_err(ServerError::Tenure)?;
    let mut output = Output::default();
    grantor.take_output(&mut output);
    match journal.append(journal.next(), &output.batch).await {
        Ok(AppendOutcome::Durable) => {
            grantor.serve(clock::now());
            Ok(grantor)
        }
        Ok(AppendOutcome::Fenced) => Err(ServerError::Fenced),
        Err(error) => Err(ServerError::Append(error)),
    }
}

/// Runs the driver on its own thread, which the journal may block.
fn spawn_driver<J: Journal + 'static>(driver: Driver<J>) -> oneshot::Receiver<StopReason> {
    let (sender, stopped) = oneshot::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the runtime of a thread can be built");
        let reason = runtime.block_on(driver.run());
        // Fails if the handle was dropped.
        let _ = sender.send(reason);
    };
    std::thread::Builder::new().name("turns".into()).spawn(run).expect("a thread can be spawned");
    stopped
}

impl ServerHandle {
    /// The API of the server, to serve it in other ways too.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Serves until `shutdown` resolves or the journal is lost. Waiting requests get their replies before it returns.
    pub async fn run_until(mut self, shutdown: impl Future<Output = ()>) -> StopReason {
        let reason = self.decide_until(shutdown).await;
        self.close(reason).await
    }

    /// Shuts down: accepts no connection, executes queued requests, sends their replies, and closes every stream with a reason.
    pub async fn stop(self) -> StopReason {
        self.run_until(std::future::ready(())).await
    }

    /// Runs turns until `shutdown` resolves or a turn fails. Afterwards this server decides nothing, so another one may lead while
    /// open connections receive their outstanding replies.
    pub(crate) async fn decide_until(&mut self, shutdown: impl Future<Output = ()>) -> StopReason {
        tokio::select! {
            () = shutdown => {}
            reason = &mut self.stopped => return reason.unwrap_or_else(|_| driver_panicked()),
        }
        let _ = self.serving.shutdown.send(ShutdownPhase::Draining);
        self.api.queue.stop();
        (&mut self.stopped).await.unwrap_or_else(|_| driver_panicked())
    }

    /// Closes all connections and the snapshotter. When it returns, nothing uses the journal any more.
    pub(crate) async fn close(self, reason: StopReason) -> StopReason {
        if !self.serving.drain(DRAIN_TIMEOUT).await {
            tracing::warn!("connections aborted: they did not read their replies in time");
        }
        self.sampler.abort();
        // Fails because it was aborted. Afterwards nothing holds the API.
        let _ = self.sampler.await;
        if let Some(exporter) = self.exporter {
            exporter.close().await;
        }
        let snapshotter = self.snapshotter;
        tokio::task::spawn_blocking(move || snapshotter.stop()).await.expect("stopping a thread does not panic");
        reason
    }
}

/// Time for open connections to receive their outstanding replies.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The driver's thread ended without a reason.
fn driver_panicked() -> StopReason {
    StopReason::Failed(JournalError::Failed {
        reason: "a turn panicked; this is a bug of the server, see the message above".to_owned(),
    })
}
