//! Audit changes: the entries of the audit log that a record causes (A1), and who caused them (A13). They contain no secret and no
//! payload.

use std::net::SocketAddr;

use super::authorize::action;
use super::table::GrantorTable;
use super::table::lease::{NONE, StoredDrainCause};
use crate::access::{Attribution, LOCAL_PRINCIPAL, Via};
use crate::command::{Command, HandoffMode, ProposedCommand};
use crate::coverage;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{Access, EndReason};
use crate::payload::{cache, delivery, state};
use crate::record::{DrainCause, GrantRecord, Record};
use crate::time::GrantorTime;
use crate::trace_context::TraceContext;

/// One change for the audit log. Fields that do not apply are empty or `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct AuditChange<'a> {
    /// The kind of change, as a stable word.
    pub kind: &'static str,
    /// The resource, prefix, queue or cached key.
    pub resource: &'a str,
    pub holder: &'a str,
    pub lease: Option<LeaseId>,
    pub session: Option<SessionId>,
    /// The number of the token that was issued, presented or ended.
    pub number: Option<u64>,
    pub access: Option<Access>,
    pub slot: Option<u32>,
    pub ttl_ms: Option<u64>,
    pub reason: Option<EndReason>,
    /// Operator's comment.
    pub comment: &'a str,
    /// The named successor of a handoff, or the victim of a deadlock.
    pub to: &'a str,
    /// The target that reported, refused a zombie or was forgotten.
    pub target: &'a str,
    /// The mark of the target that refused a lower number.
    pub mark: Option<u64>,
    /// The fence mode of the target, or the action of a proposal, as a stable word.
    pub mode: &'a str,
    pub handoff: Option<HandoffMode>,
    /// The key of stored state.
    pub key: &'a str,
    /// Grantor time.
    pub until_ms: Option<u64>,
    pub units: Option<u64>,
    /// A position, generation or message.
    pub at: Option<u64>,
    /// The identity that caused it; empty if time did.
    pub by: &'a str,
    /// How that identity is known. `None` if its request was made earlier: a wait that ends with a grant.
    pub via: Option<Via>,
    pub credential: &'a str,
    /// The address that it connected from.
    pub from: Option<SocketAddr>,
    /// The two-person proposal that was made, withdrawn or executed.
    pub proposal: Option<u64>,
    /// The operation of a distributed trace that caused it; of a grant after a wait, the one that started the wait.
    pub trace: Option<TraceContext>,
}

impl Record<'_> {
    /// Whether the record causes audit entries.
    pub(super) const fn is_audited(&self) -> bool {
        !matches!(
            self,
            Self::Idle
                | Self::Stalled { .. }
                | Self::SessionAlive { .. }
                | Self::Depth { .. }
                | Self::Alive { .. }
                | Self::Progressed { .. }
                | Self::Waiting(_)
                | Self::WaitEnded { .. }
                | Self::Answered { .. }
                | Self::AttributedTo(_)
                | Self::AttributionEnded
                | Self::LeaseTraced { .. }
                | Self::WaitTraced { .. }
        )
    }
}

impl GrantorTable {
    /// Passes the changes of a record to `each`, in order, with the identity that caused them. Must be called before the record is
    /// applied, while names exist. `recorded` is the attribution that precedes the record in its batch.
    pub(super) fn audit_changes(
        &self,
        record: &Record<'_>,
        recorded: Option<&Attribution<'_>>,
        each: &mut dyn FnMut(&AuditChange<'_>),
    ) {
        if !record.is_audited() {
            return;
        }
        let (by, origin) = match recorded {
            _ if self.is_caused_by_time(record) => ("", None),
            None if is_decided_by_server(record) => ("", None),
            None => (LOCAL_PRINCIPAL, Some(Attribution::LOCAL.origin)),
            Some(attribution) => (attribution.principal, Some(attribution.origin)),
        };
        // What a caller waited for is its own act, not that of the caller that made room for it.
        let (by, origin) = match self.recipient(record) {
            Some(owner) if owner != by => (owner, None),
            _ => (by, origin),
        };
        let trace = match record {
            Record::Granted(GrantRecord { waiter: Some(waiter), .. }) => self.traces.of_wait(*waiter),
            _ => origin.and_then(|origin| origin.trace),
        };
        self.changes_of(record, &mut |change| {
            let via = origin.map(|origin| origin.via);
            let origin = origin.unwrap_or_default();
            let (credential, from, proposal) = (origin.credential, origin.from, change.proposal.or(origin.proposal));
            each(&AuditChange { by, via, credential, from, proposal, trace, ..*change });
        });
    }

    /// Whether a deadline caused the record, also if a request noticed that it had passed.
    fn is_caused_by_time(&self, record: &Record<'_>) -> bool {
        match record {
            Record::Created { .. } | Record::Opened { .. } | Record::Expired(_) => true,
            Record::SessionEnded { reason, .. } => *reason == EndReason::Ttl,
            Record::Ended { lease, reason, comment, .. } => match reason {
                EndReason::Ttl | EndReason::Stalled | EndReason::MaxHold | EndReason::Deadlock => true,
                EndReason::Released | EndReason::Session | EndReason::Restored => false,
                EndReason::HandedOff | EndReason::Operator | EndReason::Priority | EndReason::Policy => {
                    let drain =
                        self.leases.at(*lease).and_then(|_| self.extra(*lease)).and_then(|extra| extra.drain.as_ref());
                    comment.is_empty() && drain.is_some_and(|drain| drain.until <= self.time)
                }
            },
            Record::Delivery(delivery::DeliveryRecord::Expired { .. }) => true,
            Record::Cache(cache::CacheRecord::Ended { reason, .. }) => *reason == EndReason::Ttl,
            _ => false,
        }
    }

    /// The owner of what a wait ends with, or of the messages that are delivered.
    fn recipient<'a>(&'a self, record: &'a Record<'_>) -> Option<&'a str> {
        let session_owner = |slot: u32| self.sessions.at(slot).map(|(_, session)| self.owners.name(session.owner));
        match record {
            Record::Granted(granted) => {
                granted.waiter?;
                granted.session.map_or(Some(granted.owner.unwrap_or(LOCAL_PRINCIPAL)), session_owner)
            }
            Record::Delivery(delivery::DeliveryRecord::Delivered { owner, .. }) => {
                Some(owner.as_deref().unwrap_or(LOCAL_PRINCIPAL))
            }
            _ => None,
        }
    }

    fn changes_of(&self, record: &Record<'_>, each: &mut dyn FnMut(&AuditChange<'_>)) {
        let of = |kind| AuditChange { kind, ..AuditChange::default() };
        let of_proposal = |proposal, kind| AuditChange { at: Some(proposal), proposal: Some(proposal), ..of(kind) };
        match record {
            Record::Created { max_ttl, .. } => each(&AuditChange { ttl_ms: Some(*max_ttl), ..of("created") }),
            Record::Opened { generation, .. } => each(&AuditChange { at: Some(*generation), ..of("opened") }),
            Record::Restored { counter, quarantine, .. } => {
                each(&AuditChange { number: Some(*counter), until_ms: Some(quarantine.0), ..of("restored") });
                self.audit_restore(each);
            }
            Record::RolledBack { presented, quarantine, .. } => {
                each(&AuditChange { number: Some(presented.get()), until_ms: Some(quarantine.0), ..of("rolled_back") });
            }
            Record::QuarantineWaived { comment } => each(&AuditChange { comment, ..of("quarantine_waived") }),
            Record::Proposed { proposal, command, until, .. } => {
                let change = AuditChange { until_ms: Some(until.0), ..of_proposal(*proposal, "proposed") };
                // A command that cannot be decoded is reported when the record is applied.
                match ProposedCommand::decode(command) {
                    Ok(proposed) => each(&self.proposed_change(&proposed.command, change)),
                    Err(_) => each(&change),
                }
            }
            Record::ProposalApproved { proposal, .. } => {
                each(&self.proposal_change(*proposal, of_proposal(*proposal, "proposal_approved")));
            }
            Record::ProposalCanceled { proposal, .. } => {
                each(&self.proposal_change(*proposal, of_proposal(*proposal, "proposal_canceled")));
            }
            Record::ActedAlone { action, resource, reason } => {
                each(&AuditChange { resource, comment: reason, mode: action, ..of("acted_alone") });
            }
            Record::MaxTtlSet { max_ttl, comment } => {
                each(&AuditChange { ttl_ms: Some(*max_ttl), comment, ..of("max_ttl_set") });
            }
            Record::SessionOpened { session, holder, ttl, .. } => {
                let ttl_ms = Some(u64::from(*ttl));
                each(&AuditChange { session: Some(*session), holder, ttl_ms, ..of("session_opened") });
            }
            Record::SessionEnded { session, reason } => {
                self.audit_session_end(*session, *reason, EndReason::Session, each)
            }
            Record::Granted(granted) => each(&AuditChange {
                resource: granted.resource,
                holder: granted.holder,
                lease: Some(granted.lease),
                session: granted.session.and_then(|slot| self.session_at(slot)),
                number: Some(granted.number.get()),
                access: Some(granted.access),
                slot: slot_of(granted.access, granted.slot),
                ttl_ms: (granted.ttl > 0).then_some(u64::from(granted.ttl)),
                ..of("granted")
            }),
            Record::Ended { lease, reason, comment, .. } => {
                each(&AuditChange {
                    reason: Some(*reason),
                    comment: self.end_comment(*lease, *reason, comment),
                    ..self.end_change(*lease, "ended")
                });
            }
            Record::Expired(lease_reason) => {
                for (lease, _) in &lease_reason.0 {
                    each(&AuditChange { reason: Some(EndReason::Ttl), ..self.end_change(*lease, "ended") });
                }
            }
            Record::HoldConfirmed { lease, .. } => {
                each(&AuditChange { reason: Some(EndReason::Released), ..self.end_change(*lease, "hold_confirmed") });
            }
            Record::Rotated { lease, number } => {
                each(&AuditChange { number: Some(number.get()), ..self.lease_change(*lease, "rotated") });
            }
            Record::Retimed { lease, ttl } => {
                each(&AuditChange { ttl_ms: Some(u64::from(*ttl)), ..self.lease_change(*lease, "retimed") });
            }
            Record::Draining { lease, cause, until } => {
                let until_ms = Some(until.0);
                each(&match cause {
                    DrainCause::Handoff { mode, to } => {
                        AuditChange { handoff: Some(*mode), to, until_ms, ..self.lease_change(*lease, "handoff") }
                    }
                    DrainCause::Priority => AuditChange {
                        reason: Some(EndReason::Priority),
                        until_ms,
                        ..self.lease_change(*lease, "preempted")
                    },
                    DrainCause::Revoked { reason, comment } => {
                        AuditChange { reason: Some(*reason), comment, until_ms, ..self.lease_change(*lease, "revoked") }
                    }
                });
            }
            Record::DrainDropped { lease } => each(&self.lease_change(*lease, "kept_after_all")),
            Record::Capacity { resource, units, .. } => {
                each(&AuditChange { resource, units: Some(u64::from(*units)), ..of("capacity") });
            }
            Record::HoldResized { lease, units } => {
                each(&AuditChange { units: Some(u64::from(*units)), ..self.lease_change(*lease, "hold_resized") });
            }
            Record::Vetoed { lease, until } => {
                each(&AuditChange { until_ms: Some(until.0), ..self.lease_change(*lease, "vetoed") });
            }
            Record::Pinned { lease, at } => each(&AuditChange { at: Some(*at), ..self.lease_change(*lease, "pinned") }),
            Record::Floor { resource, at } => each(&AuditChange { resource, at: Some(*at), ..of("collected") }),
            Record::Freed { resource, comment } => each(&AuditChange { resource, comment, ..of("freed") }),
            Record::CharterSet { prefix, comment, .. } => {
                each(&AuditChange { resource: prefix, comment, ..of("charter_set") })
            }
            Record::CharterRemoved { prefix, comment } => {
                each(&AuditChange { resource: prefix, comment, ..of("charter_removed") });
            }
            Record::Deadlocked { cycle, victim, .. } => {
                let resource = cycle.members.first().map_or("", |member| &member.waits_for);
                each(&AuditChange { resource, to: victim, units: Some(cycle.length), ..of("deadlock") });
            }
            Record::State(record) => each(&self.state_change(record)),
            Record::Delivery(record) => self.audit_delivery(record, each),
            Record::Cache(record) => each(&self.cache_change(record)),
            Record::Coverage(record) => each(&coverage_change(record)),
            Record::Idle
            | Record::Stalled { .. }
            | Record::SessionAlive { .. }
            | Record::Depth { .. }
            | Record::Alive { .. }
            | Record::Progressed { .. }
            | Record::Waiting(_)
            | Record::WaitEnded { .. }
            | Record::Answered { .. }
            | Record::AttributedTo(_)
            | Record::AttributionEnded
            | Record::LeaseTraced { .. }
            | Record::WaitTraced { .. } => {}
        }
    }

    /// The change of a proposal that waits for an approval.
    fn proposal_change<'a>(&'a self, id: u64, base: AuditChange<'a>) -> AuditChange<'a> {
        match self.proposals.get(id, GrantorTime(0)) {
            Some(proposal) => self.proposed_change(&proposal.proposed().command, base),
            None => base,
        }
    }

    fn proposed_change<'a>(&'a self, command: &Command<'a>, base: AuditChange<'a>) -> AuditChange<'a> {
        let ttl_ms = match command {
            Command::SetMaxTtl { max_ttl_ms, .. } => Some(*max_ttl_ms),
            _ => None,
        };
        let resource = self.proposed_name(command).unwrap_or_default();
        let (lease, to, comment) = (command.proposed_lease(), command.proposed_successor(), command.proposed_comment());
        AuditChange { resource, lease, to, comment, ttl_ms, mode: action(command).word(), ..base }
    }

    /// A change of a held lease. If the lease does not exist, applying the record reports the error.
    fn lease_change(&self, slot: u32, kind: &'static str) -> AuditChange<'_> {
        let Some((reuse, lease)) = self.leases.at(slot) else {
            return AuditChange { kind, ..AuditChange::default() };
        };
        let session = self.actors[lease.actor].session;
        AuditChange {
            kind,
            resource: self.resources.name(lease.resource),
            holder: self.holder_name(lease.actor),
            lease: Some(LeaseId { slot, reuse }),
            session: if session == NONE { None } else { self.session_at(session) },
            number: Some(lease.number().get()),
            ..AuditChange::default()
        }
    }

    /// The end of a held lease. It says what the lease occupied, so that a reader finds the next holder without the entry of its grant.
    fn end_change(&self, slot: u32, kind: &'static str) -> AuditChange<'_> {
        let lease = self.leases.at(slot).map(|(_, lease)| lease);
        let access = lease.map(|lease| lease.access());
        let of = lease.and_then(|lease| slot_of(lease.access(), lease.slot()));
        AuditChange { access, slot: of, ..self.lease_change(slot, kind) }
    }

    fn session_at(&self, slot: u32) -> Option<SessionId> {
        self.sessions.at(slot).map(|(reuse, _)| SessionId { slot, reuse })
    }

    /// The comment of a lease's end: the given one, or that of its scheduled end.
    fn end_comment<'a>(&'a self, slot: u32, lease_reason: EndReason, comment: &'a str) -> &'a str {
        let announced = self.leases.at(slot).and_then(|_| self.extra(slot)).and_then(|extra| extra.drain.as_ref());
        match announced.map(|drain| &drain.cause) {
            Some(StoredDrainCause::Revoked { reason, comment: before })
                if comment.is_empty() && *reason == lease_reason =>
            {
                before
            }
            _ => comment,
        }
    }

    /// The end of a session, then the ends of its leases (S1).
    fn audit_session_end(
        &self,
        id: SessionId,
        reason: EndReason,
        lease_reason: EndReason,
        each: &mut dyn FnMut(&AuditChange<'_>),
    ) {
        if self.sessions.live(id.slot, id.reuse).is_none() {
            return;
        }
        let holder = self.resources.names.get(self.actors.holder(self.session(id.slot).holder).name);
        each(&AuditChange {
            kind: "session_ended",
            session: Some(id),
            holder,
            reason: Some(reason),
            ..AuditChange::default()
        });
        for slot in self.session_leases(id.slot) {
            each(&AuditChange { reason: Some(lease_reason), ..self.end_change(slot, "ended") });
        }
    }

    /// The ends of all sessions and leases of a backup (T5).
    fn audit_restore(&self, each: &mut dyn FnMut(&AuditChange<'_>)) {
        for (slot, reuse, _) in self.sessions.iter_live() {
            self.audit_session_end(SessionId { slot, reuse }, EndReason::Restored, EndReason::Restored, each);
        }
        for (slot, _, lease) in self.leases.iter_live() {
            if self.actors[lease.actor].session == NONE {
                each(&AuditChange { reason: Some(EndReason::Restored), ..self.end_change(slot, "ended") });
            }
        }
    }

    fn state_change<'a>(&'a self, record: &'a state::StateRecord) -> AuditChange<'a> {
        let (kind, resource, token, key, units) = match record {
            state::StateRecord::Put { resource, token, owner: _, key, bytes } => {
                ("checkpoint", resource, token, key, Some(bytes.len() as u64))
            }
            state::StateRecord::Deleted { resource, token, key } => ("checkpoint_deleted", resource, token, key, None),
        };
        let slot = self.resources.find(resource);
        let sole = slot.map_or(NONE, |slot| self.resources.sole(slot));
        let state = slot.and_then(|slot| self.resources.state(slot)).map_or(&[][..], |state| &state.leases);
        let mut leases = state.iter().copied().chain((sole != NONE).then_some(sole));
        // The lease with this token identifies the writer.
        let writer = leases.find(|slot| self.lease(*slot).number() == *token);
        let of = writer.map_or(AuditChange { kind, ..AuditChange::default() }, |slot| self.lease_change(slot, kind));
        AuditChange { resource, key, number: Some(token.get()), units, ..of }
    }

    fn audit_delivery(&self, record: &delivery::DeliveryRecord, each: &mut dyn FnMut(&AuditChange<'_>)) {
        use delivery::DeliveryRecord;
        let message_change = |kind, item: u64, receipt: Option<u64>| {
            let resource = self.queues.queue_of(item).unwrap_or_default();
            let holder = match self.queues.view(resource, item).map(|view| view.state) {
                Some(delivery::MessageState::Live { holder, .. }) => holder,
                _ => "",
            };
            AuditChange { kind, resource, holder, at: Some(item), number: receipt, ..AuditChange::default() }
        };
        match record {
            DeliveryRecord::Enqueued { queue, item, .. } => {
                each(&AuditChange { resource: queue, ..message_change("enqueued", *item, None) })
            }
            DeliveryRecord::Delivered { first, items, session, owner: _, holder, visibility_ms } => {
                for (item, receipt) in items.iter().zip(first.get()..) {
                    let ttl_ms = Some(*visibility_ms);
                    let (session, holder) = (*session, &**holder);
                    each(&AuditChange { session, holder, ttl_ms, ..message_change("delivered", *item, Some(receipt)) });
                }
            }
            DeliveryRecord::Extended { item, receipt, visibility_ms } => {
                each(&AuditChange {
                    ttl_ms: Some(*visibility_ms),
                    ..message_change("extended", *item, Some(receipt.get()))
                });
            }
            DeliveryRecord::Acked { item, receipt } => each(&message_change("acked", *item, Some(receipt.get()))),
            DeliveryRecord::Returned { item, receipt, .. } => {
                each(&message_change("returned", *item, Some(receipt.get())))
            }
            DeliveryRecord::Expired { item, receipt } => {
                each(&AuditChange {
                    reason: Some(EndReason::Ttl),
                    ..message_change("undelivered", *item, Some(receipt.get()))
                });
            }
            DeliveryRecord::Redriven { item } => each(&message_change("redriven", *item, None)),
            DeliveryRecord::Dropped { item } => each(&message_change("dropped", *item, None)),
        }
    }

    fn cache_change<'a>(&'a self, record: &'a cache::CacheRecord) -> AuditChange<'a> {
        use cache::CacheRecord;
        let of = |kind, number: crate::token::Number| {
            let (resource, holder) = self.cache.holder_of(number).unwrap_or_default();
            AuditChange { kind, resource, holder, number: Some(number.get()), ..AuditChange::default() }
        };
        match record {
            CacheRecord::Forgotten { key } => {
                AuditChange { kind: "cache_forgotten", resource: key, ..AuditChange::default() }
            }
            CacheRecord::Read { key, lease, session, owner: _, reader, ttl_ms } => AuditChange {
                resource: key,
                session: *session,
                holder: reader,
                ttl_ms: Some(*ttl_ms),
                ..of("cache_read", *lease)
            },
            CacheRecord::Renewed { lease } => of("cache_renewed", *lease),
            CacheRecord::Began { key, kind, number, session, owner: _, holder, ttl_ms } => AuditChange {
                resource: key,
                session: *session,
                holder,
                ttl_ms: Some(*ttl_ms),
                ..of(if *kind == cache::OwnerKind::Intent { "cache_intent" } else { "cache_fill" }, *number)
            },
            CacheRecord::Done { number } => of("cache_done", *number),
            CacheRecord::Ended { number, reason } => {
                AuditChange { reason: Some(*reason), ..of("cache_ended", *number) }
            }
        }
    }
}

/// The slot of a lease that occupies one.
const fn slot_of(access: Access, slot: u32) -> Option<u32> {
    match access {
        Access::Exclusive | Access::Slot => Some(slot),
        Access::Shared | Access::Units(_) => None,
    }
}

/// Whether the server decides this by itself, unless a recorded caller made it do so.
const fn is_decided_by_server(record: &Record<'_>) -> bool {
    matches!(
        record,
        Record::Draining { cause: DrainCause::Priority, .. } | Record::DrainDropped { .. } | Record::Deadlocked { .. }
    )
}

fn coverage_change(record: &coverage::CoverageRecord) -> AuditChange<'_> {
    use coverage::CoverageRecord;
    match record {
        CoverageRecord::Reported { resource, slot, target, mode, .. } => AuditChange {
            kind: "target_reported",
            resource,
            target,
            slot: Some(*slot),
            mode: mode.word(),
            ..AuditChange::default()
        },
        CoverageRecord::Zombie { resource, slot, target, presented, mark, times, holder } => AuditChange {
            kind: "zombie",
            resource,
            target,
            slot: Some(*slot),
            number: Some(presented.get()),
            mark: Some(mark.get()),
            units: Some(*times),
            holder,
            ..AuditChange::default()
        },
        CoverageRecord::Forgotten { resource, target, comment } => {
            AuditChange { kind: "target_forgotten", resource, target, comment, ..AuditChange::default() }
        }
    }
}
