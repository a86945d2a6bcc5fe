//! Effect and answer of each command, including retries.

use leasehold_core::command::{Answer, Command, CurrentLease, Handoff, LeaseRef, Request, RequestId, SessionGrant};
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, RefusalSubject};
use leasehold_core::time::WallClock;
use leasehold_core::token::{Number, Token, TokenScope, plausible};

use super::identity;
use super::model::{Spec, StoredReply, Wait, number};

/// An answer or a refusal.
pub type SpecResult = Result<Answer, Refusal>;

/// Refusal of an invalid field. The reason text is the core's own and is not compared.
pub fn invalid(field: &'static str) -> Refusal {
    Refusal::Invalid { field, reason: "" }
}

impl Spec {
    pub fn handle(&mut self, request: &Request<'_>, command: &Command<'static>) {
        let answer = self.decide(request, command).unwrap_or_else(Answer::Refused);
        self.reply(request.tag, answer);
    }

    fn decide(&mut self, request: &Request<'_>, command: &Command<'static>) -> SpecResult {
        if matches!(command, Command::OpenKeySession { command: Some(_), .. }) {
            // What it presents counts with the request under the key, or here if that will not follow.
            let opened = self.perform(request, command);
            return opened.or_else(|refusal| self.observe_tokens(request).and(Err(refusal)));
        }
        self.observe_tokens(request)?;
        match (command, &request.id) {
            (Command::Renew(renew), _) => self.renew(renew),
            (Command::RenewSession { session, held: known }, _) => self.renew_session(*session, *known),
            (Command::Confirm(held), _) => {
                let i = self.current(held)?;
                Ok(Answer::Current(self.current_lease(i)))
            }
            (Command::ObserveToken, _) => Ok(Answer::Done),
            (_, None) => self.perform(request, command),
            (_, Some(id)) => match self.stored_reply(request, id, command)? {
                Some(result) => result,
                None => {
                    let result = self.perform(request, command);
                    self.store_reply(id, &result);
                    result
                }
            },
        }
    }

    fn observe_tokens(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        request.observed.iter().chain(&request.presented).try_for_each(|token| self.observe_token(token))
    }

    fn perform(&mut self, request: &Request<'_>, command: &Command<'static>) -> SpecResult {
        match command {
            Command::OpenSession(open) => self.open_session(open),
            Command::OpenKeySession { key, command } => self.open_key_session(*key, command.is_some()),
            Command::ResumeSession { session, secret } => {
                let slot = self.live_session(*session)?;
                if self.sessions[slot as usize].secret != secret.bytes() {
                    return Err(Refusal::Denied("the secret does not match the session; open a new session"));
                }
                self.confirm_session(slot);
                Ok(self.session_answer(slot, false))
            }
            Command::Reconcile { session, leases, range: part } => self.reconcile(*session, leases, *part),
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
                let order = self.waits.iter().find(of).ok_or(Refusal::NotFound(RefusalSubject::Wait))?.order;
                self.end_wait(order, &Refusal::Cancelled);
                Ok(Answer::Done)
            }
            Command::Release(held) => self.release(held),
            Command::Rotate(held) => {
                let i = self.current(held)?;
                // A new token of a draining predecessor would be higher than its successor's (H2).
                if self.leases[i].is_predecessor {
                    return Err(Refusal::Conflict(RefusalSubject::Handoff));
                }
                self.check_quarantine()?;
                self.rotate(i);
                Ok(Answer::Current(self.current_lease(i)))
            }
            Command::Progress { lease: held, at } => {
                let i = self.find_held(held)?;
                self.end_if_over(i, true)?;
                self.progress(i, *at);
                self.end_if_over(i, false)?;
                Ok(Answer::Current(self.current_lease(i)))
            }
            Command::Revoke(revoke) => self.revoke(revoke),
            Command::Free { resource, .. } => {
                if !self.settings_of(resource).for_operator {
                    return Err(Refusal::NotFound(RefusalSubject::Hold));
                }
                self.settings.get_mut(resource).expect("it is held for an operator").for_operator = false;
                self.forget_unused();
                Ok(Answer::Done)
            }
            Command::Handoff(handoff) => self.handoff(handoff),
            Command::Drained(held) => {
                let i = self.current(held)?;
                if !self.is_handed_off(i) {
                    return Err(Refusal::NotFound(RefusalSubject::Handoff));
                }
                self.end_drained(i);
                Ok(Answer::Done)
            }
            Command::SetCapacity { resource, units } => {
                if !(1..=limits::CAPACITY).contains(units) {
                    return Err(invalid("capacity"));
                }
                let settings = self.settings.entry(resource).or_default();
                (settings.capacity, settings.lasting) = (Some(*units), true);
                self.refuse_impossible_waits(resource);
                Ok(Answer::Done)
            }
            Command::ConfirmHold(held) => {
                let (i, units) = self.reservation(held)?;
                self.settings.entry(self.leases[i].resource).or_default().confirmed += u64::from(units);
                self.end_without_hold(i, EndReason::Released);
                self.units.released -= u64::from(units);
                self.units.confirmed += u64::from(units);
                self.refuse_impossible_waits(self.leases[i].resource);
                Ok(Answer::Done)
            }
            Command::ResizeHold { lease: held, units } => self.resize(held, *units),
            Command::Veto { lease: held, for_ms } => self.veto(held, *for_ms),
            Command::Pin { lease: held, at } => {
                let i = self.current(held)?;
                if self.leases[i].access != Access::Shared {
                    return Err(invalid("access"));
                }
                if *at < self.settings_of(self.leases[i].resource).floor {
                    return Err(Refusal::Conflict(RefusalSubject::Floor));
                }
                self.leases[i].pinned = Some(*at);
                Ok(Answer::Current(self.current_lease(i)))
            }
            Command::Collect { resource, below } => {
                let pins = self.live_on(resource).into_iter().filter_map(|i| self.leases[i].pinned);
                let floor = (*below).min(pins.min().unwrap_or(u64::MAX)).max(self.settings_of(resource).floor);
                if floor > 0 {
                    self.settings.entry(resource).or_default().floor = floor;
                }
                Ok(Answer::CollectBelow(floor))
            }
            Command::Report { cluster, reports } => self.report(*cluster, reports),
            Command::ForgetTarget { resource, target, .. } => self.forget(resource, target),
            Command::WaiveQuarantine { .. } => {
                if self.check_quarantine().is_ok() {
                    return Err(Refusal::NotFound(RefusalSubject::Quarantine));
                }
                if let Some((until, true)) = self.quarantine.take() {
                    self.waived_until = until;
                }
                Ok(Answer::Done)
            }
            other => unreachable!("not part of runs: {other:?}"),
        }
    }

    /// T9: a presented token of this cluster and incarnation that was never issued.
    pub fn observe_token(&mut self, token: &Token) -> Result<(), Refusal> {
        let ours = (token.cluster, token.incarnation) == (identity::CLUSTER, identity::incarnation(self.incarnation));
        if !ours {
            return Ok(());
        }
        if self.was_never_issued(token.number.get()) {
            self.turn.lost_below_counter = true;
            self.roll_back(token.number.get());
            return Ok(());
        }
        self.observe_mark(token.number)
    }

    /// T9: a number above the counter.
    pub fn observe_mark(&mut self, number: Number) -> Result<(), Refusal> {
        if number.get() <= self.counter {
            return Ok(());
        }
        if !plausible(number, WallClock::after_era(self.wall)) {
            return Err(Refusal::Implausible { presented: number });
        }
        self.roll_back(number.get());
        Ok(())
    }

    fn roll_back(&mut self, number: u64) {
        self.counter = self.counter.max(number);
        self.counter = self.next_number() - 1;
        self.openings.clear();
        let length = if self.waived_until > self.now { 0 } else { self.max_ttl };
        let running = self.quarantine.map_or(self.now, |(until, _)| until);
        self.quarantine = Some((running.max(self.now + length), true));
    }

    /// L11: a retry gets the same answer, except that a grant or wait is reported with its current state.
    fn stored_reply(
        &mut self,
        request: &Request<'_>,
        id: &RequestId,
        command: &Command<'static>,
    ) -> Result<Option<SpecResult>, Refusal> {
        let slot = match self.live_session(id.session) {
            Err(Refusal::Lost(_)) if self.references_live_lease(command) => {
                return Err(Refusal::NotFound(RefusalSubject::Session));
            }
            found => found?,
        };
        let session = &self.sessions[slot as usize];
        if id.sequence == 0 || id.lowest > id.sequence {
            return Err(invalid("sequence"));
        }
        if id.sequence < session.lowest {
            return Err(Refusal::TooOld { lowest: session.lowest });
        }
        let Some((digest, stored)) = session.stored.get(&id.sequence).cloned() else {
            return Ok(None);
        };
        if digest != id.digest {
            return Err(Refusal::Conflict(RefusalSubject::Request));
        }
        let atomic = matches!(command, Command::AcquireAll(_));
        Ok(Some(match stored {
            StoredReply::Answer(result, then) => aged(result, self.now - then),
            StoredReply::Granted(leases) => match leases.iter().find_map(|i| self.leases[*i].end) {
                Some(reason) => Err(Refusal::Lost(reason)),
                None => Ok(self.granted_answer(&leases, atomic)),
            },
            StoredReply::Waiting => {
                let mut waits = self.waits.iter_mut();
                let mine = |wait: &&mut Wait| wait.actor.session == Some(slot) && wait.sequence == Some(id.sequence);
                let wait = waits.find(mine).expect("a stored wait still waits");
                wait.tag = Some(request.tag);
                let wait = wait.clone();
                Ok(Answer::Waiting { position: self.position_of(&wait) })
            }
        }))
    }

    /// L4: a lease may outlive the session that stores replies; then a retry must not report the lease as ended.
    fn references_live_lease(&self, command: &Command<'static>) -> bool {
        let held = match command {
            Command::Release(held) | Command::Rotate(held) | Command::Drained(held) | Command::ConfirmHold(held) => {
                *held
            }
            Command::Progress { lease: held, .. }
            | Command::ResizeHold { lease: held, .. }
            | Command::Veto { lease: held, .. }
            | Command::Pin { lease: held, .. } => *held,
            Command::Handoff(Handoff { selector, number: Some(number), .. }) => {
                LeaseRef { selector: *selector, number: *number, session: None, holder: None }
            }
            _ => return false,
        };
        self.find_held(&LeaseRef { session: None, holder: None, ..held }).is_ok()
    }

    /// Current position of a wait, in the queue where it is furthest back.
    fn position_of(&self, wait: &Wait) -> u32 {
        let at = |resource: &str| self.queue(resource).iter().position(|other| other.order == wait.order);
        wait.resources
            .iter()
            .map(|(resource, _)| 1 + at(resource).expect("the wait is in the queue") as u32)
            .max()
            .expect("some")
    }

    fn store_reply(&mut self, id: &RequestId, result: &SpecResult) {
        let stored = match result {
            Ok(Answer::Granted(grant)) => StoredReply::Granted(vec![grant.lease.slot as usize]),
            Ok(Answer::GrantedAll(all)) => {
                StoredReply::Granted(all.iter().map(|grant| grant.lease.slot as usize).collect())
            }
            Ok(Answer::Waiting { .. }) => StoredReply::Waiting,
            // Refusals that depend only on the request need not be stored.
            Err(
                Refusal::Invalid { .. }
                | Refusal::Name(_)
                | Refusal::Token(_)
                | Refusal::Denied(_)
                | Refusal::TooOld { .. },
            ) => return,
            result => StoredReply::Answer(result.clone(), self.now),
        };
        let session = &mut self.sessions[id.session.slot as usize];
        if !session.ended {
            session.lowest = session.lowest.max(id.lowest);
            session.stored.insert(id.sequence, (id.digest, stored));
            session.stored.retain(|sequence, _| *sequence >= session.lowest);
        }
    }
}

/// A stored answer, with its remaining times reduced.
fn aged(result: SpecResult, by: u64) -> SpecResult {
    result.map(|answer| match answer {
        Answer::Current(current) => Answer::Current(CurrentLease {
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

/// A token for a run, of this cluster or of another one.
pub fn token(raw: u64, incarnation: u32, ours: bool) -> Token {
    Token {
        cluster: if ours { identity::CLUSTER } else { identity::OTHER_CLUSTER },
        incarnation: identity::incarnation(incarnation),
        resource: [0; 8],
        scope: TokenScope::Slot(0),
        number: number(raw),
    }
}
