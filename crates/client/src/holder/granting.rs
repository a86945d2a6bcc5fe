//! From a wish to a guard: asked for, granted, handed out when it may act.

use std::sync::Arc;

use leasehold_core::command::{Acquire, Answer, Command, Grant, Held, Terms};
use leasehold_core::holder::{Granted, Loss, Renewal};
use leasehold_core::name::resource_hash;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::Instant;
use leasehold_core::token::Token;

use super::Handle;
use super::actors::Actors;
use super::cell::{Cell, Overlap, View};
use super::inbox::{By, Given, Wanted};
use super::leases::{Kept, Leases, Making};
use super::line::{Line, since};
use super::requests::{Acquiring, Purpose};
use crate::hold::lost;
use crate::{Code, Error, Guard, Hold};

impl Line {
    pub(super) fn acquire(&mut self, now: Instant, by: By, wanted: Wanted, handle: Arc<Handle>) {
        let actor = wanted.holder.is_none().then(|| self.actors.take());
        self.want(now, wanted.wait_ms, Box::new(Acquiring { by, wanted, handle, actor, born: now }));
    }

    fn want(&mut self, now: Instant, wait_ms: u64, acquiring: Box<Acquiring>) {
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
        let acquire = Acquire {
            resource: &wanted.resource,
            holder: own.as_deref().or(wanted.holder.as_deref()).unwrap_or_default(),
            session: None,
            access: wanted.access,
            slots: wanted.slots,
            ttl_ms: Some(wanted.timing.ttl_ms()),
            terms,
        };
        let message = leasehold_wire::ask(&Command::Acquire(acquire)).expect("a stream asks for it");
        self.ask(now, acquiring.by.key, message, wait_ms, Purpose::Acquire(acquiring));
    }

    /// Asks once more under a new number, for as long as is left to wait. What was asked before holds nothing any more.
    pub(super) fn acquire_again(&mut self, now: Instant, acquiring: Box<Acquiring>) {
        let waited = now.millis_since(acquiring.born);
        match acquiring.wanted.wait_ms {
            wait_ms if waited < wait_ms => self.want(now, wait_ms - waited, acquiring),
            0 if waited < self.settings.patience_ms => self.want(now, 0, acquiring),
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
            Ok(Answer::Granted(grant)) => self.granted(now, sent, acquiring, &grant),
            Ok(_) => self.refuse(acquiring, Error::garbled("another answer than a grant")),
            // A grant that nobody heard of, ended or forgotten meanwhile.
            Err(error)
                if error.code() == Some(Code::RequestTooOld) || error.lost().is_some_and(|why| why.may_retry()) =>
            {
                self.acquire_again(now, acquiring);
            }
            Err(error) => self.refuse(acquiring, error),
        }
    }

    fn refuse(&mut self, acquiring: Box<Acquiring>, error: Error) {
        self.give_actor_back(acquiring.actor);
        acquiring.by.tell.done(Err(error));
    }

    fn granted(&mut self, now: Instant, sent: Instant, acquiring: Box<Acquiring>, grant: &Grant) {
        let Acquiring { by, wanted, handle, actor, born } = *acquiring;
        let Some(session) = &self.session else {
            return;
        };
        let token = Token {
            cluster: session.issuer.cluster,
            incarnation: session.issuer.incarnation,
            resource: resource_hash(&wanted.resource),
            reach: grant.reach,
            number: grant.number,
        };
        // A handoff ends a lease after its drain period, told or not, so that binds like the ttl.
        let counted = Granted {
            token: grant.number,
            sent,
            received: now,
            ttl_ms: grant.remaining_ms,
            drain_ms: Some(grant.drain_ms),
            rotates: false,
        };
        let renewal = match Renewal::new(wanted.timing, counted) {
            Ok(renewal) => renewal,
            Err(wrong) => {
                self.give_back(now, Held::by_id(grant.lease, grant.number));
                self.give_actor_back(actor);
                by.tell.done(Err(Error::garbled(wrong)));
                return;
            }
        };
        let rate = self.settings.rate;
        let view = View {
            token,
            deadline: renewal.deadline(),
            working: renewal.may_act(now),
            suspensions: 0,
            draining: None,
            overlap: grant.overlaps_ms.map(|drain_ms| Overlap { received: now, drain_ms, rate }),
            loss: None,
            version: 0,
        };
        let (place, life) = self.leases.next_place();
        let cell = Cell::new(wanted.resource, grant.lease, place, session.alive.clone(), view);
        let patience = now.plus_millis(self.settings.patience_ms);
        let making = Some(Making { by, handle, patience, born });
        let kept = Leases::new_kept(Arc::new(cell), renewal, wanted.timing, grant.drain_ms, life);
        self.leases.keep(place, Kept { actor, making, ..kept });
        self.client.saw(token);
        self.shortest_ms = self.shortest_ms.min(wanted.timing.ttl_ms());
        self.attend(place, now);
    }

    /// Hands a lease out as soon as it may act. Where nobody waits any more, the guard is dropped, and gives it back.
    pub(super) fn hand_out(&mut self, now: Instant, place: u32) {
        let Some(kept) = self.leases.at(place) else {
            return;
        };
        if kept.making.is_none() || !kept.renewal.may_act(now) {
            return;
        }
        let Making { by, handle, born, .. } = kept.making.take().expect("just seen");
        self.meter.granted(&kept.cell.resource, since(born, now));
        tracing::debug!(resource = %kept.cell.resource, lease = %kept.cell.lease, "granted");
        let guard = Guard::new(Hold { cell: kept.cell.clone(), handle });
        by.tell.done(Ok(Given::Guard(guard)));
    }

    /// A lease is over by the grantor's word.
    pub(super) fn lost(&mut self, kept: Kept, loss: Loss) {
        self.meter.lost(&kept.cell.resource, loss);
        tracing::warn!(resource = %kept.cell.resource, lease = %kept.cell.lease, "{loss}");
        self.give_actor_back(kept.actor);
        if let Some(making) = kept.making {
            making.by.tell.done(Err(lost(loss)));
        }
    }

    pub(super) fn give_actor_back(&mut self, actor: Option<u32>) {
        if let Some(actor) = actor {
            self.actors.give_back(actor);
        }
    }
}
