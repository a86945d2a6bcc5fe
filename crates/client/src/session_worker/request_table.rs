//! Open requests of the session. Each keeps one sequence number for all its retries; the grantor forgets everything below the
//! lowest open number.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Weak;

use leasehold_core::command::{Command, HeldDigest};
use leasehold_core::holder::RenewalAttempt;
use leasehold_core::ids::SessionId;
use leasehold_core::limits::REQUESTS_PER_SESSION;
use leasehold_core::time::Instant;
use leasehold_core::trace_context::TraceContext;
use leasehold_wire::v1::request::Operation as Message;
use leasehold_wire::{MAX_REQUEST_BYTES, MAX_REQUEST_FIELDS, v1};

use super::WorkerHandle;
use super::job_queue::{AcquireSpec, ReplySlot};
use super::job_result::Response;
use super::reply_channel::ReplySender;
use crate::session_stream::OutgoingBatch;

/// Largest distance from the lowest open sequence number to the next: what a grantor remembers of one session, except for a
/// few numbers that are reserved for canceling the lowest one.
const WINDOW: u64 = REQUESTS_PER_SESSION as u64 - 16;
/// Start of the sequence numbers of requests that the grantor does not remember.
const UNTRACKED: u64 = 1 << 62;
/// Waits that yield to others per sweep, if there are more than a grantor remembers.
const WAITS_PER_ROTATION: usize = 16;

/// A request without a reply.
pub(super) struct UnansweredRequest {
    /// Key of the waiting task; zero if no task waits.
    pub key: u64,
    pub message: Message,
    /// The trace that it belongs to.
    pub trace: Option<TraceContext>,
    pub purpose: RequestPurpose,
    pub timeout_at: Instant,
    /// When it was last sent on the current stream.
    pub sent: Option<Instant>,
    /// The grantor has put it into a wait queue.
    pub waiting: bool,
    /// The caller knows that the outcome is unknown.
    pub reported_indeterminate: bool,
    /// Its caller stopped waiting.
    pub canceled: bool,
    /// Canceled because it blocked the window; it is sent again under a new number when there is room.
    pub requeued: bool,
}

/// What to do with the reply to a request.
pub(super) enum RequestPurpose {
    Acquire(Box<AcquireAttempt>),
    LeaseCall { slot: ReplySlot, index: u32, serial: u32 },
    SessionCall { slot: ReplySlot, worker: Weak<WorkerHandle> },
    Detached,
    Release { reply: Option<ReplySender<Response>>, resource: Box<str> },
    Cancel,
    Renew(LeaseRenewal),
    RenewSession(RenewalAttempt, HeldDigest),
    Reconcile,
    Close(Option<ReplySender<Response>>),
}

/// An acquire request and its caller.
pub(super) struct AcquireAttempt {
    pub slot: ReplySlot,
    pub spec: AcquireSpec,
    /// Weak: a request that no server answers must not keep the worker alive.
    pub worker: Weak<WorkerHandle>,
    pub actor: Option<u32>,
    pub submitted_at: Instant,
}

/// A renewal without a reply: index and serial of its lease, and the attempt.
#[derive(Clone, Copy)]
pub(super) struct LeaseRenewal {
    pub index: u32,
    pub serial: u32,
    pub attempt: RenewalAttempt,
    /// It raises the token: a retry must be the same request, because its token is no longer current.
    pub raises: bool,
}

/// All open requests of the session.
#[derive(Default)]
pub(super) struct RequestTable {
    /// Not sent yet and without a number: a request that is dropped here was never executed.
    queue: VecDeque<UnansweredRequest>,
    untracked: VecDeque<UnansweredRequest>,
    /// Waits that were canceled to make room.
    parked: VecDeque<UnansweredRequest>,
    sent: BTreeMap<u64, UnansweredRequest>,
    /// Number of sent requests that wait at the grantor.
    waiting: usize,
    /// Sequence numbers to send again on a new stream.
    resend: VecDeque<u64>,
    /// Sequence numbers of sent requests by the key of their caller.
    keys: HashMap<u64, u64>,
    /// Sequence numbers of waits to cancel.
    cancels: BTreeSet<u64>,
    next: u64,
    next_untracked: u64,
}

impl RequestTable {
    pub(super) fn push(&mut self, request: UnansweredRequest) {
        let to = if is_untracked(&request.message) {
            &mut self.untracked
        } else if request.requeued {
            &mut self.parked
        } else {
            &mut self.queue
        };
        to.push_back(request);
    }

    /// Makes a batch of one request, to be sent now.
    pub(super) fn single(&mut self, now: Instant, message: Message, purpose: RequestPurpose) -> OutgoingBatch {
        self.next += 1;
        let unanswered = UnansweredRequest::detached(message, purpose);
        let request = unanswered.encode(self.next);
        self.mark_sent(now, self.next, unanswered);
        let mut batch = OutgoingBatch::new(self.lowest());
        batch.push(request);
        batch
    }

    /// Fills a batch with requests, as far as its budget allows.
    pub(super) fn fill(&mut self, now: Instant, session: SessionId, batch: &mut OutgoingBatch) {
        let mut budget = BatchBudget { bytes: MAX_REQUEST_BYTES / 2, count: MAX_REQUEST_FIELDS / 2 };
        while let Some(sequence) = self.resend.front().copied() {
            // A request that was answered meanwhile is not sent again.
            if self.sent.get(&sequence).is_some_and(|request| !budget.push(batch, sequence, request)) {
                return;
            }
            self.resend.pop_front();
            if let Some(request) = self.sent.get_mut(&sequence) {
                self.waiting -= usize::from(std::mem::replace(&mut request.waiting, false));
                request.sent = Some(now);
            }
        }
        while let Some(request) = self.untracked.front() {
            let sequence = UNTRACKED + self.next_untracked + 1;
            if !budget.push(batch, sequence, request) {
                return;
            }
            self.next_untracked += 1;
            let request = self.untracked.pop_front().expect("just read");
            self.mark_sent(now, sequence, request);
        }
        self.requeue_oldest_wait();
        while let Some(target) = self.next_cancel() {
            let cancel = Command::Cancel { session, sequence: target };
            let request = UnansweredRequest::detached(
                leasehold_wire::encode_command(&cancel).expect("a stream request"),
                RequestPurpose::Cancel,
            );
            if !budget.push(batch, self.next + 1, &request) {
                return;
            }
            self.cancels.remove(&target);
            self.next += 1;
            self.mark_sent(now, self.next, request);
        }
        while self.has_window() {
            let from = if self.queue.is_empty() { &mut self.parked } else { &mut self.queue };
            let Some(request) = from.front() else { return };
            if !budget.push(batch, self.next + 1, request) {
                return;
            }
            self.next += 1;
            let request = from.pop_front().expect("just read");
            self.mark_sent(now, self.next, request);
        }
    }

    pub(super) fn has_window(&self) -> bool {
        self.next + 1 - self.lowest() < WINDOW
    }

    /// The oldest wait blocks the window once the grantor remembers nothing older. It is canceled and sent again later: it loses
    /// its queue position, and the other requests continue.
    fn requeue_oldest_wait(&mut self) {
        if self.has_window() || (self.queue.is_empty() && self.cancels.is_empty()) {
            return;
        }
        let lowest = self.lowest();
        if let Some(request) = self.sent.get_mut(&lowest).filter(|request| request.waiting)
            && !request.canceled
            && !std::mem::replace(&mut request.requeued, true)
        {
            self.cancels.insert(lowest);
        }
    }

    /// If there are more waits than a grantor remembers, they take turns: a parked one may be grantable by now.
    pub(super) fn rotate_waits(&mut self) {
        if self.parked.is_empty() || self.has_window() {
            return;
        }
        let waiting =
            self.sent.iter_mut().filter(|(_, request)| request.waiting && !request.canceled && !request.requeued);
        for (sequence, request) in waiting.take(WAITS_PER_ROTATION.min(self.parked.len())) {
            request.requeued = true;
            self.cancels.insert(*sequence);
        }
    }

    /// The next wait to cancel. Numbers beyond the window are only for the lowest request, whose end frees at least one.
    fn next_cancel(&self) -> Option<u64> {
        let target = *self.cancels.first()?;
        (self.has_window() || target == self.lowest()).then_some(target)
    }

    fn mark_sent(&mut self, now: Instant, sequence: u64, mut request: UnansweredRequest) {
        (request.sent, request.requeued) = (Some(now), false);
        if request.key != 0 {
            self.keys.insert(request.key, sequence);
        }
        self.sent.insert(sequence, request);
    }

    /// The lowest sequence number without a reply.
    pub(super) fn lowest(&self) -> u64 {
        self.sent.keys().next().copied().filter(|first| *first < UNTRACKED).unwrap_or(self.next + 1)
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&UnansweredRequest> {
        self.sent.get(&sequence)
    }

    /// The grantor has put a request into a wait queue.
    pub(super) fn mark_waiting(&mut self, sequence: u64) {
        if let Some(request) = self.sent.get_mut(&sequence) {
            self.waiting += usize::from(!std::mem::replace(&mut request.waiting, true));
        }
    }

    /// Removes the request that is answered now.
    pub(super) fn take(&mut self, sequence: u64) -> Option<UnansweredRequest> {
        let request = self.sent.remove(&sequence)?;
        self.waiting -= usize::from(request.waiting);
        self.keys.remove(&request.key);
        self.cancels.remove(&sequence);
        Some(request)
    }

    /// Schedules sent requests to be sent again. Removes and returns renewals, which their leases send again, and lease lists, which
    /// would be outdated.
    pub(super) fn stream_lost(&mut self) -> Vec<UnansweredRequest> {
        let obsolete = |request: &UnansweredRequest| match &request.purpose {
            RequestPurpose::Renew(one) => !one.raises,
            RequestPurpose::RenewSession(..) | RequestPurpose::Reconcile => true,
            _ => false,
        };
        let mut removed: Vec<UnansweredRequest> =
            self.sent.extract_if(.., |_, request| obsolete(request)).map(|(_, old)| old).collect();
        for from in [&mut self.queue, &mut self.untracked] {
            let (old, rest) = std::mem::take(from).into_iter().partition(|request| obsolete(request));
            *from = rest;
            removed.append(&mut Vec::from(old));
        }
        self.resend = self.sent.keys().copied().collect();
        removed
    }

    /// The session ended, and its sequence numbers with it. Returns the sent and the unsent requests.
    pub(super) fn session_ended(&mut self) -> (Vec<UnansweredRequest>, VecDeque<UnansweredRequest>) {
        let sent = std::mem::take(&mut self.sent).into_values().collect();
        let mut unsent = std::mem::take(&mut self.untracked);
        unsent.append(&mut self.queue);
        unsent.append(&mut self.parked);
        *self = Self::default();
        (sent, unsent)
    }

    /// The caller stopped waiting. Returns a request that was never sent; schedules the cancellation of a wait.
    pub(super) fn cancel(&mut self, key: u64) -> Option<UnansweredRequest> {
        if let Some(sequence) = self.keys.get(&key).copied() {
            let request = self.sent.get_mut(&sequence)?;
            let first = matches!(request.purpose, RequestPurpose::Acquire(_))
                && !std::mem::replace(&mut request.canceled, true);
            if first && !request.requeued {
                self.cancels.insert(sequence);
            }
            return None;
        }
        let remove = |from: &mut VecDeque<UnansweredRequest>| {
            let at = from.iter().position(|request| request.key == key)?;
            from.remove(at)
        };
        remove(&mut self.queue).or_else(|| remove(&mut self.untracked)).or_else(|| remove(&mut self.parked))
    }

    /// The request of a waiting task, sent or not.
    pub(super) fn by_key(&mut self, key: u64) -> Option<&mut UnansweredRequest> {
        match self.keys.get(&key) {
            Some(sequence) => self.sent.get_mut(sequence),
            None => {
                let unsent = self.queue.iter_mut().chain(&mut self.untracked).chain(&mut self.parked);
                unsent.into_iter().find(|request| request.key == key)
            }
        }
    }

    /// Requests that timed out: removes and returns unsent ones, and calls `sent` for the others.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        mut sent: impl FnMut(u64, &mut UnansweredRequest),
    ) -> Vec<UnansweredRequest> {
        let late = |request: &UnansweredRequest| {
            request.key != 0 && now >= request.timeout_at && !request.reported_indeterminate
        };
        let unsent = self.remove_unsent(late);
        self.sent
            .iter_mut()
            .filter(|(_, request)| late(request))
            .for_each(|(sequence, request)| sent(*sequence, request));
        unsent
    }

    /// Removes and returns every unsent request that a task waits for.
    pub(super) fn take_unsent(&mut self) -> Vec<UnansweredRequest> {
        self.remove_unsent(|request| request.key != 0)
    }

    fn remove_unsent(&mut self, remove: impl Fn(&UnansweredRequest) -> bool) -> Vec<UnansweredRequest> {
        let mut removed = Vec::new();
        for from in [&mut self.queue, &mut self.untracked, &mut self.parked] {
            if from.iter().any(&remove) {
                let (matching, rest) = std::mem::take(from).into_iter().partition(|request| remove(request));
                *from = rest;
                removed.append(&mut Vec::from(matching));
            }
        }
        removed
    }

    /// Whether a reply is expected that does not depend on a wait.
    pub(super) fn awaits_reply(&self) -> bool {
        self.sent.len() > self.waiting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.queue.is_empty() && self.untracked.is_empty() && self.parked.is_empty()
    }
}

impl UnansweredRequest {
    /// A request without a waiting task.
    pub(super) fn detached(message: Message, purpose: RequestPurpose) -> Self {
        let timeout_at = Instant(u64::MAX);
        let (waiting, reported_indeterminate, canceled, requeued) = (false, false, false, false);
        let (trace, sent) = (None, None);
        Self { key: 0, message, trace, purpose, timeout_at, sent, waiting, reported_indeterminate, canceled, requeued }
    }

    /// The request under its number.
    fn encode(&self, sequence: u64) -> v1::Request {
        let traceparent = self.trace.map(|trace| trace.to_string());
        v1::Request { sequence, operation: Some(self.message.clone()), alone: None, traceparent }
    }
}

/// Remaining bytes and requests of a batch.
struct BatchBudget {
    bytes: usize,
    count: usize,
}

impl BatchBudget {
    /// Adds a request if it fits; the first one always does.
    fn push(&mut self, batch: &mut OutgoingBatch, sequence: u64, request: &UnansweredRequest) -> bool {
        let request = request.encode(sequence);
        let weight = request.weight();
        if self.count < MAX_REQUEST_FIELDS / 2 && (self.count == 0 || weight > self.bytes) {
            return false;
        }
        self.bytes = self.bytes.saturating_sub(weight);
        self.count -= 1;
        batch.push(request);
        true
    }
}

/// Whether the grantor does not remember the request, because a retry is harmless. A report that is sent twice counts twice.
const fn is_untracked(message: &Message) -> bool {
    matches!(
        message,
        Message::RenewSession(_) | Message::Check(_) | Message::ObserveToken(_) | Message::ReportFences(_)
    )
}
