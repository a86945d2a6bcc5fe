//! What each command does and what it is answered, once and again.

use leasehold_core::command::{Answer, Command, Current, HandOff, Held, Request, RequestId, SessionGrant};
use leasehold_core::lease::{Access, Reason};
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, What};
use leasehold_core::time::Wall;
use leasehold_core::token::{Reach, Token, plausible};

use super::identity;
use super::model::{Memory, Spec, Wait, number};

/// An answer, or the refusal.
pub type Said = Result<Answer, Refusal>;

/// A field holds what it may not; the words are the core's own.
pub fn invalid(field: &'static str) -> Refusal {
    Refusal::Invalid { field, reason: "" }
}

impl Spec {
    pub fn ask(&mut self, request: &Request, command: &Command<'static>) {
        let answer = self.decide(request, command).unwrap_or_else(Answer::Refused);
        self.tell(request.tag, answer);
    }

    fn decide(&mut self, request: &Request, command: &Command<'static>) -> Said {
        if let Some(token) = &request.shown {
            self.shown(token)?;
        }
        match (command, &request.id) {
            (Command::Renew(renew), _) => self.renew(renew),
            (Command::RenewSession { session, known }, _) => self.renew_session(*session, *known),
            (Command::Confirm(held), _) => {
                let i = self.current(held)?;
                Ok(Answer::Current(self.current_now(i)))
            }
            (Command::Show, _) => Ok(Answer::Done),
            (_, None) => self.perform(request, command),
            (_, Some(id)) => match self.answered_before(request, id, command)? {
                Some(said) => said,
                None => {
                    let said = self.perform(request, command);
                    self.remember(id, &said);
                    said
                }
            },
        }
    }

    fn perform(&mut self, request: &Request, command: &Command<'static>) -> Said {
        match command {
            Command::OpenSession(open) => self.open_session(open),
            Command::ResumeSession { session, secret } => {
                let slot = self.live_session(*session)?;
                if self.sessions[slot as usize].secret != secret.0 {
                    return Err(Refusal::Denied("the secret is not this session's; open a session of your own"));
                }
                self.hear(slot);
                Ok(self.session_answer(slot, false))
            }
            Command::Reconcile { session, leases, part } => self.reconcile(*session, leases, *part),
            Command::CloseSession { session } => {
                let slot = self.live_session(*session)?;
                self.end_session(slot);
                Ok(Answer::Done)
            }
            Command::Acquire(acquire) => self.acquire(request, acquire),
            Command::AcquireAll(acquire) => self.acquire_all(request, acquire),
            Command::Cancel { session, sequence } => {
                let slot = self.live_session(*session)?;
                let of = |wait: &&Wait| wait.actor.session == Some(slot) && wait.sequence == Some(*sequence);
                let order = self.waits.iter().find(of).ok_or(Refusal::NotFound(What::Wait))?.order;
                self.end_wait(order, &Refusal::Cancelled);
                Ok(Answer::Done)
            }
            Command::Release(held) => self.release(held),
            Command::Rotate(held) => {
                let i = self.current(held)?;
                // A new token of a draining predecessor would stand above its successor's (H2).
                if self.leases[i].apart {
                    return Err(Refusal::Conflict(What::Handoff));
                }
                self.quarantined()?;
                self.rotate(i);
                Ok(Answer::Current(self.current_now(i)))
            }
            Command::Progress { held, at } => {
                let i = self.find_held(held)?;
                self.end_if_over(i, true)?;
                self.progress(i, *at);
                self.end_if_over(i, false)?;
                Ok(Answer::Current(self.current_now(i)))
            }
            Command::Revoke(revoke) => self.revoke(revoke),
            Command::Free { resource, .. } => {
                if !self.place(resource).for_operator {
                    return Err(Refusal::NotFound(What::Hold));
                }
                self.places.get_mut(resource).expect("it is held for an operator").for_operator = false;
                self.tidy();
                Ok(Answer::Done)
            }
            Command::HandOff(handoff) => self.hand_off(handoff),
            Command::Drained(held) => {
                let i = self.current(held)?;
                if !self.is_handed_off(i) {
                    return Err(Refusal::NotFound(What::Handoff));
                }
                self.end_drained(i);
                Ok(Answer::Done)
            }
            Command::SetCapacity { resource, units } => {
                if !(1..=limits::CAPACITY).contains(units) {
                    return Err(invalid("capacity"));
                }
                let place = self.places.entry(resource).or_default();
                (place.capacity, place.lasting) = (Some(*units), true);
                self.refuse_hopeless(resource);
                Ok(Answer::Done)
            }
            Command::ConfirmHold(held) => {
                let (i, units) = self.hold(held)?;
                self.places.entry(self.leases[i].resource).or_default().confirmed += u64::from(units);
                self.end_plainly(i, Reason::Released);
                self.units.given_back -= u64::from(units);
                self.units.confirmed += u64::from(units);
                self.refuse_hopeless(self.leases[i].resource);
                Ok(Answer::Done)
            }
            Command::ResizeHold { held, units } => self.resize(held, *units),
            Command::Veto { held, for_ms } => self.veto(held, *for_ms),
            Command::Pin { held, at } => {
                let i = self.current(held)?;
                if self.leases[i].access != Access::Shared {
                    return Err(invalid("access"));
                }
                if *at < self.place(self.leases[i].resource).floor {
                    return Err(Refusal::Conflict(What::Floor));
                }
                self.leases[i].pinned = Some(*at);
                Ok(Answer::Current(self.current_now(i)))
            }
            Command::Collect { resource, below } => {
                let pins = self.live_on(resource).into_iter().filter_map(|i| self.leases[i].pinned);
                let floor = (*below).min(pins.min().unwrap_or(u64::MAX)).max(self.place(resource).floor);
                if floor > 0 {
                    self.places.entry(resource).or_default().floor = floor;
                }
                Ok(Answer::CollectBelow(floor))
            }
            Command::Report { cluster, reports } => self.report(*cluster, reports),
            Command::ForgetTarget { resource, target, .. } => self.forget(resource, target),
            Command::WaiveQuarantine { .. } => {
                if self.quarantined().is_ok() {
                    return Err(Refusal::NotFound(What::Quarantine));
                }
                self.quarantine = None;
                Ok(Answer::Done)
            }
            other => unreachable!("not asked here: {other:?}"),
        }
    }

    /// T9: a token of this cluster and incarnation above the counter.
    pub fn shown(&mut self, token: &Token) -> Result<(), Refusal> {
        let ours = (token.cluster, token.incarnation) == (identity::CLUSTER, identity::incarnation(self.incarnation));
        if !ours || token.number.get() <= self.counter {
            return Ok(());
        }
        if !plausible(token.number, Wall::after_era(self.wall)) {
            return Err(Refusal::Implausible { shown: token.number });
        }
        self.counter = token.number.get();
        self.counter = self.next_number() - 1;
        self.quarantine = Some((self.now + self.max_ttl, true));
        Ok(())
    }

    /// L11: the same request gives the same answer; a grant or a wait is told as it stands now.
    fn answered_before(
        &mut self,
        request: &Request,
        id: &RequestId,
        command: &Command<'static>,
    ) -> Result<Option<Said>, Refusal> {
        let slot = match self.live_session(id.session) {
            Err(Refusal::Lost(_)) if self.names_what_is_held(command) => return Err(Refusal::NotFound(What::Session)),
            found => found?,
        };
        let session = &self.sessions[slot as usize];
        if id.sequence == 0 || id.lowest > id.sequence {
            return Err(invalid("sequence"));
        }
        if id.sequence < session.lowest {
            return Err(Refusal::TooOld { lowest: session.lowest });
        }
        let Some((digest, memory)) = session.memory.get(&id.sequence).cloned() else {
            return Ok(None);
        };
        if digest != id.digest {
            return Err(Refusal::Conflict(What::Request));
        }
        let several = matches!(command, Command::AcquireAll(_));
        Ok(Some(match memory {
            Memory::Said(said, then) => less(said, self.now - then),
            Memory::Granted(leases) => match leases.iter().find_map(|i| self.leases[*i].end) {
                Some(reason) => Err(Refusal::Lost(reason)),
                None => Ok(self.granted_answer(&leases, several)),
            },
            Memory::Waiting => {
                let mut waits = self.waits.iter_mut();
                let mine = |wait: &&mut Wait| wait.actor.session == Some(slot) && wait.sequence == Some(id.sequence);
                let wait = waits.find(mine).expect("a wait that is remembered as waiting");
                wait.tag = Some(request.tag);
                let wait = wait.clone();
                Ok(Answer::Waiting { position: self.stands_at(&wait) })
            }
        }))
    }

    /// L4: what a request names may live without the session that would remember the answer; then no end of it is told.
    fn names_what_is_held(&self, command: &Command<'static>) -> bool {
        let held = match command {
            Command::Release(held) | Command::Rotate(held) | Command::Drained(held) | Command::ConfirmHold(held) => {
                *held
            }
            Command::Progress { held, .. }
            | Command::ResizeHold { held, .. }
            | Command::Veto { held, .. }
            | Command::Pin { held, .. } => *held,
            Command::HandOff(HandOff { which, number: Some(number), .. }) => {
                Held { lease: *which, number: *number, session: None, holder: None }
            }
            _ => return false,
        };
        self.find_held(&Held { session: None, holder: None, ..held }).is_ok()
    }

    /// A wait's place now, in the queue where it stands furthest back.
    fn stands_at(&self, wait: &Wait) -> u32 {
        let at = |resource: &str| self.queue(resource).iter().position(|other| other.order == wait.order);
        wait.asks.iter().map(|(resource, _)| 1 + at(resource).expect("it stands there") as u32).max().expect("some")
    }

    fn remember(&mut self, id: &RequestId, said: &Said) {
        let memory = match said {
            Ok(Answer::Granted(grant)) => Memory::Granted(vec![grant.lease.slot as usize]),
            Ok(Answer::GrantedAll(all)) => Memory::Granted(all.iter().map(|grant| grant.lease.slot as usize).collect()),
            Ok(Answer::Waiting { .. }) => Memory::Waiting,
            // What follows from the request alone will follow again.
            Err(
                Refusal::Invalid { .. }
                | Refusal::Name(_)
                | Refusal::Token(_)
                | Refusal::Denied(_)
                | Refusal::TooOld { .. },
            ) => return,
            said => Memory::Said(said.clone(), self.now),
        };
        let session = &mut self.sessions[id.session.slot as usize];
        if !session.over {
            session.lowest = session.lowest.max(id.lowest);
            session.memory.insert(id.sequence, (id.digest, memory));
            session.memory.retain(|sequence, _| *sequence >= session.lowest);
        }
    }
}

/// An answer told again: what was left of a time is less by now.
fn less(said: Said, by: u64) -> Said {
    said.map(|answer| match answer {
        Answer::Current(current) => Answer::Current(Current {
            remaining_ms: current.remaining_ms.saturating_sub(by),
            drain_ms: current.drain_ms.map(|ms| ms.saturating_sub(by)),
            overlaps_ms: current.overlaps_ms.map(|ms| ms.saturating_sub(by)),
            ..current
        }),
        Answer::Session(grant) => {
            Answer::Session(SessionGrant { remaining_ms: grant.remaining_ms.saturating_sub(by), ..grant })
        }
        other => other,
    })
}

/// The token that a run shows, as this cluster would print it.
pub fn token(raw: u64, incarnation: u32, ours: bool) -> Token {
    Token {
        cluster: if ours { identity::CLUSTER } else { identity::STRANGER },
        incarnation: identity::incarnation(incarnation),
        resource: [0; 8],
        reach: Reach::Slot(0),
        number: number(raw),
    }
}
