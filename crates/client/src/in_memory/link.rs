//! Link from one holder to the in-memory grantor. A test can cut it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::command::Command;
use leasehold_core::grantor::Grantor;
use leasehold_wire::v1;
use tokio::sync::mpsc::UnboundedReceiver;

use super::manual_clock::ManualClock;
use super::outbox::MemoryOutbox;
use super::server::MemoryServer;
use crate::Error;

/// Link of one holder.
#[derive(Debug)]
pub(crate) struct MemoryLink {
    clock: Arc<ManualClock>,
    server: Arc<Mutex<MemoryServer>>,
    seed: u64,
    state: Mutex<MemoryLinkState>,
}

#[derive(Debug, Default)]
struct MemoryLinkState {
    cut: bool,
    open: Vec<Weak<MemoryOutbox>>,
}

impl MemoryLink {
    pub(crate) fn new(clock: Arc<ManualClock>, server: Arc<Mutex<MemoryServer>>, seed: u64) -> Self {
        Self { clock, server, seed, state: Mutex::default() }
    }

    pub(crate) fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Opens a stream with a hello.
    pub(crate) fn open(
        &self,
        hello: v1::hello::Session,
    ) -> Result<(v1::Welcome, MemoryConnection, UnboundedReceiver<v1::ServerBatch>), Error> {
        self.check_connected()?;
        let (outbox, receiver) = MemoryOutbox::new(self.clock.clone());
        let welcome = lock(&self.server).open(self.clock.now(), &hello, &outbox)?;
        let mut state = self.lock();
        state.open.retain(|outbox| outbox.strong_count() > 0);
        state.open.push(Arc::downgrade(&outbox));
        let connection = MemoryConnection { clock: self.clock.clone(), server: self.server.clone(), outbox };
        Ok((welcome, connection, receiver))
    }

    /// Reads the grantor's state.
    pub(crate) fn query<T>(&self, query: impl FnOnce(&Grantor) -> T) -> Result<T, Error> {
        self.check_connected()?;
        Ok(query(lock(&self.server).grantor()))
    }

    /// Executes a command without a session, as a unary call does.
    pub(crate) fn call(&self, command: Command<'_>, resource: &str) -> Result<v1::response::Answer, Error> {
        self.check_connected()?;
        let mut server = lock(&self.server);
        let answer = server.execute(self.clock.now(), command);
        match leasehold_wire::encode_answer(&answer, &server.issuer(), |_| resource, "") {
            v1::response::Answer::Refused(problem) => Err(Error::from(problem)),
            answer => Ok(answer),
        }
    }

    fn check_connected(&self) -> Result<(), Error> {
        if self.lock().cut { Err(cut_off()) } else { Ok(()) }
    }

    /// Closes every stream and opens no other, or allows streams again.
    pub(crate) fn set_cut(&self, cut: bool) {
        let mut state = self.lock();
        state.cut = cut;
        if cut {
            let open = std::mem::take(&mut state.open);
            drop(state);
            open.iter().filter_map(Weak::upgrade).for_each(|outbox| outbox.close());
        }
    }

    /// From now on the replies on the open streams are dropped.
    pub(crate) fn drop_replies(&self) {
        self.outboxes().iter().for_each(|outbox| outbox.drop_replies());
    }

    pub(crate) fn dropped_replies(&self) -> usize {
        self.outboxes().iter().filter_map(|outbox| outbox.dropped_replies()).sum()
    }

    fn outboxes(&self) -> Vec<Arc<MemoryOutbox>> {
        self.lock().open.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, MemoryLinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The holder's side of one stream.
#[derive(Clone, Debug)]
pub(crate) struct MemoryConnection {
    clock: Arc<ManualClock>,
    server: Arc<Mutex<MemoryServer>>,
    outbox: Arc<MemoryOutbox>,
}

impl MemoryConnection {
    /// Sends a batch; the grantor decides it immediately.
    pub(crate) fn send(&self, batch: v1::ClientBatch) -> Result<(), Error> {
        let session = self.outbox.open_session().ok_or_else(cut_off)?;
        lock(&self.server).handle_batch(self.clock.now(), batch, session, &self.outbox);
        Ok(())
    }
}

fn cut_off() -> Error {
    Error::unavailable("cut off by the test")
}

fn lock(server: &Mutex<MemoryServer>) -> MutexGuard<'_, MemoryServer> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}
