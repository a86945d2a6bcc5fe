//! Requests under way: each has one number for all its retries, and nothing below the lowest open one is kept anywhere.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Weak;

use leasehold_core::command::{Command, Known};
use leasehold_core::holder::Attempt;
use leasehold_core::ids::SessionId;
use leasehold_core::limits::REQUESTS_PER_SESSION;
use leasehold_core::time::Instant;
use leasehold_wire::v1::request::Ask as Message;
use leasehold_wire::{ASK_BYTES, ASK_FIELDS, v1};

use super::inbox::{By, Given, Wanted};
use super::{Handle, Reply};
use crate::stream::Batch;

/// Numbers that may lie between the lowest open request and the next: what a grantor remembers of one session, but for a
/// few that are left to take back the lowest one.
const WINDOW: u64 = REQUESTS_PER_SESSION as u64 - 16;
/// Numbers of requests that a grantor need not remember, apart from the others.
const PLAIN: u64 = 1 << 62;
/// Waits that make room for others at each look, where there are more than a grantor remembers.
const TAKING_TURNS: usize = 16;

/// A request on its way, kept until it is answered.
pub(super) struct Pending {
    /// The key under which a task waits for it; zero if nobody does.
    pub key: u64,
    pub message: Message,
    pub purpose: Purpose,
    pub patience: Instant,
    /// When it was last sent, on the stream that is open now.
    pub sent: Option<Instant>,
    /// It waits in a queue of the grantor's.
    pub waits: bool,
    pub told_unknown: bool,
    /// Taken back because nobody waits for it any more.
    pub cancelled: bool,
    /// Taken back because it held others up; it is asked for again under a new number when there is room.
    pub moved: bool,
}

/// What a request is for.
pub(super) enum Purpose {
    Acquire(Box<Acquiring>),
    Call { by: By, place: u32, life: u32 },
    Say { by: By, handle: Weak<Handle> },
    Tell,
    Release { tell: Option<Reply<Given>>, resource: Box<str> },
    Cancel,
    Renew(Renewing),
    Session(Attempt, Known),
    Reconcile,
    Close(Option<Reply<Given>>),
}

/// A lease that is asked for.
pub(super) struct Acquiring {
    pub by: By,
    pub wanted: Wanted,
    /// Weak, or a wish that nobody can be asked for would keep its thread for ever.
    pub handle: Weak<Handle>,
    pub actor: Option<u32>,
    pub born: Instant,
}

/// One renewal under way: whose, and which.
#[derive(Clone, Copy)]
pub(super) struct Renewing {
    pub place: u32,
    pub life: u32,
    pub attempt: Attempt,
    /// It raises the token: a retry is the same request, or it would show a token that is gone.
    pub raises: bool,
}

#[derive(Default)]
pub(super) struct Requests {
    /// Not sent yet, and without a number: whatever is dropped here never happened.
    queue: VecDeque<Pending>,
    plain: VecDeque<Pending>,
    /// Waits that were taken back to make room.
    parked: VecDeque<Pending>,
    sent: BTreeMap<u64, Pending>,
    /// How many of those wait in a queue of the grantor's.
    waiting: usize,
    /// To be sent once more on a new stream.
    again: VecDeque<u64>,
    keys: HashMap<u64, u64>,
    /// Waits to be taken back, the lowest first.
    cancels: BTreeSet<u64>,
    next: u64,
    next_plain: u64,
}

impl Requests {
    pub(super) fn put(&mut self, pending: Pending) {
        let to = if is_plain(&pending.message) {
            &mut self.plain
        } else if pending.moved {
            &mut self.parked
        } else {
            &mut self.queue
        };
        to.push_back(pending);
    }

    /// Sends one request in a batch of its own, now.
    pub(super) fn send_alone(&mut self, now: Instant, message: Message, purpose: Purpose) -> Batch {
        self.next += 1;
        let request = v1::Request { sequence: self.next, ask: Some(message.clone()) };
        self.left(now, self.next, Pending::nobodys(message, purpose));
        let mut batch = Batch::from(self.lowest());
        batch.push(request);
        batch
    }

    /// Adds to a batch what there is to send and room for.
    pub(super) fn fill(&mut self, now: Instant, session: SessionId, batch: &mut Batch) {
        let mut room = Room { bytes: ASK_BYTES / 2, count: ASK_FIELDS / 2 };
        while let Some(sequence) = self.again.front().copied() {
            // What was answered meanwhile is not sent again.
            if self.sent.get(&sequence).is_some_and(|pending| !room.take(batch, sequence, &pending.message)) {
                return;
            }
            self.again.pop_front();
            if let Some(pending) = self.sent.get_mut(&sequence) {
                self.waiting -= usize::from(std::mem::replace(&mut pending.waits, false));
                pending.sent = Some(now);
            }
        }
        while let Some(pending) = self.plain.front() {
            let sequence = PLAIN + self.next_plain + 1;
            if !room.take(batch, sequence, &pending.message) {
                return;
            }
            self.next_plain += 1;
            let pending = self.plain.pop_front().expect("just read");
            self.left(now, sequence, pending);
        }
        self.make_way();
        while let Some(target) = self.next_cancel() {
            let cancel = Command::Cancel { session, sequence: target };
            let pending =
                Pending::nobodys(leasehold_wire::ask(&cancel).expect("a stream asks for it"), Purpose::Cancel);
            if !room.take(batch, self.next + 1, &pending.message) {
                return;
            }
            self.cancels.remove(&target);
            self.next += 1;
            self.left(now, self.next, pending);
        }
        while self.has_window() {
            let from = if self.queue.is_empty() { &mut self.parked } else { &mut self.queue };
            let Some(pending) = from.front() else { return };
            if !room.take(batch, self.next + 1, &pending.message) {
                return;
            }
            self.next += 1;
            let pending = from.pop_front().expect("just read");
            self.left(now, self.next, pending);
        }
    }

    pub(super) fn has_window(&self) -> bool {
        self.next + 1 - self.lowest() < WINDOW
    }

    /// A wait that is older than all that a grantor remembers holds everything up. It is taken back and asked for again: it
    /// loses its place, and the others go on.
    fn make_way(&mut self) {
        if self.has_window() || (self.queue.is_empty() && self.cancels.is_empty()) {
            return;
        }
        let lowest = self.lowest();
        if let Some(pending) = self.sent.get_mut(&lowest).filter(|pending| pending.waits)
            && !pending.cancelled
            && !std::mem::replace(&mut pending.moved, true)
        {
            self.cancels.insert(lowest);
        }
    }

    /// Where there are more waits than a grantor remembers, they take turns: whoever is parked may be able to run by now.
    pub(super) fn take_turns(&mut self) {
        if self.parked.is_empty() || self.has_window() {
            return;
        }
        let waits = self.sent.iter_mut().filter(|(_, pending)| pending.waits && !pending.cancelled && !pending.moved);
        for (sequence, pending) in waits.take(TAKING_TURNS.min(self.parked.len())) {
            pending.moved = true;
            self.cancels.insert(*sequence);
        }
    }

    /// The next wait to be taken back. The numbers beyond the window are for the lowest alone, which frees at least one.
    fn next_cancel(&self) -> Option<u64> {
        let target = *self.cancels.first()?;
        (self.has_window() || target == self.lowest()).then_some(target)
    }

    fn left(&mut self, now: Instant, sequence: u64, mut pending: Pending) {
        (pending.sent, pending.moved) = (Some(now), false);
        if pending.key != 0 {
            self.keys.insert(pending.key, sequence);
        }
        self.sent.insert(sequence, pending);
    }

    /// The lowest number whose answer is still waited for.
    pub(super) fn lowest(&self) -> u64 {
        self.sent.keys().next().copied().filter(|first| *first < PLAIN).unwrap_or(self.next + 1)
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&Pending> {
        self.sent.get(&sequence)
    }

    /// The grantor has put a request in a queue.
    pub(super) fn waits(&mut self, sequence: u64) {
        if let Some(pending) = self.sent.get_mut(&sequence) {
            self.waiting += usize::from(!std::mem::replace(&mut pending.waits, true));
        }
    }

    /// The request under a number, which is answered now.
    pub(super) fn take(&mut self, sequence: u64) -> Option<Pending> {
        let pending = self.sent.remove(&sequence)?;
        self.waiting -= usize::from(pending.waits);
        self.keys.remove(&pending.key);
        self.cancels.remove(&sequence);
        Some(pending)
    }

    /// Everything is to be sent once more; renewals are not, their leases ask anew, and a list would be an old one.
    pub(super) fn broken(&mut self) -> Vec<Pending> {
        let anew = |pending: &Pending| match &pending.purpose {
            Purpose::Renew(one) => !one.raises,
            Purpose::Session(..) | Purpose::Reconcile => true,
            _ => false,
        };
        let mut gone: Vec<Pending> = self.sent.extract_if(.., |_, pending| anew(pending)).map(|(_, old)| old).collect();
        for from in [&mut self.queue, &mut self.plain] {
            let (old, kept) = std::mem::take(from).into_iter().partition(|pending| anew(pending));
            *from = kept;
            gone.append(&mut Vec::from(old));
        }
        self.again = self.sent.keys().copied().collect();
        gone
    }

    /// The session is over: its numbers mean nothing any more. What was sent, and what was not.
    pub(super) fn session_over(&mut self) -> (Vec<Pending>, VecDeque<Pending>) {
        let sent = std::mem::take(&mut self.sent).into_values().collect();
        let mut unsent = std::mem::take(&mut self.plain);
        unsent.append(&mut self.queue);
        unsent.append(&mut self.parked);
        *self = Self::default();
        (sent, unsent)
    }

    /// Takes back a request that nobody waits for: one that never left comes back, a wait is cancelled.
    pub(super) fn dropped(&mut self, key: u64) -> Option<Pending> {
        if let Some(sequence) = self.keys.get(&key).copied() {
            let pending = self.sent.get_mut(&sequence)?;
            let first =
                matches!(pending.purpose, Purpose::Acquire(_)) && !std::mem::replace(&mut pending.cancelled, true);
            if first && !pending.moved {
                self.cancels.insert(sequence);
            }
            return None;
        }
        let of = |from: &mut VecDeque<Pending>| {
            let at = from.iter().position(|pending| pending.key == key)?;
            from.remove(at)
        };
        of(&mut self.queue).or_else(|| of(&mut self.plain)).or_else(|| of(&mut self.parked))
    }

    /// The request that a task waits for, sent or not.
    pub(super) fn by_key(&mut self, key: u64) -> Option<&mut Pending> {
        match self.keys.get(&key) {
            Some(sequence) => self.sent.get_mut(sequence),
            None => {
                let unsent = self.queue.iter_mut().chain(&mut self.plain).chain(&mut self.parked);
                unsent.into_iter().find(|pending| pending.key == key)
            }
        }
    }

    /// Those whose patience is over: unsent ones are taken out, sent ones are shown with their number.
    pub(super) fn impatient(&mut self, now: Instant, mut show: impl FnMut(u64, &mut Pending)) -> Vec<Pending> {
        let late = |pending: &Pending| pending.key != 0 && now >= pending.patience && !pending.told_unknown;
        let mut unsent: Vec<Pending> = Vec::new();
        for from in [&mut self.queue, &mut self.plain, &mut self.parked] {
            if from.iter().any(late) {
                let (over, kept) = std::mem::take(from).into_iter().partition(|pending| late(pending));
                *from = kept;
                unsent.append(&mut Vec::from(over));
            }
        }
        self.sent
            .iter_mut()
            .filter(|(_, pending)| late(pending))
            .for_each(|(sequence, pending)| show(*sequence, pending));
        unsent
    }

    /// Whether an answer is awaited that should come at once.
    pub(super) fn expects(&self) -> bool {
        self.sent.len() > self.waiting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.queue.is_empty() && self.plain.is_empty() && self.parked.is_empty()
    }
}

impl Pending {
    /// A request that no task waits for.
    pub(super) fn nobodys(message: Message, purpose: Purpose) -> Self {
        let patience = Instant(u64::MAX);
        let (waits, told_unknown, cancelled, moved) = (false, false, false, false);
        Self { key: 0, message, purpose, patience, sent: None, waits, told_unknown, cancelled, moved }
    }
}

/// What a message still takes.
struct Room {
    bytes: usize,
    count: usize,
}

impl Room {
    /// Adds a request, if it fits; the first always does.
    fn take(&mut self, batch: &mut Batch, sequence: u64, message: &Message) -> bool {
        let request = v1::Request { sequence, ask: Some(message.clone()) };
        let weight = request.weight();
        if self.count < ASK_FIELDS / 2 && (self.count == 0 || weight > self.bytes) {
            return false;
        }
        self.bytes = self.bytes.saturating_sub(weight);
        self.count -= 1;
        batch.push(request);
        true
    }
}

/// What a grantor does not remember, because a retry can do no harm; a report that comes twice counts twice.
const fn is_plain(message: &Message) -> bool {
    matches!(message, Message::RenewSession(_) | Message::Confirm(_) | Message::ShowToken(_) | Message::Report(_))
}
