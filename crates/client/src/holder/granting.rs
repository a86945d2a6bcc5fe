//! From a wish to a guard: asked for, granted, handed out when it may act.

use std::sync::{Arc, Weak};

use leasehold_core::command::{Acquire, AcquireAll, Answer, Command, Grant, Held, Terms};
use leasehold_core::holder::{Granted, Loss, Renewal, Timing};
use leasehold_core::lease::Access;
use leasehold_core::name::resource_hash;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::Instant;
use leasehold_core::token::Token;

use super::Handle;
use super::actors::Actors;
use super::cell::{Cell, Overlap, View};
use super::group::Group;
use super::inbox::{By, Wanted};
use super::leases::{Kept, Leases};
use super::line::{Line, since};
use super::requests::{Acquiring, Pending, Purpose};
use crate::hold::lost;
use crate::{Code, Error, Guard, Hold};

impl Line {
    pub(super) fn acquire(&mut self, now: Instant, by: By, wanted: Wanted, handle: Weak<Handle>) {
        let actor = wanted.holder.is_none().then(|| self.actors.take());
        self.want(now, wanted.wait_ms, Box::new(Acquiring { by, wanted, handle, actor, born: now }), false);
    }

    fn want(&mut self, now: Instant, wait_ms: u64, acquiring: Box<Acquiring>, moved: bool) {
        let wanted = &acquiring.wanted;
        let own = acquiring.actor.map(|actor| Actors::name(actor, &self.settings.holder));
        let terms = Terms {
            wait_ms,
            priority: wanted.priority,
            reentrant: false,
            max_hold_ms: wanted.max_hold_ms,
            progress_ms: wanted.progress_ms,
            metadata: &wanted.metadata,
        };
        let holder = own.as_deref().or(wanted.holder.as_deref()).unwrap_or_default();
        let (access, slots, ttl_ms) = (wanted.access, wanted.slots, Some(wanted.timing.ttl_ms()));
        let several: Vec<(&str, Access)>;
        let command = match &wanted.resources[..] {
            [resource] => Command::Acquire(Acquire { resource, holder, session: None, access, slots, ttl_ms, terms }),
            resources => {
                several = resources.iter().map(|resource| (&**resource, access)).collect();
                Command::AcquireAll(AcquireAll { wanted: &several, holder, session: None, ttl_ms, terms })
            }
        };
        let message = leasehold_wire::ask(&command).expect("a stream asks for it");
        let (key, patience) = (acquiring.by.key, now.plus_millis(self.settings.patience_ms.saturating_add(wait_ms)));
        let pending = Pending::nobodys(message, Purpose::Acquire(acquiring));
        self.requests.put(Pending { key, patience, moved, ..pending });
    }

    /// Asks once more under a new number, for as long as is left to wait. What was asked before holds nothing any more.
    pub(super) fn acquire_again(&mut self, now: Instant, acquiring: Box<Acquiring>, moved: bool) {
        let waited = now.millis_since(acquiring.born);
        match acquiring.wanted.wait_ms {
            wait_ms if waited < wait_ms => self.want(now, wait_ms - waited, acquiring, moved),
            0 if waited < self.settings.patience_ms => self.want(now, 0, acquiring, moved),
            _ => self.refuse(acquiring, Error::from(&Refusal::Timeout)),
        }
    }

    /// Takes in the answer to a wish.
    pub(super) fn acquired(
        &mut self,
        now: Instant,
        sent: Instant,
        acquiring: Box<Acquiring>,
        answer: Result<Answer, Error>,
    ) {
        match answer {
            Ok(Answer::Granted(grant)) => self.granted(now, sent, acquiring, &[grant]),
            Ok(Answer::GrantedAll(grants)) => self.granted(now, sent, acquiring, &grants),
            Ok(_) => self.refuse(acquiring, Error::garbled("another answer than a grant")),
            // A grant that nobody heard of, ended or forgotten meanwhile.
            Err(error)
                if error.code() == Some(Code::RequestTooOld) || error.lost().is_some_and(|why| why.may_retry()) =>
            {
                self.acquire_again(now, acquiring, false);
            }
            Err(error) => self.refuse(acquiring, error),
        }
    }

    fn refuse(&mut self, acquiring: Box<Acquiring>, error: Error) {
        self.give_actor_back(acquiring.actor);
        acquiring.by.tell.done(Err(error));
    }

    fn granted(&mut self, now: Instant, sent: Instant, acquiring: Box<Acquiring>, grants: &[Grant]) {
        // A handoff ends a lease after its drain period, told or not, so that binds like the ttl.
        let counted = |grant: &Grant| Granted {
            token: grant.number,
            sent,
            received: now,
            ttl_ms: grant.remaining_ms,
            drain_ms: Some(grant.drain_ms),
            rotates: grant.rotates,
        };
        let timing = acquiring.wanted.timing;
        let renewals: Result<Vec<_>, _> = grants.iter().map(|grant| Renewal::new(timing, counted(grant))).collect();
        let renewals = match renewals {
            Ok(renewals) if renewals.len() == acquiring.wanted.resources.len() => renewals,
            wrong => {
                grants.iter().for_each(|grant| self.give_back(now, Held::by_id(grant.lease, grant.number)));
                let why =
                    wrong.map_or_else(|wrong| wrong.to_string(), |_| "other leases than were asked for".to_owned());
                return self.refuse(acquiring, Error::garbled(why));
            }
        };
        let Acquiring { by, wanted, handle, actor, born } = *acquiring;
        let patience = now.plus_millis(self.settings.patience_ms);
        let group = Group::new(by, handle, patience, born, grants.len());
        self.shortest_ms = self.shortest_ms.min(timing.ttl_ms());
        let mut places = Vec::with_capacity(grants.len());
        for (index, ((grant, renewal), resource)) in grants.iter().zip(renewals).zip(wanted.resources).enumerate() {
            if let Some(actor) = actor.filter(|_| index > 0) {
                self.actors.share(actor);
            }
            places.push(self.keep(now, grant, renewal, resource, timing, actor, (group.clone(), index)));
        }
        for place in places {
            self.attend(place, now);
            self.leases.later(place);
        }
    }

    /// Puts one lease under renewal.
    #[expect(clippy::too_many_arguments, reason = "all that is known about a lease comes together here, once")]
    fn keep(
        &mut self,
        now: Instant,
        grant: &Grant,
        renewal: Renewal,
        resource: Box<str>,
        timing: Timing,
        actor: Option<u32>,
        making: (Arc<Group>, usize),
    ) -> u32 {
        let session = self.session.as_ref().expect("what is granted is granted in a session");
        let token = Token {
            cluster: session.issuer.cluster,
            incarnation: session.issuer.incarnation,
            resource: resource_hash(&resource),
            reach: grant.reach,
            number: grant.number,
        };
        let rate = self.settings.rate;
        let overlap = grant.overlaps_ms.map(|drain_ms| Overlap { received: now, drain_ms, rate });
        let view = View {
            token,
            deadline: renewal.deadline(),
            working: renewal.may_act(now),
            suspensions: 0,
            draining: None,
            overlap,
            loss: None,
            version: 0,
        };
        let (place, life) = self.leases.next_place();
        let cell = Cell::new(resource, grant.lease, place, session.alive.clone(), view);
        let kept = Leases::new_kept(Arc::new(cell), renewal, timing, grant.drain_ms, life);
        let claim_from = overlap.map(|overlap| overlap.succession().claim_from());
        let rotates = grant.rotates;
        self.leases.keep(place, Kept { actor, rotates, claim_from, making: Some(making), ..kept });
        self.client.saw(token);
        place
    }

    /// Hands a lease out as soon as it may act. Where nobody waits any more, the guard is dropped, and gives it back.
    pub(super) fn hand_out(&mut self, now: Instant, place: u32) {
        let Some(kept) = self.leases.at(place).filter(|kept| kept.making.is_some() && kept.renewal.may_act(now)) else {
            return;
        };
        let (group, index) = kept.making.take().expect("just seen");
        self.meter.tell(|meter| meter.granted(&kept.cell.resource, since(group.born, now)));
        tracing::debug!(resource = %kept.cell.resource, lease = %kept.cell.lease, "granted");
        let cell = kept.cell.clone();
        match group.handle.upgrade() {
            Some(handle) => group.add(index, Guard::new(Hold { cell, handle })),
            None => self.release(now, 0, &cell, None),
        }
    }

    /// A lease is over by the grantor's word.
    pub(super) fn lost(&mut self, kept: Kept, loss: Loss) {
        self.meter.tell(|meter| meter.lost(&kept.cell.resource, loss));
        tracing::warn!(resource = %kept.cell.resource, lease = %kept.cell.lease, "{loss}");
        self.give_actor_back(kept.actor);
        if let Some((group, _)) = kept.making {
            group.refuse(lost(loss));
        }
    }

    pub(super) fn give_actor_back(&mut self, actor: Option<u32>) {
        if let Some(actor) = actor {
            self.actors.give_back(actor);
        }
    }
}
