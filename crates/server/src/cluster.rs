//! Several servers over one journal in etcd: one leads, the others stand by with a warm state.
//!
//! A standby takes over when the leader's lease in etcd ends. A deposed leader stands by again.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::grantor::RestoreSpec;
use leasehold_core::token::{Cluster, Incarnation};
use leasehold_wire::TokenIssuer;
use tokio::sync::watch;

use crate::api::{self, Api};
use crate::driver::StopReason;
use crate::journal::etcd::{EtcdLocation, LeaderHandle, Standby, StandbyObserver};
use crate::journal::{EtcdOpenError, Journal, JournalError, OpenError};
use crate::key_digests::KeyDigests;
use crate::keys::ServerKeys;
use crate::random;
use crate::replicated_state::StandbyState;
use crate::request_queue::RequestQueue;
use crate::server::{ServerConfig, ServerError, ServerHandle, lead};
use crate::snapshotter::SnapshotHandle;
use crate::status::{ServerRole, ServerStatus};
use crate::transport::{Listener, ServeTask, ShutdownPhase};
use crate::watch::Watchers;

/// Time for connections to a standby to receive their outstanding replies.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between attempts to reach etcd.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Called with each role that the server takes, and with its handle while it leads.
pub type RoleObserver<'a> = &'a mut (dyn FnMut(ServerRole, Option<&ServerHandle>) + Send);

/// Serves until `shutdown` resolves: stands by, leads when it can, and stands by again when it is deposed.
pub async fn serve(
    location: &EtcdLocation,
    listener: &Listener,
    config: &ServerConfig,
    observe_role: RoleObserver<'_>,
    shutdown: impl Future<Output = ()>,
) -> Result<StopReason, ServerError> {
    let mut shutdown = pin!(shutdown);
    let keys = Arc::new(config.keys.load().map_err(ServerError::Keys)?);
    let own = KeyDigests::new(&config.keys, keys.clone(), config.sealer.clone());
    let location = &location.clone().with_key_digests(Arc::new(own));
    let mut standby = location.stand_by().await.map_err(ServerError::Journal)?;
    let etcd = Arc::new(location.status_reader().map_err(ServerError::Journal)?);
    let status = |role| ServerStatus::in_cluster(location.address().to_owned(), role, etcd.clone());
    loop {
        observe_role(ServerRole::Standby, None);
        match follow(standby, listener, config, &keys, &status, shutdown.as_mut()).await? {
            StandbyOutcome::Shutdown => return Ok(StopReason::Requested),
            StandbyOutcome::NotElected => {}
            StandbyOutcome::Leads(mut server, leader) => {
                observe_role(ServerRole::Leader, Some(&server));
                let reason = tokio::select! {
                    reason = server.decide_until(shutdown.as_mut()) => reason,
                    () = leader.record_keys() => unreachable!("keys are recorded as long as the server leads"),
                };
                if let StopReason::Failed(JournalError::RolledBack { .. }) = &reason {
                    // No other server may lead, so there is no successor.
                    leader.abandon().await;
                } else if reason != StopReason::Fenced {
                    // Another server may lead now; it does not wait until connections here have received their replies.
                    let successor = leader.resign().await;
                    tracing::info!(successor = successor.as_deref().unwrap_or("none"), "leadership resigned");
                }
                match server.close(reason).await {
                    StopReason::Fenced => tracing::warn!("leadership lost; this server stands by"),
                    StopReason::SteppedDown => tracing::info!("stepped down on request; this server stands by"),
                    reason => return Ok(reason),
                }
            }
        }
        standby = match rejoin(location, shutdown.as_mut()).await? {
            Some(standby) => standby,
            None => return Ok(StopReason::Requested),
        };
    }
}

/// Stands by again. Retries while etcd cannot be used; `None` if `shutdown` resolves first.
async fn rejoin(
    location: &EtcdLocation,
    mut shutdown: Pin<&mut impl Future<Output = ()>>,
) -> Result<Option<Standby>, ServerError> {
    loop {
        match location.stand_by().await {
            Ok(standby) => return Ok(Some(standby)),
            Err(OpenError::Etcd(error)) if is_transient(&error) => {
                tracing::warn!(%error, "cannot stand by yet");
            }
            Err(error) => return Err(ServerError::Journal(error)),
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY_PAUSE) => {}
            () = shutdown.as_mut() => return Ok(None),
        }
    }
}

/// Whether a later attempt may succeed.
fn is_transient(error: &EtcdOpenError) -> bool {
    matches!(error, EtcdOpenError::Unreachable { .. } | EtcdOpenError::Full { .. } | EtcdOpenError::Taken)
}

/// How standing by ended.
enum StandbyOutcome {
    /// The shutdown was requested.
    Shutdown,
    /// Another server leads after all.
    NotElected,
    /// This server leads.
    Leads(Box<ServerHandle>, LeaderHandle),
}

/// Follows the leader until this server leads.
async fn follow(
    mut standby: Standby,
    listener: &Listener,
    config: &ServerConfig,
    keys: &Arc<ServerKeys>,
    status: &impl Fn(ServerRole) -> ServerStatus,
    shutdown: Pin<&mut impl Future<Output = ()>>,
) -> Result<StandbyOutcome, ServerError> {
    listener.metrics.set_leader(false);
    let (leader, known_leader) = watch::channel(None);
    let state = Arc::new(StandbyState::new(config.validity));
    let api = standby_api(listener, config, keys, &state, status(ServerRole::Standby));
    let watchers = api.watchers.clone();
    let serving = listener.serve(api::standby_router(api, config.limits, known_leader));
    let (mut replay, mut observer) = (&*state, LeaderWatch { leader, listener });
    let claim = tokio::select! {
        claim = standby.follow(&mut replay, &mut observer) => claim,
        () = shutdown => {
            standby.end().await;
            drain_in_background(serving, &watchers);
            return Ok(StandbyOutcome::Shutdown);
        }
    };
    let claim = claim.map_err(ServerError::Journal)?;
    let (opened, leader) = match standby.open(claim, &mut replay).await {
        Ok(opened) => opened,
        Err(OpenError::Etcd(error)) if is_transient(&error) => {
            tracing::warn!(%error, "elected, but cannot open the journal");
            drain_in_background(serving, &watchers);
            return Ok(StandbyOutcome::NotElected);
        }
        Err(error) => return Err(ServerError::Journal(error)),
    };
    listener.metrics.set_position(opened.journal.next() - 1);
    listener.metrics.etcd().follow(opened.journal.quota().clone());
    let mut config = config.clone();
    if opened.journal.was_restored() {
        let incarnation = Incarnation(u32::from_ne_bytes(random::bytes()));
        config.restore = Some(RestoreSpec { incarnation, floor: None, uid: None });
    }
    // New connections wait in the socket's backlog until the leader's router is served.
    drain_in_background(serving, &watchers);
    match lead(listener, state.take(), opened, &config, keys.clone(), status(ServerRole::Leader)).await {
        Ok(server) => Ok(StandbyOutcome::Leads(Box::new(server), leader)),
        Err(ServerError::Fenced) => Ok(StandbyOutcome::NotElected),
        Err(error) => {
            leader.resign().await;
            Err(error)
        }
    }
}

/// The API of a standby: queries of the replicated state, and no commands.
fn standby_api(
    listener: &Listener,
    config: &ServerConfig,
    keys: &Arc<ServerKeys>,
    state: &Arc<StandbyState>,
    status: ServerStatus,
) -> Api {
    let queue = RequestQueue::default();
    queue.stop();
    Api {
        queue: Arc::new(queue),
        // A standby issues no token.
        issuer: TokenIssuer { cluster: Cluster(Default::default()), incarnation: Incarnation(0) },
        watchers: Arc::default(),
        metrics: listener.metrics.clone(),
        snapshots: Arc::new(SnapshotHandle::absent(listener.metrics.snapshots())),
        server_status: Arc::new(status),
        access: config.access.clone(),
        denials: Arc::default(),
        sealer: config.sealer.clone(),
        keys: keys.clone(),
        queue_waits: Arc::default(),
        sorted_listings: Arc::default(),
        dashboard: Arc::default(),
        standby: Some(state.clone()),
    }
}

/// Stops accepting now; open connections end in the background. Streams of the standby end at once: they would report its role until
/// they are aborted.
fn drain_in_background(serving: ServeTask, watchers: &Watchers) {
    watchers.close();
    let _ = serving.shutdown.send(ShutdownPhase::Draining);
    tokio::spawn(serving.drain(DRAIN_TIMEOUT));
}

/// Publishes the leader's address and the journal position while a server stands by.
struct LeaderWatch<'a> {
    leader: watch::Sender<Option<String>>,
    listener: &'a Listener,
}

impl StandbyObserver for LeaderWatch<'_> {
    fn leader(&mut self, address: Option<&str>) {
        self.leader.send_if_modified(|known| {
            let changed = known.as_deref() != address;
            if changed {
                tracing::info!(leader = address.unwrap_or("none"), "leader changed");
                *known = address.map(str::to_owned);
            }
            changed
        });
    }

    fn reached(&mut self, sequence: u64) {
        self.listener.metrics.set_position(sequence);
    }
}
