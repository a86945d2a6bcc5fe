//! The session: opened once, come back to by its secret, renewed on time, and compared with what the client knows.

use std::sync::Arc;

use leasehold_core::command::{Answer, Command, Known, Part};
use leasehold_core::holder::{Action, Answer as Told, Attempt, Granted, Renewal, Renewed};
use leasehold_core::ids::SessionId;
use leasehold_core::time::Instant;
use leasehold_core::token::Number;
use leasehold_wire::v1::request::Ask as Message;
use leasehold_wire::{ASK_BYTES, Issuer};

use super::cell::Alive;
use super::inbox::Given;
use super::line::{Line, tell};
use super::reply::Reply;
use super::requests::Purpose;
use crate::hold::lost;
use crate::stream::Resume;
use crate::{Error, Opened};
use leasehold_core::holder::Loss;
use leasehold_core::lease::Reason;

/// How long a thread that nobody needs any more waits for its session to be closed.
const FAREWELL: u64 = 1_000;
/// Leases that one list has room for.
const LISTED: usize = ASK_BYTES / 8 - 1_024;

/// A session as its holder knows it. When it is renewed is decided as for a lease, under a number of no meaning.
pub(super) struct Session {
    pub id: SessionId,
    secret: [u8; 32],
    pub issuer: Issuer,
    pub alive: Arc<Alive>,
    renewal: Renewal,
    /// When it is looked at next.
    pub due: Instant,
}

impl Line {
    /// What to come back with.
    pub(super) fn resume(&self) -> Option<Resume> {
        self.session.as_ref().map(|session| Resume { session: session.id, secret: session.secret })
    }

    /// The stream stands. Whatever was open is asked again, and every lease asks for itself.
    pub(super) fn connected(&mut self, now: Instant, sent: Instant, opened: &Opened) -> Result<(), Error> {
        // One that was silent is used no more: what was asked on it is asked again.
        if self.connected {
            self.broken(now);
        }
        // What passed its deadline while the way was being made has stopped, also if it may go on at once.
        self.attend_session(now);
        let (ttl_ms, remaining_ms) = opened.lasts();
        self.shortest_ms = self.shortest_ms.min(ttl_ms);
        let ttl_ms = remaining_ms.min(ttl_ms);
        let granted = Granted { token: Number::FIRST, sent, received: now, ttl_ms, drain_ms: None, rotates: false };
        let renewal = Renewal::new(self.settings.timing, granted).map_err(Error::garbled)?;
        let until = renewal.deadline().earliest;
        let resumed = self.session.as_ref().is_some_and(|session| session.id == opened.session());
        if let Some(session) = self.session.as_mut().filter(|_| resumed) {
            // One that came late says less than what was heard meanwhile.
            if until > session.renewal.deadline().earliest {
                session.renewal = renewal;
            }
            session.due = now;
        } else {
            let secret = opened.secret().try_into().map_err(|_| Error::garbled("a session without its secret"))?;
            let alive = Arc::new(Alive::default());
            let (id, issuer) = (opened.session(), opened.issuer()?);
            self.session = Some(Session { id, secret, issuer, alive, renewal, due: now });
        }
        if self.closing.is_none() {
            let session = self.session.as_ref().expect("just set");
            session.alive.until(session.renewal.deadline().earliest);
        }
        // Before anything is asked under it.
        self.settings.told.send_replace(self.resume());
        self.connected = true;
        self.unreached = None;
        self.meter.tell(|meter| meter.connected(resumed));
        tracing::info!(session = %opened.session(), resumed, "the stream stands");
        for place in self.leases.places() {
            if let Some(kept) = self.leases.at(place) {
                kept.renewal.ask_now(now);
                self.attend(place, now);
            }
        }
        Ok(())
    }

    /// Renews the session when it is time, and stops everything when its deadline has passed.
    pub(super) fn attend_session(&mut self, now: Instant) {
        loop {
            let Some(session) = self.session.as_mut().filter(|session| now >= session.due) else {
                return;
            };
            match session.renewal.poll(now, self.chance.next()) {
                Action::Wait(at) => {
                    session.due = at;
                    return;
                }
                Action::Send(attempt) => {
                    let id = session.id;
                    if self.connected {
                        let known = self.leases.known();
                        let command = Command::RenewSession { session: id, known: Some(known) };
                        let message = leasehold_wire::ask(&command).expect("a stream asks for it");
                        self.ask(now, 0, message, Purpose::Session(attempt, known));
                    }
                }
                Action::Suspend => self.stop_all(),
                Action::Resume(_) => self.ring_all(),
                Action::Rotated(_) | Action::Drain { .. } => {}
                Action::Lost(_) => return self.session_over(now),
            }
        }
    }

    /// Takes in the answer to a renewal of the session.
    pub(super) fn session_told(&mut self, now: Instant, attempt: Attempt, told: &Result<Answer, Error>) {
        let Some(session) = self.session.as_mut() else {
            return;
        };
        let answer = match told {
            Ok(Answer::Session(grant)) => {
                Told::Renewed(Renewed { token: Number::FIRST, remaining_ms: grant.remaining_ms, draining_ms: None })
            }
            Err(error) if error.session_over() => Told::Ended(Reason::Session),
            _ => Told::Unavailable,
        };
        session.renewal.answered(attempt, now, answer);
        if self.closing.is_none() {
            session.alive.until(session.renewal.deadline().earliest);
        }
        session.due = now;
    }

    /// What the grantor counts differs from what was known here when it was asked. If that has changed since, the next
    /// renewal compares again; else the list is told, and what is not on it ends.
    pub(super) fn compare(&mut self, asked: Known) {
        self.reconcile = (self.leases.known() == asked).then_some(Part::ALL);
    }

    /// The list, or its next part, made when it is sent: what is granted later than the list and heard before it is sent would end by it.
    pub(super) fn list(&mut self) -> Option<Message> {
        let Part { from, .. } = self.reconcile.take()?;
        let id = self.session.as_ref()?.id;
        let list = self.leases.list();
        let begin = from.map_or(0, |from| list.partition_point(|lease| *lease < from));
        let end = list.len().min(begin + LISTED);
        let part = Part { from, until: list.get(end).copied() };
        tracing::info!(leases = end - begin, of = list.len(), "the grantor knows other leases; telling it ours");
        self.reconcile = part.until.map(|from| Part { from: Some(from), until: None });
        leasehold_wire::ask(&Command::Reconcile { session: id, leases: &list[begin..end], part })
    }

    /// The session ended, and all that it carried with it. Everything stops at once; why each lease ended, the next session
    /// asks: one may have been revoked before.
    pub(super) fn session_over(&mut self, now: Instant) {
        let Some(session) = self.session.take() else {
            return;
        };
        tracing::warn!(session = %session.id, "the session is over");
        session.alive.until(Instant::default());
        // The numbers of what was open go with the session; what breaks here must not be sent again.
        self.broken(now);
        self.leases.session_over();
        let (sent, unsent) = self.requests.session_over();
        for pending in sent {
            let over = lost(Loss::Ended(Reason::Session));
            match pending.purpose {
                Purpose::Acquire(acquiring) if pending.cancelled => self.give_actor_back(acquiring.actor),
                // A grant that nobody heard of has ended with the session, so this asks anew and not twice.
                Purpose::Acquire(acquiring) => self.acquire_again(now, acquiring, false),
                Purpose::Call { by, .. } => {
                    by.tell.done(Err(Error::indeterminate("the session ended before the answer came", None)));
                }
                Purpose::Say { .. } => self.said_in_vain(pending, true),
                Purpose::Release { tell: who, .. } => tell(who, Err(over)),
                Purpose::Close(who) => self.closed(who),
                Purpose::Tell | Purpose::Cancel | Purpose::Renew(_) | Purpose::Session(..) | Purpose::Reconcile => {}
            }
        }
        for pending in unsent {
            match pending.purpose {
                Purpose::Acquire(_) => self.requests.put(pending),
                Purpose::Say { .. } => self.said_in_vain(pending, false),
                Purpose::Call { by, .. } => by.tell.done(Err(lost(Loss::Ended(Reason::Session)))),
                Purpose::Release { tell: who, .. } => tell(who, Err(lost(Loss::Ended(Reason::Session)))),
                Purpose::Close(who) => self.closed(who),
                Purpose::Tell | Purpose::Cancel | Purpose::Renew(_) | Purpose::Session(..) | Purpose::Reconcile => {}
            }
        }
        self.stop_all();
    }

    /// Ends the session, if there is one, and then the thread. Whoever waits for that is patient, and a stream that just
    /// broke is made again for it.
    pub(super) fn close(&mut self, now: Instant, who: Option<Reply<Given>>) {
        let most = if who.is_some() { self.settings.patience_ms } else { FAREWELL };
        self.closing.get_or_insert(now.plus_millis(most));
        // Stopped before it is asked for: the session's end may be heard late or never, and a successor begins with it.
        self.stop_for_good();
        match &self.session {
            Some(session) => {
                let command = Command::CloseSession { session: session.id };
                let message = leasehold_wire::ask(&command).expect("a stream asks for it");
                self.ask(now, 0, message, Purpose::Close(who));
            }
            None => self.closed(who),
        }
    }

    /// The session is closed, and everything was given back with it.
    pub(super) fn closed(&mut self, who: Option<Reply<Given>>) {
        self.given_up();
        tell(who, Ok(Answer::Done));
    }

    /// The thread ends, heard or not.
    pub(super) fn given_up(&mut self) {
        self.stop_for_good();
        self.over = true;
    }

    /// Nothing is renewed any more, so nobody may go on.
    pub(super) fn stop_for_good(&mut self) {
        if let Some(session) = &self.session {
            session.alive.until(Instant::default());
        }
        for place in self.leases.places() {
            if let Some(kept) = self.leases.remove(place) {
                kept.cell.update(|view| {
                    view.working = false;
                    view.loss.get_or_insert(Loss::Ended(Reason::Released));
                });
            }
        }
    }

    /// Work under every lease stops: the session may be over, and everything with it.
    fn stop_all(&mut self) {
        for place in self.leases.places() {
            if let Some(kept) = self.leases.at(place) {
                kept.cell.update(|view| view.suspensions = view.suspensions.wrapping_add(1));
            }
        }
    }

    /// Every guard looks again: its session stands or falls.
    fn ring_all(&mut self) {
        for place in self.leases.places() {
            if let Some(kept) = self.leases.at(place) {
                kept.cell.ring();
            }
        }
    }
}
