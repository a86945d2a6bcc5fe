//! Holds that ended: each lease from its grant to its end, for the spans of a tracing system. Collected only on request, and not
//! part of the state.

use std::collections::BTreeMap;

use super::GrantorTable;
use super::lease::{NONE, StoredDrainCause, StoredLease};
use crate::ids::{LeaseId, SessionId};
use crate::lease::{Access, EndReason};
use crate::time::{GrantorTime, WallClock};
use crate::token::{Number, issued_at};
use crate::trace_context::TraceContext;

/// A lease that ended, with what a trace shows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedHold {
    /// The resource.
    pub resource: Box<str>,
    /// Name of the holder.
    pub holder: Box<str>,
    /// The identity that was granted it.
    pub owner: Box<str>,
    /// The lease.
    pub lease: LeaseId,
    /// The session that carried it.
    pub session: Option<SessionId>,
    /// The number of its last token.
    pub number: Number,
    /// Its access.
    pub access: Access,
    /// The slot of an exclusive or slot lease.
    pub slot: Option<u32>,
    /// When it was granted.
    pub granted: WallClock,
    /// When it ended.
    pub ended: WallClock,
    /// Why it ended.
    pub reason: EndReason,
    /// Whether it ended with its session because the session's ttl ended.
    pub session_expired: bool,
    /// Its drain, if it began in this tenure.
    pub drain: Option<HoldDrain>,
    /// The trace that the request for it belongs to.
    pub trace: Option<TraceContext>,
}

/// The drain of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldDrain {
    /// When it began.
    pub began: WallClock,
    /// Why: a handoff, a preemption or a revocation with grace, as its end reason.
    pub cause: EndReason,
}

/// Collects holds that end.
#[derive(Debug, Default)]
pub(crate) struct HoldCollector {
    is_enabled: bool,
    pub ended: Vec<EndedHold>,
    /// When the drains of this tenure began, by the slot of their lease.
    drains: BTreeMap<u32, GrantorTime>,
    /// Whether a session is ending because its ttl ended.
    session_expired: bool,
}

impl HoldCollector {
    pub fn set_enabled(&mut self, enabled: bool) {
        self.is_enabled = enabled;
    }

    /// Sets why the session of the next holds ends.
    pub fn session_ending(&mut self, reason: Option<EndReason>) {
        self.session_expired = reason == Some(EndReason::Ttl);
    }

    pub fn drain_began(&mut self, lease: u32, at: GrantorTime) {
        if self.is_enabled {
            self.drains.insert(lease, at);
        }
    }

    pub fn drain_dropped(&mut self, lease: u32) {
        self.drains.remove(&lease);
    }
}

impl GrantorTable {
    /// Collects a hold before its lease is unlinked.
    pub(super) fn collect_hold(&mut self, id: LeaseId, lease: &StoredLease, reason: EndReason) {
        if !self.due.holds.is_enabled {
            return;
        }
        let (now, wall) = (self.time, self.wall);
        let wall_at = |at: GrantorTime| WallClock(wall.0.saturating_sub(now.since(at)));
        let began = self.due.holds.drains.remove(&id.slot);
        let drain = if lease.has_extra() { self.extra(id.slot).and_then(|extra| extra.drain.as_ref()) } else { None };
        let drain = began.zip(drain.map(|drain| &drain.cause));
        let drain =
            drain.map(|(began, cause)| HoldDrain { began: wall_at(began), cause: StoredDrainCause::reason(cause) });
        let actor = &self.actors[lease.actor];
        let session = (actor.session != NONE).then(|| {
            let (reuse, _) = self.sessions.at(actor.session).expect("an actor's session");
            SessionId { slot: actor.session, reuse }
        });
        // Grantor time stops during an outage, and the number says when it was issued. A number that was raised says it too late.
        let granted = wall_at(lease.granted()).min(issued_at(lease.number()));
        let hold = EndedHold {
            resource: self.resources.name(lease.resource).into(),
            holder: self.holder_name(lease.actor).into(),
            owner: self.owners.name(lease.owner).into(),
            lease: id,
            session,
            number: lease.number(),
            access: lease.access(),
            slot: matches!(lease.access(), Access::Exclusive | Access::Slot).then(|| lease.slot()),
            granted,
            ended: wall.max(granted),
            reason,
            session_expired: self.due.holds.session_expired,
            drain,
            trace: self.traces.of_lease(id.slot),
        };
        self.due.holds.ended.push(hold);
    }
}
