//! What is there, as people and dashboards are told.

use leasehold_core::grantor::{Deadlock, Ended, LeaseView, ResourceView, SessionView, Status, Usage, WaiterView};
use leasehold_core::lease::Reason;

use crate::problem::cycle;
use crate::words::{access_fields, maybe, reach_fields};
use crate::{LEASES_SHOWN, lease_bits, session_bits, v1};

/// A held lease.
pub fn lease_view(from: &LeaseView) -> v1::LeaseView {
    let (access, units) = access_fields(from.access);
    let (reach, slot) = reach_fields(from.reach);
    v1::LeaseView {
        lease: lease_bits(from.lease),
        resource: from.resource.clone(),
        holder: from.holder.clone(),
        session: from.session.map(session_bits),
        token_number: from.number.get(),
        access,
        units,
        reach,
        slot,
        ttl_ms: from.ttl_ms,
        remaining_ms: from.remaining_ms,
        granted_ms: from.granted.0,
        rung: v1::Rung::from(from.rung).into(),
        state: v1::State::from(from.state).into(),
        priority: from.priority.into(),
        draining: maybe::<_, v1::Reason>(from.draining.map(|(reason, _)| reason)),
        drain_ms: from.draining.map_or(0, |(_, ms)| ms),
        apart: from.apart,
        progress: from.progress,
        metadata: from.metadata.clone(),
    }
}

/// A resource and what stands at it.
pub fn resource_view(from: &ResourceView) -> v1::ResourceView {
    v1::ResourceView {
        resource: from.resource.clone(),
        capacity: from.capacity,
        used: from.used,
        confirmed: from.confirmed,
        draining: from.draining,
        held_for_operator: from.held_for_operator,
        leases: from.leases.iter().take(LEASES_SHOWN).map(lease_view).collect(),
        waiters: from.waiters as u64,
        floor: from.floor,
        held: from.leases.len() as u64,
    }
}

/// One who waits.
pub fn waiter_view(from: &WaiterView) -> v1::WaiterView {
    let (access, units) = access_fields(from.access);
    v1::WaiterView {
        holder: from.holder.clone(),
        session: session_bits(from.session),
        access,
        units,
        priority: from.priority.into(),
        effective: from.effective.into(),
        remaining_ms: from.remaining_ms,
        heard: from.heard,
    }
}

/// A session.
pub fn session_view(from: &SessionView) -> v1::SessionView {
    v1::SessionView {
        session: session_bits(from.session),
        holder: from.holder.clone(),
        ttl_ms: from.ttl_ms,
        remaining_ms: from.remaining_ms,
        suspect: from.suspect,
        leases: from.leases,
        waits: from.waits,
    }
}

/// A found deadlock.
pub fn deadlock_view(from: &Deadlock) -> v1::DeadlockView {
    v1::DeadlockView { at_ms: from.at.0, cycle: Some(cycle(&from.cycle)), victim: from.victim.clone() }
}

/// An ended lease.
pub fn ended(from: &Ended) -> v1::Ended {
    v1::Ended {
        resource: from.resource.clone(),
        holder: from.holder.clone(),
        token_number: from.number,
        granted_ms: from.granted.0,
        ended_ms: from.ended.0,
        reason: v1::Reason::from(from.reason).into(),
    }
}

/// What a holder used; reasons that never happened are left out.
pub fn usage(holder: &str, from: &Usage) -> v1::Usage {
    let row = |reason: Reason| {
        let at = usize::from(reason.code());
        v1::UsageRow { reason: v1::Reason::from(reason).into(), ended: from.ended[at], held_ms: from.held_ms[at] }
    };
    let rows = Reason::ALL.into_iter().map(row).filter(|row| row.ended != 0).collect();
    v1::Usage { holder: holder.into(), rows }
}

/// What every counted holder used, and the rest together under an empty name.
pub fn usage_list(holders: &[(String, Usage)], rest: &Usage) -> v1::UsageList {
    let mut told: Vec<_> = holders.iter().map(|(holder, used)| usage(holder, used)).collect();
    if *rest != Usage::default() {
        told.push(usage("", rest));
    }
    v1::UsageList { holders: told }
}

/// The grantor in figures, at this journal position.
pub fn status_view(from: &Status, position: u64) -> v1::Status {
    v1::Status {
        cluster: from.cluster.to_string(),
        incarnation: from.incarnation.to_string(),
        generation: from.generation,
        tenure: from.tenure,
        rung: v1::Rung::from(from.rung).into(),
        time_ms: from.time.0,
        counter: from.counter,
        max_ttl_ms: from.max_ttl_ms,
        held: from.held as u64,
        sessions: from.sessions as u64,
        waiters: from.waiters as u64,
        totals: Some(usage("", &from.totals)),
        deadlocks: from.deadlocks,
        quarantine_ms: from.quarantine.map(|(ms, _)| ms),
        rolled_back: from.quarantine.is_some_and(|(_, rolled_back)| rolled_back),
        stalled_ms: from.stalled_ms,
        position,
    }
}
