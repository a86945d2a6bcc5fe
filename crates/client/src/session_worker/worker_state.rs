//! State machine of the session worker, without I/O. Inputs are jobs, incoming batches and the time; the output is batches to
//! send.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use leasehold_core::command::{Answer, CurrentLease, IdRange, SessionEvent};
use leasehold_core::holder::{ClockDrift, Timing};
use leasehold_core::time::Instant;
use leasehold_core::trace_context::TraceContext;
use leasehold_wire::MAX_RENEWALS;
use leasehold_wire::v1::request::Operation as Message;
use tokio::sync::watch::Sender;

use super::actor_names::ActorPool;
use super::caller_sleeps::Sleepers;
use super::compensated_reply::SessionListener;
use super::jitter::Jitter;
use super::job_queue::Job;
use super::lease_table::{LeaseTable, LeaseTransition};
use super::request_table::{LeaseRenewal, RequestPurpose, RequestTable, UnansweredRequest};
use super::session_entry::ClientSession;
use crate::metrics_hook::MetricsSink;
use crate::server_pool::ServerPool;
use crate::session_stream::{IncomingBatch, OutgoingBatch, RenewalResults, SessionResume};
use crate::{Error, FencingToken, StampedToken};

/// How often timed-out requests are swept, in milliseconds.
const SWEEP_EVERY: u64 = 250;
/// Shortest and longest silence after which a stream is replaced, in milliseconds.
const SILENCE: (u64, u64) = (500, 5_000);
/// Shortest and longest pause between connection attempts, in milliseconds.
const RECONNECT_PAUSE: (u64, u64) = (20, 1_000);

/// Settings from the client.
pub(super) struct WorkerSettings {
    pub holder: String,
    pub timing: Timing,
    pub request_timeout_ms: u64,
    pub clock_drift: ClockDrift,
    /// The trace that requests belong to which name none.
    pub trace: Option<TraceContext>,
    /// Publishes the current session.
    pub session: Sender<Option<SessionResume>>,
}

/// State of the worker of one client.
pub(super) struct WorkerState {
    pub settings: WorkerSettings,
    pub servers: ServerPool,
    pub metrics: MetricsSink,
    pub jitter: Jitter,
    pub session: Option<ClientSession>,
    pub connected: bool,
    pub requests: RequestTable,
    pub leases: LeaseTable,
    pub actors: ActorPool,
    sleepers: Sleepers,
    pub listeners: Vec<Weak<dyn SessionListener>>,
    /// Renewals without a reply, by the sequence number of their batch.
    renewals: BTreeMap<u64, (Instant, Vec<LeaseRenewal>)>,
    next_renewal: u64,
    /// Since when a reply is due.
    awaiting_since: Option<Instant>,
    /// Shortest ttl so far. It bounds how long a stream may be silent.
    pub min_ttl_ms: u64,
    next_sweep: Instant,
    /// The grantor knows other leases than this client: the range of ids whose list is still to be sent.
    pub reconcile: Option<IdRange>,
    connect_at: Instant,
    failures: u32,
    /// Why the last connection attempt failed.
    pub connect_error: Option<Error>,
    /// The client is closing: the session is closed, and the thread ends at this time at the latest.
    pub closing: Option<Instant>,
    pub finished: bool,
    /// Sealed texts of the tokens in the batch that is handled now.
    pub sealed_texts: Vec<FencingToken>,
    /// Stamped texts of the tokens in the batch that is handled now.
    pub stamped_texts: Vec<StampedToken>,
}

/// However the thread ends, no work continues without it.
impl Drop for WorkerState {
    fn drop(&mut self) {
        self.end_all_leases();
    }
}

impl WorkerState {
    pub(super) fn new(settings: WorkerSettings, servers: ServerPool, metrics: MetricsSink, jitter: Jitter) -> Self {
        let min_ttl_ms = settings.timing.ttl_ms();
        Self {
            settings,
            servers,
            metrics,
            jitter,
            session: None,
            connected: false,
            requests: RequestTable::default(),
            leases: LeaseTable::default(),
            actors: ActorPool::default(),
            sleepers: Sleepers::default(),
            listeners: Vec::new(),
            renewals: BTreeMap::new(),
            next_renewal: 0,
            awaiting_since: None,
            min_ttl_ms,
            next_sweep: Instant::default(),
            reconcile: None,
            connect_error: None,
            connect_at: Instant::default(),
            failures: 0,
            closing: None,
            finished: false,
            sealed_texts: Vec::new(),
            stamped_texts: Vec::new(),
        }
    }

    pub(super) fn handle_job(&mut self, now: Instant, job: Job) {
        match job {
            Job::Acquire { slot, spec, worker } => self.acquire(now, slot, *spec, worker),
            Job::LeaseCall { slot, lease, call } => self.lease_call(now, slot, &lease, &call),
            Job::SessionCall { slot, message, worker } => self.session_call(now, slot, *message, worker),
            Job::SendDetached(message) => self.enqueue(now, 0, *message, RequestPurpose::Detached),
            Job::Listen(listener) => self.listeners.push(listener),
            Job::Sleep { until, reply } => self.sleepers.insert(until, reply),
            Job::Release { key, lease, reply } => self.release_lease(now, key, &lease, reply),
            Job::Progress { lease } => {
                if let Some(entry) = self.leases.find(&lease) {
                    entry.renewal.renew_now(now);
                    self.poll_lease(lease.index, now);
                }
            }
            Job::Cancel(key) => self.cancel_request(key),
            Job::WaitAgain(key) => {
                let timeout_at = now.plus_millis(self.settings.request_timeout_ms);
                if let Some(request) = self.requests.by_key(key) {
                    (request.timeout_at, request.reported_indeterminate) = (timeout_at, false);
                }
            }
            Job::Close(reply) => self.close(now, Some(reply)),
        }
    }

    /// Does everything that is due.
    pub(super) fn tick(&mut self, now: Instant) {
        self.jitter.next_round();
        self.poll_session(now);
        self.sleepers.wake_due(now);
        while let Some(bucket) = self.leases.timers.due(now) {
            for timer in &bucket {
                if self.leases.is_current(*timer) {
                    self.poll_lease(timer.0, now);
                }
            }
            self.leases.timers.recycle(bucket);
        }
        if now >= self.next_sweep {
            self.next_sweep = now.plus_millis(SWEEP_EVERY);
            self.expire_requests(now);
            self.requests.rotate_waits();
        }
        if self.closing.is_some_and(|until| now >= until) {
            self.finish();
        }
    }

    /// The next batch to send; none if there is nothing to send.
    pub(super) fn flush(&mut self, now: Instant) -> Option<OutgoingBatch> {
        if self.reconcile.is_some()
            && self.requests.has_window()
            && let Some(list) = self.next_reconcile()
        {
            self.awaiting_since.get_or_insert(now);
            return Some(self.requests.single(now, list, RequestPurpose::Reconcile));
        }
        let mut batch = OutgoingBatch::new(self.requests.lowest());
        let take = self.leases.outgoing.len().min(MAX_RENEWALS);
        let mut rest = self.leases.outgoing.split_off(take);
        std::mem::swap(&mut rest, &mut self.leases.outgoing);
        self.add_renewals(now, rest, &mut batch);
        if let Some(session) = &self.session {
            self.requests.fill(now, session.id, &mut batch);
        }
        if batch.is_empty() {
            return None;
        }
        batch.set_lowest(self.requests.lowest());
        self.awaiting_since.get_or_insert(now);
        Some(batch)
    }

    /// Adds renewals to a batch. Those that carry progress or raise a token are requests of their own.
    fn add_renewals(&mut self, now: Instant, renewals: Vec<LeaseRenewal>, batch: &mut OutgoingBatch) {
        let mut together = Vec::with_capacity(renewals.len());
        for renewal in renewals {
            let Some(entry) = self.leases.get_mut(renewal.index).filter(|entry| entry.serial == renewal.serial) else {
                continue;
            };
            if entry.raising {
                continue;
            }
            let (lease, progress) = (entry.lease.id, entry.lease.take_progress());
            entry.raising = renewal.raises;
            if progress.is_some() || renewal.raises {
                self.renew_individually(now, lease, progress, renewal);
            } else {
                together.push((renewal, lease));
            }
        }
        if !together.is_empty() {
            self.next_renewal += 1;
            batch.renew(self.next_renewal, together.iter().map(|(renewal, lease)| (*lease, renewal.attempt.token())));
            let sent = together.into_iter().map(|(renewal, _)| renewal).collect();
            self.renewals.insert(self.next_renewal, (now, sent));
        }
    }

    pub(super) fn handle_incoming(&mut self, now: Instant, incoming: IncomingBatch) {
        self.jitter.next_round();
        (self.sealed_texts, self.stamped_texts) = (incoming.sealed, incoming.stamped);
        for results in incoming.renewals {
            self.handle_renewals(now, results);
        }
        for (sequence, answer) in incoming.replies {
            self.handle_reply(now, sequence, answer);
        }
        self.sealed_texts.clear();
        self.stamped_texts.clear();
        for event in incoming.events {
            self.handle_event(now, event);
        }
        self.failures = 0;
        let reply_due = !self.renewals.is_empty() || self.requests.awaits_reply();
        self.awaiting_since = reply_due.then_some(now);
    }

    fn handle_renewals(&mut self, now: Instant, results: RenewalResults) {
        let Some((sent, renewals)) = self.renewals.remove(&results.sequence) else {
            return;
        };
        self.metrics.emit(|hook| hook.renewed(renewals.len(), since(sent, now)));
        let mut details = results.details.into_iter().peekable();
        for (index, renewal) in renewals.into_iter().enumerate() {
            let reply = match details.next_if(|(at, _)| *at == index) {
                Some((_, reply)) => reply,
                None => {
                    let remaining_ms = results.remaining_ms.get(index).copied().unwrap_or(0);
                    let number = renewal.attempt.token();
                    Ok(Answer::Current(CurrentLease { number, remaining_ms, drain_ms: None, overlaps_ms: None }))
                }
            };
            self.handle_renewal_reply(now, renewal, &reply);
        }
    }

    pub(super) fn handle_renewal_reply(&mut self, now: Instant, renewal: LeaseRenewal, reply: &Result<Answer, Error>) {
        if let Some(entry) = self.leases.get_mut(renewal.index).filter(|entry| entry.serial == renewal.serial) {
            entry.handle_renewal(renewal.attempt, now, reply);
            self.poll_lease(renewal.index, now);
        }
    }

    fn handle_event(&mut self, now: Instant, event: SessionEvent) {
        let (lease, ended) = match event {
            SessionEvent::Ended { lease, reason, .. } => (lease, Some(reason)),
            SessionEvent::Draining { lease, .. } => (lease, None),
            SessionEvent::Drained { lease } => {
                if let Some(entry) = self.leases.index_of(lease).and_then(|index| self.leases.get_mut(index)) {
                    entry.predecessor_drained();
                }
                return;
            }
            // The other events are for recipes.
            other => return self.notify_listeners(&other),
        };
        let Some(index) = self.leases.index_of(lease) else {
            return;
        };
        if let Some(entry) = self.leases.get_mut(index) {
            match ended {
                Some(reason) => entry.renewal.handle_end(reason),
                None => entry.renewal.renew_now(now),
            }
        }
        self.poll_lease(index, now);
    }

    /// Polls one lease and reports its transitions.
    pub(super) fn poll_lease(&mut self, index: u32, now: Instant) {
        let mut lost = None;
        let metrics = &self.metrics;
        self.leases.poll(index, now, &self.jitter, self.connected, |leases, transition| match transition {
            LeaseTransition::Suspended => {
                if let Some(entry) = leases.get_mut(index) {
                    tracing::warn!(resource = %entry.lease.resource, "lease suspended: not renewed in time");
                    metrics.emit(|hook| hook.suspended(&entry.lease.resource));
                }
            }
            LeaseTransition::Resumed => {
                if let Some(entry) = leases.get_mut(index) {
                    metrics.emit(|hook| hook.resumed(&entry.lease.resource));
                }
            }
            LeaseTransition::Lost(entry, loss) => lost = Some((entry, loss)),
        });
        match lost {
            Some((entry, loss)) => self.lease_lost(*entry, loss),
            None => self.hand_out(now, index),
        }
    }

    /// The stream broke: requests without a reply may or may not have arrived.
    pub(super) fn stream_lost(&mut self, now: Instant) {
        if std::mem::replace(&mut self.connected, false) {
            self.metrics.emit(|hook| hook.disconnected());
            tracing::info!("session stream lost; reconnecting");
        }
        (self.awaiting_since, self.reconcile) = (None, None);
        self.leases.outgoing.clear();
        let unavailable = || Err(Error::unavailable("the session stream broke"));
        for (_, (_, renewals)) in std::mem::take(&mut self.renewals) {
            renewals.into_iter().for_each(|renewal| self.handle_renewal_reply(now, renewal, &unavailable()));
        }
        for request in self.requests.stream_lost() {
            match request.purpose {
                RequestPurpose::Renew(renewal) => self.handle_single_renewal(now, renewal, &unavailable()),
                RequestPurpose::RenewSession(attempt, _) => self.handle_session_renewal(now, attempt, &unavailable()),
                _ => {}
            }
        }
        self.schedule_reconnect(now);
    }

    /// Pauses before the next connection attempt: longer each time, with jitter.
    pub(super) fn schedule_reconnect(&mut self, now: Instant) {
        let longest = (RECONNECT_PAUSE.0 << self.failures.min(8)).min(RECONNECT_PAUSE.1);
        let pause = longest / 2 + self.jitter.next() % (longest / 2 + 1);
        self.failures = self.failures.saturating_add(1);
        self.connect_at = now.plus_millis(pause);
    }

    /// Whether a stream is needed and there is none, or only one that has been silent for too long.
    pub(super) fn needs_new_stream(&self, now: Instant) -> bool {
        self.needs_stream() && (!self.connected || self.silence_deadline().is_some_and(|at| now >= at))
    }

    fn needs_stream(&self) -> bool {
        !self.finished && (self.session.is_some() || self.leases.count > 0 || !self.requests.is_empty())
    }

    /// Whether the pause after the last connection attempt is over.
    pub(super) fn may_connect(&self, now: Instant) -> bool {
        now >= self.connect_at
    }

    fn silence_deadline(&self) -> Option<Instant> {
        self.awaiting_since.map(|since| since.plus_millis(self.silence_ms()))
    }

    fn silence_ms(&self) -> u64 {
        (self.min_ttl_ms / 4).clamp(SILENCE.0, SILENCE.1)
    }

    /// Timeout of a hello to one of several servers: longer each time, because the current leader may be slow.
    pub(super) fn hello_timeout(&self) -> Duration {
        let max = (self.settings.timing.ttl_ms() / 2).max(1);
        Duration::from_millis((self.silence_ms() << self.failures.saturating_sub(1).min(8)).min(max))
    }

    /// Timeout of a hello to a suspect server. It may only be busy, and a new attempt would wait longer: so it lasts as long as the
    /// session does.
    pub(super) fn probe_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.timing.ttl_ms())
    }

    /// When something is due next. `connecting` says whether a connection attempt is in progress.
    pub(super) fn next_due(&self, connecting: bool) -> Instant {
        let reconnect = if self.connected { self.silence_deadline() } else { Some(self.connect_at) };
        let connect = reconnect.filter(|_| !connecting && self.needs_stream()).map(|at| at.max(self.connect_at));
        let sweep = (!self.requests.is_empty() || self.leases.count > 0).then_some(self.next_sweep);
        let session = self.session.as_ref().map(|session| session.due);
        let sleeper = self.sleepers.next();
        let all = [self.leases.timers.next(), self.closing, session, connect, sweep, sleeper];
        all.into_iter().flatten().min().unwrap_or(Instant(u64::MAX))
    }

    /// Queues a request.
    pub(super) fn enqueue(&mut self, now: Instant, key: u64, message: Message, purpose: RequestPurpose) {
        // A renewal is in no audit log, so that its trace would be sent for nothing.
        let is_renewal = matches!(purpose, RequestPurpose::Renew(_) | RequestPurpose::RenewSession(..));
        let trace = self.settings.trace.filter(|_| !is_renewal);
        self.enqueue_traced(now, key, message, purpose, trace);
    }

    /// Queues a request that belongs to this trace.
    pub(super) fn enqueue_traced(
        &mut self,
        now: Instant,
        key: u64,
        message: Message,
        purpose: RequestPurpose,
        trace: Option<TraceContext>,
    ) {
        let timeout_at = now.plus_millis(self.settings.request_timeout_ms);
        let request = UnansweredRequest::detached(message, purpose);
        self.requests.push(UnansweredRequest { key, timeout_at, trace, ..request });
    }
}

pub(super) fn since(earlier: Instant, now: Instant) -> Duration {
    Duration::from_nanos(now.0.saturating_sub(earlier.0))
}
