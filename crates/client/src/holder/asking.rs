//! What is asked under a lease that is held, what is given back, and what becomes of each request.

use std::sync::Arc;

use leasehold_core::command::{self, Answer, Command, HandOff, Held, Renew};
use leasehold_core::holder::Loss;
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::Reason;
use leasehold_core::time::Instant;
use leasehold_wire::lease_id;
use leasehold_wire::v1::held::Which;
use leasehold_wire::v1::request::Ask as Message;

use super::cell::Cell;
use super::inbox::{By, Call, Given};
use super::line::{Line, tell};
use super::reply::Reply;
use super::requests::{Purpose, Renewing};
use crate::hold::lost;
use crate::{Code, Error, Key};

impl Line {
    /// Asks the grantor about a lease.
    pub(super) fn call(&mut self, now: Instant, by: By, cell: &Arc<Cell>, what: Call) {
        let Some(kept) = self.leases.of(cell).filter(|kept| !kept.foreign) else {
            return by.tell.done(Err(over(cell)));
        };
        let held = Held::by_id(cell.lease, kept.renewal.token());
        let command = match &what {
            Call::Confirm => Command::Confirm(held),
            Call::Rotate => Command::Rotate(held),
            Call::Pin { at } => Command::Pin { held, at: *at },
            Call::Put { key, bytes, expect } => Command::Put { held, key, bytes: bytes.as_deref(), expect: *expect },
            Call::HandOff { to, style, drain_ms } => Command::HandOff(HandOff {
                which: command::Which::Id(cell.lease),
                number: Some(held.number),
                to: to.as_deref(),
                style: *style,
                drain_ms: *drain_ms,
            }),
        };
        let (place, life, key) = (cell.place, kept.life, by.key);
        kept.raising |= matches!(what, Call::Rotate);
        self.ask(now, key, message(&command), Purpose::Call { by, place, life });
    }

    /// A renewal with a request id of its own.
    pub(super) fn renew_alone(&mut self, now: Instant, lease: LeaseId, progress: Option<u64>, one: Renewing) {
        let held = Held::by_id(lease, one.attempt.token());
        let renew = message(&Command::Renew(Renew { held, ttl_ms: None, progress }));
        self.ask(now, 0, renew, Purpose::Renew(one));
    }

    /// Takes in the answer to such a renewal. Progress that may not have arrived is shown again by the next one.
    pub(super) fn shown(&mut self, now: Instant, one: Renewing, told: &Result<Answer, Error>) {
        if let Some(kept) = self.leases.at(one.place).filter(|kept| kept.life == one.life) {
            kept.raising &= !one.raises;
            if told.is_err() {
                kept.cell.show_again();
            }
        }
        self.renewal_told(now, one, told);
    }

    /// Gives a lease back. It is renewed no more from here on, whatever becomes of the request.
    pub(super) fn release(&mut self, now: Instant, key: u64, cell: &Arc<Cell>, who: Option<Reply<Given>>) {
        let Some(kept) = self.leases.of(cell).map(|_| ()).and_then(|()| self.leases.remove(cell.place)) else {
            return tell(who, Err(over(cell)));
        };
        // For one that drains this says that it has drained; a pre-empted or revoked one ends as such.
        let command = Command::Release(Held::by_id(cell.lease, kept.renewal.token()));
        cell.update(|view| {
            view.working = false;
            view.loss = Some(Loss::Ended(Reason::Released));
        });
        self.give_actor_back(kept.actor);
        if kept.foreign {
            return tell(who, Err(lost(Loss::Ended(Reason::Session))));
        }
        let resource = cell.resource.clone();
        self.ask(now, key, message(&command), Purpose::Release { tell: who, resource });
    }

    /// Gives back what was granted and cannot be held.
    pub(super) fn give_back(&mut self, now: Instant, held: Held<'_>) {
        let purpose = Purpose::Release { tell: None, resource: "".into() };
        self.ask(now, 0, message(&Command::Release(held)), purpose);
    }

    /// Nobody waits for a request any more: what never left is forgotten, and a wait is cancelled (W3). A grant that raced
    /// the cancel finds nobody, and goes back.
    pub(super) fn dropped(&mut self, key: u64) {
        let Some(pending) = self.requests.dropped(key) else {
            return;
        };
        match pending.purpose {
            Purpose::Acquire(acquiring) => self.give_actor_back(acquiring.actor),
            Purpose::Call { place, life, .. } => self.not_raised(place, life, &pending.message),
            _ => {}
        }
    }

    /// A request that could have raised a token is out of the way.
    fn not_raised(&mut self, place: u32, life: u32, message: &Message) {
        if let Some(kept) = self.leases.at(place).filter(|kept| kept.life == life) {
            kept.raising &= !matches!(message, Message::Rotate(_));
        }
    }

    /// Takes in the answer to a request.
    pub(super) fn answered(&mut self, now: Instant, sequence: u64, answer: Result<Answer, Error>) {
        if let Ok(Answer::Waiting { .. }) = answer {
            return self.requests.waits(sequence);
        }
        let session_over = answer.as_ref().err().is_some_and(Error::session_over);
        let asked_session = |purpose: &Purpose| matches!(purpose, Purpose::Acquire(_) | Purpose::Close(_));
        if session_over && self.requests.get(sequence).is_some_and(|pending| asked_session(&pending.purpose)) {
            return self.session_over(now);
        }
        let Some(pending) = self.requests.take(sequence) else {
            return;
        };
        let sent = pending.sent.unwrap_or(now);
        match pending.purpose {
            Purpose::Acquire(acquiring) => {
                match answer {
                    // Nobody waits for it, so it is not asked for again.
                    Err(_) if pending.cancelled => self.give_actor_back(acquiring.actor),
                    Err(error) if pending.moved && error.code() == Some(Code::Cancelled) => {
                        self.acquire_again(now, acquiring, true);
                    }
                    answer => self.acquired(now, sent, acquiring, answer),
                }
            }
            Purpose::Call { by, place, life } => {
                self.called(now, sent, place, life, &pending.message, &answer);
                self.raised_too_late(now, place, life, &pending.message, &answer);
                match self.overtaken(place, life, pending.message, &answer) {
                    Some(message) => self.ask(now, by.key, message, Purpose::Call { by, place, life }),
                    None => by.tell.done(answer.map(Given::Answer)),
                }
            }
            Purpose::Say { by, handle } => self.said(sent, by, handle, &pending.message, answer),
            Purpose::Release { tell: who, resource } => {
                self.meter.tell(|meter| meter.released(&resource));
                tell(who, answer);
            }
            Purpose::Renew(one) => {
                self.shown(now, one, &answer);
                self.raised_too_late(now, one.place, one.life, &pending.message, &answer);
            }
            Purpose::Session(attempt, known) => {
                self.session_told(now, attempt, &answer);
                if matches!(&answer, Ok(Answer::Session(grant)) if grant.mismatch) {
                    self.compare(known);
                }
            }
            Purpose::Close(who) => self.closed(who),
            Purpose::Cancel | Purpose::Reconcile | Purpose::Tell => {}
        }
    }

    /// A token was raised while its lease was given back under the old one, which was refused: it is given back again.
    fn raised_too_late(
        &mut self,
        now: Instant,
        place: u32,
        life: u32,
        message: &Message,
        answer: &Result<Answer, Error>,
    ) {
        let gone = self.leases.at(place).is_none_or(|kept| kept.life != life);
        let held = match message {
            Message::Renew(renew) => renew.held.as_ref(),
            Message::Rotate(held) => Some(held),
            _ => None,
        };
        if let (true, Some(held), Ok(Answer::Current(current))) = (gone, held, answer)
            && let Some(Which::Lease(lease)) = held.which
            && current.number.get() > held.number
        {
            self.give_back(now, Held::by_id(lease_id(lease), current.number));
        }
    }

    /// A request that showed a token while it was being raised, with the new one. It was refused, so it did not happen.
    fn overtaken(
        &mut self,
        place: u32,
        life: u32,
        mut message: Message,
        answer: &Result<Answer, Error>,
    ) -> Option<Message> {
        let refused = answer.as_ref().err()?.code() == Some(Code::NotCurrent);
        let kept = self.leases.at(place).filter(|kept| refused && kept.life == life && !kept.foreign)?;
        let number = match &mut message {
            Message::Put(put) => &mut put.held.as_mut()?.number,
            Message::Pin(pin) => &mut pin.held.as_mut()?.number,
            Message::Confirm(held) | Message::Rotate(held) => &mut held.number,
            Message::HandOff(handoff) => handoff.number.as_mut()?,
            _ => return None,
        };
        let newest = kept.renewal.token().get();
        (std::mem::replace(number, newest) < newest).then_some(message)
    }

    /// What an answer means for the lease it was asked under.
    fn called(
        &mut self,
        now: Instant,
        sent: Instant,
        place: u32,
        life: u32,
        message: &Message,
        answer: &Result<Answer, Error>,
    ) {
        self.not_raised(place, life, message);
        let Some(kept) = self.leases.at(place).filter(|kept| kept.life == life) else {
            return;
        };
        match (message, answer) {
            (Message::Rotate(_), Ok(Answer::Current(current))) => kept.raised(sent, now, current),
            // Only the answer to a renewal moves a deadline.
            (Message::HandOff(_), Ok(_)) => kept.renewal.ask_now(now),
            (_, Err(error)) => match error.lost() {
                Some(reason) => kept.renewal.ended(reason),
                None => return,
            },
            _ => return,
        }
        self.attend(place, now);
    }

    /// Tells those whose patience is over what is known: that nothing left, or that it may have happened (X3).
    pub(super) fn lose_patience(&mut self, now: Instant) {
        let session = self.session.as_ref().map(|session| session.id);
        let unsent = self.requests.impatient(now, |sequence, pending| {
            pending.told_unknown = true;
            let id = session.map_or_else(String::new, |session| Key { session, sequence }.to_string());
            match &pending.purpose {
                Purpose::Acquire(acquiring) => acquiring.by.tell.unknown(id),
                Purpose::Call { by, .. } | Purpose::Say { by, .. } => by.tell.unknown(id),
                Purpose::Release { tell: Some(tell), .. } => tell.unknown(id),
                _ => {}
            }
        });
        let why = self.unreached.clone();
        let unreached = || match &why {
            Some(error) if error.is_unavailable() => {
                Error::unavailable(format!("no server could be asked in time: {}", error.message()))
            }
            Some(error) => error.clone(),
            None => Error::unavailable("no server could be asked in time"),
        };
        for pending in unsent {
            match pending.purpose {
                Purpose::Acquire(acquiring) => {
                    self.give_actor_back(acquiring.actor);
                    acquiring.by.tell.done(Err(unreached()));
                }
                Purpose::Call { by, place, life } => {
                    self.not_raised(place, life, &pending.message);
                    by.tell.done(Err(unreached()));
                }
                Purpose::Say { by, .. } => by.tell.done(Err(unreached())),
                // Nobody hears of it any more, and it is given back all the same.
                Purpose::Release { tell: who, resource } => {
                    tell(who, Err(unreached()));
                    let purpose = Purpose::Release { tell: None, resource };
                    self.ask(now, 0, pending.message, purpose);
                }
                _ => {}
            }
        }
        for (cell, group) in self.leases.in_making_for_too_long(now) {
            group.refuse(unreached());
            self.release(now, 0, &cell, None);
        }
    }
}

fn message(command: &Command<'_>) -> Message {
    leasehold_wire::ask(command).expect("a stream asks for everything but a hello")
}

/// Why a lease that is not kept here any more is not.
fn over(cell: &Cell) -> Error {
    lost(cell.view().loss.unwrap_or(Loss::Ended(Reason::Session)))
}
