//! What one client asks, drawn by chance from what the clients know: mostly sensible, now and then wrong.

use leasehold_core::command::{
    Acquire, AcquireAll, Command, HandOff, Held, Known, OpenSession, Part, Renew, Request, RequestId, Revoke, Style,
    Terms, Which,
};
use leasehold_core::coverage::{Mode, Refused, Report};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, Reason};

use super::acts::Kind;
use super::chance::Chance;
use super::charters::HOLDERS;
use super::identity;
use super::model::{Name, lease_id, number};
use super::world::{KnownGrant, World};

const TTLS: [u64; 6] = [100, 300, 500, 1_000, 2_000, 3_000];
const PRIORITIES: [u8; 6] = [100, 100, 100, 50, 150, 200];

/// All of what one client may ask for at once.
const SEVERAL: [&[(Name, Access)]; 8] = [
    &[("plain/a", Access::Exclusive), ("plain/b", Access::Exclusive)],
    &[("plain/b", Access::Exclusive), ("plain/c", Access::Exclusive)],
    &[("plain/c", Access::Shared), ("plain/a", Access::Exclusive)],
    &[("plain/a", Access::Shared), ("urgent/x", Access::Slot)],
    &[("revoke/x", Access::Exclusive), ("plain/a", Access::Exclusive), ("plain/b", Access::Shared)],
    &[("pool/x", Access::Units(1)), ("seats/x", Access::Units(2))],
    &[("report/x", Access::Exclusive), ("plain/b", Access::Exclusive)],
    &[("plain/a", Access::Exclusive), ("plain/a", Access::Shared)],
];

/// Draws one ask. What nobody can ask yet is left out.
pub fn ask(world: &World, seed: u64) -> Option<(Request, Command<'static>)> {
    let mut chance = Chance(seed);
    let first = seed & 0xf == 1;
    let kind = if first || world.sessions.is_empty() { Kind::Open } else { chance.weighted(&world.flavour.kinds) };
    let shown = match chance.below(12) {
        0 | 1 => world.grants.last().map(|grant| super::asks::token(grant.number.get(), world.spec.incarnation, true)),
        _ => None,
    };
    let mut request = Request { tag: 0, id: None, shown };
    let command = match kind {
        Kind::Open => Command::OpenSession(OpenSession {
            holder: chance.pick(&HOLDERS),
            ttl_ms: match (first, chance.one_in(12)) {
                (true, _) => 3_000,
                (false, true) => chance.pick(&[0, 99, 3_001, u64::MAX]),
                (false, false) => chance.pick(&[100, 500, 1_000, 2_000, 3_000, 3_000]),
            },
            secret: [world.sessions.len() as u8; 32].into(),
            waits_only: !first && chance.one_in(5),
        }),
        Kind::Session => {
            let session = session(world, &mut chance)?;
            match chance.below(8) {
                0 => Command::CloseSession { session },
                1 => {
                    let mut bound = || chance.one_in(3).then(|| LeaseId { slot: chance.below(8) as u32, reuse: 0 });
                    Command::Reconcile { session, leases: &[], part: Part { from: bound(), until: bound() } }
                }
                2 => {
                    let known = world.known_secret(session);
                    let secret = if chance.one_in(3) { [0xee; 32] } else { known };
                    Command::ResumeSession { session, secret: secret.into() }
                }
                3 => Command::RenewSession { session, known: Some(Known { count: 0, digest: 0 }) },
                4 => Command::RenewSession { session, known: Some(world.known_by(session)) },
                _ => Command::RenewSession { session, known: None },
            }
        }
        Kind::Acquire => Command::Acquire(acquire(world, &mut chance)),
        Kind::AcquireAll => Command::AcquireAll(AcquireAll {
            wanted: chance.pick(&SEVERAL),
            holder: chance.pick(&["", "", "one"]),
            session: session(world, &mut chance),
            ttl_ms: chance.pick(&[None, None, Some(1_000)]),
            terms: terms(world, &mut chance),
        }),
        Kind::Held => {
            let held = held(world, &mut chance)?;
            match chance.below(16) {
                0..5 => Command::Release(held),
                5..10 => Command::Renew(Renew {
                    held,
                    ttl_ms: if chance.one_in(4) { Some(odd(&mut chance, &TTLS)) } else { None },
                    progress: chance.pick(&[None, Some(chance.0 % 9)]),
                }),
                10 | 11 => Command::Confirm(held),
                12 => Command::Rotate(held),
                _ => Command::Progress { held, at: chance.below(9) },
            }
        }
        Kind::Cancel => {
            let (id, _) = *world.sent.get(chance.below(world.sent.len().max(1) as u64) as usize)?;
            Command::Cancel { session: id.session, sequence: id.sequence }
        }
        Kind::Revoke => Command::Revoke(Revoke {
            which: which(world, &mut chance)?,
            reason: chance.pick(&[Reason::Operator, Reason::Operator, Reason::Policy, Reason::Policy, Reason::Ttl]),
            why: "because",
            grace_ms: chance.pick(&[0, 0, 200, 700]),
        }),
        Kind::HandOff => match chance.below(4) {
            0 => Command::Drained(held(world, &mut chance)?),
            _ => Command::HandOff(HandOff {
                which: if chance.one_in(3) { which(world, &mut chance)? } else { waited_for(world, &mut chance)? },
                number: if chance.one_in(3) { Some(world.grants.last()?.number) } else { None },
                to: chance.pick(&[None, None, Some("ann"), Some("bob"), Some("cat")]),
                style: chance.pick(&[None, Some(Style::Gap), Some(Style::Overlap), Some(Style::Overlap)]),
                drain_ms: if chance.one_in(4) { None } else { Some(odd(&mut chance, &[100, 250, 300])) },
            }),
        },
        Kind::Units => match chance.below(5) {
            0 => Command::SetCapacity { resource: resource(world, &mut chance), units: chance.below(5) as u32 },
            1 => Command::ConfirmHold(hold(world, &mut chance)?),
            2 | 3 => Command::ResizeHold { held: hold(world, &mut chance)?, units: chance.below(5) as u32 },
            _ => Command::Veto { held: hold(world, &mut chance)?, for_ms: chance.pick(&[0, 200, 200, 900]) },
        },
        Kind::Pins => match chance.below(2) {
            0 => Command::Pin { held: reader(world, &mut chance)?, at: chance.below(20) },
            _ => Command::Collect { resource: resource(world, &mut chance), below: chance.below(20) },
        },
        Kind::Operator => match chance.below(2) {
            0 => Command::WaiveQuarantine { why: "checked" },
            _ => Command::Free { resource: resource(world, &mut chance), why: "looked at" },
        },
        Kind::Show => {
            let counter = world.spec.counter;
            let raw = match chance.below(8) {
                0 => counter + 1 + chance.below(1 << 20),
                1 => counter + ((2 * 24 * 3_600_000) << 22),
                _ => world.highest.max(1),
            };
            request.shown = Some(super::asks::token(raw, world.spec.incarnation, chance.below(4) > 0));
            Command::Show
        }
        Kind::Report => reported(world, &mut chance)?,
        Kind::Retry => {
            let (mut id, command) = world.sent.get(chance.below(world.sent.len().max(1) as u64) as usize)?.clone();
            if chance.one_in(10) {
                id.digest ^= 1;
            }
            request.id = Some(id);
            return Some((request, command));
        }
    };
    if !chance.one_in(3) && takes_id(&command) {
        request.id = new_id(world, &command, &mut chance);
    }
    Some((request, command))
}

/// What fences may tell: of what was granted lately, sometimes nonsense, now and then that a target is gone.
fn reported(world: &World, chance: &mut Chance) -> Option<Command<'static>> {
    const TARGETS: [Name; 3] = ["ledger", "mail", "cache"];
    if chance.one_in(6) {
        let known: Vec<_> = world.spec.targets.keys().map(|(resource, target, _)| (*resource, *target)).collect();
        let unknown = (resource(world, chance), chance.pick(&TARGETS));
        let (resource, target) = if known.is_empty() || chance.one_in(3) { unknown } else { chance.pick(&known) };
        return Some(Command::ForgetTarget { resource, target, why: "gone" });
    }
    let entries = 1 + chance.below(2);
    let mut one = || {
        let grant = chance.pick(&world.grants);
        let newer = chance.pick(&world.grants).number.max(grant.number);
        let mark = if chance.one_in(8) { grant.number } else { newer };
        let zombie =
            Refused { presented: grant.number, mark, times: 1 + chance.below(3), holder: chance.pick(&["", "ann"]) };
        Report {
            resource: if chance.one_in(8) { resource(world, chance) } else { grant.resource },
            slot: chance.pick(&[0, 0, 0, 1]),
            target: chance.pick(&TARGETS),
            mode: chance.pick(&Mode::ALL),
            checks: chance.below(3),
            refusals: chance.below(2),
            checked_ago_ms: chance.below(2_000),
            highest: chance.pick(&[None, Some(newer)]),
            zombie: (newer > grant.number || chance.one_in(9)).then_some(zombie),
        }
    };
    if world.grants.is_empty() {
        return None;
    }
    // A command of a run borrows for good; a few bytes stay behind.
    let reports: &'static [Report<'static>] = Vec::leak((0..entries).map(|_| one()).collect());
    let cluster = if chance.one_in(9) { identity::STRANGER } else { identity::CLUSTER };
    Some(Command::Report { cluster, reports })
}

fn takes_id(command: &Command<'_>) -> bool {
    !matches!(
        command,
        Command::Renew(_)
            | Command::RenewSession { .. }
            | Command::Confirm(_)
            | Command::Show
            | Command::OpenSession(_)
    )
}

/// Request ids belong to the session that asks, or, for those who hold without one, to any.
fn new_id(world: &World, command: &Command<'static>, chance: &mut Chance) -> Option<RequestId> {
    let session = match command {
        Command::Acquire(acquire) => acquire.session?,
        Command::AcquireAll(acquire) => acquire.session?,
        Command::Cancel { session, .. }
        | Command::CloseSession { session }
        | Command::Reconcile { session, .. }
        | Command::ResumeSession { session, .. } => *session,
        _ => session(world, chance)?,
    };
    let sequence = world.next_sequence(session);
    let lowest = if chance.one_in(4) { sequence.saturating_sub(chance.below(3)).max(1) } else { 1 };
    Some(RequestId { session, sequence, lowest, digest: chance.next() })
}

fn resource(world: &World, chance: &mut Chance) -> Name {
    chance.pick(&world.flavour.resources)
}

/// Mostly one that was opened lately.
fn session(world: &World, chance: &mut Chance) -> Option<SessionId> {
    let all = &world.sessions;
    let recent = &all[all.len().saturating_sub(4)..];
    let from = if chance.one_in(8) { all } else { recent };
    Some(from.get(chance.below(from.len().max(1) as u64) as usize)?.0)
}

fn acquire(world: &World, chance: &mut Chance) -> Acquire<'static> {
    let access = chance.pick(&world.flavour.accesses);
    let alone = chance.one_in(7);
    let session = if alone { None } else { session(world, chance) };
    Acquire {
        resource: resource(world, chance),
        holder: if alone { chance.pick(&HOLDERS) } else { chance.pick(&["", "", "", "one", "ann"]) },
        session,
        access,
        slots: if access == Access::Slot { chance.pick(&[None, Some(2), Some(2), Some(3)]) } else { None },
        ttl_ms: if alone || chance.one_in(3) { Some(odd(chance, &TTLS)) } else { None },
        terms: terms(world, chance),
    }
}

/// One of these, or now and then one that nobody may ask for.
fn odd(chance: &mut Chance, usual: &[u64]) -> u64 {
    if chance.one_in(15) { chance.pick(&[0, 1, 99, u64::MAX]) } else { chance.pick(usual) }
}

fn terms(world: &World, chance: &mut Chance) -> Terms<'static> {
    Terms {
        wait_ms: chance.pick(&world.flavour.waits),
        priority: chance.pick(&PRIORITIES),
        reentrant: chance.one_in(6),
        max_hold_ms: if chance.one_in(8) { Some(odd(chance, &[800, 1_500])) } else { None },
        progress_ms: if chance.one_in(8) { Some(odd(chance, &[400, 600])) } else { None },
        metadata: if chance.one_in(9) { b"note" } else { b"" },
    }
}

/// A lease as its holder names it; sometimes wrongly.
fn held(world: &World, chance: &mut Chance) -> Option<Held<'static>> {
    let all = &world.grants;
    let recent = &all[all.len().saturating_sub(6)..];
    let from = if chance.one_in(6) { all } else { recent };
    let grant = from.get(chance.below(from.len().max(1) as u64) as usize)?;
    let wrong = chance.one_in(12);
    Some(Held {
        lease: if chance.one_in(3) { Which::Resource(grant.resource) } else { Which::Id(grant.lease) },
        number: if wrong { number(1 + chance.below(1 << 40)) } else { grant.number },
        session: if chance.one_in(6) { session(world, chance) } else { None },
        holder: if chance.one_in(8) { Some(chance.pick(&HOLDERS)) } else { None },
    })
}

/// Mostly a lease that counts in units.
fn hold(world: &World, chance: &mut Chance) -> Option<Held<'static>> {
    with_access(world, chance, |access| matches!(access, Access::Units(_)))
}

/// Mostly a reader's lease.
fn reader(world: &World, chance: &mut Chance) -> Option<Held<'static>> {
    with_access(world, chance, |access| access == Access::Shared)
}

fn with_access(world: &World, chance: &mut Chance, right: impl Fn(Access) -> bool) -> Option<Held<'static>> {
    let is_right = |grant: &&KnownGrant| {
        let lease = world.spec.leases.get(grant.lease.slot as usize);
        lease.is_some_and(|lease| lease.end.is_none() && right(lease.access))
    };
    let some: Vec<&KnownGrant> = world.grants.iter().filter(is_right).collect();
    if some.is_empty() || chance.one_in(8) {
        return held(world, chance);
    }
    let grant = chance.pick(&some);
    Some(Held::by_id(grant.lease, grant.number))
}

/// A lease that somebody waits for.
fn waited_for(world: &World, chance: &mut Chance) -> Option<Which<'static>> {
    let wanted = |i: &usize| world.spec.is_waited_for(world.spec.leases[*i].resource);
    let leases: Vec<usize> = world.spec.live().into_iter().filter(wanted).collect();
    if leases.is_empty() { which(world, chance) } else { Some(Which::Id(lease_id(chance.pick(&leases)))) }
}

fn which(world: &World, chance: &mut Chance) -> Option<Which<'static>> {
    let held = held(world, chance)?;
    Some(match chance.below(4) {
        0 => Which::Resource(resource(world, chance)),
        1 if chance.one_in(4) => Which::Id(LeaseId { slot: 40_000, reuse: 0 }),
        _ => held.lease,
    })
}
