//! Life of the session: opened once, resumed with its secret, renewed in time, reconciled with the grantor, and closed.

use std::sync::Arc;

use leasehold_core::command::{Answer, Command, HeldDigest, IdRange};
use leasehold_core::holder::{
    Loss, ReceivedGrant, ReceivedRenewal, Renewal, RenewalAction, RenewalAnswer, RenewalAttempt,
};
use leasehold_core::lease::EndReason;
use leasehold_core::time::Instant;
use leasehold_core::token::Number;
use leasehold_wire::MAX_REQUEST_BYTES;
use leasehold_wire::v1::request::Operation as Message;

use super::deadline_start::{self, counted_from};
use super::job_result::{Response, send_answer};
use super::lease_shared::SessionDeadline;
use super::reply_channel::ReplySender;
use super::request_table::RequestPurpose;
use super::session_entry::ClientSession;
use super::worker_state::WorkerState;
use crate::session_stream::SessionResume;
use crate::{Error, OpenedSession};

/// How long the worker of a dropped client waits for its session to be closed, in milliseconds.
const CLOSE_TIMEOUT: u64 = 1_000;
/// Most leases of one list.
const LEASES_PER_LIST: usize = MAX_REQUEST_BYTES / 8 - 1_024;

impl WorkerState {
    /// Id and secret to resume the session with.
    pub(super) fn session_resume(&self) -> Option<SessionResume> {
        self.session.as_ref().map(|session| SessionResume { session: session.id, secret: session.secret.clone() })
    }

    /// Whether there is no session, or none that can carry a lease any more.
    pub(super) fn session_is_over(&self, now: Instant) -> bool {
        self.session.as_ref().is_none_or(|session| now >= session.renewal.deadline().latest)
    }

    /// A stream is connected. Open requests are sent again, and every lease renews.
    pub(super) fn stream_connected(
        &mut self,
        now: Instant,
        sent: Instant,
        opened: &OpenedSession,
    ) -> Result<(), Error> {
        // The previous, silent stream is no longer used.
        if self.connected {
            self.stream_lost(now);
        }
        // A lease whose deadline passed during the connection attempt was suspended, even if it may resume immediately.
        self.poll_session(now);
        let (ttl_ms, remaining_ms) = opened.ttl_and_remaining_ms();
        self.min_ttl_ms = self.min_ttl_ms.min(ttl_ms);
        let ttl_ms = remaining_ms.min(ttl_ms);
        let granted = ReceivedGrant {
            token: Number::FIRST,
            sent: counted_from(sent, now),
            received: now,
            ttl_ms,
            drain_ms: None,
            rotates: false,
        };
        let renewal = Renewal::new(self.settings.timing, granted).map_err(Error::invalid_reply)?;
        let until = renewal.deadline().earliest;
        let resumed = self.session.as_ref().is_some_and(|session| session.id == opened.id());
        if let Some(session) = self.session.as_mut().filter(|_| resumed) {
            // A reply on the old stream may have extended the session further.
            if until > session.renewal.deadline().earliest {
                session.renewal = renewal;
            }
            session.due = now;
        } else {
            let secret =
                opened.secret().cloned().ok_or_else(|| Error::invalid_reply("a session without its secret"))?;
            let deadline = Arc::new(SessionDeadline::default());
            let (id, issuer) = (opened.id(), opened.issuer()?);
            self.session = Some(ClientSession { id, secret, issuer, deadline, renewal, due: now });
        }
        if self.closing.is_none() {
            let session = self.session.as_ref().expect("just set");
            session.deadline.set(session.renewal.deadline().earliest);
        }
        // Published before any request uses it.
        self.settings.session.send_replace(self.session_resume());
        self.connected = true;
        self.connect_error = None;
        self.metrics.emit(|hook| hook.connected(resumed));
        tracing::info!(session = %opened.id(), resumed, "session stream established");
        for index in self.leases.indices() {
            if let Some(entry) = self.leases.get_mut(index) {
                entry.renewal.renew_now(now);
                self.poll_lease(index, now);
            }
        }
        Ok(())
    }

    /// Renews the session when it is due, and suspends all work when its deadline has passed.
    pub(super) fn poll_session(&mut self, now: Instant) {
        loop {
            let Some(session) = self.session.as_mut().filter(|session| now >= session.due) else {
                return;
            };
            match session.renewal.poll(now, self.jitter.next()) {
                RenewalAction::Wait(at) => {
                    session.due = at;
                    return;
                }
                RenewalAction::Send(attempt) => {
                    let id = session.id;
                    if self.connected {
                        let held = self.leases.digest();
                        let command = Command::RenewSession { session: id, held: Some(held) };
                        let message = leasehold_wire::encode_command(&command).expect("a stream request");
                        self.enqueue(now, 0, message, RequestPurpose::RenewSession(attempt, held));
                    }
                }
                RenewalAction::Suspend => self.suspend_all(),
                RenewalAction::Resume(_) => self.wake_all(),
                RenewalAction::Rotated(_) | RenewalAction::Drain { .. } => {}
                RenewalAction::Lost(_) => return self.session_ended(now),
            }
        }
    }

    /// Handles the reply to a renewal of the session.
    pub(super) fn handle_session_renewal(
        &mut self,
        now: Instant,
        attempt: RenewalAttempt,
        reply: &Result<Answer, Error>,
    ) {
        let Some(session) = self.session.as_mut() else {
            return;
        };
        let answer = match reply {
            Ok(Answer::Session(grant)) => RenewalAnswer::Renewed(ReceivedRenewal {
                token: Number::FIRST,
                remaining_ms: grant.remaining_ms,
                draining_ms: None,
            }),
            Err(error) if error.is_session_ended() => RenewalAnswer::Ended(EndReason::Session),
            _ => RenewalAnswer::Unavailable,
        };
        session.renewal.handle_answer(attempt, now, answer);
        if deadline_start::is_broken()
            && let RenewalAnswer::Renewed(ReceivedRenewal { token, remaining_ms: ttl_ms, .. }) = answer
        {
            let granted = ReceivedGrant { token, sent: now, received: now, ttl_ms, drain_ms: None, rotates: false };
            session.renewal = Renewal::new(self.settings.timing, granted).expect("a session has no drain period");
        }
        if self.closing.is_none() {
            session.deadline.set(session.renewal.deadline().earliest);
        }
        session.due = now;
    }

    /// The grantor's held leases differ from the client's at the time of the request. If the client's have changed since, the
    /// next renewal compares again; otherwise the client sends its list, and leases that are not on it end.
    pub(super) fn begin_reconcile(&mut self, sent: HeldDigest) {
        self.reconcile = (self.leases.digest() == sent).then_some(IdRange::ALL);
    }

    /// The next part of the list of held leases. It is made when it is sent: a lease whose grant arrives between making and
    /// sending the list would be missing on it, and end.
    pub(super) fn next_reconcile(&mut self) -> Option<Message> {
        let IdRange { from, .. } = self.reconcile.take()?;
        let session = self.session.as_ref()?.id;
        let ids = self.leases.ids();
        let begin = from.map_or(0, |from| ids.partition_point(|lease| *lease < from));
        let end = ids.len().min(begin + LEASES_PER_LIST);
        let range = IdRange { from, until: ids.get(end).copied() };
        tracing::info!(leases = end - begin, of = ids.len(), "reconciling held leases with the grantor");
        self.reconcile = range.until.map(|from| IdRange { from: Some(from), until: None });
        leasehold_wire::encode_command(&Command::Reconcile { session, leases: &ids[begin..end], range })
    }

    /// The session ended with everything it carried. All work stops immediately. The next session queries why each lease ended:
    /// one of them may have been revoked before.
    pub(super) fn session_ended(&mut self, now: Instant) {
        let Some(session) = self.session.take() else {
            return;
        };
        tracing::warn!(session = %session.id, "session ended");
        session.deadline.set(Instant::default());
        // Sequence numbers end with the session; what is lost here must not be sent again.
        self.stream_lost(now);
        self.leases.session_ended();
        let (sent, unsent) = self.requests.session_ended();
        let lost = || Error::from(Loss::Ended(EndReason::Session));
        for request in sent {
            match request.purpose {
                RequestPurpose::Acquire(attempt) if request.canceled => self.release_actor(attempt.actor),
                // A grant that did not arrive ended with the session, so the new request does not acquire twice.
                RequestPurpose::Acquire(attempt) => self.retry_acquire(now, attempt, false),
                RequestPurpose::LeaseCall { slot, .. } | RequestPurpose::SessionCall { slot, .. } => {
                    slot.reply.send(Err(Error::indeterminate("the session ended before the reply arrived", None)));
                }
                RequestPurpose::Release { reply, .. } => send_answer(reply, Err(lost())),
                RequestPurpose::Close(reply) => self.closed(reply),
                RequestPurpose::Detached
                | RequestPurpose::Cancel
                | RequestPurpose::Renew(_)
                | RequestPurpose::RenewSession(..)
                | RequestPurpose::Reconcile => {}
            }
        }
        for request in unsent {
            match request.purpose {
                RequestPurpose::Acquire(_) | RequestPurpose::SessionCall { .. } => self.requests.push(request),
                RequestPurpose::LeaseCall { slot, .. } => slot.reply.send(Err(lost())),
                RequestPurpose::Release { reply, .. } => send_answer(reply, Err(lost())),
                RequestPurpose::Close(reply) => self.closed(reply),
                RequestPurpose::Detached
                | RequestPurpose::Cancel
                | RequestPurpose::Renew(_)
                | RequestPurpose::RenewSession(..)
                | RequestPurpose::Reconcile => {}
            }
        }
        self.suspend_all();
    }

    /// Closes the session, if there is one, and then stops the worker. A caller that waits gets the request timeout, and a broken
    /// stream is reconnected for it.
    pub(super) fn close(&mut self, now: Instant, reply: Option<ReplySender<Response>>) {
        let timeout_ms = if reply.is_some() { self.settings.request_timeout_ms } else { CLOSE_TIMEOUT };
        self.closing.get_or_insert(now.plus_millis(timeout_ms));
        // Work stops before the request is sent: its reply may arrive late or never, and a successor starts with the close.
        self.end_all_leases();
        match &self.session {
            Some(session) => {
                let command = Command::CloseSession { session: session.id };
                let message = leasehold_wire::encode_command(&command).expect("a stream request");
                self.enqueue(now, 0, message, RequestPurpose::Close(reply));
            }
            None => self.closed(reply),
        }
    }

    /// The session is closed, and every lease released with it.
    pub(super) fn closed(&mut self, reply: Option<ReplySender<Response>>) {
        self.finish();
        send_answer(reply, Ok(Answer::Done));
    }

    /// Stops the worker, whether or not the close was confirmed.
    pub(super) fn finish(&mut self) {
        self.end_all_leases();
        self.finished = true;
    }

    /// Nothing is renewed any more, so all work ends.
    pub(super) fn end_all_leases(&mut self) {
        if let Some(session) = &self.session {
            session.deadline.set(Instant::default());
        }
        for index in self.leases.indices() {
            if let Some(entry) = self.leases.remove(index) {
                entry.lease.update(|view| {
                    view.working = false;
                    view.loss.get_or_insert(Loss::Ended(EndReason::Released));
                });
            }
        }
    }

    /// Suspends the work of every lease: the session may have ended with all of them.
    fn suspend_all(&mut self) {
        for index in self.leases.indices() {
            if let Some(entry) = self.leases.get_mut(index) {
                entry.lease.update(|view| view.suspensions = view.suspensions.wrapping_add(1));
            }
        }
    }

    /// Lets every guard read its state again after the session's deadline changed.
    fn wake_all(&mut self) {
        for index in self.leases.indices() {
            if let Some(entry) = self.leases.get_mut(index) {
                entry.lease.wake();
            }
        }
    }
}
