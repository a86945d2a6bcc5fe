//! What a record changed, in words: who, what, why, under which token (A1). No secret and no payload is in it.

use super::table::Table;
use super::table::lease::{DrainCause, NONE};
use crate::command::Style;
use crate::coverage;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{Access, Reason};
use crate::payload::{cache, delivery, state};
use crate::record::{Cause, Record};

/// One change, as the audit trail tells it. What does not apply is empty or absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Change<'a> {
    /// What happened, in one stable word.
    pub kind: &'static str,
    /// The resource, prefix, queue or cached key.
    pub resource: &'a str,
    pub holder: &'a str,
    pub lease: Option<LeaseId>,
    pub session: Option<SessionId>,
    /// The number of the token that was given out, shown or ended.
    pub number: Option<u64>,
    pub access: Option<Access>,
    pub slot: Option<u32>,
    pub ttl_ms: Option<u64>,
    pub reason: Option<Reason>,
    /// In the words of whoever did it.
    pub why: &'a str,
    /// Whom a handoff is for, or who paid for a deadlock.
    pub to: &'a str,
    /// The target that reported, refused or was forgotten.
    pub target: &'a str,
    /// What stood at the target, where a lower number was shown.
    pub mark: Option<u64>,
    /// How the target meets writes, in one stable word.
    pub mode: &'a str,
    pub style: Option<Style>,
    /// The key of small state.
    pub key: &'a str,
    /// In grantor time.
    pub until_ms: Option<u64>,
    pub units: Option<u64>,
    /// A position, generation or message.
    pub at: Option<u64>,
}

impl Table {
    /// Tells the changes that a record is about to make, in order. Called before it is applied: names are still there.
    pub(super) fn account(&self, record: &Record<'_>, each: &mut dyn FnMut(&Change<'_>)) {
        let of = |kind| Change { kind, ..Change::default() };
        match record {
            Record::Created { max_ttl, .. } => each(&Change { ttl_ms: Some(*max_ttl), ..of("created") }),
            Record::Opened { generation, .. } => each(&Change { at: Some(*generation), ..of("opened") }),
            Record::Restored { counter, quarantine, .. } => {
                each(&Change { number: Some(*counter), until_ms: Some(quarantine.0), ..of("restored") });
                self.account_restore(each);
            }
            Record::RolledBack { shown, quarantine, .. } => {
                each(&Change { number: Some(shown.get()), until_ms: Some(quarantine.0), ..of("rolled_back") });
            }
            Record::QuarantineWaived { why } => each(&Change { why, ..of("quarantine_waived") }),
            Record::SessionOpened { session, holder, ttl, .. } => {
                let ttl_ms = Some(u64::from(*ttl));
                each(&Change { session: Some(*session), holder, ttl_ms, ..of("session_opened") });
            }
            Record::SessionEnded { session, reason } => self.account_session(*session, *reason, Reason::Session, each),
            Record::Granted(granted) => each(&Change {
                resource: granted.resource,
                holder: granted.holder,
                lease: Some(granted.lease),
                session: granted.session.and_then(|slot| self.session_at(slot)),
                number: Some(granted.number.get()),
                access: Some(granted.access),
                slot: matches!(granted.access, Access::Exclusive | Access::Slot).then_some(granted.slot),
                ttl_ms: (granted.ttl > 0).then_some(u64::from(granted.ttl)),
                ..of("granted")
            }),
            Record::Ended { lease, reason, why, .. } => {
                each(&Change {
                    reason: Some(*reason),
                    why: self.end_why(*lease, *reason, why),
                    ..self.held(*lease, "ended")
                });
            }
            Record::Expired(ends) => {
                for (lease, _) in &ends.0 {
                    each(&Change { reason: Some(Reason::Ttl), ..self.held(*lease, "ended") });
                }
            }
            Record::HoldConfirmed { lease, .. } => {
                each(&Change { reason: Some(Reason::Released), ..self.held(*lease, "hold_confirmed") });
            }
            Record::Rotated { lease, number } => {
                each(&Change { number: Some(number.get()), ..self.held(*lease, "rotated") });
            }
            Record::Retimed { lease, ttl } => {
                each(&Change { ttl_ms: Some(u64::from(*ttl)), ..self.held(*lease, "retimed") });
            }
            Record::Draining { lease, cause, until } => {
                let until_ms = Some(until.0);
                each(&match cause {
                    Cause::HandOff { style, to } => {
                        Change { style: Some(*style), to, until_ms, ..self.held(*lease, "handoff") }
                    }
                    Cause::Priority => {
                        Change { reason: Some(Reason::Priority), until_ms, ..self.held(*lease, "preempted") }
                    }
                    Cause::Revoked { reason, why } => {
                        Change { reason: Some(*reason), why, until_ms, ..self.held(*lease, "revoked") }
                    }
                });
            }
            Record::DrainDropped { lease } => each(&self.held(*lease, "kept_after_all")),
            Record::Capacity { resource, units, .. } => {
                each(&Change { resource, units: Some(u64::from(*units)), ..of("capacity") });
            }
            Record::HoldResized { lease, units } => {
                each(&Change { units: Some(u64::from(*units)), ..self.held(*lease, "hold_resized") });
            }
            Record::Vetoed { lease, until } => {
                each(&Change { until_ms: Some(until.0), ..self.held(*lease, "vetoed") });
            }
            Record::Pinned { lease, at } => each(&Change { at: Some(*at), ..self.held(*lease, "pinned") }),
            Record::Floor { resource, at } => each(&Change { resource, at: Some(*at), ..of("collected") }),
            Record::Freed { resource, why } => each(&Change { resource, why, ..of("freed") }),
            Record::CharterSet { prefix, why, .. } => each(&Change { resource: prefix, why, ..of("charter_set") }),
            Record::CharterRemoved { prefix, why } => {
                each(&Change { resource: prefix, why, ..of("charter_removed") });
            }
            Record::Deadlocked { cycle, victim, .. } => {
                let resource = cycle.members.first().map_or("", |member| &member.waits_for);
                each(&Change { resource, to: victim, units: Some(cycle.length), ..of("deadlock") });
            }
            Record::State(fact) => each(&self.written(fact)),
            Record::Delivery(fact) => self.account_delivery(fact, each),
            Record::Cache(fact) => each(&self.cached(fact)),
            Record::Coverage(fact) => each(&reported(fact)),
            Record::Idle
            | Record::Stalled { .. }
            | Record::SessionAlive { .. }
            | Record::Depth { .. }
            | Record::Alive { .. }
            | Record::Progressed { .. }
            | Record::Waiting(_)
            | Record::WaitEnded { .. }
            | Record::Answered { .. } => {}
        }
    }

    /// A change of a held lease; a lease that is not there is told by applying the record.
    fn held(&self, slot: u32, kind: &'static str) -> Change<'_> {
        let Some((reuse, lease)) = self.leases.at(slot) else {
            return Change { kind, ..Change::default() };
        };
        let session = self.parties[lease.party].session;
        Change {
            kind,
            resource: self.resources.name(lease.resource),
            holder: self.holder_name(lease.party),
            lease: Some(LeaseId { slot, reuse }),
            session: if session == NONE { None } else { self.session_at(session) },
            number: Some(lease.number().get()),
            ..Change::default()
        }
    }

    fn session_at(&self, slot: u32) -> Option<SessionId> {
        self.sessions.at(slot).map(|(reuse, _)| SessionId { slot, reuse })
    }

    /// Why a lease ends: as said now, or as it was announced.
    fn end_why<'a>(&'a self, slot: u32, ends: Reason, why: &'a str) -> &'a str {
        let announced = self.leases.at(slot).and_then(|_| self.extra(slot)).and_then(|extra| extra.drain.as_ref());
        match announced.map(|drain| &drain.cause) {
            Some(DrainCause::Revoked { reason, why: before }) if why.is_empty() && *reason == ends => before,
            _ => why,
        }
    }

    /// A session's end, then the ends of all it held (S1).
    fn account_session(&self, id: SessionId, why: Reason, ends: Reason, each: &mut dyn FnMut(&Change<'_>)) {
        if self.sessions.live(id.slot, id.reuse).is_none() {
            return;
        }
        let holder = self.resources.names.get(self.parties.holder(self.session(id.slot).holder).name);
        each(&Change { kind: "session_ended", session: Some(id), holder, reason: Some(why), ..Change::default() });
        for slot in self.session_leases(id.slot) {
            each(&Change { reason: Some(ends), ..self.held(slot, "ended") });
        }
    }

    /// Nothing in a backup is renewable: everything ends (T5).
    fn account_restore(&self, each: &mut dyn FnMut(&Change<'_>)) {
        for (slot, reuse, _) in self.sessions.iter_live() {
            self.account_session(SessionId { slot, reuse }, Reason::Restored, Reason::Restored, each);
        }
        for (slot, _, lease) in self.leases.iter_live() {
            if self.parties[lease.party].session == NONE {
                each(&Change { reason: Some(Reason::Restored), ..self.held(slot, "ended") });
            }
        }
    }

    fn written<'a>(&'a self, fact: &'a state::Fact) -> Change<'a> {
        let (kind, resource, token, key, units) = match fact {
            state::Fact::Put { resource, token, key, bytes } => {
                ("checkpoint", resource, token, key, Some(bytes.len() as u64))
            }
            state::Fact::Deleted { resource, token, key } => ("checkpoint_deleted", resource, token, key, None),
        };
        let place = self.resources.find(resource);
        let sole = place.map_or(NONE, |place| self.resources.sole(place));
        let crowd = place.and_then(|place| self.resources.crowd(place)).map_or(&[][..], |crowd| &crowd.leases);
        let mut leases = crowd.iter().copied().chain((sole != NONE).then_some(sole));
        // The token's lease tells who wrote.
        let writer = leases.find(|slot| self.lease(*slot).number() == *token);
        let of = writer.map_or(Change { kind, ..Change::default() }, |slot| self.held(slot, kind));
        Change { resource, key, number: Some(token.get()), units, ..of }
    }

    fn account_delivery(&self, fact: &delivery::Fact, each: &mut dyn FnMut(&Change<'_>)) {
        use delivery::Fact;
        let about = |kind, item: u64, receipt: Option<u64>| {
            let resource = self.queues.queue_of(item).unwrap_or_default();
            let holder = match self.queues.view(resource, item).map(|view| view.standing) {
                Some(delivery::Standing::Live { holder, .. }) => holder,
                _ => "",
            };
            Change { kind, resource, holder, at: Some(item), number: receipt, ..Change::default() }
        };
        match fact {
            Fact::Enqueued { queue, item, .. } => each(&Change { resource: queue, ..about("enqueued", *item, None) }),
            Fact::Delivered { first, items, session, holder, visibility_ms } => {
                for (item, receipt) in items.iter().zip(first.get()..) {
                    let ttl_ms = Some(*visibility_ms);
                    let (session, holder) = (*session, &**holder);
                    each(&Change { session, holder, ttl_ms, ..about("delivered", *item, Some(receipt)) });
                }
            }
            Fact::Extended { item, receipt, visibility_ms } => {
                each(&Change { ttl_ms: Some(*visibility_ms), ..about("extended", *item, Some(receipt.get())) });
            }
            Fact::Acked { item, receipt } => each(&about("acked", *item, Some(receipt.get()))),
            Fact::Returned { item, receipt, .. } => each(&about("returned", *item, Some(receipt.get()))),
            Fact::Expired { item, receipt } => {
                each(&Change { reason: Some(Reason::Ttl), ..about("undelivered", *item, Some(receipt.get())) });
            }
            Fact::Redriven { item } => each(&about("redriven", *item, None)),
            Fact::Dropped { item } => each(&about("dropped", *item, None)),
        }
    }

    fn cached<'a>(&'a self, fact: &'a cache::Fact) -> Change<'a> {
        use cache::Fact;
        let of = |kind, number: crate::token::Number| {
            let (resource, holder) = self.cache.holder_of(number).unwrap_or_default();
            Change { kind, resource, holder, number: Some(number.get()), ..Change::default() }
        };
        match fact {
            Fact::Forgotten { key } => Change { kind: "cache_forgotten", resource: key, ..Change::default() },
            Fact::Read { key, lease, session, reader, ttl_ms } => Change {
                resource: key,
                session: *session,
                holder: reader,
                ttl_ms: Some(*ttl_ms),
                ..of("cache_read", *lease)
            },
            Fact::Renewed { lease } => of("cache_renewed", *lease),
            Fact::Began { key, kind, number, session, holder, ttl_ms } => Change {
                resource: key,
                session: *session,
                holder,
                ttl_ms: Some(*ttl_ms),
                ..of(if *kind == cache::Kind::Intent { "cache_intent" } else { "cache_fill" }, *number)
            },
            Fact::Done { number } => of("cache_done", *number),
            Fact::Ended { number, reason } => Change { reason: Some(*reason), ..of("cache_ended", *number) },
        }
    }
}

fn reported(fact: &coverage::Fact) -> Change<'_> {
    use coverage::Fact;
    match fact {
        Fact::Reported { resource, slot, target, mode } => Change {
            kind: "target_reported",
            resource,
            target,
            slot: Some(*slot),
            mode: mode.word(),
            ..Change::default()
        },
        Fact::Zombie { resource, slot, target, presented, mark, times, holder } => Change {
            kind: "zombie",
            resource,
            target,
            slot: Some(*slot),
            number: Some(presented.get()),
            mark: Some(mark.get()),
            units: Some(*times),
            holder,
            ..Change::default()
        },
        Fact::Forgotten { resource, target, why } => {
            Change { kind: "target_forgotten", resource, target, why, ..Change::default() }
        }
    }
}
