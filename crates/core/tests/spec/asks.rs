//! What each command does, and what it is answered.

use leasehold_core::charter::{AtExpiry, TokenOnRenewal};
use leasehold_core::command::{
    Acquire, AcquireAll, Answer, Command, HandOff, Held, Known, OpenSession, Renew, Request, RequestId, Revoke,
    SessionGrant, Style, Terms, Which,
};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, Reason};
use leasehold_core::limits;
use leasehold_core::refusal::{Limit, NotCurrent, Refusal, What};
use leasehold_core::time::Wall;
use leasehold_core::token::{Token, plausible};

use super::model::{Actor, Cause, Memory, Name, Session, Spec, number, session_id};
use super::queue::Wanted;
use super::{charters, identity};

type Said = Result<Answer, Refusal>;

/// What is asked for, after checking.
struct Wish<'a> {
    asks: &'a [(Name, Access)],
    slots: Option<u32>,
    several: bool,
    ttl: u64,
}

fn invalid(field: &'static str) -> Refusal {
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
                if self.sessions[slot as usize].secret != *secret {
                    return Err(Refusal::Denied("the secret is not this session's; open a session of your own"));
                }
                self.hear(slot);
                Ok(self.session_answer(slot, false))
            }
            Command::Reconcile { session, leases } => self.reconcile(*session, leases),
            Command::CloseSession { session } => {
                let slot = self.live_session(*session)?;
                self.end_session(slot);
                Ok(Answer::Done)
            }
            Command::Acquire(acquire) => self.acquire(request, acquire),
            Command::AcquireAll(acquire) => self.acquire_all(request, acquire),
            Command::Cancel { session, sequence } => {
                let slot = self.live_session(*session)?;
                let of =
                    |wait: &&super::model::Wait| wait.actor.session == Some(slot) && wait.sequence == Some(*sequence);
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
    fn shown(&mut self, token: &Token) -> Result<(), Refusal> {
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

    fn open_session(&mut self, open: &OpenSession<'static>) -> Said {
        if !(limits::TTL_MIN..=self.max_ttl).contains(&open.ttl_ms) {
            return Err(invalid("ttl"));
        }
        self.sessions.push(Session {
            holder: open.holder,
            term: self.term(open.ttl_ms),
            secret: open.secret,
            waits_only: open.waits_only,
            over: false,
            memory: std::collections::BTreeMap::new(),
            lowest: 1,
        });
        Ok(self.session_answer(self.sessions.len() as u32 - 1, false))
    }

    fn session_answer(&self, slot: u32, mismatch: bool) -> Answer {
        let term = &self.sessions[slot as usize].term;
        let remaining_ms = self.deadline(term).saturating_sub(self.now);
        Answer::Session(SessionGrant { session: session_id(slot), ttl_ms: term.ttl, remaining_ms, mismatch })
    }

    /// A session that is not over. One past its deadline ends here, unless the grantor itself was late.
    fn live_session(&mut self, id: SessionId) -> Result<u32, Refusal> {
        let Some(session) = self.sessions.get(id.slot as usize).filter(|_| id.reuse == 0) else {
            return Err(Refusal::NotFound(What::Session));
        };
        let past = self.deadline(&session.term) <= self.now && !self.late;
        if session.over || past {
            if !session.over {
                self.end_session(id.slot);
            }
            return Err(Refusal::Lost(Reason::Session));
        }
        Ok(id.slot)
    }

    fn hear(&mut self, slot: u32) {
        self.sessions[slot as usize].term = self.renewed(self.sessions[slot as usize].term);
    }

    fn renew_session(&mut self, id: SessionId, known: Option<Known>) -> Said {
        let slot = self.live_session(id)?;
        self.hear(slot);
        let carried = self.carried_by(slot);
        let digest = carried.iter().fold(0, |digest, i| digest ^ self.leases[*i].number);
        let actual = Known { count: carried.len() as u32, digest };
        Ok(self.session_answer(slot, known.is_some_and(|known| known != actual)))
    }

    /// What its client does not know, although the grant was acknowledged, is an orphan.
    fn reconcile(&mut self, id: SessionId, known: &[LeaseId]) -> Said {
        let slot = self.live_session(id)?;
        for i in self.carried_by(slot) {
            let memory = self.sessions[slot as usize].memory.values();
            let mut unacknowledged = memory.filter_map(|(_, memory)| match memory {
                Memory::Granted(leases) => Some(leases),
                _ => None,
            });
            if !known.contains(&super::model::lease_id(i)) && !unacknowledged.any(|leases| leases.contains(&i)) {
                self.end_lease(i, Reason::Released);
            }
        }
        Ok(self.session_answer(slot, false))
    }

    fn acquire(&mut self, request: &Request, acquire: &Acquire<'static>) -> Said {
        let (resource, access) = (acquire.resource, acquire.access);
        self.check_terms(&acquire.terms)?;
        let ttl = self.check_ttl(acquire.ttl_ms, acquire.session)?;
        self.check_access(resource, access, acquire.slots)?;
        let actor = self.asker(acquire.session, acquire.holder)?;
        let own = self.live_on(resource).into_iter().find(|i| {
            let lease = &self.leases[*i];
            actor.session.is_some() && lease.actor == actor && lease.access == Access::Exclusive && !lease.apart
        });
        if let Some(own) = own.filter(|_| acquire.terms.reentrant && access == Access::Exclusive) {
            self.leases[own].depth += 1;
            return Ok(Answer::Granted(self.grant_now(own)));
        }
        self.check_not_own(actor, resource, access)?;
        let wish = Wish { asks: &[(resource, access)], slots: acquire.slots, several: false, ttl };
        self.take_or_wait(request, actor, &wish, &acquire.terms)
    }

    /// The first slot sizes a resource that has no size, if it is had or waited for.
    fn size(&mut self, resource: Name, slots: Option<u32>) {
        if slots.is_some() && self.capacity_known(resource).is_none() {
            self.places.entry(resource).or_default().capacity = slots;
        }
    }

    fn acquire_all(&mut self, request: &Request, acquire: &AcquireAll<'static>) -> Said {
        self.check_terms(&acquire.terms)?;
        let mut ttl = 0;
        for (i, (resource, access)) in acquire.wanted.iter().enumerate() {
            if acquire.wanted[..i].iter().any(|(other, _)| other == resource) {
                return Err(invalid("resources"));
            }
            ttl = self.check_ttl(acquire.ttl_ms, acquire.session)?;
            self.check_access(resource, *access, None)?;
        }
        let actor = self.asker(acquire.session, acquire.holder)?;
        for (resource, access) in acquire.wanted {
            self.check_not_own(actor, resource, *access)?;
        }
        let wish = Wish { asks: acquire.wanted, slots: None, several: true, ttl };
        self.take_or_wait(request, actor, &wish, &acquire.terms)
    }

    fn check_terms(&self, terms: &Terms<'static>) -> Result<(), Refusal> {
        if terms.wait_ms > limits::WAIT_MAX {
            return Err(invalid("wait"));
        }
        if terms.max_hold_ms.is_some_and(|ms| !(limits::TTL_MIN..=limits::HOLD_MAX).contains(&ms)) {
            return Err(invalid("max_hold"));
        }
        if terms.progress_ms.is_some_and(|ms| !(limits::TTL_MIN..=limits::TTL_MAX_EVER).contains(&ms)) {
            return Err(invalid("progress"));
        }
        Ok(())
    }

    /// Zero: as long as its session. Nothing means for ever (L10).
    fn check_ttl(&self, ttl: Option<u64>, session: Option<SessionId>) -> Result<u64, Refusal> {
        let carries = |id: SessionId| {
            let live = self.sessions.get(id.slot as usize).filter(|session| !session.over);
            live.is_none_or(|session| !session.waits_only)
        };
        match ttl {
            Some(ttl) if (limits::TTL_MIN..=self.max_ttl).contains(&ttl) => Ok(ttl),
            None if session.is_some_and(carries) => Ok(0),
            _ => Err(invalid("ttl")),
        }
    }

    /// What can never be had is not queued.
    fn check_access(&self, resource: &str, access: Access, slots: Option<u32>) -> Result<(), Refusal> {
        if slots.is_some_and(|slots| access != Access::Slot || !(1..=limits::CAPACITY).contains(&slots)) {
            return Err(invalid("slots"));
        }
        let known = self.capacity_known(resource);
        if slots.is_some() && known.is_some() && slots != known {
            return Err(Refusal::Conflict(What::Capacity));
        }
        if let Access::Units(units) = access {
            if units == 0 {
                return Err(invalid("units"));
            }
            let max = u64::from(known.unwrap_or(1)).saturating_sub(self.place(resource).confirmed);
            if u64::from(units) > max {
                return Err(Refusal::Exhausted { limit: Limit::Units, max, got: u64::from(units) });
            }
        }
        Ok(())
    }

    /// Who waits: in a session one of its actors.
    fn asker(&mut self, session: Option<SessionId>, holder: Name) -> Result<Actor, Refusal> {
        let Some(id) = session else {
            return Ok(Actor { session: None, holder });
        };
        let slot = self.live_session(id)?;
        let own = self.sessions[slot as usize].holder;
        Ok(Actor { session: Some(slot), holder: if holder.is_empty() { own } else { holder } })
    }

    /// Who holds what this actor is granted: of a session that only carries waits, the name alone.
    fn holder_of(&self, actor: Actor) -> Actor {
        let waits_only = actor.session.is_some_and(|slot| self.sessions[slot as usize].waits_only);
        Actor { session: if waits_only { None } else { actor.session }, ..actor }
    }

    /// What could only be had if the asker itself gave something up.
    fn check_not_own(&self, actor: Actor, resource: Name, access: Access) -> Result<(), Refusal> {
        let clash = |theirs: Access| {
            let both_read = theirs == Access::Shared && access == Access::Shared;
            let both_count = super::model::units(theirs) > 0 && super::model::units(access) > 0;
            !both_read && !both_count
        };
        // A name without a session is nobody in particular: two with one name are two holders (L5).
        let own = |lease: &&&super::model::Lease| actor.session.is_some() && lease.actor == actor;
        if self.counted_on(resource).iter().filter(own).any(|lease| clash(lease.access)) {
            return Err(self.waits_for_itself(actor, resource));
        }
        Ok(())
    }

    fn take_or_wait(&mut self, request: &Request, actor: Actor, wish: &Wish<'_>, terms: &Terms<'static>) -> Said {
        let Wish { asks, slots, several, ttl } = *wish;
        let free = asks.iter().try_for_each(|(resource, access)| self.is_free(resource, *access, terms.priority));
        let Err(why) = free.and_then(|()| self.quarantined()) else {
            self.size(asks[0].0, slots);
            let holder = self.holder_of(actor);
            let mut leases = Vec::new();
            for (resource, access) in asks {
                let wanted = Wanted {
                    resource,
                    actor: holder,
                    access: *access,
                    ttl,
                    priority: terms.priority,
                    max_hold: terms.max_hold_ms,
                    progress: terms.progress_ms,
                };
                leases.push(self.grant(&wanted, None));
            }
            return Ok(self.granted_answer(&leases, several));
        };
        if terms.wait_ms == 0 {
            return Err(why);
        }
        if actor.session.is_none() {
            return Err(invalid("wait"));
        }
        self.size(asks[0].0, slots);
        let position = asks.iter().map(|(resource, _)| self.position(resource, terms.priority)).max().expect("some");
        self.waits_ever += 1;
        let order = self.waits_ever;
        self.waits.push(super::model::Wait {
            order,
            place: None,
            actor,
            asks: asks.to_vec(),
            several,
            ttl,
            priority: terms.priority,
            until: self.now + terms.wait_ms,
            sequence: request.id.map(|id| id.sequence),
            max_hold: terms.max_hold_ms,
            progress: terms.progress_ms,
            tag: Some(request.tag),
            passes: false,
        });
        self.turn.began.push(order);
        self.preempt_for(order);
        Ok(Answer::Waiting { position })
    }

    /// The lease that the caller names rightly and that is not over (L4, L5).
    fn current(&mut self, held: &Held<'static>) -> Result<usize, Refusal> {
        let i = self.find_held(held)?;
        self.end_if_over(i, false)?;
        Ok(i)
    }

    fn find_held(&self, held: &Held<'static>) -> Result<usize, Refusal> {
        let i = match held.lease {
            Which::Id(id) => self.by_id(id, held)?,
            Which::Resource(resource) => {
                let found = self.live_on(resource).into_iter().find(|i| self.leases[*i].number == held.number.get());
                let otherwise = if self.is_known(resource) { NotCurrent::Superseded } else { NotCurrent::Unknown };
                found.ok_or_else(|| self.ended_or(held, otherwise))?
            }
        };
        let actor = self.leases[i].actor;
        let right_session = held.session.is_none_or(|id| actor.session.map(session_id) == Some(id));
        if !right_session || held.holder.is_some_and(|holder| holder != actor.holder) {
            return Err(Refusal::NotCurrent(NotCurrent::NotHolder));
        }
        Ok(i)
    }

    fn by_id(&self, id: LeaseId, held: &Held<'static>) -> Result<usize, Refusal> {
        let i = id.slot as usize;
        match self.leases.get(i).filter(|_| id.reuse == 0) {
            None => Err(self.ended_or(held, NotCurrent::Unknown)),
            Some(lease) if lease.number != held.number.get() => Err(Refusal::NotCurrent(NotCurrent::Superseded)),
            Some(lease) => lease.end.map_or(Ok(i), |reason| Err(Refusal::Lost(reason))),
        }
    }

    fn ended_or(&self, held: &Held<'static>, otherwise: NotCurrent) -> Refusal {
        let ended = self.leases.iter().find(|lease| lease.end.is_some() && lease.number == held.number.get());
        ended.and_then(|lease| lease.end).map_or(Refusal::NotCurrent(otherwise), Refusal::Lost)
    }

    /// A late turn does not hold the grantor's own standing still against a holder; no other end has such grace (L12).
    fn end_if_over(&mut self, i: usize, brings_progress: bool) -> Result<(), Refusal> {
        let (deadline, reason) = self.lease_deadline(&self.leases[i]);
        let excused = reason == Reason::Ttl || (reason == Reason::Stalled && brings_progress);
        if deadline <= self.now && !(self.late && excused) {
            self.end_lease(i, reason);
            return Err(Refusal::Lost(reason));
        }
        if let Some(slot) = self.leases[i].actor.session.filter(|_| self.leases[i].rides)
            && self.deadline(&self.sessions[slot as usize].term) <= self.now
            && !self.late
        {
            self.end_session(slot);
            return Err(Refusal::Lost(Reason::Session));
        }
        Ok(())
    }

    fn renew(&mut self, renew: &Renew<'static>) -> Said {
        let i = self.find_held(&renew.held)?;
        self.end_if_over(i, renew.progress.is_some())?;
        if let Some(at) = renew.progress {
            self.progress(i, at);
            self.end_if_over(i, false)?;
        }
        if let Some(ttl) = renew.ttl_ms {
            if self.leases[i].rides || !(limits::TTL_MIN..=self.max_ttl).contains(&ttl) {
                return Err(invalid("ttl"));
            }
            let term = &mut self.leases[i].term;
            if term.ttl != ttl {
                // A change of ttl is put on record, and so is that it was alive.
                (term.ttl, term.stalls) = (ttl, self.stalls.len());
            }
        }
        self.leases[i].term = self.renewed(self.leases[i].term);
        let rotates = self.charter(self.leases[i].resource).token_on_renewal == TokenOnRenewal::Rotate;
        if rotates && !self.leases[i].apart && self.quarantined().is_ok() {
            self.rotate(i);
        }
        Ok(Answer::Current(self.current_now(i)))
    }

    fn rotate(&mut self, i: usize) {
        self.counter = self.next_number();
        self.leases[i].number = self.counter;
        self.turn.granted.push(self.counter);
    }

    /// The same position twice is no progress (G1).
    fn progress(&mut self, i: usize, at: u64) {
        let Some(mut progress) = self.leases[i].progress.filter(|progress| at > progress.seen) else {
            return;
        };
        progress.seen = at;
        if progress.term.tenure != self.tenure {
            progress.on_record = at;
        }
        progress.term = self.renewed(progress.term);
        self.leases[i].progress = Some(progress);
    }

    fn release(&mut self, held: &Held<'static>) -> Said {
        let i = self.current(held)?;
        match self.leases[i].depth {
            0 if self.is_handed_off(i) => self.end_drained(i),
            0 => match self.leases[i].drain.map(|drain| drain.cause.reason()) {
                Some(reason @ (Reason::Operator | Reason::Policy)) => self.end_lease(i, reason),
                _ => self.end_lease(i, Reason::Released),
            },
            depth => self.leases[i].depth = depth - 1,
        }
        Ok(Answer::Done)
    }

    fn is_handed_off(&self, i: usize) -> bool {
        self.leases[i].drain.is_some_and(|drain| drain.cause.reason() == Reason::HandedOff)
    }

    /// The leases that somebody with authority means.
    fn leases_of(&self, which: &Which<'static>) -> Result<Vec<usize>, Refusal> {
        match *which {
            Which::Id(id) => match self.leases.get(id.slot as usize).filter(|_| id.reuse == 0) {
                None => Err(Refusal::NotCurrent(NotCurrent::Unknown)),
                Some(lease) => lease.end.map_or(Ok(vec![id.slot as usize]), |reason| Err(Refusal::Lost(reason))),
            },
            Which::Resource(resource) => {
                let leases = self.live_on(resource);
                if leases.is_empty() { Err(Refusal::NotFound(What::Lease)) } else { Ok(leases) }
            }
        }
    }

    fn revoke(&mut self, revoke: &Revoke<'static>) -> Said {
        if !matches!(revoke.reason, Reason::Operator | Reason::Policy) {
            return Err(invalid("reason"));
        }
        for i in self.leases_of(&revoke.which)? {
            if revoke.grace_ms == 0 {
                self.end_lease(i, revoke.reason);
            } else {
                self.announce(i, Cause::Revoked(revoke.reason), revoke.grace_ms);
            }
        }
        Ok(Answer::Done)
    }

    fn hand_off(&mut self, handoff: &HandOff<'static>) -> Said {
        let i = match handoff.number {
            Some(number) => self.current(&Held { lease: handoff.which, number, session: None, holder: None })?,
            None => match self.leases_of(&handoff.which)?[..] {
                [i] => i,
                _ => return Err(invalid("lease")),
            },
        };
        let (resource, access) = (self.leases[i].resource, self.leases[i].access);
        if !matches!(access, Access::Exclusive | Access::Slot) {
            return Err(invalid("access"));
        }
        if self.leases[i].drain.is_some() {
            return Err(Refusal::Conflict(What::Handoff));
        }
        let rule = self.charter(resource).handoff.unwrap_or_default();
        let style = handoff.style.unwrap_or(rule.style);
        let drain = handoff.drain_ms.unwrap_or(rule.drain_ms);
        if !(limits::TTL_MIN..=limits::GRACE_MAX).contains(&drain) {
            return Err(invalid("drain"));
        }
        let to = handoff.to.unwrap_or_default();
        if style == Style::Overlap {
            self.quarantined()?;
            let successor = self.successor(resource, to, access).ok_or(Refusal::NotFound(What::Wait))?;
            self.fits_instead(i)?;
            self.announce(i, Cause::HandOff(style, to), drain);
            self.grant_wait(successor, Some(i));
        } else {
            self.announce(i, Cause::HandOff(style, to), drain);
        }
        Ok(Answer::Current(self.current_now(i)))
    }

    /// Whether a successor fits where its predecessor stands.
    fn fits_instead(&self, i: usize) -> Result<(), Refusal> {
        let lease = &self.leases[i];
        let place = self.place(lease.resource);
        if place.for_operator {
            return Err(Refusal::HeldForOperator);
        }
        let (max, got) = (u64::from(self.capacity(lease.resource)), self.used(lease.resource) + place.confirmed);
        if lease.access == Access::Slot && (got > max || u64::from(lease.slot) >= max) {
            return Err(Refusal::Exhausted { limit: Limit::Units, max, got });
        }
        Ok(())
    }

    fn hold(&mut self, held: &Held<'static>) -> Result<(usize, u32), Refusal> {
        let i = self.current(held)?;
        match self.leases[i].access {
            Access::Units(units) => Ok((i, units)),
            _ => Err(Refusal::Conflict(What::Hold)),
        }
    }

    fn resize(&mut self, held: &Held<'static>, units: u32) -> Said {
        let (i, before) = self.hold(held)?;
        if units == 0 {
            return Err(invalid("units"));
        }
        let resource = self.leases[i].resource;
        let max = u64::from(self.capacity(resource));
        let got = self.used(resource) - u64::from(before) + u64::from(units) + self.place(resource).confirmed;
        if units > before && got > max {
            return Err(Refusal::Exhausted { limit: Limit::Units, max, got });
        }
        self.leases[i].access = Access::Units(units);
        self.units.reserved = self.units.reserved - u64::from(before) + u64::from(units);
        Ok(Answer::Current(self.current_now(i)))
    }

    /// An obligation in flight keeps a hold over its expiry, for a bounded time.
    fn veto(&mut self, held: &Held<'static>, for_ms: u64) -> Said {
        let (i, _) = self.hold(held)?;
        let lease = &self.leases[i];
        let most = match charters::of(lease.resource).map(|charter| charter.at_expiry) {
            None => lease.term.ttl,
            Some(AtExpiry::Veto { max_ms }) => max_ms,
            Some(AtExpiry::Free) => return Err(invalid("veto")),
        };
        if for_ms == 0 || lease.rides {
            return Err(invalid("veto"));
        }
        let until = (self.now + for_ms).min(self.deadline(&lease.term) + most);
        self.leases[i].veto = Some(until);
        Ok(Answer::Current(self.current_now(i)))
    }

    /// L11: the same request gives the same answer; a grant or a wait is told as it stands now.
    fn answered_before(
        &mut self,
        request: &Request,
        id: &RequestId,
        command: &Command<'static>,
    ) -> Result<Option<Said>, Refusal> {
        let slot = self.live_session(id.session)?;
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
                let mine = |wait: &&mut super::model::Wait| {
                    wait.actor.session == Some(slot) && wait.sequence == Some(id.sequence)
                };
                let wait = waits.find(mine).expect("a wait that is remembered as waiting");
                wait.tag = Some(request.tag);
                let wait = wait.clone();
                Ok(Answer::Waiting { position: self.stands_at(&wait) })
            }
        }))
    }

    /// A wait that can never come true is told so at once.
    fn refuse_hopeless(&mut self, resource: &str) {
        let left = u64::from(self.capacity(resource)).saturating_sub(self.place(resource).confirmed);
        let hopeless = self.queue(resource).into_iter().filter_map(|wait| {
            let got = match wait.asks_for(resource)? {
                Access::Units(units) => u64::from(units),
                Access::Slot => 1,
                Access::Exclusive | Access::Shared => 0,
            };
            (got > left).then_some((wait.order, got))
        });
        for (order, got) in hopeless.collect::<Vec<_>>() {
            self.end_wait(order, &Refusal::Exhausted { limit: Limit::Units, max: left, got });
        }
    }

    /// A wait's place now, in the queue where it stands furthest back.
    fn stands_at(&self, wait: &super::model::Wait) -> u32 {
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
        Answer::Current(current) => Answer::Current(leasehold_core::command::Current {
            remaining_ms: current.remaining_ms.saturating_sub(by),
            drain_ms: current.drain_ms.map(|ms| ms.saturating_sub(by)),
            overlaps_ms: current.overlaps_ms.map(|ms| ms.saturating_sub(by)),
            ..current
        }),
        Answer::Session(grant) => Answer::Session(leasehold_core::command::SessionGrant {
            remaining_ms: grant.remaining_ms.saturating_sub(by),
            ..grant
        }),
        other => other,
    })
}

/// The token that a run shows, as this cluster would print it.
pub fn token(raw: u64, incarnation: u32, ours: bool) -> Token {
    Token {
        cluster: if ours { identity::CLUSTER } else { identity::STRANGER },
        incarnation: identity::incarnation(incarnation),
        resource: [0; 8],
        reach: leasehold_core::token::Reach::Slot(0),
        number: number(raw),
    }
}
