//! What a holder makes of what it is told.

use leasehold_core::command::{Answer, Current, Event as Notice, Grant};
use leasehold_core::holder::{Answer as Renewal_, Granted, Renewal, Renewed, Timing};
use leasehold_core::lease::{Access, Reason};
use leasehold_core::name::Name;
use leasehold_core::payload::delivery;
use leasehold_core::refusal::{Refusal, What};
use leasehold_core::token::{Guarded, Incarnation, Token};

use super::{Hold, Holder, Mode, Pending};
use crate::ask::{Ask, Known};
use crate::history::Event;
use crate::planted::Planted;
use crate::server::CLUSTER;
use crate::stage::{Mail, Stage};

impl Holder {
    pub(super) fn read(&mut self, stage: &mut Stage, mail: Mail) {
        match mail {
            Mail::Reply { op, answer, incarnation } => self.answered(stage, op, answer, incarnation),
            Mail::Elsewhere { op, tries } => {
                // What came twice says nothing about whoever was asked since: that one may have done it.
                if let Some(pending) = self.pending.get_mut(&op).filter(|pending| pending.tries == tries) {
                    pending.elsewhere = true;
                    pending.retry = self.clock.instant(stage.at).plus_millis(stage.chance.between(40, 200));
                }
            }
            Mail::Notice { event, .. } => self.noticed(stage, &event),
            Mail::Written { .. } | Mail::Ask(_) | Mail::Write { .. } => {}
        }
    }

    fn noticed(&mut self, stage: &mut Stage, event: &Notice) {
        let now = self.clock.instant(stage.at);
        match event {
            Notice::Ended { lease, number, reason } => {
                for hold in &mut self.holds {
                    if hold.known.lease == *lease && hold.known.number == *number {
                        hold.renewal.ended(*reason);
                    }
                }
            }
            Notice::Draining { lease, .. } => {
                for hold in &mut self.holds {
                    if hold.known.lease == *lease {
                        hold.renewal.ask_now(now);
                    }
                }
            }
            // Who is asked to drop its copy does so, most of the time.
            Notice::Invalidate { lease, .. } if stage.chance.below(5) < 4 => {
                self.copies.retain(|copy| copy != lease);
                self.ask(stage, Ask::Dropped { lease: *lease });
            }
            _ => {}
        }
    }

    fn answered(&mut self, stage: &mut Stage, op: u64, answer: Answer, incarnation: Incarnation) {
        let Some(pending) = self.pending.remove(&op) else { return };
        self.server = pending.to;
        let who = self.actor().place() as u32;
        if let Answer::Waiting { .. } = answer {
            let retry = self.clock.instant(stage.at).plus_millis(700);
            self.pending.insert(op, Pending { retry, ..pending });
            return;
        }
        stage.note(Event::Answered { op, who, answer: answer.clone() });
        let another = matches!(&pending.ask, Ask::Resume { session, .. } if Some(*session) != self.session);
        if let Answer::Refused(Refusal::Lost(Reason::Session) | Refusal::NotFound(What::Session)) = &answer
            && !another
        {
            self.session_is_over(stage);
        }
        match (&pending.ask, answer) {
            (Ask::Open { .. }, Answer::Session(grant)) => {
                self.session = Some(grant.session);
                self.sequence = 0;
                self.session_renew = pending.sent.plus_millis(self.ttl / 4);
            }
            (Ask::Acquire { resource, access, session, .. }, Answer::Granted(grant)) => {
                self.granted(stage, &pending, resource, *access, session.is_some(), &grant, incarnation);
                // A successor beside its predecessor says at once from where it goes on.
                let begun = self.holds.last().filter(|hold| grant.overlaps_ms.is_some() && hold.target().is_some());
                if let Some(held) = begun.map(|hold| hold.known) {
                    let value = stage.op();
                    self.ask(stage, Ask::Put { held, value });
                }
            }
            (Ask::AcquireAll { resources, .. }, Answer::GrantedAll(grants)) => {
                for (resource, grant) in resources.iter().zip(&grants[..]) {
                    self.granted(stage, &pending, resource, Access::Exclusive, true, grant, incarnation);
                }
            }
            (Ask::Renew { held, .. }, answer) => self.renewed(stage, &pending, *held, answer),
            (Ask::Rotate { held }, Answer::Current(current)) => self.rotated(stage, &pending, *held, current),
            (Ask::ConfirmHold { held } | Ask::Drained { held }, _) => {
                let left = self.holds.iter_mut().filter(|hold| hold.known.number == held.number);
                left.for_each(|hold| hold.depth -= 1);
                self.holds.retain(|hold| hold.depth > 0);
            }
            (_, Answer::Cache(told)) => self.cached(&told),
            (Ask::Commit { .. } | Ask::Abort { .. }, Answer::Refused(why)) if !matches!(why, Refusal::Busy { .. }) => {
                self.intent = None;
            }
            (Ask::Receive { .. }, Answer::Delivery(told)) => {
                if let delivery::Answer::Received(items) = *told {
                    self.receipts.extend(items.iter().map(|item| (item.item, item.receipt)));
                    let over = self.receipts.len().saturating_sub(6);
                    self.receipts.drain(..over);
                }
            }
            (Ask::Close { session }, _) if self.session == Some(*session) => self.session_is_over(stage),
            _ => {}
        }
    }

    /// The session is gone. What it carried may still be believed in, until the renewal says otherwise.
    fn session_is_over(&mut self, stage: &mut Stage) {
        let Some(session) = self.session.take() else { return };
        let gone = self.pending.iter().filter(|(_, pending)| pending.id.is_some_and(|id| id.session == session));
        let gone: Vec<u64> = gone.map(|(op, _)| *op).collect();
        for op in gone {
            self.pending.remove(&op);
            stage.note(Event::GaveUp { op, why: "its session is over" });
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a grant and all that was known when it was asked for")]
    fn granted(
        &mut self,
        stage: &mut Stage,
        pending: &Pending,
        resource: &'static str,
        access: Access,
        in_session: bool,
        grant: &Grant,
        incarnation: Incarnation,
    ) {
        let session = self.session.filter(|_| in_session && self.mode == Mode::Rides);
        let known = Known { lease: grant.lease, number: grant.number, session };
        let name = Name::parse(resource).expect("a resource of this world has a good name");
        let resource_hash = Guarded::new(CLUSTER, name, 0).resource;
        let token =
            Token { cluster: CLUSTER, incarnation, resource: resource_hash, reach: grant.reach, number: grant.number };
        self.see(token);
        let now = self.clock.instant(stage.at);
        let sent = if stage.is_planted(Planted::CountsFromAnswer) { now } else { pending.sent };
        let granted = Granted {
            token: grant.number,
            sent,
            received: now,
            ttl_ms: grant.remaining_ms,
            drain_ms: Some(grant.drain_ms),
            rotates: grant.rotates,
        };
        let Ok(timing) = Timing::new(grant.ttl_ms, self.rate(stage)) else { return };
        let Ok(renewal) = Renewal::new(timing, granted) else { return };
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.known.number == grant.number) {
            // Entered again: it must be left as often. What it has left meanwhile may not be in the depth it is told.
            hold.depth += 1;
            return;
        }
        // Entered again before it said that it has drained, and answered after: its own word stands.
        if self.drained.contains(&grant.number) {
            return;
        }
        // Its first act is its claim, at once if it believes that it holds.
        if crate::ask::EXCLUSIVE.contains(&resource) && renewal.may_act(now) {
            let (who, honest) = (self.actor().place() as u32, self.honest);
            stage.note(Event::Acts { who, number: grant.number, honest });
        }
        self.holds.push(Hold {
            known,
            token,
            resource,
            access,
            ttl: grant.ttl_ms,
            renewal,
            claimed: false,
            draining: false,
            depth: 1,
            sequence: 0,
            work: 1,
            stuck: false,
        });
    }

    fn see(&mut self, token: Token) {
        let newer = |seen: &Token| seen.incarnation != token.incarnation || seen.number < token.number;
        if self.seen.as_ref().is_none_or(newer) {
            self.seen = Some(token);
        }
    }

    fn renewed(&mut self, stage: &Stage, pending: &Pending, held: Known, answer: Answer) {
        let now = self.clock.instant(stage.at);
        let Some(attempt) = pending.attempt else { return };
        let Some(hold) = self.holds.iter_mut().find(|hold| hold.known.number == held.number) else { return };
        let answer = match answer {
            Answer::Current(Current { number, remaining_ms, drain_ms, .. }) => {
                Renewal_::Renewed(Renewed { token: number, remaining_ms, draining_ms: drain_ms })
            }
            Answer::Refused(Refusal::Lost(reason)) => Renewal_::Ended(reason),
            Answer::Refused(Refusal::NotCurrent(_)) => Renewal_::NotCurrent,
            _ => Renewal_::Unavailable,
        };
        hold.renewal.answered(attempt, now, answer);
    }

    fn rotated(&mut self, stage: &Stage, pending: &Pending, held: Known, current: Current) {
        let rate = self.rate(stage);
        let Some(hold) = self.holds.iter_mut().find(|hold| hold.known.number == held.number) else { return };
        let granted = Granted {
            token: current.number,
            sent: pending.sent,
            received: self.clock.instant(stage.at),
            ttl_ms: current.remaining_ms,
            drain_ms: None,
            rotates: false,
        };
        let Ok(timing) = Timing::new(hold.ttl, rate) else { return };
        let Ok(renewal) = Renewal::new(timing, granted) else { return };
        hold.known.number = current.number;
        hold.token.number = current.number;
        hold.renewal = renewal;
        hold.claimed = false;
        let token = hold.token;
        self.see(token);
    }
}
