//! One holder's way to the grantor in memory, which a test can cut.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::command::Command;
use leasehold_core::grantor::Grantor;
use leasehold_core::ids::SessionId;
use leasehold_wire::v1;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::hand::Hand;
use super::world::World;
use crate::Error;

/// One holder's way in.
#[derive(Debug)]
pub(crate) struct Door {
    hand: Arc<Hand>,
    world: Arc<Mutex<World>>,
    seed: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cut: bool,
    open: Vec<Weak<Connection>>,
}

impl Door {
    pub(super) fn new(hand: Arc<Hand>, world: Arc<Mutex<World>>, seed: u64) -> Self {
        Self { hand, world, seed, state: Mutex::default() }
    }

    pub(crate) fn hand(&self) -> Arc<Hand> {
        self.hand.clone()
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Answers a hello on a connection of its own.
    pub(crate) fn open(
        &self,
        how: v1::hello::How,
    ) -> Result<(v1::Welcome, Arc<Connection>, UnboundedReceiver<v1::ServerBatch>), Error> {
        self.reached()?;
        let (out, hearing) = unbounded_channel();
        let line = Mutex::new(Line { out: Some(out), session: None, unheard: None });
        let connection = Arc::new(Connection { hand: self.hand.clone(), world: self.world.clone(), line });
        let welcome = world(&self.world).open(self.hand.now(), &how, &connection)?;
        let mut state = self.lock();
        state.open.retain(|known| known.strong_count() > 0);
        state.open.push(Arc::downgrade(&connection));
        Ok((welcome, connection, hearing))
    }

    /// Looks at what stands.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Grantor) -> T) -> Result<T, Error> {
        self.reached()?;
        Ok(look(world(&self.world).grantor()))
    }

    /// Asks without a session, and hears the answer as a single call does.
    pub(crate) fn ask(&self, command: Command<'_>, resource: &str) -> Result<v1::response::Answer, Error> {
        self.reached()?;
        let mut world = world(&self.world);
        let told = world.ask(self.hand.now(), command);
        match leasehold_wire::answer(&told, &world.issuer(), |_| resource) {
            v1::response::Answer::Refused(problem) => Err(Error::from(problem)),
            told => Ok(told),
        }
    }

    fn reached(&self) -> Result<(), Error> {
        if self.lock().cut { Err(Error::unavailable("cut off by the test")) } else { Ok(()) }
    }

    /// Breaks every connection and makes no other, or makes them again.
    pub(super) fn cut(&self, yes: bool) {
        let mut state = self.lock();
        state.cut = yes;
        if yes {
            let open = std::mem::take(&mut state.open);
            drop(state);
            open.iter().filter_map(Weak::upgrade).for_each(|connection| connection.close());
        }
    }

    /// From now on answers are lost on the connections that are open.
    pub(super) fn deafen(&self) {
        self.connections().iter().for_each(|connection| connection.lock().unheard = Some(0));
    }

    /// How many answers were lost.
    pub(super) fn unheard(&self) -> usize {
        self.connections().iter().filter_map(|connection| connection.lock().unheard).sum()
    }

    fn connections(&self) -> Vec<Arc<Connection>> {
        self.lock().open.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Connection {
    hand: Arc<Hand>,
    world: Arc<Mutex<World>>,
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    out: Option<UnboundedSender<v1::ServerBatch>>,
    session: Option<SessionId>,
    /// Answers that were lost on the way, if they are.
    unheard: Option<usize>,
}

impl Connection {
    pub(super) fn speaks_for(&self, session: SessionId) {
        self.lock().session = Some(session);
    }

    /// Takes what the holder sends, and decides it at once.
    pub(crate) fn take(self: &Arc<Self>, batch: v1::ClientBatch) -> Result<(), Error> {
        let line = self.lock();
        let (Some(session), true) = (line.session, line.out.is_some()) else {
            return Err(Error::unavailable("cut off by the test"));
        };
        drop(line);
        world(&self.world).take(self.hand.now(), batch, session, self);
        Ok(())
    }

    pub(super) fn respond(&self, sequence: u64, answer: v1::response::Answer) {
        let responses = vec![v1::Response { sequence, answer: Some(answer) }];
        self.send(v1::ServerBatch { responses, ..Default::default() });
    }

    pub(super) fn send(&self, batch: v1::ServerBatch) {
        let mut line = self.lock();
        if let Some(unheard) = &mut line.unheard {
            *unheard += 1;
        } else if let Some(out) = &line.out {
            // A holder that has gone away hears nothing more.
            let _ = out.send(batch);
            self.hand.disturb();
        }
    }

    fn close(&self) {
        if self.lock().out.take().is_some() {
            self.hand.disturb();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn world(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}
