//! Requests that wait for a reply, and the destination of each reply.
//!
//! The driver calls [`PendingReplies::deliver`] only after the journal has made durable what the reply depends on. A request keeps
//! one slot from registration to its final reply; a wait first gets an interim reply and keeps its slot.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use leasehold_core::command::{Answer, LeaseSelector, Reply, Request, SessionEvent};
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::{Refusal, RefusalSubject};
use leasehold_core::token::Number;
use leasehold_wire::{Code, RenewBatchReply, v1};

use crate::cancellation::{CancellationSink, UndeliveredGrant};
use crate::identity::Identity;
use crate::request::{
    DurableReply, Outbox, Outgoing, RenewalBatch, ReplyTo, ReplyTokens, RequestPayload, RequestTiming,
};

/// Below this number of sessions, entries of closed connections are not swept.
const MIN_SWEEP: usize = 256;

/// All requests of this grantor that have not received their final reply.
pub struct PendingReplies {
    /// Releases grants whose callers have disconnected.
    cancellations: Arc<dyn CancellationSink>,
    slots: Vec<Option<Pending>>,
    free_slots: Vec<usize>,
    /// The slot that receives the outcome of a wait, by session and sequence of the request. A retry replaces the earlier slot.
    wait_listeners: HashMap<(SessionId, u64), u64>,
    /// The connection that currently owns each session.
    session_outboxes: BTreeMap<SessionId, Arc<Outbox>>,
    /// Number of sessions at which entries of closed connections are swept.
    sweep_at: usize,
    /// Connections to wake at the end of this turn.
    dirty: Vec<Arc<Outbox>>,
    /// Journal position that the replies of this turn depend on.
    position: u64,
}

enum Pending {
    Request(PendingReply),
    Renewals(PendingRenewals),
}

struct PendingReply {
    to: ReplyTo,
    body: RequestPayload,
    /// The id under which it can be retried.
    id: Option<(SessionId, u64)>,
    timing: RequestTiming,
    identity: Arc<Identity>,
    /// Tokens that the answer does not contain.
    tokens: Option<Box<ReplyTokens>>,
}

/// A batch of renewals, whose replies arrive one after the other and are sent together.
struct PendingRenewals {
    to: Arc<Outbox>,
    numbers: Vec<u64>,
    result: RenewBatchReply,
    /// Which renewal the next reply belongs to.
    index: usize,
    identity: Arc<Identity>,
    arrived: Instant,
}

impl PendingReplies {
    /// Without requests. Grants that cannot be delivered go to `cancellations`.
    pub fn new(cancellations: Arc<dyn CancellationSink>) -> Self {
        Self {
            cancellations,
            slots: Vec::new(),
            free_slots: Vec::new(),
            wait_listeners: HashMap::new(),
            session_outboxes: BTreeMap::new(),
            sweep_at: 0,
            dirty: Vec::new(),
            position: 0,
        }
    }

    /// Registers a request and returns its slot, which the core echoes in its reply.
    pub fn register(
        &mut self,
        to: ReplyTo,
        request: &Request<'_>,
        body: RequestPayload,
        identity: Arc<Identity>,
        arrived: Instant,
    ) -> u64 {
        let id = request.id.map(|id| (id.session, id.sequence));
        let timing = RequestTiming::since(arrived);
        self.insert(Pending::Request(PendingReply { to, body, id, timing, identity, tokens: None }))
    }

    /// Registers a batch of renewals and returns its slot, which the core echoes in each of the replies.
    pub fn register_renewals(&mut self, batch: &RenewalBatch) -> u64 {
        let numbers: Vec<u64> = batch.leases.iter().map(|(_, number)| *number).collect();
        let result = RenewBatchReply::new(batch.number, numbers.len());
        let (to, identity, arrived) = (batch.to.clone(), batch.identity.clone(), batch.arrived);
        self.insert(Pending::Renewals(PendingRenewals { to, numbers, result, index: 0, identity, arrived }))
    }

    /// The body of the request in a slot.
    pub fn body(&self, slot: u64) -> Option<&RequestPayload> {
        match self.slots.get(slot as usize)?.as_ref()? {
            Pending::Request(request) => Some(&request.body),
            Pending::Renewals(_) => None,
        }
    }

    /// The body of the request in a slot, if it acquires a lease for the session's own holder and so does not name it.
    pub fn unnamed_acquire(&mut self, slot: u64) -> Option<&mut RequestPayload> {
        match self.slots.get_mut(slot as usize)?.as_mut()? {
            Pending::Request(request) if request.body.holder().is_empty() => Some(&mut request.body),
            _ => None,
        }
    }

    /// The lease that the request in a slot acts on, if its token is not the one with this number.
    pub fn raised_lease(&self, slot: u64, number: Number) -> Option<LeaseSelector<'_>> {
        self.body(slot)?.raised_lease(number)
    }

    /// The lease that the request in a slot renews or whose token it raises.
    pub fn renewed_lease(&self, slot: u64) -> Option<LeaseSelector<'_>> {
        self.body(slot)?.renewed_lease()
    }

    /// Sets the tokens that the answer to the request in a slot does not contain.
    pub fn set_tokens(&mut self, slot: u64, tokens: ReplyTokens) {
        if let Some(Some(Pending::Request(request))) = self.slots.get_mut(slot as usize) {
            request.tokens = Some(Box::new(tokens));
        }
    }

    /// Who sent the request in a slot.
    pub fn identity(&self, slot: u64) -> Option<&Arc<Identity>> {
        match self.slots.get(slot as usize)?.as_ref()? {
            Pending::Request(request) => Some(&request.identity),
            Pending::Renewals(renewals) => Some(&renewals.identity),
        }
    }

    /// Whether a slot holds renewals.
    pub fn is_renewal(&self, slot: u64) -> bool {
        match self.slots.get(slot as usize).and_then(Option::as_ref) {
            Some(Pending::Renewals(_)) => true,
            Some(Pending::Request(request)) => request.body.is_renewal(),
            None => false,
        }
    }

    /// Whether a slot belongs to a unary caller that has disconnected.
    pub fn is_disconnected(&self, slot: u64) -> bool {
        match self.slots.get(slot as usize) {
            Some(Some(Pending::Request(PendingReply { to: ReplyTo::Caller(caller), .. }))) => caller.is_closed(),
            _ => false,
        }
    }

    /// Removes a request that the core never received.
    pub fn discard(&mut self, slot: u64) {
        self.remove(slot);
    }

    /// The number of occupied slots.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    /// Whether no request waits for a reply.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn insert(&mut self, pending: Pending) -> u64 {
        let at = match self.free_slots.pop() {
            Some(at) => {
                self.slots[at] = Some(pending);
                at
            }
            None => {
                self.slots.push(Some(pending));
                self.slots.len() - 1
            }
        };
        at as u64
    }

    fn remove(&mut self, slot: u64) -> Option<Pending> {
        let removed = self.slots.get_mut(slot as usize).and_then(Option::take);
        self.free_slots.extend(removed.is_some().then_some(slot as usize));
        removed
    }

    /// Sets the journal position that subsequent replies depend on.
    pub fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    /// Delivers one reply. The records it depends on must be durable.
    pub fn deliver(&mut self, reply: Reply) {
        let at = reply.tag as usize;
        let Some(pending) = self.slots.get_mut(at).and_then(Option::take) else {
            return;
        };
        match pending {
            Pending::Renewals(mut renewals) => {
                let index = renewals.index;
                renewals.result.record(index, renewals.numbers[index], &reply.answer);
                renewals.index += 1;
                if renewals.result.is_complete() {
                    let PendingRenewals { to, result, arrived, .. } = renewals;
                    to.push(Outgoing::Renewed(result.into_message(), arrived), self.position);
                    self.mark_dirty(to);
                    self.free_slots.push(at);
                } else {
                    self.slots[at] = Some(Pending::Renewals(renewals));
                }
            }
            Pending::Request(request) => {
                let is_interim = matches!(reply.answer, Answer::Waiting { .. });
                match request.id {
                    Some(id) if is_interim => self.replace_wait_listener(id, reply.tag, &request.to),
                    Some(id) if self.wait_listeners.get(&id) == Some(&reply.tag) => {
                        self.wait_listeners.remove(&id);
                    }
                    _ => {}
                }
                match self.deliver_to(request, reply.answer, is_interim) {
                    Some(request) => self.slots[at] = Some(Pending::Request(request)),
                    None => self.free_slots.push(at),
                }
            }
        }
    }

    /// Makes `slot` the listener of a wait. An earlier listener on another connection gets `CONFLICT`.
    fn replace_wait_listener(&mut self, id: (SessionId, u64), slot: u64, to: &ReplyTo) {
        let previous = self.wait_listeners.insert(id, slot).filter(|previous| *previous != slot);
        let Some(previous) = previous else { return };
        // A unary caller sees its channel drop.
        if let Some(Pending::Request(PendingReply {
            to: ReplyTo::Stream(outbox, number), body, timing, identity, ..
        })) = self.remove(previous)
            && !matches!(to, ReplyTo::Stream(current, _) if Arc::ptr_eq(current, &outbox))
        {
            let answer = Answer::Refused(Refusal::Conflict(RefusalSubject::Request));
            let position = self.position;
            let reply = DurableReply { answer, body, identity, position, timing, tokens: None, undelivered: None };
            outbox.push(Outgoing::Answer(number, reply), self.position);
            self.mark_dirty(outbox);
        }
    }

    /// Sends a reply. Returns the request if its final reply is still to come.
    fn deliver_to(&mut self, request: PendingReply, answer: Answer, is_interim: bool) -> Option<PendingReply> {
        let position = self.position;
        let PendingReply { to, body, id, mut timing, identity, tokens } = request;
        if is_interim {
            timing.waiting_since.get_or_insert_with(Instant::now);
        }
        match to {
            // A unary caller receives the end of a wait, not its beginning.
            ReplyTo::Caller(caller) if is_interim => {
                Some(PendingReply { to: ReplyTo::Caller(caller), body, id, timing, identity, tokens })
            }
            ReplyTo::Caller(caller) => {
                // With a request id the caller can retry, so its grant is not released.
                let undelivered = if id.is_none() { UndeliveredGrant::of(&answer, &self.cancellations) } else { None };
                let _ = caller.send(DurableReply { answer, body, identity, position, timing, tokens, undelivered });
                None
            }
            ReplyTo::Stream(outbox, number) => {
                if let (Answer::Session(grant), RequestPayload::Open(..) | RequestPayload::Resume(..)) =
                    (&answer, &body)
                {
                    self.bind_session(grant.session, outbox.clone());
                }
                self.mark_dirty(outbox.clone());
                let reply = DurableReply {
                    answer,
                    body: body.clone(),
                    identity: identity.clone(),
                    position,
                    timing,
                    tokens,
                    undelivered: None,
                };
                outbox.push(Outgoing::Answer(number, reply), position);
                let to = ReplyTo::Stream(outbox, number);
                is_interim.then_some(PendingReply { to, body, id, timing, identity, tokens: None })
            }
        }
    }

    /// Binds a session to the connection that opened or resumed it last; the previous connection is closed.
    fn bind_session(&mut self, session: SessionId, outbox: Arc<Outbox>) {
        if outbox.is_closed() {
            return;
        }
        if let Some(previous) = self.session_outboxes.insert(session, outbox.clone())
            && !Arc::ptr_eq(&previous, &outbox)
        {
            previous.push(Outgoing::Close(Box::new(resumed_elsewhere())), 0);
            self.mark_dirty(previous);
        }
        // The next sweep waits until the number of live sessions has doubled.
        if self.session_outboxes.len() >= self.sweep_at.max(MIN_SWEEP) {
            self.session_outboxes.retain(|_, outbox| !outbox.is_closed());
            self.sweep_at = 2 * self.session_outboxes.len();
        }
    }

    /// Sends an event to the connection of a session, if it has one.
    pub fn notify(&mut self, session: SessionId, event: SessionEvent) {
        let Some(outbox) = self.session_outboxes.get(&session).cloned() else {
            return;
        };
        if outbox.is_closed() {
            self.session_outboxes.remove(&session);
            return;
        }
        outbox.push(Outgoing::Event(event, self.position), self.position);
        self.mark_dirty(outbox);
    }

    fn mark_dirty(&mut self, outbox: Arc<Outbox>) {
        let is_last = self.dirty.last().is_some_and(|last| Arc::ptr_eq(last, &outbox));
        if !is_last {
            self.dirty.push(outbox);
        }
    }

    /// Wakes every connection that received a message in this turn.
    pub fn wake_connections(&mut self) {
        self.dirty.drain(..).for_each(|outbox| outbox.wake());
    }

    /// Closes all connections with `reason`. Unary callers see their channel drop.
    pub fn close_all(&mut self, reason: &v1::Problem) {
        let pending = self.slots.drain(..).flatten().filter_map(|pending| match pending {
            Pending::Request(PendingReply { to: ReplyTo::Stream(outbox, _), .. })
            | Pending::Renewals(PendingRenewals { to: outbox, .. }) => Some(outbox),
            Pending::Request(PendingReply { to: ReplyTo::Caller(_), .. }) => None,
        });
        let sessions = std::mem::take(&mut self.session_outboxes);
        for outbox in pending.chain(sessions.into_values()) {
            outbox.send(Outgoing::Close(Box::new(reason.clone())));
        }
        self.free_slots.clear();
        self.wait_listeners.clear();
    }
}

/// Another connection resumed the session.
fn resumed_elsewhere() -> v1::Problem {
    let problem = v1::Problem::of(Code::Conflict, "another connection resumed the session; use that connection");
    v1::Problem { subject: "session".into(), ..problem }
}
