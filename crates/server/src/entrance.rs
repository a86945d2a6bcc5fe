//! Where a server listens, whatever it serves there, and the state that it folds before it leads.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use leasehold_core::grantor::{Corrupt, Recovered};
use leasehold_core::lease::Rung;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::door::{self, Bounds, Doors};
use crate::journal::Replay;
use crate::keep::Behind;
use crate::meter::Meter;
use crate::pace::Pace;
use crate::room::Room;
use crate::secret;
use crate::server::{Failed, Settings};

/// An address that was had, and what all who come there share.
pub struct Entrance {
    /// Where it is; the port that was had if none was asked for.
    pub address: SocketAddr,
    /// Where connections have their places; it can be resized while serving.
    pub room: Arc<Room>,
    /// How many requests a second one connection may bring.
    pub pace: Arc<Pace>,
    /// What is measured.
    pub meter: Arc<Meter>,
    listener: Arc<TcpListener>,
    bounds: Bounds,
}

/// Doors that are open.
pub struct Opened {
    /// Ends when everybody has left.
    pub serving: JoinHandle<()>,
    /// Closes them.
    pub closing: watch::Sender<Doors>,
}

impl Entrance {
    /// Takes the address. Nobody is let in yet.
    pub async fn bind(settings: &Settings) -> Result<Self, Failed> {
        if !settings.listen.ip().is_loopback() && !settings.insecure_listen {
            return Err(Failed::Insecure { at: settings.listen });
        }
        let listening = |why| Failed::Listen { at: settings.listen, why };
        let listener = TcpListener::bind(settings.listen).await.map_err(listening)?;
        Ok(Self {
            address: listener.local_addr().map_err(listening)?,
            room: Room::new(settings.bounds.connections),
            pace: Pace::new(settings.bounds.request_rate),
            meter: Arc::default(),
            listener: Arc::new(listener),
            bounds: settings.bounds,
        })
    }

    /// Lets everybody in who comes from now on.
    pub fn open(&self, inside: Router) -> Opened {
        let (closing, closed) = watch::channel(Doors::Open);
        let (listener, meter) = (self.listener.clone(), self.meter.clone());
        let (room, pace) = (self.room.clone(), self.pace.clone());
        let serving = tokio::spawn(door::serve(listener, inside, meter, self.bounds, room, pace, closed));
        Opened { serving, closing }
    }
}

/// Folds what is on record into a state.
pub struct Fold {
    /// The state.
    pub recovered: Recovered,
    hash_seed: u64,
    /// What is behind the newest snapshot.
    pub behind: Behind,
    /// What leases stand on with this journal.
    pub rung: Rung,
}

impl Fold {
    /// Nothing is on record yet.
    pub fn over(rung: Rung) -> Self {
        let hash_seed = u64::from_ne_bytes(secret::draw());
        Self { recovered: Recovered::empty(hash_seed).over(rung), hash_seed, behind: Behind::default(), rung }
    }
}

impl Replay for Fold {
    fn snapshot(&mut self, _sequence: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        self.recovered = Recovered::from_snapshot(bytes, self.hash_seed)?.over(self.rung);
        self.behind = Behind { snapshot: bytes.len() as u64, ..Behind::default() };
        Ok(())
    }

    fn batch(&mut self, _sequence: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        self.behind.bytes += bytes.len() as u64;
        self.behind.batches += 1;
        self.recovered.apply(bytes)
    }
}
