//! Several servers over one journal: one leads, the others stand by and are warm, and when the leader is gone one of them
//! leads.

mod following;
mod standing;

pub use following::Following;
pub use standing::{Role, Standing};

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::grantor::Restoring;
use leasehold_core::token::{Cluster, Incarnation};
use leasehold_wire::Issuer;
use tokio::sync::watch;

use crate::api::Api;
use crate::door::{self, Doors};
use crate::driver::Stopped;
use crate::entrance::{Entrance, Opened};
use crate::inbox::Inbox;
use crate::journal::etcd::{Etcd, Leading, Listen, Refused, Standby};
use crate::journal::{Journal, OpenError};
use crate::keep::Keeping;
use crate::secret;
use crate::server::{Failed, Running, Settings, lead};

/// How long whoever is connected to a server that stood by has to take what it was told.
const LEAVING: Duration = Duration::from_secs(2);
/// How long nothing is done after etcd could not be entered again.
const PAUSE: Duration = Duration::from_secs(1);

/// Who is told what the server is.
pub type Tell<'a> = &'a mut (dyn FnMut(Role, Option<&Running>) + Send);

/// Serves until asked to stop: stands by, leads when it can, and stands by again when it was deposed.
pub async fn serve(
    place: &Etcd,
    entrance: &Entrance,
    settings: &Settings,
    tell: Tell<'_>,
    asked: impl Future<Output = ()>,
) -> Result<Stopped, Failed> {
    let mut asked = pin!(asked);
    let mut standby = place.stand_by().await.map_err(Failed::Journal)?;
    let survey = Arc::new(place.survey().map_err(Failed::Journal)?);
    let among = |role| Standing::among(place.address().to_owned(), role, survey.clone());
    loop {
        tell(Role::StandsBy, None);
        match wait(standby, entrance, settings, &among, asked.as_mut()).await? {
            Waited::Asked => return Ok(Stopped::Asked),
            Waited::Missed => {}
            Waited::Leads(mut running, leading) => {
                tell(Role::Leads, Some(&running));
                let stopped = running.decide(asked.as_mut()).await;
                if stopped != Stopped::Fenced {
                    // Whatever stopped it: another one leads from here on, if there is one. It does not wait until
                    // everybody here has heard so.
                    let to = leading.hand_over().await;
                    tracing::info!("handed over to {}", to.as_deref().unwrap_or("nobody: no other server stands by"));
                }
                match running.close(stopped).await {
                    Stopped::Fenced => tracing::warn!("another server leads now, or nobody does; this one stands by"),
                    Stopped::SteppedDown => tracing::info!("this server was asked to step down; it stands by"),
                    stopped => return Ok(stopped),
                }
            }
        }
        standby = match enter_again(place, asked.as_mut()).await? {
            Some(standby) => standby,
            None => return Ok(Stopped::Asked),
        };
    }
}

/// Stands by again. What cannot be reached now may be in a moment.
async fn enter_again(place: &Etcd, mut asked: Pin<&mut impl Future<Output = ()>>) -> Result<Option<Standby>, Failed> {
    loop {
        match place.stand_by().await {
            Ok(standby) => return Ok(Some(standby)),
            Err(OpenError::Etcd(why @ (Refused::Unreachable { .. } | Refused::Full { .. } | Refused::Taken))) => {
                tracing::warn!("not standing by yet: {why}");
            }
            Err(why) => return Err(Failed::Journal(why)),
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = asked.as_mut() => return Ok(None),
        }
    }
}

/// What came of standing by.
enum Waited {
    /// It was asked to stop.
    Asked,
    /// Somebody was faster after all.
    Missed,
    /// It leads.
    Leads(Box<Running>, Leading),
}

/// Stands by until this server leads.
async fn wait(
    mut standby: Standby,
    entrance: &Entrance,
    settings: &Settings,
    among: &impl Fn(Role) -> Standing,
    asked: Pin<&mut impl Future<Output = ()>>,
) -> Result<Waited, Failed> {
    entrance.meter.leads(false);
    let (leader, known) = watch::channel(None);
    let following = Arc::new(Following::new(settings.rung));
    let doors = entrance.open(door::aside(aside(entrance, &following, among(Role::StandsBy)), settings.bounds, known));
    let (mut replay, mut heard) = (&*following, Heard { leader, entrance });
    let mine = tokio::select! {
        mine = standby.follow(&mut replay, &mut heard) => mine,
        () = asked => {
            standby.end().await;
            leave(doors);
            return Ok(Waited::Asked);
        }
    };
    let mine = mine.map_err(Failed::Journal)?;
    let (opened, leading) = match standby.take(mine, &mut replay).await {
        Ok(opened) => opened,
        Err(OpenError::Etcd(why @ (Refused::Unreachable { .. } | Refused::Full { .. } | Refused::Taken))) => {
            tracing::warn!("this server was to lead, and could not: {why}");
            leave(doors);
            return Ok(Waited::Missed);
        }
        Err(why) => return Err(Failed::Journal(why)),
    };
    entrance.meter.at(opened.journal.next() - 1);
    entrance.meter.etcd().follow(opened.journal.gauge().clone());
    let mut settings = settings.clone();
    if opened.journal.was_restored() {
        let incarnation = Incarnation(u32::from_ne_bytes(secret::draw()));
        settings.restore = Some(Restoring { incarnation, floor: None });
    }
    // From here on those who come wait for the leader's doors.
    leave(doors);
    match lead(entrance, following.take(), opened, &settings, among(Role::Leads)).await {
        Ok(running) => Ok(Waited::Leads(Box::new(running), leading)),
        Err(Failed::Fenced) => Ok(Waited::Missed),
        Err(why) => {
            leading.hand_over().await;
            Err(why)
        }
    }
}

/// What is behind the doors of a server that stands by: looks at what it follows, and nothing that decides.
fn aside(entrance: &Entrance, following: &Arc<Following>, standing: Standing) -> Api {
    let inbox = Inbox::default();
    inbox.stop();
    Api {
        inbox: Arc::new(inbox),
        // It gives out no token.
        issuer: Issuer { cluster: Cluster(Default::default()), incarnation: Incarnation(0) },
        watchers: Arc::default(),
        meter: entrance.meter.clone(),
        keeping: Arc::new(Keeping::absent(entrance.meter.keep())),
        standing: Arc::new(standing),
        following: Some(following.clone()),
    }
}

/// Whoever is inside goes, and nobody waits for it.
fn leave(doors: Opened) {
    let _ = doors.closing.send(Doors::Closing);
    tokio::spawn(async move {
        let Opened { mut serving, closing } = doors;
        if tokio::time::timeout(LEAVING, &mut serving).await.is_err() {
            let _ = closing.send(Doors::Cut);
            let _ = serving.await;
        }
    });
}

/// What a server hears while it stands by.
struct Heard<'a> {
    leader: watch::Sender<Option<String>>,
    entrance: &'a Entrance,
}

impl Listen for Heard<'_> {
    fn leader(&mut self, address: Option<&str>) {
        self.leader.send_if_modified(|known| {
            let other = known.as_deref() != address;
            if other {
                tracing::info!("{}", address.map_or_else(|| "nobody leads".to_owned(), |at| format!("{at} leads")));
                *known = address.map(str::to_owned);
            }
            other
        });
    }

    fn reached(&mut self, sequence: u64) {
        self.entrance.meter.at(sequence);
    }
}
