//! From a journal to a served port: open, recover, begin a tenure, drive, listen, and stop cleanly.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::grantor::{Grantor, NotOpened, Opening, Output, Recovered, Restoring};
use leasehold_core::lease::Rung;
use leasehold_core::time::Wall;
use leasehold_core::token::{Cluster, Incarnation};
use leasehold_wire::Issuer;
use tokio::sync::oneshot;

use crate::api::Api;
use crate::cluster::Standing;
use crate::door::Doors;
use crate::driver::{Driver, Stopped};
use crate::entrance::{Entrance, Fold};
use crate::inbox::Inbox;
use crate::journal::{Fault, Journal, Kept, OpenError, Opened, Place};
use crate::keep::{self, Keep};
use crate::meter::Meter;
use crate::pace::Pace;
use crate::room::Room;
use crate::watch::Watchers;
use crate::{clock, door, secret};

/// How a server is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Listen beyond this machine without TLS. Spelled out, or refused.
    pub insecure_listen: bool,
    /// The longest ttl of a new cluster; an existing one keeps its own.
    pub max_ttl_ms: u64,
    /// What leases stand on with this journal.
    pub rung: Rung,
    /// The state comes from a backup.
    pub restore: Option<Restoring>,
    /// What connections may cost.
    pub bounds: door::Bounds,
    /// How much is kept, and how often it is gathered.
    pub keep: Keep,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7421)),
            insecure_listen: false,
            max_ttl_ms: leasehold_core::limits::TTL_MAX_DEFAULT,
            rung: Rung::Session,
            restore: None,
            bounds: door::Bounds::default(),
            keep: Keep::default(),
        }
    }
}

/// Why a server did not start, or did not go on.
#[derive(Debug)]
pub enum Failed {
    /// The journal was not opened.
    Journal(OpenError),
    /// The tenure was not opened.
    NotOpened(NotOpened),
    /// The opening could not be kept.
    Keep(Fault),
    /// Another writer has the journal.
    Fenced,
    /// The address could not be had.
    Listen {
        /// Which.
        at: SocketAddr,
        /// Why not.
        why: std::io::Error,
    },
    /// An address beyond this machine without TLS.
    Insecure {
        /// Which.
        at: SocketAddr,
    },
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(why) => why.fmt(f),
            Self::NotOpened(why) => why.fmt(f),
            Self::Keep(why) => why.fmt(f),
            Self::Fenced => f.write_str("another server has taken the journal; this one stops"),
            Self::Listen { at, why } => write!(f, "cannot listen on {at}: {why}; choose another address"),
            Self::Insecure { at } => write!(
                f,
                "{at} is reachable from other machines, and there is no TLS; listen on 127.0.0.1, or allow it in so many words"
            ),
        }
    }
}

impl std::error::Error for Failed {}

/// A server that listens. It serves until [`Running::stop`] or until its journal is lost.
pub struct Running {
    /// Where it listens; the port that was had if none was asked for.
    pub address: SocketAddr,
    /// The cluster.
    pub issuer: Issuer,
    /// The longest ttl of the cluster: that of its first start.
    pub max_ttl_ms: u64,
    /// What an operator should read about the journal, one line each.
    pub warnings: Vec<String>,
    /// Where connections have their places; it can be resized while serving.
    pub room: Arc<Room>,
    /// How many requests a second one connection may bring.
    pub pace: Arc<Pace>,
    api: Api,
    stopped: oneshot::Receiver<Stopped>,
    doors: tokio::task::JoinHandle<()>,
    closing: tokio::sync::watch::Sender<Doors>,
    keeper: keep::Running,
}

/// Opens the journal, begins a tenure and listens.
pub async fn start<P>(place: P, settings: Settings) -> Result<Running, Failed>
where
    P: Place,
    P::Journal: 'static,
{
    let entrance = Entrance::bind(&settings).await?;
    let mut fold = Fold::over(settings.rung);
    let opened = place.open(&mut fold).await.map_err(Failed::Journal)?;
    let standing = Standing::alone(entrance.address.to_string());
    lead(&entrance, fold, opened, &settings, standing).await
}

/// Begins a tenure over a journal that was opened, and lets everybody in.
pub(crate) async fn lead<J: Journal + 'static>(
    entrance: &Entrance,
    fold: Fold,
    opened: Opened<J>,
    settings: &Settings,
    standing: Standing,
) -> Result<Running, Failed> {
    let mut journal = opened.journal;
    let behind = fold.behind;
    let recorded = fold.recovered.about().map(|about| about.wall);
    let grantor = open_tenure(fold.recovered, &mut journal, settings).await?;
    let status = grantor.status();
    let issuer = Issuer { cluster: status.cluster, incarnation: status.incarnation };
    tracing::info!(
        cluster = %status.cluster, incarnation = %status.incarnation, generation = status.generation,
        tenure = status.tenure, held = status.held, "the journal is open"
    );
    if let Some((ms, rolled_back)) = status.quarantine {
        let why = if rolled_back { "a rollback" } else { "a restore" };
        tracing::warn!(remaining_ms = ms, "in quarantine after {why}: nothing is granted until it is over or waived");
    }
    let (inbox, watchers, meter) = (Arc::new(Inbox::default()), Arc::new(Watchers::default()), entrance.meter.clone());
    doubt_clock(clock::now().wall, recorded, &meter);
    let keeper = keep::start(journal.shelf(), settings.keep, behind, meter.keep());
    let (keeping, standing) = (keeper.keeping().clone(), Arc::new(standing));
    let api = Api { inbox, issuer, watchers, meter, keeping, standing, following: None };
    let stopped = drive(Driver::new(grantor, journal, &api));
    entrance.meter.leads(true);
    let opened_doors = entrance.open(door::router(api.clone(), settings.bounds));
    let (doors, closing) = (opened_doors.serving, opened_doors.closing);
    let (address, room, pace) = (entrance.address, entrance.room.clone(), entrance.pace.clone());
    let (warnings, max_ttl_ms) = (opened.warnings, status.max_ttl_ms);
    Ok(Running { address, issuer, max_ttl_ms, warnings, room, pace, api, stopped, doors, closing, keeper })
}

/// When this was written: no right clock is before it, in milliseconds since 1970.
const WRITTEN: Wall = Wall(1_767_225_600_000);

/// A wall clock that is behind is told, and no more: deadlines do not use it, and token numbers go on from the highest.
fn doubt_clock(now: Wall, recorded: Option<Wall>, meter: &Meter) {
    let least = recorded.map_or(WRITTEN, |recorded| recorded.max(WRITTEN));
    let behind_ms = least.0.saturating_sub(now.0);
    if behind_ms >= 1_000 {
        tracing::warn!(behind_ms, "the wall clock is before the last record or before this version; set it");
        meter.clocks().stepped(i64::try_from(behind_ms).map_or(i64::MIN, i64::wrapping_neg));
    }
}

/// The first batch of a tenure is its opening; nothing is served before it is durable.
async fn open_tenure<J: Journal>(
    recovered: Recovered,
    journal: &mut J,
    settings: &Settings,
) -> Result<Grantor, Failed> {
    let cluster = recovered.cluster().unwrap_or_else(|| Cluster(secret::draw()));
    let opening = Opening {
        cluster,
        incarnation: Incarnation(u32::from_ne_bytes(secret::draw())),
        generation: journal.generation(),
        rung: settings.rung,
        max_ttl: settings.max_ttl_ms,
        restore: settings.restore,
    };
    let mut grantor = recovered.open(clock::now(), &opening).map_err(Failed::NotOpened)?;
    let mut output = Output::default();
    grantor.take_output(&mut output);
    match journal.append(journal.next(), &output.batch).await {
        Ok(Kept::Durable) => {
            grantor.serve(clock::now());
            Ok(grantor)
        }
        Ok(Kept::Fenced) => Err(Failed::Fenced),
        Err(fault) => Err(Failed::Keep(fault)),
    }
}

/// The turns have a thread of their own: a journal may block it, and nothing else waits there.
fn drive<J: Journal + 'static>(driver: Driver<J>) -> oneshot::Receiver<Stopped> {
    let (tell, stopped) = oneshot::channel();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a thread can have a runtime");
        let why = runtime.block_on(driver.run());
        // Nobody listens if the server is gone already.
        let _ = tell.send(why);
    };
    std::thread::Builder::new().name("turns".into()).spawn(work).expect("a process can have a thread");
    stopped
}

impl Running {
    /// The doors' view of the server, for those who serve more beside it.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Serves until asked to stop, or until the journal is lost. Requests that wait are answered before it returns.
    pub async fn until(mut self, asked: impl Future<Output = ()>) -> Stopped {
        let why = self.decide(asked).await;
        self.close(why).await
    }

    /// Stops: no new connections, everything that was taken done and told, a last word to every stream.
    pub async fn stop(self) -> Stopped {
        self.until(std::future::ready(())).await
    }

    /// Takes turns until asked to stop, or until it cannot. Then nothing is decided here any more, and another server may
    /// lead while those who are connected take what they were told.
    pub(crate) async fn decide(&mut self, asked: impl Future<Output = ()>) -> Stopped {
        tokio::select! {
            () = asked => {}
            why = &mut self.stopped => return why.unwrap_or_else(|_| panicked()),
        }
        let _ = self.closing.send(Doors::Closing);
        self.api.inbox.stop();
        (&mut self.stopped).await.unwrap_or_else(|_| panicked())
    }

    /// When this returns nobody is connected, and nothing holds the journal any more.
    pub(crate) async fn close(mut self, why: Stopped) -> Stopped {
        let _ = self.closing.send(Doors::Closing);
        if tokio::time::timeout(CLOSING, &mut self.doors).await.is_err() {
            tracing::warn!("some connections were cut: they did not take what they were told");
            let _ = self.closing.send(Doors::Cut);
            let _ = self.doors.await;
        }
        let keeper = self.keeper;
        tokio::task::spawn_blocking(move || keeper.stop()).await.expect("stopping a thread does not panic");
        why
    }
}

/// How long those who are connected have to take what they were told.
const CLOSING: Duration = Duration::from_secs(5);

/// The thread of the turns ended without a word.
fn panicked() -> Stopped {
    Stopped::Failed(Fault::Failed { why: "a turn panicked; this is a fault of the server, see above".to_owned() })
}
