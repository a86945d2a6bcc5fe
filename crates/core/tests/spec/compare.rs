//! Comparison of the core with the spec: replies, notices and views.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::charter::TargetMode;
use leasehold_core::command::{Answer, SessionEvent};
use leasehold_core::coverage::{FenceMode, Hole};
use leasehold_core::grantor::{Grantor, LeaseView, Output, WaiterView};
use leasehold_core::refusal::Refusal;

use super::charters::RESOURCES;
use super::model::{Spec, Wait, lease_id, number, scope};
use super::reports::FenceRow;

/// Each request has the same answers, in the same order.
pub fn replies(out: &Output, spec: &Spec) -> Result<(), String> {
    let mut answers: BTreeMap<u64, Vec<&Answer>> = BTreeMap::new();
    for reply in &out.replies {
        answers.entry(reply.tag).or_default().push(&reply.answer);
    }
    for tag in answers.keys().chain(spec.turn.answers.keys()).collect::<BTreeSet<_>>() {
        let core = answers.get(tag).cloned().unwrap_or_default();
        let ours: Vec<&Answer> = spec.turn.answers.get(tag).into_iter().flatten().collect();
        if core.len() != ours.len() || !core.iter().zip(&ours).all(|(a, b)| equivalent(a, b)) {
            return Err(format!("request #{tag} was answered {core:?}, the spec has {ours:?}"));
        }
    }
    Ok(())
}

/// Texts for people may differ; everything else must be equal.
fn equivalent(core: &Answer, ours: &Answer) -> bool {
    match (core, ours) {
        (Answer::Refused(Refusal::Invalid { field: a, .. }), Answer::Refused(Refusal::Invalid { field: b, .. })) => {
            a == b
        }
        (Answer::Refused(Refusal::OutOfRange { field: a, .. }), Answer::Refused(Refusal::Invalid { field: b, .. })) => {
            a == b
        }
        // The stories check the holder that the core names.
        (Answer::Refused(Refusal::Busy { position: a, .. }), Answer::Refused(Refusal::Busy { position: b, .. })) => {
            a == b
        }
        // A holder of slots and units has both accesses; either may be named.
        (
            Answer::Refused(Refusal::AccessChange { requested: a, .. }),
            Answer::Refused(Refusal::AccessChange { requested: b, .. }),
        ) => a == b,
        (a, b) => a == b,
    }
}

/// Every end and every drain is announced exactly once.
pub fn notices(out: &Output, spec: &Spec) -> Result<(), String> {
    let (mut ended, mut draining, mut zombies) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for notice in &out.notices {
        let new = match &notice.event {
            SessionEvent::Ended { lease, number, reason } => ended.insert((lease.slot, number.get(), reason.code())),
            SessionEvent::Draining { lease, until } => {
                draining.insert((lease.slot, until.0));
                true
            }
            SessionEvent::Zombie(zombie) => {
                zombies.push((zombie.target.as_str(), zombie.presented.get()));
                true
            }
            _ => true,
        };
        if !new {
            return Err(format!("announced twice: {notice:?}"));
        }
    }
    same("reported zombies (F6)", &zombies, &spec.turn.zombies)?;
    if ended != spec.turn.ended || draining != spec.turn.draining {
        return Err(format!(
            "announced ends {ended:?} and notices {draining:?}, the spec has {:?} and {:?}",
            spec.turn.ended, spec.turn.draining
        ));
    }
    Ok(())
}

/// The views have the same holders, waiters and counters.
pub fn views(core: &Grantor, spec: &Spec) -> Result<(), String> {
    let status = core.status();
    let values = (status.time.0, status.counter, status.held, status.waiters, status.deadlocks, status.quarantine);
    let quarantine = match spec.check_quarantine() {
        Err(Refusal::Quarantined { remaining, rolled_back }) => Some((remaining, rolled_back)),
        _ => None,
    };
    let ours = (spec.now, spec.counter, spec.live().len(), spec.waits.len(), spec.deadlocks, quarantine);
    same("time, counter, held, waiting, deadlocks, quarantine", &values, &ours)?;
    let sessions = spec.sessions.iter().filter(|session| !session.ended).count();
    same("sessions", &status.sessions, &sessions)?;
    let rows_of_core: BTreeMap<_, _> = RESOURCES.iter().flat_map(|resource| rows(core, resource)).collect();
    same("targets", &rows_of_core, &spec.targets)?;
    same("stalled", &status.stalled_ms, &spec.stalls.iter().map(|(_, ms)| ms).sum())?;
    for (slot, session) in spec.sessions.iter().enumerate().filter(|(_, session)| !session.ended) {
        let view = core.session(spec.session_id(slot as u32)).ok_or("a session is missing")?;
        let remaining = spec.deadline(&session.lifetime).saturating_sub(spec.now);
        let own_leases = spec.leases_in(slot as u32).len() as u32;
        let waits = spec.waits.iter().filter(|wait| wait.actor.session == Some(slot as u32)).count() as u32;
        same("session", &(view.remaining_ms, view.leases, view.waits), &(remaining, own_leases, waits))?;
    }
    super::listings::compare(core, spec)?;
    super::listings::compare_contended(core, spec, &RESOURCES)?;
    same("holes", &core.coverage_holes().collect(), &holes(core, spec))?;
    let targets = RESOURCES.iter().flat_map(|resource| core.targets(resource)).flat_map(|target| target.reports);
    let checks = targets.filter_map(|(_, _, counted)| counted).map(|counted| counted.checks).sum();
    same("checks", &core.checks(), &checks)?;
    RESOURCES
        .iter()
        .try_for_each(|resource| resource_view(core, spec, resource).map_err(|e| format!("{resource}: {e}")))
}

/// What the core stores about the targets of a resource.
fn rows<'a>(core: &'a Grantor, resource: &'a str) -> impl Iterator<Item = ((&'a str, &'a str, u32), FenceRow)> {
    core.coverage().targets_of(resource).map(move |(target, slot, seen)| {
        let last = seen.last.as_ref().map(|last| (last.presented.get(), last.mark.get(), last.holder.to_string()));
        ((resource, target, slot), (seen.mode, seen.zombies, last))
    })
}

/// A recount of the holes in coverage.
fn holes(core: &Grantor, spec: &Spec) -> Vec<(Hole, usize)> {
    let mut found = Vec::new();
    let covers = |prefix: &str, resource: &str| resource.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
    let covering = |resource: &str| core.charters().find(|(prefix, _)| covers(prefix, resource));
    for (prefix, charter) in core.charters() {
        for target in &charter.targets {
            let reported = spec.targets.iter().filter(|((of, name, _), _)| covers(prefix, of) && *name == target.name);
            let modes: Vec<FenceMode> = reported.map(|(_, (mode, ..))| *mode).collect();
            found.extend(match &target.mode {
                None => Some(Hole::NoMode),
                Some(_) if modes.is_empty() => Some(Hole::NeverReported),
                Some(TargetMode::Forced) if modes.contains(&FenceMode::Cooperative) => Some(Hole::Weaker),
                Some(_) => None,
            });
        }
    }
    let is_declared = |resource: &str, target: &str| {
        covering(resource).is_some_and(|(_, charter)| charter.targets.iter().any(|declared| declared.name == target))
    };
    let reported: BTreeSet<_> = spec.targets.keys().map(|(resource, target, _)| (*resource, *target)).collect();
    let undeclared = reported.into_iter().filter(|(resource, target)| !is_declared(resource, target));
    found.extend(undeclared.map(|_| Hole::Undeclared));
    Hole::ALL.map(|hole| (hole, found.iter().filter(|one| **one == hole).count())).into()
}

fn resource_view(core: &Grantor, spec: &Spec, resource: &str) -> Result<(), String> {
    let view = core.show(resource);
    same("known", &view.is_some(), &spec.is_known(resource))?;
    let waiters: Vec<WaiterView> = spec.queue(resource).iter().map(|wait| waiter_view(spec, wait, resource)).collect();
    same("waiters", &core.waiters(resource), &waiters)?;
    let Some(view) = view else {
        return Ok(());
    };
    let settings = spec.settings_of(resource);
    let (values, ours) = (
        (view.capacity, u64::from(view.used), view.confirmed, view.held_for_operator, view.floor),
        (spec.capacity(resource), spec.used(resource), settings.confirmed, settings.for_operator, settings.floor),
    );
    same("capacity, used, confirmed, for an operator, floor", &values, &ours)?;
    let mut leases: Vec<LeaseView> = spec.live_on(resource).iter().map(|i| lease_view(spec, *i)).collect();
    leases.sort_by_key(|lease| lease.number);
    let metadata_aside: Vec<LeaseView> =
        view.leases.into_iter().map(|lease| LeaseView { metadata: Vec::new(), ..lease }).collect();
    same("leases", &metadata_aside, &leases)?;
    check_exclusion(&metadata_aside)
}

/// L1, independent of the spec: an exclusive lease is the only one, and each slot has one holder.
fn check_exclusion(leases: &[LeaseView]) -> Result<(), String> {
    use leasehold_core::lease::Access;
    let counted: Vec<&LeaseView> = leases.iter().filter(|lease| !lease.predecessor).collect();
    let alone = counted.iter().any(|lease| lease.access == Access::Exclusive);
    let readers = counted.iter().filter(|lease| lease.access == Access::Shared).count();
    let slots: Vec<_> = counted.iter().filter(|lease| lease.access == Access::Slot).map(|lease| lease.scope).collect();
    let twice = slots.iter().enumerate().any(|(i, slot)| slots[..i].contains(slot));
    if alone && counted.len() > 1 || readers > 0 && readers < counted.len() || twice {
        return Err(format!("more leases than allowed (L1): {counted:?}"));
    }
    Ok(())
}

fn lease_view(spec: &Spec, i: usize) -> LeaseView {
    let lease = &spec.leases[i];
    let effective = spec.effective();
    let inherited = spec.priority_at(lease.resource, &effective).max(spec.inherited(lease.actor, &effective));
    LeaseView {
        lease: lease_id(i),
        resource: lease.resource.to_owned(),
        holder: lease.actor.holder.to_owned(),
        session: lease.actor.session.map(|slot| spec.session_id(slot)),
        number: number(lease.number),
        access: lease.access,
        scope: scope(lease),
        ttl_ms: (!lease.follows_session).then_some(lease.lifetime.ttl),
        remaining_ms: spec.remaining(lease),
        granted: leasehold_core::time::GrantorTime(lease.granted),
        validity: leasehold_core::lease::Validity::Session,
        state: leasehold_core::lease::LeaseState::Held,
        priority: lease.priority.max(inherited),
        draining: lease.drain.map(|drain| (drain.cause.reason(), drain.until.saturating_sub(spec.now))),
        predecessor: lease.is_predecessor,
        progress: lease.progress.map(|progress| progress.seen),
        metadata: Vec::new(),
    }
}

fn waiter_view(spec: &Spec, wait: &Wait, resource: &str) -> WaiterView {
    let session = wait.actor.session.expect("a wait belongs to a session");
    WaiterView {
        holder: wait.actor.holder.to_owned(),
        session: spec.session_id(session),
        access: wait.access_to(resource).expect("the wait is in this queue"),
        priority: wait.priority,
        effective_priority: spec.effective()[&wait.order],
        remaining_ms: wait.until.saturating_sub(spec.now),
        alive: spec.sessions[session as usize].lifetime.tenure == spec.tenure,
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, core: &T, ours: &T) -> Result<(), String> {
    if core == ours { Ok(()) } else { Err(format!("{what}: the core has {core:?}, the spec has {ours:?}")) }
}
