//! What a program sees of a lease it holds, and what it may ask under it. A view can be cloned; the guard cannot.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::command::{Answer, Style};
use leasehold_core::holder::{Claim, Deadline, Loss, RateError, Succession};
use leasehold_core::ids::LeaseId;
use leasehold_core::time::Instant;
use leasehold_core::token::{Number, Token};

use crate::holder::{Ask, Call, Cell, Given, Handle, View};
use crate::{Error, Failure};

/// What a holder may think of its lease at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It holds: work may go on until the deadline.
    Held,
    /// The local deadline has passed: work stops, and goes on only if the grantor renews the same lease.
    Suspended,
    /// Over, by the grantor's word.
    Lost(Loss),
}

/// A lease as its holder sees it. It can be cloned and handed to the work; only the [`Guard`](crate::Guard) gives back.
#[derive(Clone)]
pub struct Hold {
    pub(crate) cell: Arc<Cell>,
    pub(crate) handle: Arc<Handle>,
}

/// What [`Watching`] delivers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// What the holder may think.
    pub state: State,
    /// The token to write under.
    pub token: Token,
    /// The earliest and the latest end.
    pub deadline: Deadline,
    /// A planned transfer or a pre-emption has begun: finish before then, and give the lease back.
    pub draining: Option<Instant>,
}

/// Without the token's text: it must not reach a log.
impl fmt::Debug for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.token.number.get();
        f.debug_struct("Sight").field("state", &self.state).field("number", &number).finish_non_exhaustive()
    }
}

/// How a lease is handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandOver {
    /// To whom, by holder name, if not to the first waiter.
    pub to: Option<String>,
    /// Gap or overlap, if not as the charter says.
    pub style: Option<Style>,
    /// How long this holder may drain, if not as the charter says.
    pub drain: Option<Duration>,
}

impl Hold {
    /// The resource.
    pub fn resource(&self) -> &str {
        &self.cell.resource
    }

    /// The id of this hold.
    pub fn lease(&self) -> LeaseId {
        self.cell.lease
    }

    /// The token's text: what fences take. Where the charter raises it on renewal, [`Hold::watch`] tells the newest.
    pub fn token(&self) -> String {
        self.cell.view().token.to_string()
    }

    /// The token's number, for checks written by hand.
    pub fn token_number(&self) -> Number {
        self.cell.view().token.number
    }

    /// What the holder may think now, by its own clock.
    pub fn state(&self) -> State {
        self.state_of(&self.cell.view())
    }

    /// Whether work may go on now.
    pub fn is_held(&self) -> bool {
        self.state() == State::Held
    }

    /// The earliest and the latest end, on the machine's boot clock.
    pub fn deadline(&self) -> Deadline {
        self.cell.view().deadline
    }

    /// How long work may go on if nothing more is heard.
    pub fn left(&self) -> Duration {
        let until = self.cell.view().deadline.earliest;
        Duration::from_nanos(until.0.saturating_sub(self.handle.clock.now().0))
    }

    /// By when a planned transfer or a pre-emption wants this holder to be done, if one has begun.
    pub fn draining(&self) -> Option<Instant> {
        self.cell.view().draining
    }

    /// Waits until a planned transfer or a pre-emption wants this holder to finish, or the lease is lost.
    pub async fn leaving(&self) {
        self.cell.until(|view| (view.draining.is_some() || view.loss.is_some()).then_some(())).await;
    }

    /// Waits until the lease is lost, by the grantor's word.
    pub async fn lost(&self) -> Loss {
        self.cell.until(|view| view.loss).await
    }

    /// Waits until work must stop: suspended or lost, even if it was resumed meanwhile.
    pub async fn stopped(&self) -> State {
        let before = self.cell.view().suspensions;
        self.stopped_since(before).await
    }

    pub(crate) async fn stopped_since(&self, suspensions: u32) -> State {
        self.cell
            .until(|view| match self.state_of(view) {
                State::Held if view.suspensions == suspensions => None,
                State::Held => Some(State::Suspended),
                stopped => Some(stopped),
            })
            .await
    }

    /// Every renewal and every change, beginning with how it stands.
    pub fn watch(&self) -> Watching {
        Watching { hold: self.clone(), told: None }
    }

    /// Asks the grantor whether the lease is current at a moment inside of this call. An optimisation, never safety.
    pub async fn confirm(&self) -> Result<(), Error> {
        self.call(Call::Confirm, |_| Ok(())).await.map_err(Failure::into_error)
    }

    /// Raises the token and returns the new one's text. What was written under the old one passes no more once the new one
    /// was shown.
    pub async fn rotate(&self) -> Result<String, Failure<()>> {
        self.call(Call::Rotate, |_| Ok(())).await?;
        Ok(self.token())
    }

    /// Writes small state through the journal, only if the lease is current: the write is the check. Returns the revision.
    pub async fn put(&self, key: &str, bytes: &[u8]) -> Result<u64, Failure<u64>> {
        self.store(key, Some(bytes), None).await
    }

    /// The same, only if the key stands at this revision. Absent bytes delete.
    pub async fn store(&self, key: &str, bytes: Option<&[u8]>, expect: Option<u64>) -> Result<u64, Failure<u64>> {
        let put = Call::Put { key: key.to_owned(), bytes: bytes.map(Into::into), expect };
        self.call(put, |given| match given {
            Given::Answer(Answer::Stored { revision }) => Ok(revision),
            _ => Err(Error::garbled("another answer than to a write")),
        })
        .await
    }

    /// Tells how far the work is. It must rise; where progress is asked for, a lease without it ends as stalled (G1).
    /// Nothing is waited for: the next renewal carries it, at once if there is room for one.
    pub fn progress(&self, at: u64) {
        if self.cell.progress(at) {
            self.handle.put(Ask::Progress { cell: self.cell.clone() });
        }
    }

    /// Begins a planned transfer. The lease goes on until it drained: finish, then release. In an overlap the successor is
    /// granted at once and claims when this holder is done.
    pub async fn hand_off(&self, how: HandOver) -> Result<(), Failure<()>> {
        let drain_ms = how.drain.map(|drain| u64::try_from(drain.as_millis()).unwrap_or(u64::MAX));
        self.call(Call::HandOff { to: how.to, style: how.style, drain_ms }, |_| Ok(())).await
    }

    /// Waits until the targets may be claimed: at once, unless the predecessor of an overlap still drains. Then claim, read
    /// again, and write, in this order (H2). An error says that the lease was lost before.
    pub async fn may_claim(&self) -> Result<Claim, Error> {
        let claim = |view: &View| match (view.loss, view.overlap) {
            (Some(loss), _) => Some(Err(lost(loss))),
            (None, Some(overlap)) => overlap.succession().claim(self.handle.clock.now()).ok().map(Ok),
            (None, None) => {
                let mut alone = Succession::new(Instant::default(), 0, RateError::default());
                alone.told_over();
                alone.claim(self.handle.clock.now()).ok().map(Ok)
            }
        };
        self.cell.until(claim).await
    }

    pub(crate) async fn call<T>(&self, what: Call, read: fn(Given) -> Result<T, Error>) -> Result<T, Failure<T>> {
        let cell = self.cell.clone();
        let asked = self.handle.ask(|by, _| Ask::Call { by, cell, what }, read).await?;
        asked.outcome().await
    }

    pub(crate) fn state_of(&self, view: &View) -> State {
        match view.loss {
            Some(loss) => State::Lost(loss),
            None if view.working && self.handle.clock.now() < view.deadline.earliest => State::Held,
            None => State::Suspended,
        }
    }
}

/// Without the token: it must not reach a log.
impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("resource", &self.resource()).field("state", &self.state()).finish()
    }
}

/// A loss as an error, in the words of its code.
pub(crate) fn lost(loss: Loss) -> Error {
    use leasehold_core::refusal::{NotCurrent, Refusal};
    match loss {
        Loss::Ended(reason) => Error::from(&Refusal::Lost(reason)),
        Loss::NotCurrent => Error::from(&Refusal::NotCurrent(NotCurrent::Unknown)),
    }
}

/// A lease as it goes on. What is not read in time is left out; the newest is never.
#[derive(Debug)]
pub struct Watching {
    hold: Hold,
    told: Option<u64>,
}

impl Watching {
    /// How it stands, first at once and then whenever it was renewed or has changed. Nothing follows a loss.
    pub async fn next(&mut self) -> Option<Sight> {
        let told = self.told;
        if told == Some(u64::MAX) {
            return None;
        }
        let view = self.hold.cell.until(|view| (told != Some(view.version)).then_some(*view)).await;
        self.told = Some(if view.loss.is_some() { u64::MAX } else { view.version });
        let View { token, deadline, draining, .. } = view;
        Some(Sight { state: self.hold.state_of(&view), token, deadline, draining })
    }
}
