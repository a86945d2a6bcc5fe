//! Random requests of clients, based on what they know: mostly valid, sometimes invalid.

use leasehold_core::command::{
    Acquire, AcquireAll, AcquireOptions, Command, Handoff, HandoffMode, HeldDigest, IdRange, LeaseRef, LeaseSelector,
    OpenSession, Renew, Request, RequestId, Revoke,
};
use leasehold_core::coverage::{FenceMode, FenceReport, RefusedZombie};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::secret::SecretDigest;
use leasehold_testkit::rng::SplitMix64;

use super::charters::HOLDERS;
use super::identity;
use super::model::{Name, lease_id, number};
use super::random_actions::RequestKind;
use super::runner::{KnownGrant, Runner};
use super::sessions::KEY_HOLDER;

const TTLS: [u64; 6] = [100, 300, 500, 1_000, 2_000, 3_000];
/// The digests of idempotency keys, which no session has as its secret.
pub const KEYS: [u8; 3] = [0xf0, 0xf1, 0xf2];
const PRIORITIES: [u8; 6] = [100, 100, 100, 50, 150, 200];

/// Resource sets for acquires of several leases.
const RESOURCE_SETS: [&[(Name, Access)]; 8] = [
    &[("plain/a", Access::Exclusive), ("plain/b", Access::Exclusive)],
    &[("plain/b", Access::Exclusive), ("plain/c", Access::Exclusive)],
    &[("plain/c", Access::Shared), ("plain/a", Access::Exclusive)],
    &[("plain/a", Access::Shared), ("urgent/x", Access::Slot)],
    &[("revoke/x", Access::Exclusive), ("plain/a", Access::Exclusive), ("plain/b", Access::Shared)],
    &[("pool/x", Access::Units(1)), ("seats/x", Access::Units(2))],
    &[("report/x", Access::Exclusive), ("plain/b", Access::Exclusive)],
    &[("plain/a", Access::Exclusive), ("plain/a", Access::Shared)],
];

/// Generates one request; `None` if the drawn kind is not possible yet.
pub fn generate(runner: &Runner, seed: u64) -> Option<(Request<'static>, Command<'static>)> {
    let mut rng = SplitMix64::new(seed);
    let first = seed & 0xf == 1;
    let kind = if first || runner.sessions.is_empty() {
        RequestKind::OpenSession
    } else {
        rng.weighted(&runner.profile.kinds)
    };
    let presented = match rng.below(12) {
        0 | 1 => runner
            .grants
            .last()
            .map(|grant| super::command_effects::token(grant.number.get(), runner.spec.incarnation, true)),
        _ => None,
    };
    let mut request = Request { tag: 0, id: None, observed: presented, presented: None, ..Request::default() };
    let command = match kind {
        RequestKind::OpenSession => {
            let open = OpenSession {
                holder: rng.pick(&HOLDERS),
                ttl_ms: match (first, rng.one_in(12)) {
                    (true, _) => 3_000,
                    (false, true) => rng.pick(&[0, 99, 3_001, u64::MAX]),
                    (false, false) => rng.pick(&[100, 500, 1_000, 2_000, 3_000, 3_000]),
                },
                secret: [runner.sessions.len() as u8; 32].into(),
                waits_only: !first && rng.one_in(5),
            };
            let as_key = !first && rng.one_in(9);
            Command::OpenSession(if as_key { OpenSession { holder: KEY_HOLDER, ..open } } else { open })
        }
        RequestKind::Session => {
            let session = session(runner, &mut rng)?;
            match rng.below(8) {
                0 => Command::CloseSession { session },
                1 => {
                    let mut bound = || rng.one_in(3).then(|| LeaseId { slot: rng.below(8) as u32, reuse: 0 });
                    Command::Reconcile { session, leases: &[], range: IdRange { from: bound(), until: bound() } }
                }
                2 => {
                    let known = runner.known_secret(session);
                    let secret = if rng.one_in(3) { [0xee; 32] } else { known };
                    Command::ResumeSession { session, secret: SecretDigest::stored(secret) }
                }
                3 => Command::RenewSession { session, held: Some(HeldDigest { count: 0, digest: 0 }) },
                4 => Command::RenewSession { session, held: Some(runner.known_by(session)) },
                _ => Command::RenewSession { session, held: None },
            }
        }
        RequestKind::Acquire => Command::Acquire(acquire(runner, &mut rng)),
        RequestKind::AcquireAll => Command::AcquireAll(AcquireAll {
            resources: rng.pick(&RESOURCE_SETS),
            holder: rng.pick(&["", "", "one"]),
            session: session(runner, &mut rng),
            ttl_ms: rng.pick(&[None, None, Some(1_000)]),
            options: options(runner, &mut rng),
        }),
        RequestKind::OwnLease => {
            let held = lease_ref(runner, &mut rng)?;
            match rng.below(16) {
                0..5 => Command::Release(held),
                5..10 => Command::Renew(Renew {
                    lease: held,
                    ttl_ms: if rng.one_in(4) { Some(or_invalid(&mut rng, &TTLS)) } else { None },
                    progress: rng.pick(&[None, Some(rng.state() % 9)]),
                }),
                10 | 11 => Command::Confirm(held),
                12 => Command::Rotate(held),
                _ => Command::Progress { lease: held, at: rng.below(9) },
            }
        }
        RequestKind::Cancel => {
            let (id, _) = *runner.sent.get(rng.below(runner.sent.len().max(1) as u64) as usize)?;
            Command::Cancel { session: id.session, sequence: id.sequence }
        }
        RequestKind::Revoke => Command::Revoke(Revoke {
            selector: selector(runner, &mut rng)?,
            reason: rng.pick(&[
                EndReason::Operator,
                EndReason::Operator,
                EndReason::Policy,
                EndReason::Policy,
                EndReason::Ttl,
            ]),
            comment: "because",
            grace_ms: rng.pick(&[0, 0, 200, 700]),
        }),
        RequestKind::HandOff => match rng.below(4) {
            0 => Command::Drained(lease_ref(runner, &mut rng)?),
            _ => Command::Handoff(Handoff {
                selector: if rng.one_in(3) { selector(runner, &mut rng)? } else { contended_lease(runner, &mut rng)? },
                number: if rng.one_in(3) { Some(runner.grants.last()?.number) } else { None },
                to: rng.pick(&[None, None, Some("ann"), Some("bob"), Some("cat")]),
                mode: rng.pick(&[None, Some(HandoffMode::Gap), Some(HandoffMode::Overlap), Some(HandoffMode::Overlap)]),
                drain_ms: if rng.one_in(4) { None } else { Some(or_invalid(&mut rng, &[100, 250, 300])) },
            }),
        },
        RequestKind::Units => match rng.below(5) {
            0 => Command::SetCapacity { resource: resource(runner, &mut rng), units: rng.below(5) as u32 },
            1 => Command::ConfirmHold(reservation(runner, &mut rng)?),
            2 | 3 => Command::ResizeHold { lease: reservation(runner, &mut rng)?, units: rng.below(5) as u32 },
            _ => Command::Veto { lease: reservation(runner, &mut rng)?, for_ms: rng.pick(&[0, 200, 200, 900]) },
        },
        RequestKind::Pins => match rng.below(2) {
            0 => Command::Pin { lease: reader(runner, &mut rng)?, at: rng.below(20) },
            _ => Command::Collect { resource: resource(runner, &mut rng), below: rng.below(20) },
        },
        RequestKind::Operator => match rng.below(2) {
            0 => Command::WaiveQuarantine { comment: "checked" },
            _ => Command::Free { resource: resource(runner, &mut rng), comment: "inspected" },
        },
        RequestKind::ObserveToken => {
            let counter = runner.spec.counter;
            let raw = match rng.below(8) {
                0 => counter + 1 + rng.below(1 << 20),
                1 => counter + ((2 * 24 * 3_600_000) << 22),
                2 | 3 => counter.saturating_sub(rng.below(3 << 31)).max(1),
                _ => runner.highest.max(1),
            };
            request.observed = Some(super::command_effects::token(raw, runner.spec.incarnation, rng.below(4) > 0));
            Command::ObserveToken
        }
        RequestKind::Report => fence_report(runner, &mut rng)?,
        RequestKind::Key => {
            let key = [rng.pick(&KEYS); 32];
            match runner.sessions.iter().rev().find(|(_, secret)| *secret == key) {
                Some((session, _)) if !rng.one_in(3) => return under_key(runner, *session, request, &mut rng),
                _ => {
                    let key = SecretDigest::stored(key);
                    Command::OpenKeySession { key, command: (!rng.one_in(5)).then_some(&Command::ObserveToken) }
                }
            }
        }
        RequestKind::Retry => {
            let (mut id, command) = runner.sent.get(rng.below(runner.sent.len().max(1) as u64) as usize)?.clone();
            if rng.one_in(10) {
                id.digest ^= 1;
            }
            request.id = Some(id);
            return Some((request, command));
        }
    };
    if !rng.one_in(3) && takes_id(&command) {
        request.id = new_id(runner, &command, &mut rng);
    }
    Some((request, command))
}

/// The one request under the key of a session, or a retry of it, sometimes with another body.
fn under_key(
    runner: &Runner,
    session: SessionId,
    request: Request<'static>,
    rng: &mut SplitMix64,
) -> Option<(Request<'static>, Command<'static>)> {
    let earlier = runner.sent.iter().find(|(id, _)| id.session == session && id.sequence == 1);
    let (mut id, command) = match earlier {
        Some((id, command)) => (*id, command.clone()),
        None => {
            let id = RequestId { session, sequence: 1, lowest: 1, digest: rng.next_u64() };
            let ttl_ms = Some(rng.pick(&TTLS));
            let acquire = Acquire { session: None, holder: rng.pick(&HOLDERS), ttl_ms, ..acquire(runner, rng) };
            (id, if rng.one_in(5) { Command::Release(lease_ref(runner, rng)?) } else { Command::Acquire(acquire) })
        }
    };
    if earlier.is_some() && rng.one_in(6) {
        id.digest ^= 1;
    }
    Some((Request { id: Some(id), ..request }, command))
}

/// A fence report about a recent grant, sometimes invalid, or the removal of a target.
fn fence_report(runner: &Runner, rng: &mut SplitMix64) -> Option<Command<'static>> {
    const TARGETS: [Name; 3] = ["ledger", "mail", "cache"];
    if rng.one_in(6) {
        let known: Vec<_> = runner.spec.targets.keys().map(|(resource, target, _)| (*resource, *target)).collect();
        let unknown = (resource(runner, rng), rng.pick(&TARGETS));
        let (resource, target) = if known.is_empty() || rng.one_in(3) { unknown } else { rng.pick(&known) };
        return Some(Command::ForgetTarget { resource, target, comment: "gone" });
    }
    let entries = 1 + rng.below(2);
    let mut one = || {
        let grant = rng.pick(&runner.grants);
        let newer = rng.pick(&runner.grants).number.max(grant.number);
        let mark = if rng.one_in(8) { grant.number } else { newer };
        let zombie =
            RefusedZombie { presented: grant.number, mark, times: 1 + rng.below(3), holder: rng.pick(&["", "ann"]) };
        FenceReport {
            resource: if rng.one_in(8) { resource(runner, rng) } else { grant.resource },
            slot: rng.pick(&[0, 0, 0, 1]),
            target: rng.pick(&TARGETS),
            mode: rng.pick(&FenceMode::ALL),
            checks: rng.below(3),
            refusals: rng.below(2),
            checked_ago_ms: rng.below(2_000),
            highest: rng.pick(&[None, Some(newer)]),
            zombie: (newer > grant.number || rng.one_in(9)).then_some(zombie),
        }
    };
    if runner.grants.is_empty() {
        return None;
    }
    // Commands of a run borrow for `'static`; a few bytes leak.
    let reports: &'static [FenceReport<'static>] = Vec::leak((0..entries).map(|_| one()).collect());
    let cluster = if rng.one_in(9) { identity::OTHER_CLUSTER } else { identity::CLUSTER };
    Some(Command::Report { cluster, reports })
}

fn takes_id(command: &Command<'_>) -> bool {
    !matches!(
        command,
        Command::Renew(_)
            | Command::RenewSession { .. }
            | Command::Confirm(_)
            | Command::ObserveToken
            | Command::OpenSession(_)
            | Command::OpenKeySession { .. }
    )
}

/// A request id belongs to the session of the request, or to any session if the request has none.
fn new_id(runner: &Runner, command: &Command<'static>, rng: &mut SplitMix64) -> Option<RequestId> {
    let session = match command {
        Command::Acquire(acquire) => acquire.session?,
        Command::AcquireAll(acquire) => acquire.session?,
        Command::Cancel { session, .. }
        | Command::CloseSession { session }
        | Command::Reconcile { session, .. }
        | Command::ResumeSession { session, .. } => *session,
        _ => session(runner, rng)?,
    };
    let sequence = runner.next_sequence(session);
    let lowest = if rng.one_in(4) { sequence.saturating_sub(rng.below(3)).max(1) } else { 1 };
    Some(RequestId { session, sequence, lowest, digest: rng.next_u64() })
}

fn resource(runner: &Runner, rng: &mut SplitMix64) -> Name {
    rng.pick(&runner.profile.resources)
}

/// Usually a recently opened session.
fn session(runner: &Runner, rng: &mut SplitMix64) -> Option<SessionId> {
    let all = &runner.sessions;
    let recent = &all[all.len().saturating_sub(4)..];
    let from = if rng.one_in(8) { all } else { recent };
    Some(from.get(rng.below(from.len().max(1) as u64) as usize)?.0)
}

fn acquire(runner: &Runner, rng: &mut SplitMix64) -> Acquire<'static> {
    let access = rng.pick(&runner.profile.accesses);
    let alone = rng.one_in(7);
    let session = if alone { None } else { session(runner, rng) };
    Acquire {
        resource: resource(runner, rng),
        holder: if alone { rng.pick(&HOLDERS) } else { rng.pick(&["", "", "", "one", "ann"]) },
        session,
        access,
        slots: if access == Access::Slot { rng.pick(&[None, Some(2), Some(2), Some(3)]) } else { None },
        ttl_ms: if alone || rng.one_in(3) { Some(or_invalid(rng, &TTLS)) } else { None },
        options: options(runner, rng),
    }
}

/// One of these values, or sometimes an invalid one.
fn or_invalid(rng: &mut SplitMix64, usual: &[u64]) -> u64 {
    if rng.one_in(15) { rng.pick(&[0, 1, 99, u64::MAX]) } else { rng.pick(usual) }
}

fn options(runner: &Runner, rng: &mut SplitMix64) -> AcquireOptions<'static> {
    AcquireOptions {
        wait_ms: rng.pick(&runner.profile.waits),
        priority: rng.pick(&PRIORITIES),
        reentrant: rng.one_in(6),
        max_hold_ms: if rng.one_in(8) { Some(or_invalid(rng, &[800, 1_500])) } else { None },
        progress_ms: if rng.one_in(8) { Some(or_invalid(rng, &[400, 600])) } else { None },
        metadata: if rng.one_in(9) { b"note" } else { b"" },
    }
}

/// A reference to a lease, sometimes a wrong one.
fn lease_ref(runner: &Runner, rng: &mut SplitMix64) -> Option<LeaseRef<'static>> {
    let all = &runner.grants;
    let recent = &all[all.len().saturating_sub(6)..];
    let from = if rng.one_in(6) { all } else { recent };
    let grant = from.get(rng.below(from.len().max(1) as u64) as usize)?;
    let wrong = rng.one_in(12);
    Some(LeaseRef {
        selector: if rng.one_in(3) { LeaseSelector::Resource(grant.resource) } else { LeaseSelector::Id(grant.lease) },
        number: if wrong { number(1 + rng.below(1 << 40)) } else { grant.number },
        session: if rng.one_in(6) { session(runner, rng) } else { None },
        holder: if rng.one_in(8) { Some(rng.pick(&HOLDERS)) } else { None },
    })
}

/// Usually a lease with units.
fn reservation(runner: &Runner, rng: &mut SplitMix64) -> Option<LeaseRef<'static>> {
    with_access(runner, rng, |access| matches!(access, Access::Units(_)))
}

/// Usually a shared lease.
fn reader(runner: &Runner, rng: &mut SplitMix64) -> Option<LeaseRef<'static>> {
    with_access(runner, rng, |access| access == Access::Shared)
}

fn with_access(runner: &Runner, rng: &mut SplitMix64, right: impl Fn(Access) -> bool) -> Option<LeaseRef<'static>> {
    let is_right = |grant: &&KnownGrant| {
        let lease = runner.spec.leases.get(grant.lease.slot as usize);
        lease.is_some_and(|lease| lease.end.is_none() && right(lease.access))
    };
    let some: Vec<&KnownGrant> = runner.grants.iter().filter(is_right).collect();
    if some.is_empty() || rng.one_in(8) {
        return lease_ref(runner, rng);
    }
    let grant = rng.pick(&some);
    Some(LeaseRef::by_id(grant.lease, grant.number))
}

/// A lease with a waiter.
fn contended_lease(runner: &Runner, rng: &mut SplitMix64) -> Option<LeaseSelector<'static>> {
    let wanted = |i: &usize| runner.spec.is_waited_for(runner.spec.leases[*i].resource);
    let leases: Vec<usize> = runner.spec.live().into_iter().filter(wanted).collect();
    if leases.is_empty() { selector(runner, rng) } else { Some(LeaseSelector::Id(lease_id(rng.pick(&leases)))) }
}

fn selector(runner: &Runner, rng: &mut SplitMix64) -> Option<LeaseSelector<'static>> {
    let held = lease_ref(runner, rng)?;
    Some(match rng.below(4) {
        0 => LeaseSelector::Resource(resource(runner, rng)),
        1 if rng.one_in(4) => LeaseSelector::Id(LeaseId { slot: 40_000, reuse: 0 }),
        _ => held.selector,
    })
}
