//! Calls about held leases, releases, and the handling of replies and timeouts.

use std::sync::Arc;

use leasehold_core::command::{self, Answer, Command, Handoff, LeaseRef, Renew};
use leasehold_core::holder::Loss;
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::EndReason;
use leasehold_core::time::Instant;
use leasehold_wire::lease_id;
use leasehold_wire::v1::lease_ref::Selector;
use leasehold_wire::v1::request::Operation as Message;

use super::job_queue::{LeaseCall, ReplySlot};
use super::job_result::{Response, send_answer};
use super::lease_shared::LeaseShared;
use super::reply_channel::ReplySender;
use super::request_table::{LeaseRenewal, RequestPurpose, UnansweredRequest};
use super::worker_state::WorkerState;
use crate::{Code, Error, IdempotencyKey};

impl WorkerState {
    /// Queues a call about a held lease.
    pub(super) fn lease_call(&mut self, now: Instant, slot: ReplySlot, lease: &Arc<LeaseShared>, call: &LeaseCall) {
        let Some(entry) = self.leases.find(lease).filter(|entry| !entry.orphaned) else {
            return slot.reply.send(Err(end_of(lease)));
        };
        let held = LeaseRef::by_id(lease.id, entry.renewal.token());
        let command = match call {
            LeaseCall::Confirm => Command::Confirm(held),
            LeaseCall::Rotate => Command::Rotate(held),
            LeaseCall::Pin { at } => Command::Pin { lease: held, at: *at },
            LeaseCall::Put { key, bytes, expect } => {
                Command::Put { lease: held, key, bytes: bytes.as_deref(), expect: *expect }
            }
            LeaseCall::Handoff { to, mode, drain_ms } => Command::Handoff(Handoff {
                selector: command::LeaseSelector::Id(lease.id),
                number: Some(held.number),
                to: to.as_deref(),
                mode: *mode,
                drain_ms: *drain_ms,
            }),
        };
        let (index, serial, key) = (lease.index, entry.serial, slot.key);
        entry.raising |= matches!(call, LeaseCall::Rotate);
        let purpose = RequestPurpose::LeaseCall { slot, index, serial };
        self.enqueue_traced(now, key, message(&command), purpose, lease.trace);
    }

    /// Queues a renewal with a request id of its own.
    pub(super) fn renew_individually(
        &mut self,
        now: Instant,
        lease: LeaseId,
        progress: Option<u64>,
        renewal: LeaseRenewal,
    ) {
        let held = LeaseRef::by_id(lease, renewal.attempt.token());
        let message = message(&Command::Renew(Renew { lease: held, ttl_ms: None, progress }));
        self.enqueue(now, 0, message, RequestPurpose::Renew(renewal));
    }

    /// Handles the reply to such a renewal. Progress that may not have arrived is sent again with the next one.
    pub(super) fn handle_single_renewal(&mut self, now: Instant, renewal: LeaseRenewal, reply: &Result<Answer, Error>) {
        if let Some(entry) = self.leases.get_mut(renewal.index).filter(|entry| entry.serial == renewal.serial) {
            entry.raising &= !renewal.raises;
            if reply.is_err() {
                entry.lease.restore_progress();
            }
        }
        self.handle_renewal_reply(now, renewal, reply);
    }

    /// Releases a lease. From here on it is not renewed, whatever the outcome of the request.
    pub(super) fn release_lease(
        &mut self,
        now: Instant,
        key: u64,
        lease: &Arc<LeaseShared>,
        reply: Option<ReplySender<Response>>,
    ) {
        let Some(entry) = self.leases.find(lease).map(|_| ()).and_then(|()| self.leases.remove(lease.index)) else {
            return send_answer(reply, Err(end_of(lease)));
        };
        // For a draining lease this completes the drain; a preempted or revoked lease ends with that reason.
        let command = Command::Release(LeaseRef::by_id(lease.id, entry.renewal.token()));
        lease.update(|view| {
            view.working = false;
            view.loss = Some(Loss::Ended(EndReason::Released));
        });
        self.release_actor(entry.actor);
        if entry.orphaned {
            return send_answer(reply, Err(Loss::Ended(EndReason::Session).into()));
        }
        let resource = lease.resource.clone();
        let purpose = RequestPurpose::Release { reply, resource };
        self.enqueue_traced(now, key, message(&command), purpose, lease.trace);
    }

    /// Releases a grant that the client cannot use.
    pub(super) fn return_grant(&mut self, now: Instant, held: LeaseRef<'_>) {
        let purpose = RequestPurpose::Release { reply: None, resource: "".into() };
        self.enqueue(now, 0, message(&Command::Release(held)), purpose);
    }

    /// The caller stopped waiting: an unsent request is dropped, and a wait is canceled (W3). A grant that races the cancellation
    /// finds no caller and is released.
    pub(super) fn cancel_request(&mut self, key: u64) {
        let Some(request) = self.requests.cancel(key) else {
            return;
        };
        match request.purpose {
            RequestPurpose::Acquire(attempt) => self.release_actor(attempt.actor),
            RequestPurpose::LeaseCall { index, serial, .. } => self.clear_raising(index, serial, &request.message),
            _ => {}
        }
    }

    /// A request that could have raised the token is finished.
    fn clear_raising(&mut self, index: u32, serial: u32, message: &Message) {
        if let Some(entry) = self.leases.get_mut(index).filter(|entry| entry.serial == serial) {
            entry.raising &= !matches!(message, Message::Rotate(_));
        }
    }

    /// Handles the reply to a request.
    pub(super) fn handle_reply(&mut self, now: Instant, sequence: u64, answer: Result<Answer, Error>) {
        if let Ok(Answer::Waiting { .. }) = answer {
            return self.requests.mark_waiting(sequence);
        }
        let session_ended = answer.as_ref().err().is_some_and(Error::is_session_ended);
        let needs_session =
            |purpose: &RequestPurpose| matches!(purpose, RequestPurpose::Acquire(_) | RequestPurpose::Close(_));
        if session_ended && self.requests.get(sequence).is_some_and(|request| needs_session(&request.purpose)) {
            return self.session_ended(now);
        }
        let Some(request) = self.requests.take(sequence) else {
            return;
        };
        let sent = request.sent.unwrap_or(now);
        match request.purpose {
            RequestPurpose::Acquire(attempt) => {
                match answer {
                    // No caller waits, so it is not sent again.
                    Err(_) if request.canceled => self.release_actor(attempt.actor),
                    Err(error) if request.requeued && error.code() == Some(Code::Cancelled) => {
                        self.retry_acquire(now, attempt, true);
                    }
                    answer => self.handle_acquire_reply(now, sent, attempt, answer),
                }
            }
            RequestPurpose::LeaseCall { slot, index, serial } => {
                self.apply_call_reply(now, sent, index, serial, &request.message, &answer);
                self.take_raised_text(index, serial);
                self.release_raised(now, index, serial, &request.message, &answer);
                match self.with_newest_token(index, serial, request.message, &answer) {
                    Some(message) => {
                        self.enqueue(now, slot.key, message, RequestPurpose::LeaseCall { slot, index, serial })
                    }
                    None => slot.reply.send(answer.map(Response::Answer)),
                }
            }
            RequestPurpose::SessionCall { slot, worker } => {
                self.finish_session_call(sent, slot, worker, &request.message, answer);
            }
            RequestPurpose::Release { reply, resource } => {
                self.metrics.emit(|hook| hook.released(&resource));
                send_answer(reply, answer);
            }
            RequestPurpose::Renew(renewal) => {
                let (index, serial) = (renewal.index, renewal.serial);
                self.handle_single_renewal(now, renewal, &answer);
                self.take_raised_text(index, serial);
                self.release_raised(now, renewal.index, renewal.serial, &request.message, &answer);
            }
            RequestPurpose::RenewSession(attempt, held) => {
                self.handle_session_renewal(now, attempt, &answer);
                if matches!(&answer, Ok(Answer::Session(grant)) if grant.mismatch) {
                    self.begin_reconcile(held);
                }
            }
            RequestPurpose::Close(reply) => self.closed(reply),
            RequestPurpose::Cancel | RequestPurpose::Reconcile | RequestPurpose::Detached => {}
        }
    }

    /// The token was raised while the release presented the old one and was refused: releases again with the new one.
    fn release_raised(
        &mut self,
        now: Instant,
        index: u32,
        serial: u32,
        message: &Message,
        answer: &Result<Answer, Error>,
    ) {
        let gone = self.leases.get_mut(index).is_none_or(|entry| entry.serial != serial);
        let held = match message {
            Message::Renew(renew) => renew.lease.as_ref(),
            Message::Rotate(held) => Some(held),
            _ => None,
        };
        if let (true, Some(held), Ok(Answer::Current(current))) = (gone, held, answer)
            && let Some(Selector::Lease(lease)) = held.selector
            && current.number.get() > held.token_number
        {
            self.return_grant(now, LeaseRef::by_id(lease_id(lease), current.number));
        }
    }

    /// The request with the newest token, if it was refused because the token was raised meanwhile: then it was not executed.
    fn with_newest_token(
        &mut self,
        index: u32,
        serial: u32,
        mut message: Message,
        answer: &Result<Answer, Error>,
    ) -> Option<Message> {
        let refused = answer.as_ref().err()?.code() == Some(Code::NotCurrent);
        let entry = self.leases.get_mut(index).filter(|entry| refused && entry.serial == serial && !entry.orphaned)?;
        let number = match &mut message {
            Message::Put(put) => &mut put.lease.as_mut()?.token_number,
            Message::Pin(pin) => &mut pin.lease.as_mut()?.token_number,
            Message::Check(held) | Message::Rotate(held) => &mut held.token_number,
            Message::Handoff(handoff) => handoff.token_number.as_mut()?,
            _ => return None,
        };
        let newest = entry.renewal.token().get();
        (std::mem::replace(number, newest) < newest).then_some(message)
    }

    /// Applies the reply of a call to its lease.
    fn apply_call_reply(
        &mut self,
        now: Instant,
        sent: Instant,
        index: u32,
        serial: u32,
        message: &Message,
        answer: &Result<Answer, Error>,
    ) {
        self.clear_raising(index, serial, message);
        let Some(entry) = self.leases.get_mut(index).filter(|entry| entry.serial == serial) else {
            return;
        };
        match (message, answer) {
            (Message::Rotate(_), Ok(Answer::Current(current))) => entry.token_raised(sent, now, current),
            // Only the reply to a renewal moves a deadline.
            (Message::Handoff(_), Ok(_)) => entry.renewal.renew_now(now),
            (_, Err(error)) => match error.end_reason() {
                Some(reason) => entry.renewal.handle_end(reason),
                None => return,
            },
            _ => return,
        }
        self.poll_lease(index, now);
    }

    /// Completes timed-out requests: an unsent one was not executed, a sent one may have been (X3).
    pub(super) fn expire_requests(&mut self, now: Instant) {
        let session = self.session.as_ref().map(|session| session.id);
        let unsent = self.requests.expire(now, |sequence, request| {
            request.reported_indeterminate = true;
            let id = session.map_or_else(String::new, |session| IdempotencyKey { session, sequence }.to_string());
            match &request.purpose {
                RequestPurpose::Acquire(attempt) => attempt.slot.reply.send_indeterminate(id),
                RequestPurpose::LeaseCall { slot, .. } | RequestPurpose::SessionCall { slot, .. } => {
                    slot.reply.send_indeterminate(id);
                }
                RequestPurpose::Release { reply: Some(reply), .. } => reply.send_indeterminate(id),
                _ => {}
            }
        });
        let cause = self.connect_error.clone();
        let unreachable = || match &cause {
            // Only the outcome of the connection attempt is unknown: the request itself was not sent.
            Some(error) if error.is_retryable() || error.outcome_unknown() => {
                Error::unavailable(format!("no server was reachable in time: {}", error.message()))
            }
            Some(error) => error.clone(),
            None => Error::unavailable("no server was reachable in time"),
        };
        for request in unsent {
            self.reject_unsent(now, request, unreachable());
        }
        for (lease, grants) in self.leases.take_overdue_grants(now) {
            grants.reject(unreachable());
            self.release_lease(now, 0, &lease, None);
        }
    }

    /// No server opens a session for this client, now or later: every request that waits for one is refused at once. A session
    /// whose time is over is not resumed either, for example at a server of another cluster.
    pub(super) fn session_refused(&mut self, now: Instant, error: &Error) {
        self.session_ended(now);
        for request in self.requests.take_unsent() {
            self.reject_unsent(now, request, error.clone());
        }
        self.schedule_reconnect(now);
    }

    /// Completes a request that was never sent.
    fn reject_unsent(&mut self, now: Instant, request: UnansweredRequest, error: Error) {
        match request.purpose {
            RequestPurpose::Acquire(attempt) => {
                self.release_actor(attempt.actor);
                attempt.slot.reply.send(Err(error));
            }
            RequestPurpose::LeaseCall { slot, index, serial } => {
                self.clear_raising(index, serial, &request.message);
                slot.reply.send(Err(error));
            }
            RequestPurpose::SessionCall { slot, .. } => slot.reply.send(Err(error)),
            // The caller gets an error, and the lease is released all the same.
            RequestPurpose::Release { reply, resource } => {
                send_answer(reply, Err(error));
                let purpose = RequestPurpose::Release { reply: None, resource };
                self.enqueue(now, 0, request.message, purpose);
            }
            _ => {}
        }
    }
}

fn message(command: &Command<'_>) -> Message {
    leasehold_wire::encode_command(command).expect("every command except hello is a stream request")
}

/// Why a lease is not in the table any more.
fn end_of(lease: &LeaseShared) -> Error {
    lease.view().loss.unwrap_or(Loss::Ended(EndReason::Session)).into()
}
