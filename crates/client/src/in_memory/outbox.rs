//! The server's side of an in-memory stream: batches on their way to one holder. A test can drop or close them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::ids::SessionId;
use leasehold_wire::v1;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::manual_clock::ManualClock;

/// Outgoing batches of one stream.
#[derive(Debug)]
pub(crate) struct MemoryOutbox {
    clock: Arc<ManualClock>,
    state: Mutex<OutboxState>,
}

#[derive(Debug)]
struct OutboxState {
    sender: Option<UnboundedSender<v1::ServerBatch>>,
    session: Option<SessionId>,
    /// Number of batches dropped so far, if batches are dropped.
    dropped: Option<usize>,
}

impl MemoryOutbox {
    pub(super) fn new(clock: Arc<ManualClock>) -> (Arc<Self>, UnboundedReceiver<v1::ServerBatch>) {
        let (sender, receiver) = unbounded_channel();
        let state = Mutex::new(OutboxState { sender: Some(sender), session: None, dropped: None });
        (Arc::new(Self { clock, state }), receiver)
    }

    pub(super) fn bind_session(&self, session: SessionId) {
        self.lock().session = Some(session);
    }

    /// The session of the stream; none if the stream is closed.
    pub(super) fn open_session(&self) -> Option<SessionId> {
        let state = self.lock();
        state.session.filter(|_| state.sender.is_some())
    }

    pub(super) fn respond(&self, sequence: u64, answer: v1::response::Answer) {
        let responses = vec![v1::Response { sequence, answer: Some(answer) }];
        self.send(v1::ServerBatch { responses, ..Default::default() });
    }

    pub(super) fn send(&self, batch: v1::ServerBatch) {
        let mut state = self.lock();
        if let Some(dropped) = &mut state.dropped {
            *dropped += 1;
        } else if let Some(sender) = &state.sender {
            // A holder that is gone receives nothing.
            let _ = sender.send(batch);
            self.clock.disturb();
        }
    }

    pub(super) fn drop_replies(&self) {
        self.lock().dropped = Some(0);
    }

    pub(super) fn dropped_replies(&self) -> Option<usize> {
        self.lock().dropped
    }

    pub(super) fn close(&self) {
        if self.lock().sender.take().is_some() {
            self.clock.disturb();
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
