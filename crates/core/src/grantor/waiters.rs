//! Who is queued, and who is granted next: first come within a priority, one grant for one place that is free.

use super::Grantor;
use super::grant::Wanted;
use super::table::lease::NONE;
use super::table::resource::Turn;
use crate::command::{Answer, Event};
use crate::ids::SessionId;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::{Refusal, What};
use crate::token::Number;

impl Grantor {
    /// A wait was put on record: priorities and the wait-for graph have a new edge.
    pub(super) fn wait_began(&mut self, waiter: u32) {
        let party = self.table.waiter(waiter).party;
        for i in 0..self.table.waiter(waiter).asks.len() {
            let resource = self.table.waiter(waiter).asks[i].resource;
            // Whoever stands before it may be one that is not granted now.
            self.table.offer_later(resource);
        }
        self.inherit_from(waiter);
        self.preempt_for(waiter);
        // Who comes to wait for it later is an event of its own.
        if self.could_be_stuck(party) {
            self.cycles.suspect(party);
        }
    }

    /// Takes a wait back. A grant that raced the cancel is given back by its own answer: the wait is then unknown (W3).
    pub(super) fn cancel(&mut self, session: SessionId, sequence: u64) -> Result<Answer, Refusal> {
        let slot = self.live_session(session)?;
        match self.waiter_of(slot, sequence) {
            Some(_) if mutants::on(Mutant::CancelForgotten) => Ok(Answer::Done),
            Some(waiter) => {
                self.end_wait(waiter, Refusal::Cancelled);
                Ok(Answer::Done)
            }
            None => Err(Refusal::NotFound(What::Wait)),
        }
    }

    /// Ends a wait that nobody can ask for again and whose listener has gone. A grant that raced it is the driver's to
    /// give back: it was never told.
    pub(super) fn withdraw(&mut self, session: SessionId, tag: u64) -> Result<Answer, Refusal> {
        let slot = self.live_session(session)?;
        let waits = self.table.session_waits(slot);
        let left = waits.into_iter().find(|waiter| {
            let wait = self.table.waiter(*waiter);
            wait.tag == Some(tag) && wait.sequence.is_none()
        });
        let waiter = left.ok_or(Refusal::NotFound(What::Wait))?;
        self.end_wait(waiter, Refusal::Cancelled);
        Ok(Answer::Done)
    }

    /// The wait that a session's request began.
    pub(super) fn waiter_of(&self, session: u32, sequence: u64) -> Option<u32> {
        let parties = self.table.session(session).parties.iter();
        let mut waits = parties.flat_map(|party| self.table.parties[*party].waits.iter().copied());
        waits.find(|waiter| self.table.waiter(*waiter).sequence == Some(sequence))
    }

    /// Where a waiter stands, in the longest of its queues.
    pub(super) fn place_of(&self, waiter: u32) -> u32 {
        let wait = self.table.waiter(waiter);
        let mine = Turn::new(wait.effective, wait.order, waiter);
        let ahead = wait.asks.iter().map(|ask| {
            let crowd = self.table.resources.crowd(ask.resource);
            crowd.map_or(0, |crowd| crowd.queue.iter().take_while(|turn| *turn < mine).count())
        });
        1 + ahead.max().unwrap_or(0) as u32
    }

    /// Ends a wait without a grant and tells whoever listens.
    pub(super) fn end_wait(&mut self, waiter: u32, why: Refusal) {
        let wait = self.table.waiter(waiter);
        let (tag, party) = (wait.tag, wait.party);
        let asks: Vec<u32> = wait.asks.iter().map(|ask| ask.resource).collect();
        let remains = self.table.parties[party].waits.len() > 1;
        self.suspect_followers(waiter);
        let holders = self.heirs_of(waiter, |_| false);
        self.record(&Record::WaitEnded { waiter, why: why.clone() });
        if let Some(tag) = tag {
            self.reply(tag, Answer::Refused(why));
        }
        self.wait_left(&holders, &asks);
        if remains {
            // It had another way out and has lost it.
            self.cycles.suspect(party);
        }
    }

    /// A wait is about to leave its queues. If its actor had another way out, those behind it may have counted on that,
    /// and now stand behind somebody else.
    pub(super) fn suspect_followers(&mut self, waiter: u32) {
        let wait = self.table.waiter(waiter);
        if self.table.parties[wait.party].waits.len() < 2 {
            return;
        }
        let mine = Turn::new(wait.effective, wait.order, waiter);
        let followers: Vec<u32> = wait
            .asks
            .iter()
            .filter_map(|ask| {
                let mut behind = self.table.resources.crowd(ask.resource)?.queue.behind(mine);
                behind.find(|turn| self.is_heard(turn.waiter)).map(|turn| self.table.waiter(turn.waiter).party)
            })
            .collect();
        followers.into_iter().for_each(|party| self.cycles.suspect(party));
    }

    /// Whether somebody who could be granted stands before a newcomer of this priority.
    pub(super) fn somebody_waits_before(&self, resource: u32, priority: u8) -> bool {
        let Some(crowd) = self.table.resources.crowd(resource) else {
            return false;
        };
        let newcomer = Turn::new(priority, u64::MAX, NONE);
        crowd.queue.iter().take_while(|turn| *turn < newcomer).any(|turn| self.is_heard(turn.waiter))
    }

    /// Whether a waiter's session was heard in this tenure. Until then the waiter keeps its place and holds nobody up.
    fn is_heard(&self, waiter: u32) -> bool {
        let session = self.table.parties[self.table.waiter(waiter).party].session;
        self.table.session(session).term.alive_in_tenure(&self.table.clock)
    }

    /// L8: only a waiter whose session was heard in this tenure and is alive at this very step.
    pub(super) fn may_be_granted(&self, waiter: u32) -> bool {
        if mutants::on(Mutant::DeadWaiterGranted) {
            return true;
        }
        let session = self.table.parties[self.table.waiter(waiter).party].session;
        self.is_heard(waiter) && self.table.session_deadline(session, self.now()) > self.now()
    }

    /// Offers freed resources to those who wait, as many as one turn may; the rest follows.
    pub(super) fn make_offers(&mut self, mut budget: usize) {
        if self.only_endings || self.check_quarantine().is_err() {
            return;
        }
        // What is pushed while offering is looked at next turn at the latest; a queue is never forgotten (W2).
        while self.may_offer(budget) {
            let Some(resource) = self.table.due.offers.pop_front() else {
                return;
            };
            let Some(crowd) = self.table.resources.crowd_mut(resource) else {
                continue;
            };
            crowd.to_offer = false;
            budget -= 1;
            while self.may_offer(budget) {
                match self.next_grantable(resource) {
                    Some(waiter) => {
                        if self.grant_waiter(waiter, None).is_err() {
                            return;
                        }
                        budget -= 1;
                        // The last waiter's leaving may have taken the resource's crowd with it.
                        if self.table.resources.at(resource).is_none() {
                            break;
                        }
                    }
                    None => break,
                }
            }
            if !self.may_offer(budget) && self.table.resources.at(resource).is_some() {
                self.table.offer_later(resource);
            }
        }
    }

    /// What waiters ask for may be long: a turn's record ends where its journal expects it.
    fn may_offer(&self, budget: usize) -> bool {
        budget > 0 && self.out.batch.len() < limits::OFFER_BYTES
    }

    /// The first in the queue that can have all it asks for. Nobody passes one who cannot, unless that one waits for it.
    fn next_grantable(&self, resource: u32) -> Option<u32> {
        let crowd = self.table.resources.crowd(resource)?;
        let mut passers = crowd.passers;
        let mut blocked = false;
        for turn in crowd.queue.iter() {
            let may_pass = self.table.waiter(turn.waiter).may_pass;
            passers -= u32::from(may_pass);
            if !self.may_be_granted(turn.waiter) {
                continue;
            }
            if (!blocked || may_pass) && self.can_have_all(turn.waiter) {
                return Some(turn.waiter);
            }
            blocked = !mutants::on(Mutant::QueueJumped);
            if blocked && passers == 0 {
                return None;
            }
        }
        None
    }

    /// Whether everything a waiter asks for is free, and it is first, or may pass, everywhere.
    fn can_have_all(&self, waiter: u32) -> bool {
        let wait = self.table.waiter(waiter);
        let mine = Turn::new(wait.effective, wait.order, waiter);
        wait.asks.iter().all(|ask| {
            let Some(crowd) = self.table.resources.crowd(ask.resource) else {
                return false;
            };
            let capacity = self.table.capacity(ask.resource);
            let first = wait.may_pass
                || wait.asks.len() == 1
                || !crowd.queue.iter().take_while(|turn| *turn < mine).any(|turn| self.may_be_granted(turn.waiter));
            first && crowd.fits(ask.access, capacity)
        })
    }

    /// Grants all that a waiter asks for, and answers it. Its ttl starts now.
    pub(super) fn grant_waiter(&mut self, waiter: u32, overlaps: Option<u32>) -> Result<(), Refusal> {
        let wait = self.table.waiter(waiter).clone();
        let last = self.next_number()?.get().checked_add(wait.asks.len() as u64 - 1);
        last.and_then(Number::new).ok_or(Refusal::TokensExhausted)?;
        let party = &self.table.parties[wait.party];
        let session = party.session;
        let id = self.session_id(session);
        let waits_only = self.table.session(session).waits_only;
        let waits_elsewhere = party.waits.len() > 1;
        self.suspect_followers(waiter);
        let asks: Vec<u32> = wait.asks.iter().map(|ask| ask.resource).collect();
        let holders = self.heirs_of(waiter, |_| false);
        let (mut name, mut holder) = std::mem::take(&mut self.scratch);
        holder.clear();
        holder.push_str(self.table.holder_name(wait.party));
        let mut grants = Vec::with_capacity(wait.asks.len());
        for ask in &wait.asks {
            name.clear();
            name.push_str(self.table.resources.name(ask.resource));
            let (max_hold, progress) = self.bounds_of(&name, wait.max_hold, wait.progress);
            let wanted = Wanted {
                resource: &name,
                session: if waits_only { NONE } else { session },
                holder: &holder,
                access: ask.access,
                ttl: wait.ttl,
                priority: wait.priority,
                max_hold,
                progress,
                metadata: &wait.metadata,
            };
            let slot = self.grant(&wanted, Some(waiter), overlaps);
            grants.push(self.grant_now(slot));
        }
        self.scratch = (name, holder);
        for grant in &grants {
            self.notify(Some(id), Event::Granted { lease: grant.lease, number: grant.number });
        }
        if let Some(tag) = wait.tag {
            let answer = if wait.several { Answer::GrantedAll(grants.into()) } else { Answer::Granted(grants[0]) };
            self.reply(tag, answer);
        }
        self.wait_left(&holders, &asks);
        if waits_elsewhere {
            // It now holds something and still waits for something else.
            self.hold_grew(wait.party);
        }
        Ok(())
    }

    pub(super) fn session_id(&self, slot: u32) -> SessionId {
        let (reuse, _) = self.table.sessions.at(slot).expect("a live session");
        SessionId { slot, reuse }
    }
}
