//! Wait queues: start, end and grant of waits. Waiters are served by priority, then in order of arrival.

use super::Grantor;
use super::grant::NewLease;
use super::table::lease::NONE;
use super::table::resource::QueuePosition;
use crate::command::{Answer, SessionEvent};
use crate::ids::SessionId;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::{Refusal, RefusalSubject};
use crate::token::Number;

impl Grantor {
    /// Updates priorities and deadlock suspects after a wait was recorded.
    pub(super) fn wait_began(&mut self, waiter: u32) {
        let actor = self.table.waiter(waiter).actor;
        for i in 0..self.table.waiter(waiter).resources.len() {
            let resource = self.table.waiter(waiter).resources[i].resource;
            // The waiters ahead of it may not be grantable now.
            self.table.schedule_offer(resource);
        }
        self.inherit_from(waiter);
        self.preempt_for(waiter);
        // A later waiter for this actor triggers its own check.
        if self.may_be_stuck(actor) {
            self.deadlock_detector.suspect(actor);
        }
    }

    /// Cancels a wait. If a grant raced the cancel, the wait is unknown and the caller releases the lease (W3).
    pub(super) fn cancel(&mut self, session: SessionId, sequence: u64) -> Result<Answer, Refusal> {
        let slot = self.live_session(session)?;
        match self.waiter_of(slot, sequence) {
            Some(_) if mutants::on(Mutant::CancelIgnored) => Ok(Answer::Done),
            Some(waiter) => {
                self.end_wait(waiter, Refusal::Cancelled);
                Ok(Answer::Done)
            }
            None => Err(Refusal::NotFound(RefusalSubject::Wait)),
        }
    }

    /// Cancels a wait without a request id whose caller disconnected. If a grant raced it, the driver releases the lease,
    /// because no one received it.
    pub(super) fn withdraw(&mut self, session: SessionId, tag: u64) -> Result<Answer, Refusal> {
        let slot = self.live_session(session)?;
        let waits = self.table.session_waits(slot);
        let left = waits.into_iter().find(|waiter| {
            let wait = self.table.waiter(*waiter);
            wait.tag == Some(tag) && wait.sequence.is_none()
        });
        let waiter = left.ok_or(Refusal::NotFound(RefusalSubject::Wait))?;
        self.end_wait(waiter, Refusal::Cancelled);
        Ok(Answer::Done)
    }

    /// The wait that this request of the session started.
    pub(super) fn waiter_of(&self, session: u32, sequence: u64) -> Option<u32> {
        let actors = self.table.session(session).actors.iter();
        let mut waits = actors.flat_map(|actor| self.table.actors[*actor].waits.iter().copied());
        waits.find(|waiter| self.table.waiter(*waiter).sequence == Some(sequence))
    }

    /// The worst position of a waiter over all its queues, from 1.
    pub(super) fn queue_position_of(&self, waiter: u32) -> u32 {
        let wait = self.table.waiter(waiter);
        let mine = QueuePosition::new(wait.effective, wait.order, waiter);
        let ahead = wait.resources.iter().map(|wanted| {
            let state = self.table.resources.state(wanted.resource);
            state.map_or(0, |state| state.queue.iter().take_while(|position| *position < mine).count())
        });
        1 + ahead.max().unwrap_or(0) as u32
    }

    /// Ends a wait without a grant and replies to its caller.
    pub(super) fn end_wait(&mut self, waiter: u32, refusal: Refusal) {
        let wait = self.table.waiter(waiter);
        let (tag, actor) = (wait.tag, wait.actor);
        let resources: Vec<u32> = wait.resources.iter().map(|wanted| wanted.resource).collect();
        let remains = self.table.actors[actor].waits.len() > 1;
        self.suspect_followers(waiter);
        let holders = self.inheritors_of(waiter, |_| false);
        self.record(&Record::WaitEnded { waiter, refusal: refusal.clone() });
        if let Some(tag) = tag {
            self.reply(tag, Answer::Refused(refusal));
        }
        self.after_wait_left(&holders, &resources);
        if remains {
            // Its other waits may now be part of a deadlock.
            self.deadlock_detector.suspect(actor);
        }
    }

    /// Marks the waiters behind a leaving wait as deadlock suspects. If its actor has other waits, they may have depended on
    /// those, and now depend on another waiter ahead of them.
    pub(super) fn suspect_followers(&mut self, waiter: u32) {
        let wait = self.table.waiter(waiter);
        if self.table.actors[wait.actor].waits.len() < 2 {
            return;
        }
        let mine = QueuePosition::new(wait.effective, wait.order, waiter);
        let followers: Vec<u32> = wait
            .resources
            .iter()
            .filter_map(|wanted| {
                let mut behind = self.table.resources.state(wanted.resource)?.queue.behind(mine);
                behind
                    .find(|position| self.is_session_confirmed(position.waiter))
                    .map(|position| self.table.waiter(position.waiter).actor)
            })
            .collect();
        followers.into_iter().for_each(|actor| self.deadlock_detector.suspect(actor));
    }

    /// Whether a new waiter of this priority would have a grantable waiter ahead of it.
    pub(super) fn has_waiter_ahead(&self, resource: u32, priority: u8) -> bool {
        let Some(state) = self.table.resources.state(resource) else {
            return false;
        };
        let newcomer = QueuePosition::new(priority, u64::MAX, NONE);
        state
            .queue
            .iter()
            .take_while(|position| *position < newcomer)
            .any(|position| self.is_session_confirmed(position.waiter))
    }

    /// Whether a waiter's session was renewed in this tenure. Until then the waiter keeps its position and blocks no one.
    fn is_session_confirmed(&self, waiter: u32) -> bool {
        let session = self.table.actors[self.table.waiter(waiter).actor].session;
        self.table.session(session).renewal.alive_in_tenure(&self.table.clock)
    }

    /// Whether a waiter may be granted: its session was renewed in this tenure and is alive at this step (L8).
    pub(super) fn may_be_granted(&self, waiter: u32) -> bool {
        if mutants::on(Mutant::DeadWaiterGranted) {
            return true;
        }
        let session = self.table.actors[self.table.waiter(waiter).actor].session;
        self.is_session_confirmed(waiter) && self.table.session_deadline(session, self.now()) > self.now()
    }

    /// Offers freed resources to their waiters, within the budget of one turn; the rest follows in the next turn.
    pub(super) fn offer_resources(&mut self, mut budget: usize) {
        if self.only_endings || self.check_quarantine().is_err() {
            return;
        }
        // Offers scheduled meanwhile are processed in the next turn at the latest; no queue is forgotten (W2).
        while self.may_offer(budget) {
            let Some(resource) = self.table.due.offers.pop_front() else {
                return;
            };
            let Some(state) = self.table.resources.state_mut(resource) else {
                continue;
            };
            state.to_offer = false;
            budget -= 1;
            while self.may_offer(budget) {
                match self.next_grantable(resource) {
                    Some(waiter) => {
                        if self.grant_waiter(waiter, None).is_err() {
                            return;
                        }
                        budget -= 1;
                        // The resource may have become vacant with its last waiter.
                        if self.table.resources.at(resource).is_none() {
                            break;
                        }
                    }
                    None => break,
                }
            }
            if !self.may_offer(budget) && self.table.resources.at(resource).is_some() {
                self.table.schedule_offer(resource);
            }
        }
    }

    /// Whether the turn may grant more: grants can be large, and the journal limits the batch size.
    fn may_offer(&self, budget: usize) -> bool {
        budget > 0 && self.out.batch.len() < limits::OFFER_BYTES
    }

    /// The first waiter in the queue that can be granted completely. No waiter passes a blocked one, unless the blocked one
    /// waits for it.
    fn next_grantable(&self, resource: u32) -> Option<u32> {
        let state = self.table.resources.state(resource)?;
        let mut passers = state.passers;
        let mut blocked = false;
        for position in state.queue.iter() {
            let may_pass = self.table.waiter(position.waiter).may_pass;
            passers -= u32::from(may_pass);
            if !self.may_be_granted(position.waiter) {
                continue;
            }
            if (!blocked || may_pass) && self.can_be_granted_all(position.waiter) {
                return Some(position.waiter);
            }
            blocked = !mutants::on(Mutant::QueueOrderIgnored);
            if blocked && passers == 0 {
                return None;
            }
        }
        None
    }

    /// Whether all resources of a waiter are free, and it is first or may pass in every queue.
    fn can_be_granted_all(&self, waiter: u32) -> bool {
        let wait = self.table.waiter(waiter);
        let mine = QueuePosition::new(wait.effective, wait.order, waiter);
        wait.resources.iter().all(|wanted| {
            let Some(state) = self.table.resources.state(wanted.resource) else {
                return false;
            };
            let capacity = self.table.capacity(wanted.resource);
            let first = wait.may_pass
                || wait.resources.len() == 1
                || !state
                    .queue
                    .iter()
                    .take_while(|position| *position < mine)
                    .any(|position| self.may_be_granted(position.waiter));
            first && state.fits(wanted.access, capacity)
        })
    }

    /// Grants all resources of a waiter and replies to it. The ttl starts now.
    pub(super) fn grant_waiter(&mut self, waiter: u32, overlaps: Option<u32>) -> Result<(), Refusal> {
        let wait = self.table.waiter(waiter).clone();
        let last = self.next_number()?.get().checked_add(wait.resources.len() as u64 - 1);
        last.and_then(Number::new).ok_or(Refusal::TokensExhausted)?;
        let actor = &self.table.actors[wait.actor];
        let session = actor.session;
        let id = self.session_id(session);
        let waits_only = self.table.session(session).waits_only;
        let owner = self.session_owner(id).filter(|_| waits_only);
        let waits_elsewhere = actor.waits.len() > 1;
        self.suspect_followers(waiter);
        let resources: Vec<u32> = wait.resources.iter().map(|wanted| wanted.resource).collect();
        let holders = self.inheritors_of(waiter, |_| false);
        let (mut name, mut holder) = std::mem::take(&mut self.scratch);
        holder.clear();
        holder.push_str(self.table.holder_name(wait.actor));
        let mut grants = Vec::with_capacity(wait.resources.len());
        for wanted in &wait.resources {
            name.clear();
            name.push_str(self.table.resources.name(wanted.resource));
            let (max_hold, progress) = self.effective_limits(&name, wait.max_hold, wait.progress);
            let new_lease = NewLease {
                resource: &name,
                session: if waits_only { NONE } else { session },
                owner: owner.as_deref(),
                holder: &holder,
                access: wanted.access,
                ttl: wait.ttl,
                priority: wait.priority,
                max_hold,
                progress,
                metadata: &wait.metadata,
            };
            let slot = self.grant(&new_lease, Some(waiter), overlaps);
            grants.push(self.grant_answer(slot));
        }
        self.scratch = (name, holder);
        for grant in &grants {
            self.notify(Some(id), SessionEvent::Granted { lease: grant.lease, number: grant.number });
        }
        if let Some(tag) = wait.tag {
            let answer = if wait.atomic { Answer::GrantedAll(grants.into()) } else { Answer::Granted(grants[0]) };
            self.reply(tag, answer);
        }
        self.after_wait_left(&holders, &resources);
        if waits_elsewhere {
            // It holds a new lease and still waits for another one.
            self.after_hold_grew(wait.actor);
        }
        Ok(())
    }

    pub(super) fn session_id(&self, slot: u32) -> SessionId {
        let (reuse, _) = self.table.sessions.at(slot).expect("a live session");
        SessionId { slot, reuse }
    }
}
